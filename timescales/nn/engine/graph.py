"""The graph engine for GPUs: per step one matrix product and one pointwise kernel, replayed as a CUDA graph.

    forward    z = x W^T + b for all steps;  then per step  z_t += h U^T  and  step_forward
    backward   per step  step_backward  and  dh += dz_t U;  then dU, dW, db and dx of all steps at once

The pointwise kernels are in triton_kernels.py, and in torch in pointwise.py. On a CPU the engine runs the latter
without graphs; so everything except the launches is tested without a GPU. Only float32 is supported; torch's settings
decide whether products are rounded to TF32.

Cost per step and layer (tests/nn/test_graph.py checks it): 2 launches forward and 2 backward; the first step's product
in backward is left out if the state before it needs no gradient. Per call, 1 more product forward and 2 or 3 backward.
Memory per step and sequence: G H + 2 H numbers (3 H with an age), and H more for the gradients of the outputs in a
graph. For a pLSTM with 3 gates these are 7 H: the copy task with T = 200 (220 x 128 x 128) needs 102 MB.

loops.py has the loops over the steps, buffers.py their memory, programs.py the CUDA graphs.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import eager, programs, triton_kernels
from timescales.nn.engine.buffers import Buffers
from timescales.nn.engine.kernel import (
    GATES,
    Kernel,
    check_backward,
    kernel_of,
    no_jvp,
    saved_tensors_have_hooks,
    tracing_reason,
)
from timescales.nn.engine.loops import loop_backward, loop_forward

PADDED = 16  # lengths of masked sequences are padded to a multiple of this, so that few lengths are captured
PIECE = 128  # steps per piece of a long sequence without gradients

_pools: weakref.WeakKeyDictionary[Cell, programs.Pool] = weakref.WeakKeyDictionary()


def unsupported_reason(cell: Cell, x: Tensor) -> str | None:
    """The reason why this engine cannot run `cell` over `x`, with the fix; None if it can."""
    if (kernel := kernel_of(cell)) is None:
        return f"it has no kernel for {cell}; use engine='eager'"
    if reason := tracing_reason():
        return reason
    for name, tensor in (("x", x), ("the weights", cell.weight_hh)):
        if tensor.dtype != torch.float32:
            return f"{name} must be float32, not {tensor.dtype}; use engine='eager'"
    if x.device.type not in ("cpu", "cuda") or x.device != cell.weight_hh.device:
        return f"x and the weights must lie together on a GPU, not on {x.device} and {cell.weight_hh.device}"
    return trial(kernel.kind, str(x.device)) if x.is_cuda else None


@functools.cache
def trial(kind: str, device: str) -> str | None:
    """Compare the kernels of a kind of cell with the torch version on a small sequence, with a capture.

    Returns None if they agree, else what went wrong, in one line, which is also printed once.
    """
    try:
        if triton_kernels.unavailable is not None:
            raise RuntimeError(triton_kernels.unavailable)
        with (
            torch.cuda.device(device),
            torch.inference_mode(False),
            torch.no_grad(),
            torch.random.fork_rng(devices=[]),
        ):
            compare_kernels(kind, torch.device(device))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        reason = programs.one_line(error)
        programs.announce(reason)
        return f"{reason}; use engine='eager'"
    return None


def compare_kernels(kind: str, device: torch.device) -> None:
    """Run a small sequence on a CPU and on `device`. Raises RuntimeError if the results differ."""
    (R, S, B), H, gates = (1, 3, 5), 7, GATES[kind]
    normal = functools.partial(torch.randn, dtype=torch.float32)
    values = {"z": normal(R, S, B, gates * H), "h": normal(R, B, H), "c": normal(R, B, H)}
    values |= {"age": normal(R, B, H).abs(), "hh": normal(R, gates * H, H), "d_output": normal(R, S, B, H)}
    kernel = Kernel(kind, torch.full((H,), 0.4, dtype=torch.float32), 1e-3, 0.0)
    tolerance = 1e-2 if programs.rounding() == "tf32" else 1e-4  # TF32 has ten bits
    expected, results = (_run_once(kernel, (R, S, B), H, on, values) for on in (torch.device("cpu"), device))
    for a, b in zip(expected, results, strict=True):
        if not torch.allclose(a, b, rtol=tolerance, atol=tolerance):
            raise RuntimeError(f"its {kind} kernel is off by {(a - b).abs().max():.1e} on {device}")


def _run_once(
    kernel: Kernel, sizes: tuple[int, int, int], H: int, device: torch.device, values: dict[str, Tensor]
) -> list[Tensor]:
    """h, z, dh and dc after running a sequence forward and backward; captured on a GPU."""
    b = Buffers(kernel, sizes, H, device, False, False)
    b.d_output = torch.empty(*sizes, H, device=device, dtype=torch.float32)
    loops = (loop_forward, loop_backward)
    runs = [programs.capture(b, loop).replay for loop in loops] if device.type == "cuda" else None
    for name, value in values.items():
        buffer = getattr(b, name)
        if buffer is not None:
            (buffer[:, 0] if name in ("h", "c", "age") else buffer).copy_(value)
    b.zero_gradients()
    for k, loop in enumerate(loops):
        if runs is None:
            loop(b)
        else:
            runs[k]()
    return [v.cpu() for v in (b.h, b.z, b.dh, b.dc)]


def run(
    cell: Cell,
    x: Tensor,
    weights: Weights,
    state: Any,
    dt: Tensor | None = None,
    mask: Tensor | None = None,
    strict: bool = True,
) -> tuple[Tensor, Any]:
    """Run a cell over a sequence; see `eager.run`. Batched seeds are supported.

    The eager engine runs empty sequences and batches, and calls that need a gradient to dt. Without gradients, long
    sequences are run in pieces of PIECE steps, which need a fraction of the memory.

    strict: raise RuntimeError if no graph can be captured. Otherwise the steps are launched one by one.
    """
    if x.shape[0] == 0 or x[0].numel() == 0 or (dt is not None and dt.requires_grad and torch.is_grad_enabled()):
        return eager.run(cell, x, weights, state, dt, mask)
    x, dt = eager.fill_masked(x, dt, mask)
    kernel = kernel_of(cell)
    assert kernel is not None, "see unsupported_reason"
    differentiable = (x, *weights, kernel.power, *state)
    keep = torch.is_grad_enabled() and any(v is not None and v.requires_grad for v in differentiable)
    if keep or len(x) <= 2 * PIECE:
        return _run_whole(cell, kernel, x, weights, state, dt, mask, strict, keep)
    outputs = []
    for start in range(0, len(x), PIECE):
        x_piece = x[start : start + PIECE]
        dt_piece = None if dt is None else dt[start : start + PIECE]
        mask_piece = None if mask is None else mask[start : start + PIECE]
        output, state = run(cell, x_piece, weights, state, dt_piece, mask_piece, strict)
        outputs.append(output)
    return torch.cat(outputs), state


def _run_whole(
    cell: Cell,
    kernel: Kernel,
    x: Tensor,
    weights: Weights,
    state: Any,
    dt: Tensor | None,
    mask: Tensor | None,
    strict: bool,
    keep: bool,
) -> tuple[Tensor, Any]:
    """Run a sequence in one piece. If it is captured and masked, it is padded to a multiple of PADDED steps."""
    steps, captures = len(x), programs.captures(x)
    if mask is not None and captures:
        extra = -steps % PADDED
        x, mask = _lengthen(x, extra, 0.0), _lengthen(mask, extra, 0)
        dt = None if dt is None else _lengthen(dt, extra, 1.0)
    ih, hh, bias, bias_hh = weights
    bias = bias if bias_hh is None else bias + bias_hh
    age = getattr(state, "age", None)
    pool = _pools.setdefault(cell, programs.Pool()) if captures else None
    plan = Plan(kernel._replace(power=None), pool, strict, keep)
    with _on_device_of(x):
        output, h, c, age = GraphFunction.apply(plan, x, ih, hh, bias, kernel.power, state.h, state.c, age, dt, mask)
    output = output[:steps] if len(output) > steps else output
    return output, type(state)(*((h, c) if age is None else (h, c, age)))


def _lengthen(v: Tensor, extra: int, value: float) -> Tensor:
    """v (S, ...) with `extra` more steps that have this value."""
    return torch.cat([v, v.new_full((extra, *v.shape[1:]), value)]) if extra else v


def _on_device_of(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()


def run_or_eager(
    cell: Cell, x: Tensor, weights: Weights, state: Any, dt: Tensor | None = None, mask: Tensor | None = None
) -> tuple[Tensor, Any]:
    """`run`; if it fails, print the reason once and use the eager engine. This is what engine="auto" uses."""
    try:
        return run(cell, x, weights, state, dt, mask, strict=False)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        reason = programs.one_line(error)
        if reason not in _announced:
            _announced.add(reason)
            programs.announce(reason)
        return eager.run(cell, x, weights, state, dt, mask)


_announced: set[str] = set()


class Plan(NamedTuple):
    """Arguments of a call that are not tensors.

    kernel: without the power, which is a tensor. pool: graphs of this cell, or None to run without graphs.
    strict: see `run`. keep: whether backward follows.
    """

    kernel: Kernel
    pool: programs.Pool | None
    strict: bool
    keep: bool


class Inputs(NamedTuple):
    """The tensors of a call. Shapes as in `eager.run`."""

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

    @property
    def batched(self) -> bool:
        """Whether there is a dimension of batched seeds."""
        return self.x.dim() == 4

    def seeds_first(self, v: Tensor) -> Tensor:
        """(S, R, B, ...) or (S, B, ...) as (R, S, B, ...)."""
        return v.transpose(0, 1) if self.batched else v.unsqueeze(0)

    def without_seeds(self, v: Tensor) -> Tensor:
        """(R, ...), or (...) if there are no batched seeds."""
        return v if self.batched else v[0]


class GraphFunction(torch.autograd.Function):
    """A sequence as one autograd function: (output, h, c, age) from the `Inputs`."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, *tensors: Any) -> tuple[Any, ...]:
        ctx.set_materialize_grads(False)  # None instead of zeros for a result without a gradient
        inputs = Inputs(*tensors)
        lease = _forward(plan, inputs)
        b = lease.b
        output = b.h[:, 1:].transpose(0, 1) if inputs.batched else b.h[0, 1:]
        last = [None if v is None else inputs.without_seeds(v[:, -1]).clone() for v in (b.h, b.c, b.age)]
        results = (output.clone(), *last)
        # Hooks on saved tensors are there to save memory. They cannot take the buffers: backward computes them again.
        keep_buffers = plan.keep and not saved_tensors_have_hooks()
        if plan.keep:
            ctx.plan, ctx.lease = plan, lease if keep_buffers else None
            ctx.save_for_backward(*tensors)
        if not keep_buffers:
            lease.release()
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        check_backward("graph", grads)
        inputs = Inputs(*ctx.saved_tensors)
        lease, ctx.lease = ctx.lease, None
        if lease is None:  # it was not kept, or this is a second backward and the first one overwrote it
            lease = _forward(ctx.plan, inputs)
        wanted = dict(zip(Inputs._fields[:8], ctx.needs_input_grad[1:9], strict=True))
        with _on_device_of(inputs.x):
            _run_backward(lease, inputs, grads, first=wanted["h"])
            gradients = _gradients(lease.b, inputs, wanted)
        lease.release()
        return None, *(gradients[name] if want else None for name, want in wanted.items()), None, None

    jvp = staticmethod(no_jvp)


def _forward(plan: Plan, inputs: Inputs) -> programs.Lease:
    """Fill the buffers of a call and run it forward."""
    x, ih, hh, bias, power, h, c, age, dt, mask = inputs
    S, B, H = x.shape[0], x.shape[-2], hh.shape[-1]
    sizes = (x.shape[1] if inputs.batched else 1, S, B)
    kernel = plan.kernel._replace(power=power)

    def make() -> Buffers:
        with torch.inference_mode(False), torch.no_grad():
            return Buffers(kernel, sizes, H, x.device, dt is not None, mask is not None)

    key: tuple[Any, ...] = (*plan.kernel, *sizes, H, dt is None, mask is None)
    if plan.pool is not None:
        key += programs.settings(x.device)
    lease = programs.Lease(plan.pool, key, plan.strict, make)
    b = lease.b
    if inputs.batched:
        folded = inputs.seeds_first(x).reshape(sizes[0], S * B, x.shape[-1])
        torch.baddbmm(bias.unsqueeze(1), folded, ih.mT, out=b.z.flatten(1, 2))
    else:
        torch.addmm(bias, x.reshape(S * B, x.shape[-1]), ih.t(), out=b.z.flatten(0, 2))
    b.hh.copy_(hh)
    _copy_to(b.power, power)
    for buffer, value in ((b.h, h), (b.c, c), (b.age, age)):
        _copy_to(None if buffer is None else buffer[:, 0], value)
    _copy_to(b.dt, None if dt is None else inputs.seeds_first(dt))
    _copy_to(b.mask, None if mask is None else inputs.seeds_first(mask.bool()))
    lease.forward()
    return lease


def _copy_to(buffer: Tensor | None, value: Tensor | None) -> None:
    """Copy a value to its buffer; there is none for an input that a call does not have."""
    if value is not None:
        assert buffer is not None
        buffer.copy_(value)


def _run_backward(lease: programs.Lease, inputs: Inputs, grads: Any, first: bool) -> None:
    """Run a call backward in its buffers, from the gradients of output, h, c and age."""
    b = lease.b
    d_output, *d_last = grads
    for buffer, value in zip((b.dh, b.dc, b.dage), d_last, strict=True):
        if buffer is not None:
            buffer.zero_() if value is None else buffer.copy_(value)
    if b.dpower is not None:
        b.dpower.zero_()
    lease.backward(None if d_output is None else inputs.seeds_first(d_output), first)


def _gradients(b: Buffers, inputs: Inputs, wanted: dict[str, bool]) -> dict[str, Tensor]:
    """Gradients of the inputs by name, at least the wanted ones, after the loop ran backward."""
    R, S, B, _ = b.z.shape
    dz, h_before = (inputs.without_seeds(v.flatten(1, 2)) for v in (b.z, b.h[:, :-1]))
    gradients: dict[str, Tensor] = {}
    if wanted["hh"]:
        gradients["hh"] = dz.mT @ h_before
    if wanted["ih"]:
        x = inputs.without_seeds(inputs.seeds_first(inputs.x).reshape(R, S * B, -1))
        gradients["ih"] = dz.mT @ x
    if wanted["bias"]:
        gradients["bias"] = dz.sum(-2)
    if wanted["x"]:
        dx = (dz @ inputs.ih).view(*(b.z.shape[:3] if inputs.batched else (S, B)), -1)
        gradients["x"] = dx.transpose(0, 1) if inputs.batched else dx
    if wanted["power"]:
        assert b.dpower is not None
        assert inputs.power is not None
        gradients["power"] = inputs.without_seeds(b.dpower.sum(1)).sum_to_size(inputs.power.shape)
    for name, buffer in (("h", b.dh), ("c", b.dc), ("age", b.dage)):
        if wanted[name] and buffer is not None:
            gradients[name] = inputs.without_seeds(buffer).clone()
    return gradients
