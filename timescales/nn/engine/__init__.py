"""Engines: the loops that run a cell over time. All have the signature of `eager.run`; `pick` chooses one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import choice, cudnn, eager, equations, fused
from timescales.nn.engine.kernel import Named, kernel_of, parameters, tracing_reason, unusual_reason
from timescales.nn.engine.recorder import NotTraceable

NAMES = ("auto", "eager", "fused", "graph", "cudnn")

_warned: set[str] = set()  # reasons that `pick_fastest` has given


def run(
    name: str,
    cell: Cell,
    x: Tensor,
    weights: Weights,
    state: Any,
    dt: Tensor | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Any]:
    """Run a cell over a sequence with the engine `name`; see `eager.run` and `pick`."""
    others = [*(("the weights", w) for w in weights), *(("the state", v) for v in state), ("dt", dt), ("mask", mask)]
    return pick(name, cell, x, mask is not None, dt is not None, others)(cell, x, weights, state, dt, mask)


def pick(name: str, cell: Cell, x: Tensor, masked: bool = False, with_dt: bool = False, others: Named = ()) -> Callable:
    """The engine that runs `cell` over `x`.

    Arguments:
        name: an engine, or "auto" for the fastest engine that can run the cell.
        masked, with_dt: whether the call has a mask, and times between steps.
        others: the other tensors of the call, each with its name in messages.

    Raises: ValueError if the named engine cannot run the cell; the message gives the reason and the fix.
    """
    if name not in NAMES:
        raise ValueError(f"engine must be one of {', '.join(NAMES)}; not {name!r}")
    if name == "auto":
        return pick_fastest(cell, x, masked, with_dt, others)
    if name == "eager":
        return eager.run
    if name == "fused":
        reason, chosen = fused.unsupported_reason(cell, x, others), fused.run
    elif name == "cudnn":
        reason, chosen = cudnn.unsupported_reason(cell, x, masked, others), cudnn.run
    else:
        from timescales.nn.engine import graph  # it imports Triton, which only a GPU needs

        reason, chosen = graph.unsupported_reason(cell, x, with_dt, others), graph.run
    if reason is not None:
        raise ValueError(f"the {name} engine cannot run here: {reason}")
    return chosen


def pick_fastest(cell: Cell, x: Tensor, masked: bool = False, with_dt: bool = False, others: Named = ()) -> Callable:
    """The fastest engine that can run `cell` over `x`: the engine "auto". Arguments as in `pick`."""
    if (kernel_of(cell) is None and not x.is_cuda) or tracing_reason():
        return eager.run
    if reason := unusual_reason([("x", x), *parameters(cell), *others]):
        if reason not in _warned:
            _warned.add(reason)
            warnings.warn(f"{cell} runs on the eager engine, which is slower: {reason}", stacklevel=2)
        return eager.run
    if x.is_cuda:
        return pick_on_gpu(cell, x, masked, with_dt, others)
    return fused.run if fused.unsupported_reason(cell, x, others) is None else eager.run


def pick_on_gpu(cell: Cell, x: Tensor, masked: bool = False, with_dt: bool = False, others: Named = ()) -> Callable:
    """The fastest engine on a GPU, according to the measurements in measured.csv."""
    from timescales.nn.engine import graph

    if 0 in x.shape:
        return eager.run
    try:
        kind = choice.kind_of(cell, equations.of_cell(cell, with_dt))
    except NotTraceable:
        return eager.run
    sizes = (x.shape[0], x[0, ..., 0].numel(), cell.hidden_size)
    # cuDNN is deterministic only with other cuBLAS workspaces than build.py sets (torch's documentation of nn.LSTM).
    cudnn_allowed = not torch.are_deterministic_algorithms_enabled()
    for name in choice.ranking(kind, *sizes, torch.cuda.get_device_name(x.device)):
        if name == "cudnn" and cudnn_allowed and cudnn.unsupported_reason(cell, x, masked, others) is None:
            return cudnn.run
        if name == "graph" and graph.unsupported_reason(cell, x, with_dt, others) is None:
            return graph.run_or_eager
        if name == "eager":
            break
    return eager.run
