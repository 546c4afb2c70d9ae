"""Engines: the loops that run a cell over time. All have the signature of `eager.run`; `pick` chooses one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell
from timescales.nn.engine import choice, cudnn, eager, fused
from timescales.nn.engine.kernel import kernel_of

NAMES = ("auto", "eager", "fused", "graph", "cudnn")


def pick(name: str, cell: Cell, x: Tensor, masked: bool = False) -> Callable:
    """The engine that runs `cell` over `x`.

    Arguments:
        name: an engine, or "auto" for the fastest engine that can run the cell.
        masked: whether the call has a mask.

    Raises: ValueError if the named engine cannot run the cell; the message gives the reason and the fix.
    """
    if name not in NAMES:
        raise ValueError(f"engine must be one of {', '.join(NAMES)}; not {name!r}")
    if name == "auto":
        return pick_fastest(cell, x, masked)
    if name == "eager":
        return eager.run
    if name == "fused":
        reason, run = fused.unsupported_reason(cell, x), fused.run
    elif name == "cudnn":
        reason, run = cudnn.unsupported_reason(cell, x, masked), cudnn.run
    else:
        from timescales.nn.engine import graph  # it imports Triton, which only a GPU needs

        reason, run = graph.unsupported_reason(cell, x), graph.run
    if reason is not None:
        raise ValueError(f"the {name} engine cannot run here: {reason}")
    return run


def pick_fastest(cell: Cell, x: Tensor, masked: bool) -> Callable:
    """The fastest engine that can run `cell` over `x`: the engine "auto"."""
    if kernel_of(cell) is None:
        return eager.run
    if x.is_cuda:
        return pick_on_gpu(cell, x, masked)
    return fused.run if fused.unsupported_reason(cell, x) is None else eager.run


def pick_on_gpu(cell: Cell, x: Tensor, masked: bool) -> Callable:
    """The fastest engine on a GPU, according to the measurements in measured.csv."""
    from timescales.nn.engine import graph

    kernel = kernel_of(cell)
    if kernel is None or 0 in x.shape:
        return eager.run
    sizes = (x.shape[0], x[0, ..., 0].numel(), cell.hidden_size)
    # cuDNN is deterministic only with other cuBLAS workspaces than build.py sets (torch's documentation of nn.LSTM).
    cudnn_allowed = not torch.are_deterministic_algorithms_enabled()
    for name in choice.ranking(kernel.kind, *sizes, torch.cuda.get_device_name(x.device)):
        if name == "cudnn" and cudnn_allowed and cudnn.unsupported_reason(cell, x, masked) is None:
            return cudnn.run
        if name == "graph" and graph.unsupported_reason(cell, x) is None:
            return graph.run_or_eager
        if name == "eager":
            break
    return eager.run
