"""The eager engine: the time loop in plain torch. It is the reference implementation of all other engines."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine.reset import Resets, reset_where


def run(
    cell: Cell,
    x: Tensor,
    weights: Weights,
    state: Any,
    dt: Tensor | None = None,
    mask: Tensor | None = None,
    resets: Resets | None = None,
    states: bool = False,
) -> tuple[Any, ...]:
    """Run a cell over a sequence.

    Arguments:
        x: input, (S, B, I).
        weights: `cell.weights()`, perhaps with changes such as dropped rows.
        state: the state before the first step, fields (B, H).
        dt: time since the previous step, (S, B). Default: 1.
        mask: (S, B), 0 where a step does not exist. The state, and with it the output h, does not change there.
        resets: after which steps the state is reset; see `Resets`.
        states: whether to return the state after every step too.

    Returns: the output h of every step, (S, B, H), and the state after the last step; with `states` also the state
    after every step, fields (S, B, H).
    """
    x, dt = fill_masked(x, dt, mask)
    outputs, every = [], []
    # Under autocast only the products are in half precision, where a gate near 1 becomes 1 and forgets nothing.
    # unbind instead of gx[t]: the gradient of each indexing would be a tensor of the size of the whole sequence.
    projected = F.linear(x, weights.ih, weights.bias_ih).to(state.h.dtype).unbind(0)
    steps: Iterable[Tensor | float] = dt.unsqueeze(-1).unbind(0) if dt is not None else [1.0] * len(projected)
    masks = mask.bool().unsqueeze(-1).unbind(0) if mask is not None else None
    for t, (gx, step_dt) in enumerate(zip(projected, steps, strict=True)):
        gh = recurrent_share(state.h, weights)
        new = step(cell, gx, gh, state, step_dt, None if masks is None else masks[t])
        outputs.append(new.h)
        if states:
            every.append(new)
        state = new if resets is None else reset_where(resets.after[t], resets.initial, new)
    output = torch.stack(outputs) if outputs else x.new_zeros(*x.shape[:-1], cell.hidden_size)
    if not states:
        return output, state
    fields = [torch.stack(values) for values in zip(*every, strict=True)] or [v.new_zeros(0, *v.shape) for v in state]
    return output, state, type(state)(output, *fields[1:])


def step(cell: Cell, gx: Tensor, gh: Tensor | None, state: Any, dt: Tensor | float, mask: Tensor | None) -> Any:
    """Return the state after a step; where the mask (B, 1) is false, the state before it. Arguments as in `Cell.act`.

    Raises: TypeError if the cell returns no state.
    """
    new = cell.step(gx, gh, state, dt)
    if not isinstance(new, cell.State):
        raise TypeError(f"{type(cell).__name__}.step returned {type(new).__name__}, not self.State(...)")
    if mask is None:
        return new
    return cell.State(*(torch.where(mask, after, before) for after, before in zip(new, state, strict=True)))


def recurrent_share(h: Tensor, weights: Weights) -> Tensor | None:
    """Return W_hh h + bias_hh in the dtype of h, or None for a cell without recurrent weights."""
    return None if weights.hh is None else F.linear(h, weights.hh, weights.bias_hh).to(h.dtype)


def fill_masked(x: Tensor, dt: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return x and dt with constants at masked steps. A NaN there would reach the gradients, since 0 * NaN is NaN."""
    if mask is None:
        return x, dt
    absent = ~mask.bool()
    return x.masked_fill(absent.unsqueeze(-1), 0.0), None if dt is None else dt.masked_fill(absent, 1.0)
