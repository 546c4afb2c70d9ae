"""The graph engine's loops over the steps of a sequence: per step one matrix product and one pointwise kernel.

If blocks are expanded (a cumax, or a gate with fewer rows than units), their numbers for all units are computed between
product and kernel, by operations of torch.

Shapes are those of `Buffers`: R seeds, S steps, B sequences, H units; z (R, S, B, rows), h (R, S + 1, B, H).
"""

from __future__ import annotations

from types import ModuleType

import torch

from timescales.nn.engine.gpu import cluster_kernels, emit_scan, emit_triton, pointwise, scan
from timescales.nn.engine.gpu.buffers import Buffers


def uses_triton(b: Buffers) -> bool:
    """Whether the pointwise kernels are those in Triton. On a CPU they are the ones in torch."""
    return b.z.is_cuda


def loop_forward(b: Buffers) -> None:
    """Run all steps. Before: the first step of the states, and the input's share of the pre-activations in z."""
    if b.cluster is not None:
        cluster_kernels.run_forward(b)
        return
    if b.affine is not None:
        scan_forward(b)
        return
    step = emit_triton.launch_forward if uses_triton(b) else pointwise.step_forward
    h = b.states[0]
    for t in range(b.z.shape[1]):
        if len(b.z) == 1:
            b.recurrent(t)[0].addmm_(h[0, t], b.hh[0].t())
        else:
            b.recurrent(t).baddbmm_(h[:, t], b.hh.mT)
        expand(b, t, is_softmax=False)
        step(b, t)


def loop_backward(b: Buffers, first: bool = True) -> None:
    """Run all steps backward. After: the gradients of the pre-activations in z.

    first: whether to compute the gradient of the state before the first step, which costs one product.
    """
    if b.cluster is not None:
        cluster_kernels.run_backward(b)
        return
    if b.affine is not None:
        scan_backward(b)
        return
    step = emit_triton.launch_backward if uses_triton(b) else pointwise.step_backward
    d_h = b.d_states[0]
    for t in reversed(range(b.z.shape[1])):
        expand(b, t, is_softmax=True)
        step(b, t)
        contract(b, t)
        if b.d_dt is not None and b.d_dt_units is not None:
            torch.sum(b.d_dt_units, -1, out=b.d_dt[:, t])
        if t == 0 and not first:
            return
        if len(b.z) == 1:
            d_h[0].addmm_(b.recurrent(t)[0], b.hh[0])
        else:
            d_h.baddbmm_(b.recurrent(t), b.hh)


def passes_of(b: Buffers) -> ModuleType:
    """The passes of a scan over time: kernels in Triton, or the ones in torch."""
    return emit_scan if uses_triton(b) else scan


def scan_forward(b: Buffers) -> None:
    """`loop_forward` of a cell without recurrent product whose step is affine: see scan.py."""
    passes = passes_of(b)
    assert b.affine is not None
    for c, component in enumerate(b.affine.components):
        for i, field in enumerate(component.fields):
            b.starts[i, :, 0].copy_(b.states[field][:, 0])
        # Without a mask, fields that each step overwrites need no state before a chunk.
        if b.chunks > 1 and not (component.is_memoryless and b.mask is None):
            passes.local_forward(b, c)
            passes.carry(b, len(component.fields), backward=False)
        passes.final_forward(b, c)


def scan_backward(b: Buffers) -> None:
    """`loop_backward` of the same."""
    passes = passes_of(b)
    for k, d in enumerate(b.d_states):
        b.starts[k, :, -1].copy_(d)
    if b.chunks > 1:
        passes.local_backward(b)
        passes.carry(b, len(b.d_states), backward=True)
    passes.final_backward(b)
    for sums, parts in zip(b.d_vectors, b.d_parts, strict=True):
        if sums is not None:
            sums.add_(parts.sum(1))
    if b.d_dt is not None and b.d_dt_units is not None:
        torch.sum(b.d_dt_units, -1, out=b.d_dt)


def expand(b: Buffers, t: int, is_softmax: bool) -> None:
    """Compute `wide` from the pre-activations of the expanded blocks at step t.

    The softmax of a cumax is kept in z; is_softmax: it is there already. Backward needs it, since differences of the
    cumax have fewer digits.
    """
    for place, k in enumerate(b.expanded):
        block, rows = b.equations.blocks[k], b.block(k, t)
        if block.is_row:
            if not is_softmax:
                rows.copy_(rows.softmax(-1))
            rows = rows.cumsum(-1).clamp_(max=1.0)  # rounding may give slightly more than 1
        assert b.wide is not None
        b.wide[place].unflatten(-1, (-1, block.divisor)).copy_(rows.unsqueeze(-1))


def contract(b: Buffers, t: int) -> None:
    """Compute the gradients of the expanded blocks' pre-activations in z from those in `wide`."""
    for place, k in enumerate(b.expanded):
        block, rows = b.equations.blocks[k], b.block(k, t)
        assert b.wide is not None
        d = b.wide[place].unflatten(-1, (-1, block.divisor)).sum(-1)
        if block.is_row:
            d_softmax = d.flip(-1).cumsum(-1).flip(-1)
            rows.mul_(d_softmax - (rows * d_softmax).sum(-1, keepdim=True))
        else:
            rows.copy_(d)
