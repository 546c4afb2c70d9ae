"""The GPU engine: per step one matrix product and one pointwise kernel, the whole sequence replayed as a CUDA graph.

    forward    z = x W^T + b for all steps;  then per step  z_t += h U^T  and  step_forward
    backward   per step  step_backward  and  dh += dz_t U;  then dU, dW, db and dx of all steps at once

The equations are in pointwise.py, in Triton for a GPU and in plain torch; on the CPU the latter run, uncaptured, so
that all but the launching is tested without a GPU. Only float32; whether products round to TF32 is torch's setting.

What it costs (held by tests/nn/test_graph.py), per step and layer: 2 launches forward and 2 backward (the first step's
product backward only if the state before wants a gradient), and besides, per call, 1 product forward and 2 or 3
backward. Per row (step x sequence) of H units it holds G H + 2 H floats (3 H with an age), and H more for the gradients
of the outputs in a graph; for a pLSTM of 3 gates 7 H: copy at T = 200 (220 x 128 x 128) 102 MB.

buffers.py has the loops over steps, programs.py their CUDA graphs.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import eager, pointwise, programs
from timescales.nn.engine.buffers import Buffers, loop_backward, loop_forward
from timescales.nn.engine.kernel import Kernel, check_backward, kernel_of, no_jvp, traced

PADDED = 16  # of many lengths few are captured
PIECE = 128

_pools: weakref.WeakKeyDictionary[Cell, programs.Pool] = weakref.WeakKeyDictionary()


def why_not(cell: Cell, x: Tensor) -> str:
    """Why this engine cannot run `cell` over `x`, with what to do about it; "" if it can."""
    if (kernel := kernel_of(cell)) is None:
        return f"it has no kernel for {cell}; use engine='eager'"
    if reason := traced():
        return reason
    for name, tensor in (("x", x), ("the weights", cell.weight_hh)):
        if tensor.dtype != torch.float32:
            return f"{name} must be float32, not {tensor.dtype}; use engine='eager'"
    if x.device.type not in ("cpu", "cuda") or x.device != cell.weight_hh.device:
        return f"x and the weights must lie together on a GPU, not on {x.device} and {cell.weight_hh.device}"
    return trial(kernel.kind, str(x.device)) if x.is_cuda else ""


@functools.cache
def trial(kind: str, device: str) -> str:
    """Try the kernels and a capture on a small sequence against the twin; what went wrong, in one line, said once."""
    try:
        if pointwise.triton is None:
            raise RuntimeError(pointwise.no_triton)
        where = torch.cuda.device(device)
        with where, torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(devices=[]):
            _try(kind, torch.device(device))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        programs.announce(reason := programs.one_line(error))
        return f"{reason}; use engine='eager'"
    return ""


def _try(kind: str, device: torch.device) -> None:
    sizes, H, gates = (1, 3, 5), 7, pointwise.GATES[kind]
    normal = functools.partial(torch.randn, dtype=torch.float32)
    given = {"z": normal(*sizes, gates * H), "h": normal(1, 5, H), "c": normal(1, 5, H)}
    given |= {"age": normal(1, 5, H).abs(), "hh": normal(1, gates * H, H), "d_output": normal(*sizes, H)}
    tolerance = 1e-2 if programs.rounding() == "tf32" else 1e-4  # TF32 has ten bits
    power = torch.full((H,), 0.4, dtype=torch.float32)
    found = []
    for where in (torch.device("cpu"), device):
        b = Buffers(Kernel(kind, power, 1e-3, 0.0), sizes, H, where, False, False)
        b.d_output = torch.empty(*sizes, H, device=where, dtype=torch.float32)
        graphs = [programs.capture(b, loop) for loop in (loop_forward, loop_backward)] if where.type == "cuda" else []
        for name, value in given.items():
            part = getattr(b, name)
            if part is not None:
                (part[:, 0] if name in ("h", "c", "age") else part).copy_(value)
        b.clear_carried()
        for k, loop in enumerate((loop_forward, loop_backward)):
            graphs[k].replay() if graphs else loop(b)
        found.append([v.cpu() for v in (b.h, b.z, b.dh, b.dc)])
    for on_cpu, here in zip(*found, strict=True):
        if not torch.allclose(on_cpu, here, rtol=tolerance, atol=tolerance):
            raise RuntimeError(f"its {kind} kernel is off by {(on_cpu - here).abs().max():.1e} on {device}")


def run(
    cell: Cell, x: Tensor, weights: Weights, state: Any, dt: Tensor | None = None, mask: Tensor | None = None,
    strict: bool = True,
) -> tuple[Tensor, Any]:  # fmt: skip
    """Run a cell over a sequence; see `eager.run`, replicas included. strict: raise where no graph can be captured.

    Empty sequences and batches and a gradient to dt go to the eager engine. Where graphs are captured, masked lengths
    are made multiples of PADDED; where no gradient is wanted, long sequences are run in pieces of PIECE steps, which
    take a fraction of the memory.
    """
    if x.shape[0] == 0 or x[0].numel() == 0 or (dt is not None and dt.requires_grad and torch.is_grad_enabled()):
        return eager.run(cell, x, weights, state, dt, mask)
    x, dt = eager.blanked(x, dt, mask)
    kernel = kernel_of(cell)
    assert kernel is not None, "why_not comes first"
    ih, hh, bias, other = weights
    age = getattr(state, "age", None)
    given = (x, *weights, kernel.power, *state)
    keep = torch.is_grad_enabled() and any(v is not None and v.requires_grad for v in given)
    steps, captures = len(x), programs.captures(x)
    if not keep and steps > 2 * PIECE:
        outputs = []
        for at in range(0, steps, PIECE):
            own = [None if v is None else v[at : at + PIECE] for v in (x, dt, mask)]
            output, state = run(cell, own[0], weights, state, own[1], own[2], strict)  # type: ignore[arg-type]
            outputs.append(output)
        return torch.cat(outputs), state
    extra = -steps % PADDED if mask is not None and captures else 0
    if extra:
        x, dt, mask = longer(x, extra, 0.0), longer(dt, extra, 1.0), longer(mask, extra, 0)
    bias = bias if other is None else bias + other
    pool = _pools.setdefault(cell, programs.Pool()) if captures else None
    with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
        plan = Plan(kernel._replace(power=None), pool, strict, keep)
        tensors = (x, ih, hh, bias, kernel.power, state.h, state.c, age, dt, mask)
        output, h, c, age = Sequence.apply(plan, *tensors)
    output = output[:steps] if extra else output
    return output, type(state)(*((h, c) if age is None else (h, c, age)))


def longer(v: Any, extra: int, value: float) -> Any:
    """v, if it is one, with so many more steps, of this value."""
    return None if v is None else torch.cat([v, v.new_full((extra, *v.shape[1:]), value)])


def run_or_eager(
    cell: Cell, x: Tensor, weights: Weights, state: Any, dt: Tensor | None = None, mask: Tensor | None = None
) -> tuple[Tensor, Any]:
    """`run`, and where that fails the eager engine, with one line that says why: what engine="auto" means."""
    try:
        return run(cell, x, weights, state, dt, mask, strict=False)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        if (reason := programs.one_line(error)) not in _said:
            _said.add(reason)
            programs.announce(reason)
        return eager.run(cell, x, weights, state, dt, mask)


_said: set[str] = set()


class Plan(NamedTuple):
    """What a call is besides its tensors; keep: backward will come."""

    kernel: Kernel
    pool: programs.Pool | None
    strict: bool
    keep: bool


class Sequence(torch.autograd.Function):
    """The sequence as one node of autograd's graph: (output, h, c, age) from x, weights, power, state, dt and mask."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, *tensors: Any) -> tuple[Any, ...]:
        ctx.set_materialize_grads(False)  # a result without a gradient: None, not zeros of the sequence's size
        lease = _forward(plan, tensors)
        b, stacked = lease.b, tensors[0].dim() == 4
        sequence = b.h[:, 1:].transpose(0, 1) if stacked else b.h[0, 1:]
        last = [None if v is None else v[:, -1] if stacked else v[0, -1] for v in (b.h, b.c, b.age)]
        results = (sequence.clone(), *(None if v is None else v.clone() for v in last))
        if plan.keep:
            ctx.plan, ctx.lease = plan, lease
            ctx.save_for_backward(*tensors)
        else:
            lease.release()
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        check_backward("graph", grads)
        tensors = ctx.saved_tensors
        lease, ctx.lease = ctx.lease, None
        if lease is None:  # a second backward through a retained graph: the first wrote over the activations
            lease = _forward(ctx.plan, tensors)
        wanted = dict(zip(("x", "ih", "hh", "bias", "power", "h", "c", "age"), ctx.needs_input_grad[1:], strict=False))
        with torch.cuda.device(tensors[0].device) if tensors[0].is_cuda else contextlib.nullcontext():
            found = _backward(lease, tensors, grads, wanted)
        lease.release()
        return None, *(found[name] if want else None for name, want in wanted.items()), None, None

    jvp = staticmethod(no_jvp)


def _forward(plan: Plan, tensors: Any) -> programs.Lease:
    """Fill a call's buffers and run it forward."""
    x, ih, hh, bias, power, h, c, age, dt, mask = tensors
    stacked = x.dim() == 4
    S, B, H = x.shape[0], x.shape[-2], hh.shape[-1]
    sizes = (x.shape[1] if stacked else 1, S, B)
    kernel = plan.kernel._replace(power=power)

    def make() -> Buffers:
        with torch.inference_mode(False), torch.no_grad():
            return Buffers(kernel, sizes, H, x.device, dt is not None, mask is not None)

    key: tuple[Any, ...] = (*plan.kernel, *sizes, H, dt is None, mask is None)
    if plan.pool is not None:
        key += programs.settings(x.device)
    lease = programs.Lease(plan.pool, key, plan.strict, make)
    b = lease.b

    def rows(v: Tensor) -> Tensor:  # (S, R, B, ...) or (S, B, ...) as (R, S, B, ...)
        return v.transpose(0, 1) if stacked else v.unsqueeze(0)

    n = x.shape[-1]
    if stacked:
        torch.baddbmm(bias.unsqueeze(1), rows(x).reshape(sizes[0], S * B, n), ih.mT, out=b.z.flatten(1, 2))
    else:
        torch.addmm(bias, x.reshape(S * B, n), ih.t(), out=b.z.flatten(0, 2))
    b.hh.copy_(hh)
    for buffer, value in ((b.h, h), (b.c, c), (b.age, age)):
        if value is not None:
            buffer[:, 0].copy_(value)
    if power is not None:
        b.power.copy_(power)
    if dt is not None:
        b.dt.copy_(rows(dt))
    if mask is not None:
        b.mask.copy_(rows(mask.bool()))
    lease.forward()
    return lease


def _backward(lease: programs.Lease, tensors: Any, grads: Any, wanted: dict[str, bool]) -> dict[str, Any]:
    """Gradients by name, of those that are wanted at least."""
    x, ih, power = tensors[0], tensors[1], tensors[4]
    b, stacked = lease.b, x.dim() == 4
    d_output, *d_last = grads
    for carried, value in zip((b.dh, b.dc, b.dage), d_last, strict=True):
        if carried is not None:
            carried.zero_() if value is None else carried.copy_(value)
    if b.dpower is not None:
        b.dpower.zero_()
    if d_output is not None:
        d_output = d_output.transpose(0, 1) if stacked else d_output.unsqueeze(0)
    lease.backward(d_output, first=wanted["h"])
    R, S, B, _ = b.z.shape

    def one(v: Tensor) -> Tensor:  # without the dimension of replicas, where there are none
        return v if stacked else v[0]

    dz, before = one(b.z.flatten(1, 2)), one(b.h[:, :-1].flatten(1, 2))
    inputs = one((x.transpose(0, 1) if stacked else x.unsqueeze(0)).reshape(R, S * B, -1))
    found: dict[str, Any] = {}
    if wanted["hh"]:
        found["hh"] = dz.mT @ before
    if wanted["ih"]:
        found["ih"] = dz.mT @ inputs
    if wanted["bias"]:
        found["bias"] = dz.sum(-2)
    if wanted["x"]:
        dx = (dz @ ih).view(*(b.z.shape[:3] if stacked else (S, B)), -1)
        found["x"] = dx.transpose(0, 1) if stacked else dx
    if wanted["power"]:
        assert b.dpower is not None
        found["power"] = one(b.dpower.sum(1)).sum_to_size(power.shape)
    for name, carried in (("h", b.dh), ("c", b.dc), ("age", b.dage)):
        if wanted[name] and carried is not None:
            found[name] = one(carried).clone()
    return found
