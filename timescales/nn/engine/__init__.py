"""Engines run a cell over time. `pick` chooses one; all have the signature of `eager.run`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell
from timescales.nn.engine import choice, cudnn, eager, fused
from timescales.nn.engine.kernel import kernel_of

NAMES = ("auto", "eager", "fused", "graph", "cudnn")


def pick(name: str, cell: Cell, x: Tensor, masked: bool = False) -> Callable:
    """The engine to run `cell` over `x` with: the named one, or with "auto" the fastest that can.

    masked: a mask will come. Raises ValueError, with what to do about it, where the named engine cannot run.
    """
    if name not in NAMES:
        raise ValueError(f"engine must be one of {', '.join(NAMES)}; not {name!r}")
    if name == "eager" or (name == "auto" and kernel_of(cell) is None):
        return eager.run
    if name == "auto":
        return on_gpu(cell, x, masked) if x.is_cuda else eager.run if fused.why_not(cell, x) else fused.run
    if name == "fused":
        reason, run = fused.why_not(cell, x), fused.run
    elif name == "cudnn":
        reason, run = cudnn.why_not(cell, x, masked), cudnn.run
    else:
        from timescales.nn.engine import graph  # and with it Triton, which a CPU does not need

        reason, run = graph.why_not(cell, x), graph.run
    if reason:
        raise ValueError(f"the {name} engine cannot run here: {reason}")
    return run


def on_gpu(cell: Cell, x: Tensor, masked: bool) -> Callable:
    """The fastest engine on a GPU, as far as it was measured."""
    from timescales.nn.engine import graph

    kernel = kernel_of(cell)
    if kernel is None or 0 in x.shape:
        return eager.run
    sizes = (x.shape[0], x[0, ..., 0].numel(), cell.hidden_size)
    for name in choice.ranking(kernel.kind, *sizes, torch.cuda.get_device_name(x.device)):
        # For a deterministic cuDNN torch (docs of nn.LSTM) names other cuBLAS workspaces than build.py sets.
        if name == "cudnn" and not torch.are_deterministic_algorithms_enabled() and not cudnn.why_not(cell, x, masked):
            return cudnn.run
        if name == "graph" and not graph.why_not(cell, x):
            return graph.run_or_eager
        if name == "eager":
            break
    return eager.run
