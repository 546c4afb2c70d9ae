"""The cluster engine: a whole sequence in one kernel, in which thread blocks of a cluster exchange h between the steps.

For GPUs of compute capability 9 or more (H100, H200, and later), float32, and cells with a recurrent product. Any
number of steps, sequences and seeds; units as many as registers hold (`emit_cuda.unsupported_reason`), 256 with four
gates.

emit_cuda.py writes the kernels, cluster.cu has the loop over the steps and says how it works; cluster_kernels.py
launches them on torch's current stream, in the buffers and by the autograd function of the graph engine
(graph_function.py). There is nothing to capture: a sequence is one launch forward and one backward, besides the
products before and after. On a CPU the engine runs in an emulator (emulate.py), for tests.

It was compiled for sm_90 and emulated, but has never run on a GPU, so `auto` takes it only where measured.csv says that
it was measured, and faster than the others.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell
from timescales.nn.engine import equations, kept, watch
from timescales.nn.engine.equations import Equations
from timescales.nn.engine.gpu import capture, emit_cuda, graph
from timescales.nn.engine.gpu.emit_cuda import Kernels, Sizes, kernels

CAPABILITY = 9  # the first with clusters of thread blocks


def unsupported_reason(cell: Cell, x: Tensor, timed: bool = False, found: Equations | str | None = None) -> str | None:
    """The reason why this engine cannot run `cell` over `x`, with the fix; None if it can. As of the graph engine."""
    if reason := graph.plain_reason(cell, x):
        return reason
    found = equations.known(cell, timed) if found is None else found
    if isinstance(found, str):
        return f"{found}; use engine='eager'"
    if reason := emit_cuda.unsupported_reason(found, sizes(cell)):
        return reason
    if not x.is_cuda:
        return None
    capability = torch.cuda.get_device_capability(x.device)
    if capability[0] < CAPABILITY:
        found_here = ".".join(map(str, capability))
        return f"it needs compute capability {CAPABILITY}.0, and this GPU has {found_here}; use engine='graph'"
    return trial(cell, found, x.device)


def sizes(cell: Cell) -> Sizes:
    """The sizes of a cluster for a cell."""
    return Sizes(cell.hidden_size)


def kernels_of(cell: Cell, found: Equations) -> Kernels:
    """The kernels of a cell."""
    return kernels(found, sizes(cell))


def trial(cell: Cell, found: Equations, device: torch.device) -> str | None:
    """`graph.trial` of these kernels, once for each class of cells, code, device and precision of products."""
    made = kernels_of(cell, found)
    key = "cluster", watch.Same(type(cell)), made.code, device, capture.rounding()
    return kept.tried(key, lambda: graph.compare(cell, found, device, made))


run = functools.partial(graph.run, cluster=kernels_of)  # a cell over a sequence, with the arguments of `graph.run`


def run_or_graph(*call: Any, found: Equations | str | None = None) -> tuple[Any, ...]:
    """`run`; if it fails, print the reason once and use the graph engine. This is what engine="auto" uses."""
    other = functools.partial(graph.run_or_eager, found=found)
    return capture.run_or("cluster", functools.partial(run, found=found), other, call)
