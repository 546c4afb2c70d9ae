"""The pointwise part of a step in `Buffers`, forward and backward, in torch. It runs on any device.

    forward    pre-activations of the blocks, state before  ->  state after
    backward   these, gradients of the state after          ->  gradients of the pre-activations, of the state before

It evaluates the cell's expressions one by one (`scalar.evaluate`), and is the reference implementation of the kernels
that emit_triton.py writes. A masked step does not change the state, and backward passes its gradient on unchanged.

Shapes are those of `Buffers`: R seeds, S steps, B sequences, H units.
"""

from __future__ import annotations

import torch
from torch import Tensor

from timescales.nn.engine.gpu.buffers import Buffers
from timescales.nn.engine.scalar import Node, evaluate


def step_forward(b: Buffers, t: int) -> None:
    """Step t forward. Before: the pre-activations in z[:, t], those of expanded blocks also in `wide`."""
    exists, begins = at(b.mask, t), at(b.again, t)
    for k, (state, value) in enumerate(zip(b.states, evaluate(b.equations.new, inputs_at(b, t)), strict=True)):
        after = value if exists is None else torch.where(exists, value, state[:, t])
        if (output := b.outputs[k]) is not None:
            output[:, t] = after
        initial = b.initial[k]
        state[:, t + 1] = after if begins is None or initial is None else torch.where(begins, initial, after)


def step_backward(b: Buffers, t: int) -> None:
    """Step t backward: z[:, t] and `wide` become gradients; `d_states` go one step back.

    `loop_backward` adds the gradient of h that comes through the recurrent weights.
    """
    e, exists, inputs = b.equations, at(b.mask, t), inputs_at(b, t)
    d_after = _d_after(b, t)
    inputs |= {e.input("d_state", k): d for k, d in enumerate(d_after)}
    zero = torch.zeros_like(b.d_states[0])

    def results(nodes: tuple[Node, ...], otherwise: list[Tensor]) -> list[Tensor]:
        """The values of gradients, in new memory; `otherwise` where the step does not exist."""
        where = torch.ones_like(zero, dtype=torch.bool) if exists is None else exists
        return [torch.where(where, v, o) for v, o in zip(evaluate(nodes, inputs), otherwise, strict=True)]

    d_blocks = results(e.d_blocks, [zero] * len(e.d_blocks))
    d_states = results(e.d_state, d_after)
    d_vectors = results(e.d_vectors, [zero] * len(e.d_vectors))
    d_dt = results((e.d_dt,), [zero]) if b.d_dt_units is not None and e.d_dt is not None else []
    for k, value in enumerate(d_blocks):
        if b.wide is not None and k in b.expanded:
            b.wide[b.expanded.index(k)] = value
        else:
            b.block(k, t).copy_(value)
    for buffer, value in zip(b.d_states, d_states, strict=True):
        buffer.copy_(value)
    for sums, value in zip(b.d_vectors, d_vectors, strict=True):
        if sums is not None:
            sums.add_(value)
    for value in d_dt:
        assert b.d_dt_units is not None
        b.d_dt_units.copy_(value)


def inputs_at(b: Buffers, t: int | slice) -> dict[Node, Tensor]:
    """The values of the expressions' inputs at step t; each broadcasts to (R, B, H), at several to (R, steps, B, H)."""
    e = b.equations
    inputs = {block.node: b.block(k, t) for k, block in enumerate(e.blocks)}
    inputs |= {e.blocks[k].node: b.wide[place] for place, k in enumerate(b.expanded) if b.wide is not None}
    inputs |= {e.input("state", k): state[:, t] for k, state in enumerate(b.states)}
    place = (slice(None), None) if isinstance(t, int) else (slice(None), None, None)
    inputs |= {e.input("vector", *name): v[place] for name, v in zip(e.vectors, b.vectors, strict=True)}
    inputs |= {e.input("noise", k): noise[:, t] for k, noise in enumerate(b.noises)}
    if b.dt is not None:
        inputs[e.input("dt")] = b.dt[:, t].unsqueeze(-1)
    return inputs


def _d_after(b: Buffers, t: int) -> list[Tensor]:
    """The gradients of the state after step t; what belongs to the initial state is added to `d_initial`."""
    begins, found = at(b.again, t), []
    for d, sums, of_results in zip(b.d_states, b.d_initial, b.d_after(), strict=True):
        if begins is not None and sums is not None:
            sums.add_(torch.where(begins, d, 0.0))
            d = torch.where(begins, 0.0, d)
        found.append(d if of_results is None else d + of_results[:, t])
    return found


def at(flags: Tensor | None, t: int | slice) -> Tensor | None:
    """Flags (R, S, B) at step t as (R, B, 1), at several steps as (R, steps, B, 1); None for None."""
    return None if flags is None else flags[:, t].bool().unsqueeze(-1)
