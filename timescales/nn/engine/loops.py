"""The graph engine's loops over the steps of a sequence: per step one matrix product and one pointwise kernel."""

from __future__ import annotations

from timescales.nn.engine import pointwise, triton_kernels
from timescales.nn.engine.buffers import Buffers


def uses_triton(b: Buffers) -> bool:
    """Whether the pointwise kernels are those in Triton. On a CPU they are the ones in torch."""
    return b.z.is_cuda


def loop_forward(b: Buffers) -> None:
    """Run all steps. Before: h[:, 0], c[:, 0], age[:, 0], and the input's share of the pre-activations in z."""
    step = triton_kernels.launch_forward if uses_triton(b) else pointwise.step_forward
    for t in range(b.z.shape[1]):
        if len(b.z) == 1:
            b.z[0, t].addmm_(b.h[0, t], b.hh[0].t())
        else:
            b.z[:, t].baddbmm_(b.h[:, t], b.hh.mT)
        step(b, t)


def loop_backward(b: Buffers, first: bool = True) -> None:
    """Run all steps backward. After: the gradients of the pre-activations in z.

    first: whether to compute the gradient of the state before the first step, which costs one product.
    """
    step = triton_kernels.launch_backward if uses_triton(b) else pointwise.step_backward
    for t in reversed(range(b.z.shape[1])):
        step(b, t)
        if t == 0 and not first:
            return
        if len(b.z) == 1:
            b.dh[0].addmm_(b.z[0, t], b.hh[0])
        else:
            b.dh.baddbmm_(b.z[:, t], b.hh)
