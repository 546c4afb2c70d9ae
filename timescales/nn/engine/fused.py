"""The fused engine: the time loop on the CPU in C++ (fused.cpp), as one autograd function.

It needs float32 on the CPU, a cell with a kernel (`kernel.kernel_of`) and a C++ compiler (see fused_library.py).

Small numbers are zero: denormal numbers (below 1.2e-38), and in backward the gradients of pre-activations whose size is
below 1e-30. Products of denormal numbers would make vanishing gradients many times slower.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import eager, fused_library
from timescales.nn.engine.fused_library import Problem
from timescales.nn.engine.kernel import (
    KINDS,
    Kernel,
    Named,
    check_backward,
    in_memory,
    kernel_of,
    no_jvp,
    saved_tensors_have_hooks,
    tracing_reason,
    unusual_reason,
)
from timescales.nn.engine.workspace import Workspace


def unsupported_reason(cell: Cell, x: Tensor, others: Named = ()) -> str | None:
    """The reason why this engine cannot run `cell` over `x`, with the fix; None if it can. `others` as in `pick`."""
    if (kernel := kernel_of(cell)) is None:
        return f"it has no kernel for {cell}; use engine='eager'"
    if reason := tracing_reason():
        return reason
    tensors = [("x", x), ("the weights", cell.weight_hh), ("the exponents", kernel.power), *others]
    if reason := unusual_reason(tensors):
        return reason
    for name, tensor in tensors:
        if tensor is None:
            continue
        wrong_type = tensor.dtype != torch.float32 and name not in ("dt", "mask")  # these two are converted
        if wrong_type or tensor.device.type != "cpu":
            return f"{name} must be float32 on the CPU, not {tensor.dtype} on {tensor.device}; use engine='eager'"
    if x.dim() != 3 or cell.weight_hh.dim() != 2:
        return f"x must be (S, B, I), not {tuple(x.shape)}; use engine='eager' for batched seeds"
    return fused_library.load().error


def run(
    cell: Cell, x: Tensor, weights: Weights, state: Any, dt: Tensor | None = None, mask: Tensor | None = None
) -> tuple[Tensor, Any]:
    """Run a cell over a sequence; see `eager.run`.

    The eager engine runs what the library does not support: empty batches, a gradient to dt, and fewer than two steps
    (the layout of the weights would cost more than it saves).
    """
    if x.shape[0] < 2 or x.shape[1] == 0 or (dt is not None and dt.requires_grad and torch.is_grad_enabled()):
        return eager.run(cell, x, weights, state, dt, mask)
    kernel = kernel_of(cell)
    assert kernel is not None, "see unsupported_reason"
    kernel = kernel._replace(threads=torch.get_num_threads())
    ih, hh, bias, bias_hh = weights
    if bias_hh is not None:
        bias = bias + bias_hh
    tensors = (x, ih, hh, bias, kernel.power, *state)
    # The library reads the tensors as raw memory.
    assert all(t is None or (t.dtype, t.device.type) == (torch.float32, "cpu") for t in tensors)
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    age = getattr(state, "age", None)
    output, h, c, age = FusedFunction.apply(
        kernel, keep, x, ih, hh, bias, kernel.power, state.h, state.c, age, dt, mask
    )
    return output, type(state)(*((h, c) if age is None else (h, c, age)))


class Inputs(NamedTuple):
    """The tensors that the library reads, in the layout that it expects.

    x (S, B, I), weights, power and state as in `Cell`; dt (S, B); mask (S, B) bool; order (B,) int64, see
    `longest_first`. All others are float32.
    """

    x: Tensor
    ih: Tensor
    hh: Tensor
    bias: Tensor
    power: Tensor | None
    h: Tensor
    c: Tensor
    age: Tensor | None
    dt: Tensor | None
    mask: Tensor | None
    order: Tensor | None

    def readable(self) -> Inputs:
        """The inputs in the dtype and layout that the library reads."""
        dtypes = (*[torch.float32] * 9, torch.bool, torch.int64)  # mask and order are the last
        tensors = [v if v is None else in_memory(v, dtype) for v, dtype in zip(self, dtypes, strict=True)]
        x, *others = tensors
        assert x is not None
        return Inputs._make([with_contiguous_rows(x), *[v if v is None else v.contiguous() for v in others]])


class FusedFunction(torch.autograd.Function):
    """A sequence as one autograd function: (output, h, c, age) from (x, ih, hh, bias, power, h, c, age, dt, mask)."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, keep: bool, *tensors: Any) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)  # None instead of zeros for a result without a gradient
        mask = tensors[-1]
        order = None if mask is None else longest_first(mask.bool(), kernel.threads)
        inputs = Inputs._make([*tensors, order]).readable()
        # Hooks on saved tensors are there to save memory. They cannot take the workspace: backward computes it again.
        keep_workspace = keep and not saved_tensors_have_hooks()
        workspace, results = _forward(kernel, keep_workspace, inputs)
        if keep:
            ctx.kernel, ctx.order, ctx.shapes = kernel, order, [None if v is None else v.shape for v in inputs[:-1]]
            ctx.workspace = workspace if keep_workspace else None
            ctx.save_for_backward(*inputs[:-1], results[0] if keep_workspace else None)
        if not keep_workspace:
            workspace.release()
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        check_backward("fused", grads)
        *saved, output = ctx.saved_tensors
        if [None if v is None else v.shape for v in saved] != ctx.shapes:
            raise RuntimeError("hooks returned a saved tensor in another shape: correct them, or use engine='eager'")
        inputs = Inputs._make([*saved, ctx.order]).readable()
        workspace, ctx.workspace = ctx.workspace, None
        if workspace is None:  # it was not kept, or this is a second backward and the first one overwrote it
            workspace, (output, *_) = _forward(ctx.kernel, True, inputs)
        wanted = ctx.needs_input_grad[2:10]
        if not any(wanted):
            return (None,) * len(ctx.needs_input_grad)
        # The gradients of ih, hh and bias are computed together.
        wanted = [wanted[0], *[any(wanted[1:4])] * 3, *wanted[4:]]
        results = [
            t.new_empty(t.shape) if t is not None and want else None for t, want in zip(inputs[:8], wanted, strict=True)
        ]
        _backward(ctx.kernel, inputs, workspace, output, grads, results)
        workspace.release()
        return None, None, *results, None, None

    jvp = staticmethod(no_jvp)


def with_contiguous_rows(x: Tensor) -> Tensor:
    """x (S, B, n) with a contiguous last dimension. Steps and rows may have any stride (batch_first)."""
    return x if x.stride(2) == 1 or x.shape[2] == 1 else x.contiguous()


def longest_first(mask: Tensor, threads: int) -> Tensor:
    """The order of the batch that costs least, (B,): within each thread's slice, the longest sequences first.

    A step computes the products of all rows up to the last one that exists. The results do not depend on the order.
    """
    S, B = mask.shape
    slices = (torch.arange(1, B + 1) * threads - 1) // B  # row b is in the last slice k with B k // threads <= b
    return (slices * (S + 1) - mask.sum(0)).argsort()


def _forward(kernel: Kernel, keep: bool, inputs: Inputs) -> tuple[Workspace, tuple[Tensor | None, ...]]:
    """Run the library forward. Returns its workspace, and output, h, c, age."""
    problem = _problem(kernel, keep, inputs)
    workspace = Workspace(fused_library.functions().timescales_workspace(ctypes.byref(problem)))
    problem.workspace = workspace.address
    x, h, age = inputs.x, inputs.h, inputs.age
    output = x.new_empty(*x.shape[:2], h.shape[-1])
    results = (output, torch.empty_like(h), torch.empty_like(h), None if age is None else torch.empty_like(h))
    _set_pointers(problem, ("output", "h_last", "c_last", "age_last"), results)
    fused_library.functions().timescales_forward(ctypes.byref(problem))
    return workspace, results


def _backward(
    kernel: Kernel,
    inputs: Inputs,
    workspace: Workspace,
    output: Tensor,
    grads: Iterable[Tensor | None],
    results: list[Tensor | None],
) -> None:
    """Run the library backward: from the gradients of output, h, c, age to those of the first eight inputs."""
    d_output, *d_last = grads
    d_output = None if d_output is None else with_contiguous_rows(in_memory(d_output, torch.float32))
    d_last = [None if d is None else in_memory(d, torch.float32).contiguous() for d in d_last]
    problem = _problem(kernel, True, inputs)
    problem.workspace = workspace.address
    problem.output = output.data_ptr()
    if d_output is not None:
        problem.d_output = d_output.data_ptr()
        problem.d_output_step, problem.d_output_row = d_output.stride()[:2]
    _set_pointers(problem, ("d_h_last", "d_c_last", "d_age_last"), d_last)
    _set_pointers(problem, ("d_x", "d_ih", "d_hh", "d_bias", "d_power", "d_h", "d_c", "d_age"), results)
    fused_library.functions().timescales_backward(ctypes.byref(problem))


def _problem(kernel: Kernel, keep: bool, inputs: Inputs) -> Problem:
    """A `Problem` with the sizes and the inputs."""
    (S, B, I), H = inputs.x.shape, inputs.hh.shape[-1]  # noqa: E741
    problem = Problem(KINDS.index(kernel.kind), kernel.threads, S, B, I, H, keep, kernel.epsilon, kernel.floor)
    problem.x_step, problem.x_row = inputs.x.stride()[:2]
    _set_pointers(problem, Inputs._fields, inputs)
    return problem


def _set_pointers(problem: Problem, names: Iterable[str], tensors: Iterable[Tensor | None]) -> None:
    for name, tensor in zip(names, tensors, strict=True):
        setattr(problem, name, None if tensor is None else tensor.data_ptr())
