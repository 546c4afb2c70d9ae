"""Launches of the cluster kernels of a cell in `Buffers`: on a GPU, or in the emulator on a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from timescales.nn.engine.gpu import cuda, emulate
from timescales.nn.engine.gpu.buffers import Buffers

STEPS = 2**20  # of one launch: each begins with the state that the one before has left


def run_forward(b: Buffers) -> None:
    """All steps forward: see `loops.loop_forward`."""
    steps = b.sizes[1]
    for first in range(0, steps, STEPS):
        launch(b, "forward", first, min(first + STEPS, steps))


def run_backward(b: Buffers) -> None:
    """All steps backward: see `loops.loop_backward`."""
    steps = b.sizes[1]
    for first in reversed(range(0, steps, STEPS)):
        launch(b, "backward", first, min(first + STEPS, steps))
    if b.d_dt is not None and b.d_dt_units is not None:
        torch.sum(b.d_dt_units, -1, out=b.d_dt)


def launch(b: Buffers, kernel: str, first: int, end: int) -> None:
    """Launch the kernel `forward` or `backward` for the steps first .. end - 1."""
    assert b.cluster is not None
    code, sizes = b.cluster
    R, S, B = b.sizes
    if R * (S + 1) * (B + sizes.sequences) >= 2**31:
        raise RuntimeError(f"{R} x {S} x {B} steps are too many for one call of the cluster engine; use engine='graph'")
    values = tensors(b)
    arguments = arguments_of(values, (first, end, S, B))
    if b.z.is_cuda:
        function = getattr(cuda.functions(code, b.z.device), kernel)
        cuda.launch(function, arguments, (sizes.grid(B), R), sizes.threads, torch.cuda.current_stream(b.z.device))
    else:
        emulate.launch(code, kernel, arguments, sizes, B, R)


def tensors(b: Buffers) -> list[Tensor | None]:
    """The buffers in the order of `struct Arguments` in cluster.cu. Vectors and noises end with an absent one."""
    cumaxes = dict(zip(b.expanded, () if b.wide is None else b.wide, strict=True))
    of_blocks = [cumaxes.get(k) for k in range(len(b.columns))]
    inputs = [b.z, *of_blocks, b.hh, *b.states, *b.vectors, None, *b.noises, None, b.dt, flags(b), *b.initial]
    gradients = [*b.d_after(), *b.d_states, *b.d_initial, *b.d_vectors, None, b.d_dt_units]
    return [*inputs, *b.outputs, *gradients]


def flags(b: Buffers) -> Tensor | None:
    """By step EXISTS, BEGINS or their sum, as in cluster.cu; None if all steps exist and no sequence begins again."""
    return b.mask if b.again is None else 2.0 * b.again + (1.0 if b.mask is None else b.mask)


def arguments_of(values: Sequence[Tensor | None], numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """`struct Arguments`: addresses of eight bytes, integers of four. Kernels read float32, one after another."""
    for tensor in values:
        assert tensor is None or (tensor.dtype == torch.float32 and tensor.is_contiguous())
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in values]
    pairs = [low | high << 32 for low, high in zip(numbers[::2], numbers[1::2], strict=True)]  # the low one comes first
    return (ctypes.c_int64 * (len(addresses) + len(pairs)))(*addresses, *pairs)
