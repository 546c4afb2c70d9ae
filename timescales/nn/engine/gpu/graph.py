"""The graph engine for GPUs: per step one matrix product and one pointwise kernel, replayed as a CUDA graph.

    forward    z = x W^T + b for all steps;  then per step  z_t += h U^T  and  the state after the step
    backward   per step  dz_t and the gradient of the state before it,  and  dh += dz_t U;  then dU, dW, db and dx of
               all steps at once

The pointwise kernels are written from `Cell.step`: in Triton by emit_triton.py, and in torch by pointwise.py. On a CPU
the engine runs the latter without graphs; so everything except the launches is tested without a GPU. Only float32 is
supported; torch's settings decide whether products are rounded to TF32.

Cost per step and layer (tests/nn/test_graph.py checks it): 2 launches forward and 2 backward, and about ten more for a
cumax; the first step's product in backward is left out if the state before it needs no gradient. Per call, 1 more
product forward and 2 or 3 backward. Memory per step and sequence: a number for each row of the weights and each unit of
each field of the state, and H more for the gradients of the outputs in a graph; a gate whose shares are used apart, as
in a GRU, counts twice. For a pLSTM with 3 gates these are 7 H: the copy task with T = 200 (220 x 128 x 128) needs
102 MB.

A cell without recurrent weights whose step is affine in the state, with factors between -1 and 1 (affine.py), needs no
loop over the steps: it is a scan over time in chunks of 64 steps (scan.py, emit_scan.py), with 3 launches for each
group of fields forward, and 3 backward, whatever the number of steps.

graph_function.py has the autograd function, loops.py the loops over the steps, buffers.py their memory, capture.py the
CUDA graphs.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import eager, equations, kept, watch
from timescales.nn.engine.again import Again
from timescales.nn.engine.equations import Equations
from timescales.nn.engine.gpu import capture, triton_kernels
from timescales.nn.engine.gpu.buffers import engine_of
from timescales.nn.engine.gpu.emit_cuda import Kernels
from timescales.nn.engine.gpu.graph_function import GraphFunction, Inputs, Plan, code_of, on_device_of
from timescales.nn.engine.trial import TOLERANCE, difference
from timescales.torch_private import tree_map_only

PADDED = 16  # lengths of masked sequences are padded to a multiple of this, so that few lengths are captured
PIECE = 128  # steps per piece of a long sequence without gradients

POOLS: weakref.WeakKeyDictionary[Cell, capture.Pool] = weakref.WeakKeyDictionary()


def unsupported_reason(cell: Cell, x: Tensor, timed: bool = False, found: Equations | str | None = None) -> str | None:
    """The reason why this engine cannot run `cell` over `x`, with the fix; None if it can.

    timed: with dt. found: `equations.known(cell, timed)`, if the caller has it.
    """
    if reason := plain_reason(cell, x):
        return reason
    found = equations.known(cell, timed) if found is None else found
    if isinstance(found, str):
        return f"{found}; use engine='eager'"
    if found.has_means:
        return equations.NO_MEANS
    return trial(cell, found, x.device) if x.is_cuda else None


def plain_reason(cell: Cell, x: Tensor) -> str | None:
    """The reason why x and the weights are not what kernels for a GPU read; None if they are."""
    for name, tensor in (("x", x), ("the weights", cell.weight_ih)):
        if tensor.dtype != torch.float32:
            return f"{name} must be float32, not {tensor.dtype}; use engine='eager'"
    if x.device.type not in ("cpu", "cuda") or x.device != cell.weight_ih.device:
        return f"x and the weights must lie together on a GPU, not on {x.device} and {cell.weight_ih.device}"
    return None


def trial(cell: Cell, found: Equations, device: torch.device) -> str | None:
    """Compare a small sequence on `device`, with a capture, with the eager engine in float64.

    It runs once for each class of cells, kernel, device and precision of products.

    Returns None if they agree, else what went wrong, in one line, which is also printed once.
    """
    key = watch.Same(type(cell)), code_of(found), device, capture.rounding()
    return kept.tried(key, lambda: compare(cell, found, device))


def compare(cell: Cell, found: Equations, device: torch.device, cluster: Kernels | None = None) -> str | None:
    """What differs between an engine on a device and the eager one, in one line, which is printed; None if nothing.

    It ends with the engine to use instead. cluster: the kernels of the cluster engine, or None for the graph engine.
    """
    tolerance = 1e-2 if capture.rounding() == "tf32" else TOLERANCE  # TF32 has ten bits
    try:
        run_there = functools.partial(_run_on, device, found, cluster)
        reason = difference(cell, found.reads_dt, found.noises, run_there, tolerance)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        reason = capture.one_line(error)
    if reason is None:
        return None
    capture.announce(reason, engine_of(cluster))
    return f"{reason}; use engine='{'eager' if cluster is None else 'graph'}'"


def _run_on(
    device: torch.device,
    found: Equations,
    cluster: Kernels | None,
    cell: Cell,
    x: Tensor,
    weights: Weights,
    state: Any,
    dt: Tensor | None,
    mask: Tensor,
    noises: Sequence[Tensor],
) -> tuple[Tensor, Any]:
    """Run a sequence from the CPU on `device`; for the trial."""
    if cluster is None and triton_kernels.unavailable is not None:
        raise RuntimeError(triton_kernels.unavailable)
    vectors = found.vector_values(cell, weights.ih)
    x, dt = eager.fill_masked(x, dt, mask)
    there = functools.partial(tree_map_only, Tensor, lambda v: v.to(device))
    x, weights, state, vectors, dt, mask, noises = there((x, weights, state, vectors, dt, mask, list(noises)))
    pool = capture.Pool() if cluster is None and capture.is_wanted(x) else None
    plan = Plan(found, cell.hidden_size, pool, True, True, dt is not None, False, cluster)
    for _ in range(2):  # the second time it is captured
        (output,), last = _run_whole(plan, x, weights, vectors, state, dt, mask, noises)
    return output.cpu(), type(last)(*(v.cpu() for v in last))


def run(
    cell: Cell,
    x: Tensor,
    weights: Weights,
    state: Any,
    dt: Tensor | None = None,
    mask: Tensor | None = None,
    again: Again | None = None,
    states: bool = False,
    strict: bool = True,
    found: Equations | str | None = None,
    cluster: Callable[[Cell, Equations], Kernels] | None = None,
) -> tuple[Any, ...]:
    """Run a cell over a sequence; see `eager.run`. Batched seeds are supported.

    The eager engine runs empty sequences and batches. Without gradients, long sequences are run in pieces of PIECE
    steps, which need a fraction of the memory.

    strict: raise RuntimeError if no graph can be captured. Otherwise the steps are launched one by one.
    found: `equations.known(cell, dt is not None)`, if the caller has it.
    cluster: gives the kernels of the cluster engine (cluster.py), which need no graph; or None.
    """
    if x.shape[0] == 0 or x[0].numel() == 0:
        return eager.run(cell, x, weights, state, dt, mask, again, states)
    found = equations.known(cell, dt is not None) if found is None else found
    assert isinstance(found, Equations), found
    x, dt = eager.fill_masked(x, dt if found.reads_dt else None, mask)
    kernels = None if cluster is None else cluster(cell, found)
    vectors = found.vector_values(cell, weights.ih)
    after, initial = (None, ()) if again is None else again
    keep = torch.is_grad_enabled() and _need_gradient([x, *weights, *vectors, *state, dt, *initial])
    pool = POOLS.setdefault(cell, capture.Pool()) if cluster is None and capture.is_wanted(x) else None
    plan = Plan(found, cell.hidden_size, pool, strict, keep, keep and _need_gradient([dt]), states, kernels)
    steps = len(x) if keep or len(x) <= 2 * PIECE else PIECE
    pieces = []
    for start in range(0, len(x), steps):
        x_piece, *others = (None if v is None else v[start : start + steps] for v in (x, dt, mask, after))
        assert x_piece is not None
        dt_piece, mask_piece, after_piece = others
        noises = equations.draw_noise(found, cell, len(x_piece), tuple(x.shape[1:-1]), x)
        begins = Again(after_piece, initial) if after_piece is not None else None
        results, state = _run_whole(plan, x_piece, weights, vectors, state, dt_piece, mask_piece, noises, begins)
        pieces.append(results)
    output, *every = (torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*pieces, strict=True))
    return (output, state, type(state)(output, *every)) if states else (output, state)


def _need_gradient(tensors: Iterable[Tensor | None]) -> bool:
    return any(v is not None and v.requires_grad for v in tensors)


def _run_whole(
    plan: Plan,
    x: Tensor,
    weights: Weights,
    vectors: Sequence[Tensor],
    state: Any,
    dt: Tensor | None,
    mask: Tensor | None,
    noises: Sequence[Tensor],
    again: Again | None = None,
) -> tuple[list[Tensor], Any]:
    """Run a sequence in one piece. If it is captured and masked, it is padded to a multiple of PADDED steps.

    Returns: the output, with `plan.every` also all fields but h after every step; and the last state.
    """
    steps, found = len(x), plan.equations
    after, initial = (None, ()) if again is None else again
    if mask is not None and plan.pool is not None:
        extra = -steps % PADDED
        x, mask = _lengthen(x, extra, 0.0), _lengthen(mask, extra, 0)
        dt = None if dt is None else _lengthen(dt, extra, 1.0)
        after = None if after is None else _lengthen(after, extra, 0)
        noises = [_lengthen(noise, extra, 0.5) for noise in noises]
    lists = (tuple(state), tuple(vectors), tuple(noises), tuple(initial))
    inputs = Inputs(x, *in_block_order(found, weights, plan.cluster is not None), dt, mask, after, *lists)
    with on_device_of(x):
        output, *results = GraphFunction.apply(plan, *inputs.flat())
    fields = len(state)
    every = [v[:steps] if len(v) > steps else v for v in (output, *results[fields:])]
    return every, type(state)(*results[:fields])


def in_block_order(
    found: Equations, weights: Weights, whole: bool = False
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """The weights with rows in the order of the blocks.

    whole: every block with as many rows as units; those of a gate with fewer are repeated for each of its units.
    Returns: weight_ih of the blocks with an input's share; weight_hh of the blocks with a recurrent share; the bias of
    the former, and of the blocks with only a recurrent share (None without). weight_hh is None for a cell without.
    """
    ih, hh, bias_ih, bias_hh = weights
    assert bias_ih is not None, "see arguments.fitted"
    if hh is None:
        return ih, None, bias_ih, None
    heights = [hh.shape[-1] // divisor for divisor in found.divisors]
    rows = functools.partial(_rows, heights=heights, times=found.divisors if whole else (1,) * len(heights))
    x_gates = [block.gate for block in found.blocks if block.has_x]
    h_gates = [block.gate for block in found.blocks if block.has_h]
    apart = [block.gate for block in found.blocks if not block.has_x]
    rows_ih, rows_hh = rows(ih, -2, x_gates), rows(hh, -2, h_gates)
    if not apart:
        bias = bias_ih if bias_hh is None else bias_ih + bias_hh
        return rows_ih, rows_hh, rows(bias, -1, x_gates), None
    bias, bias_h = rows(bias_ih, -1, x_gates), None
    if bias_hh is not None:  # of a sum it is added to bias_ih, of shares that are computed apart it is bias_h
        bias_h = rows(bias_hh, -1, apart)
        zeros = torch.zeros_like(bias_h)  # of the shares of the input, which come first
        sums = [gate for gate in x_gates if gate not in apart]
        bias = bias + (torch.cat([zeros, rows(bias_hh, -1, sums)], -1) if sums else zeros)
    return rows_ih, rows_hh, bias, bias_h


def _rows(v: Tensor, dim: int, gates: Sequence[int], heights: Sequence[int], times: Sequence[int]) -> Tensor:
    """The rows of these gates, in this order, in the dimension `dim`.

    heights: the number of rows of each gate of v. times: how often each row of a gate is repeated.
    """
    if list(gates) == list(range(len(heights))) and set(times) == {1}:
        return v
    parts = v.split(list(heights), dim)
    return torch.cat([_repeated(parts[gate], dim, times[gate]) for gate in gates], dim)


def _repeated(v: Tensor, dim: int, times: int) -> Tensor:
    """v.repeat_interleave(times, dim), with a gradient whose sums have a fixed order on a GPU."""
    shape = [-1] * (v.dim() + 1)
    shape[dim] = times
    return v.unsqueeze(dim).expand(shape).flatten(dim - 1, dim) if times > 1 else v


def _lengthen(v: Tensor, extra: int, value: float) -> Tensor:
    """v (S, ...) with `extra` more steps that have this value."""
    return torch.cat([v, v.new_full((extra, *v.shape[1:]), value)]) if extra else v


def run_or_eager(*call: Any, found: Equations | str | None = None) -> tuple[Any, ...]:
    """`run`; if it fails, print the reason once and use the eager engine. This is what engine="auto" uses."""
    return capture.run_or("graph", functools.partial(run, strict=False, found=found), eager.run, call)
