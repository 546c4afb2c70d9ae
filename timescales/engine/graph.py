"""The GPU engine: per step one matrix product and one pointwise kernel, the whole sequence replayed as a CUDA graph.

    forward    z = x W^T + b for all steps;  then per step  z_t += h U^T  and  pointwise.forward
    backward   per step  pointwise.backward  and  dh += dz_t U;  then dU, dW, db and dx of all steps at once

The equations are in pointwise.py, in Triton for a GPU and in plain torch; on the CPU the latter run, uncaptured, so
that all but the launching is tested without a GPU. Only float32; whether products round to TF32 is torch's setting.

What it costs (held by tests/test_graph.py), per step and layer: 2 launches forward and 2 backward (the first step's
product backward only if the state before wants a gradient), and besides, per call, 1 product forward and 2 or 3
backward. Per row (step x sequence) of H units it holds G H + 2 H floats (3 H with an age), and H more for the gradients
of the outputs in a graph; for a pLSTM of 3 gates 7 H: copy at T = 200 (220 x 128 x 128) 102 MB.

Graphs run in buffers of their own. A call has its buffers alone until its backward is done or its autograd node dies,
whatever other calls come in between; results are copied out. Buffers are kept per cell, and die with it: a failed or
finished job leaves nothing. A shape is captured when it comes for the second time (of all lengths of a text most come
rarely), in at most `LIVE` buffers at once; those of the `KEPT` most frequent shapes are kept, no more than 8 GiB if
they are more than four. Everything else runs the same launches uncaptured, as does a call inside somebody else's
capture, of a whole training step for instance. All graphs share cuBLAS's workspace: calls on several streams at once
are not supported.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.cells.cell import Cell, Weights
from timescales.engine import eager, pointwise
from timescales.engine.kernel import Kernel, check_backward, kernel_of, no_jvp, traced

LIVE = 2
KEPT = 32
KEPT_BYTES = 2**33


# --------------------------------------------------------------------------------------------- can it run?


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
        announce(reason := one_line(error))
        return f"{reason}; use engine='eager'"
    return ""


def _try(kind: str, device: torch.device) -> None:
    sizes, H, gates = (1, 3, 5), 7, pointwise.GATES[kind]
    normal = functools.partial(torch.randn, dtype=torch.float32)
    given = {"z": normal(*sizes, gates * H), "h": normal(1, 5, H), "c": normal(1, 5, H)}
    given |= {"age": normal(1, 5, H).abs(), "hh": normal(1, gates * H, H), "d_output": normal(*sizes, H)}
    tolerance = 1e-2 if rounding() == "tf32" else 1e-4  # TF32 has ten bits
    power = torch.full((H,), 0.4, dtype=torch.float32)
    found = []
    for where in (torch.device("cpu"), device):
        b = Buffers(Kernel(kind, power, 1e-3, 0.0), sizes, H, where, False, False)
        b.d_output = torch.empty(*sizes, H, device=where, dtype=torch.float32)
        graphs = [capture(b, loop) for loop in (loop_forward, loop_backward)] if where.type == "cuda" else []
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


def announce(reason: str) -> None:
    """Say in one line that something slower runs."""
    print(f"timescales: no graph engine, something slower runs: {reason}", file=sys.stderr)


def one_line(error: BaseException) -> str:
    """An exception's kind and the first line of its text."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


# --------------------------------------------------------------------------------------------- one sequence


class Buffers:
    """What a call works in: R replicas, S steps, B sequences, H units.

    (R, S, B, n): z, the pre-activations, then what backward wants to know, then their gradients; dt, mask; d_output or
    None. (R, S + 1, B, H): h, c, age before each step and after the last. (R, B, H): dh, dc, dage, dpower, carried
    backward. hh: (R, G*H, H); power: (R, H).
    """

    d_output: Tensor | None
    age: Tensor | None
    dage: Tensor | None
    dpower: Tensor | None
    power: Tensor | None

    def __init__(
        self, kernel: Kernel, sizes: tuple[int, int, int], H: int, device: torch.device, timed: bool, masked: bool
    ) -> None:
        R, S, B = sizes
        self.kind, self.epsilon, self.floor, self.H = kernel.kind, kernel.epsilon, kernel.floor, H
        self.gates, self.aged = pointwise.GATES[self.kind], self.kind in pointwise.AGED
        empty = functools.partial(torch.empty, device=device, dtype=torch.float32)
        self.z, self.hh = empty(R, S, B, self.gates * H), empty(R, self.gates * H, H)
        self.h, self.c = empty(R, S + 1, B, H), empty(R, S + 1, B, H)
        self.dh, self.dc, self.d_output = empty(R, B, H), empty(R, B, H), None
        self.age = self.dage = self.dpower = self.power = None
        if self.aged:
            self.age, self.dage, self.dpower = empty(R, S + 1, B, H), empty(R, B, H), empty(R, B, H)
            self.power = empty(R, H)
            if kernel.power is not None:
                self.power.copy_(kernel.power.detach())
        self.dt = torch.ones(R, S, B, device=device, dtype=torch.float32) if timed else None
        self.mask = torch.ones(R, S, B, device=device, dtype=torch.uint8) if masked else None

    def clear_carried(self) -> None:
        """No gradient yet."""
        for carried in (self.dh, self.dc, self.dage, self.dpower):
            if carried is not None:
                carried.zero_()

    def bytes(self) -> int:
        """Of all buffers together."""
        return sum(v.numel() * v.element_size() for v in vars(self).values() if isinstance(v, Tensor))


def triton_runs(b: Buffers) -> bool:
    """Whether steps are Triton's, not the twins'."""
    return b.z.is_cuda


def loop_forward(b: Buffers) -> None:
    """All steps, from h[:, 0], c[:, 0], age[:, 0] and the input's share of the pre-activations in z."""
    step = pointwise.launch_forward if triton_runs(b) else pointwise.step_forward
    for t in range(b.z.shape[1]):
        if len(b.z) == 1:
            b.z[0, t].addmm_(b.h[0, t], b.hh[0].t())
        else:
            b.z[:, t].baddbmm_(b.h[:, t], b.hh.mT)
        step(b, t)


def loop_backward(b: Buffers, first: bool = True) -> None:
    """All steps from the last to the first; leaves dz in z. first: also the product that gives the first h its dh."""
    step = pointwise.launch_backward if triton_runs(b) else pointwise.step_backward
    for t in reversed(range(b.z.shape[1])):
        step(b, t)
        if t == 0 and not first:
            return
        if len(b.z) == 1:
            b.dh[0].addmm_(b.z[0, t], b.hh[0])
        else:
            b.dh.baddbmm_(b.z[:, t], b.hh)


# --------------------------------------------------------------------------------------------- graphs


@functools.cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """Where graphs are captured; one, so that cuBLAS has its workspace there before the first capture."""
    return torch.cuda.Stream(device)


_warmed: set[tuple[Any, ...]] = set()
# One capture at a time: they share that stream. The pools' lock too: during a capture the garbage collector may give
# buffers back to a pool whose thread waits to capture.
_lock = threading.RLock()


def warm_up(b: Buffers, loop: Callable[[Buffers], None]) -> None:
    """Compile, load and choose all that `loop` will launch: none of that may happen during a capture.

    On two steps in other buffers. What is compiled depends on H and on which buffers there are, what cuBLAS loads on
    the sizes of the products.
    """
    R, _, B, _ = b.z.shape
    key = (loop, b.kind, R, B, b.H, b.dt is None, b.mask is None, b.d_output is None, *settings(b.z.device))
    key += (threading.get_ident(),)  # cuBLAS has a handle per thread, and autograd a thread of its own
    if key in _warmed:
        return
    kernel = Kernel(b.kind, b.power, b.epsilon, b.floor)
    small = Buffers(kernel, (R, 2, B), b.H, b.z.device, b.dt is not None, b.mask is not None)
    for value in vars(small).values():
        if isinstance(value, Tensor):
            value.zero_()
    if b.d_output is not None:
        small.d_output = torch.zeros_like(small.h[:, 1:]).contiguous()
    stream = side_stream(b.z.device)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        loop(small)
    torch.cuda.synchronize()
    _warmed.add(key)


def capture(b: Buffers, loop: Callable[[Buffers], None]) -> torch.cuda.CUDAGraph:
    """A graph that runs `loop` in the buffers `b` whenever it is replayed."""
    with _lock:
        warm_up(b, loop)
        try:
            return record(lambda: loop(b), b.z.device)
        except BaseException:
            # torch's random generator believes in the capture that failed, and refuses every draw until one succeeds.
            with contextlib.suppress(Exception):
                record(b.dh.zero_, b.z.device)
            raise


def record(launch: Callable[[], Any], device: torch.device) -> torch.cuda.CUDAGraph:
    """A graph of what `launch` launches."""
    graph = torch.cuda.CUDAGraph()
    # The outer context restores this stream if the capture fails and torch's own context does not.
    with (
        torch.cuda.stream(torch.cuda.current_stream()),
        torch.cuda.graph(graph, stream=side_stream(device), capture_error_mode="thread_local"),
    ):
        launch()
    return graph


def captures(x: Tensor) -> bool:
    """Whether graphs are captured here; inside somebody else's capture the steps become part of that."""
    return x.is_cuda and not torch.cuda.is_current_stream_capturing()


def rounding() -> str:
    """What float32 products on a GPU may round to: "tf32", or another word for not at all."""
    # torch.get_float32_matmul_precision raises where somebody set the newer torch.backends.cuda.matmul.fp32_precision.
    known = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    return known or ("ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32")


def settings(device: torch.device) -> tuple[Any, ...]:
    """What decides which kernels a capture records: where it runs, and torch's settings."""
    exact = torch.are_deterministic_algorithms_enabled()
    return device, torch.cuda.current_stream(device).cuda_stream, rounding(), exact


class Program:
    """Buffers with the graphs that run in them: forward's from the start, backward's when it is first wanted."""

    def __init__(self, b: Buffers) -> None:
        self.b = b
        self.forward = capture(b, loop_forward)
        self.d_output: Tensor | None = None
        self._backward: dict[bool, torch.cuda.CUDAGraph] = {}

    def backward(self, d_output: Tensor | None) -> torch.cuda.CUDAGraph:
        """The graph for a backward pass with this gradient of every output, or without."""
        every = d_output is not None
        if d_output is not None:
            if self.d_output is None:
                self.d_output = torch.empty(d_output.shape, device=d_output.device, dtype=torch.float32)
            self.d_output.copy_(d_output)
        self.b.d_output = self.d_output if every else None
        if every not in self._backward:
            self._backward[every] = capture(self.b, loop_backward)
        return self._backward[every]


class Pool:
    """The captured programs of one cell."""

    def __init__(self) -> None:
        self._seen: Counter[Any] = Counter()
        self._live: Counter[Any] = Counter()
        self._free: list[tuple[Any, Program]] = []

    def take(self, key: Any, make: Callable[[], Program]) -> Program | None:
        """A program for calls with this key, for the caller alone until `give`; None where it should run uncaptured."""
        with _lock:
            self._seen[key] += 1
            if self._seen[key] < 2 or self._live[key] >= LIVE:
                return None
            found = next((k for k, (other, _) in enumerate(self._free) if other == key), None)
            if found is not None:
                program = self._free.pop(found)[1]
            elif self._full() and self._seen[key] <= min(self._seen[other] for other, _ in self._free):
                return None  # to capture one shape after the other for a single use each would cost more than it saves
            else:
                try:
                    program = make()
                except torch.OutOfMemoryError:  # what is kept for later may be what is in the way
                    if not self._free:
                        raise
                    self._drop(len(self._free))
                    torch.cuda.empty_cache()
                    program = make()
            self._live[key] += 1
            return program

    def give(self, key: Any, program: Program) -> None:
        """Take a program back; of too many the one whose shape comes least goes."""
        with _lock:
            self._live[key] -= 1
            full = self._full()
            self._free.append((key, program))
            # Nothing may wait while some graph is captured: the next call drops it.
            if full and not torch.cuda.is_current_stream_capturing():
                self._drop(1)

    def lose(self, key: Any) -> None:
        """A program that was taken does not come back."""
        with _lock:
            self._live[key] -= 1
        torch.cuda.synchronize()  # a graph must not die while it runs

    def _full(self) -> bool:
        large = sum(program.b.bytes() for _, program in self._free) > KEPT_BYTES
        return len(self._free) >= KEPT or (large and len(self._free) >= 4)  # whole and last batches, two splits

    def _drop(self, n: int) -> None:
        torch.cuda.synchronize()  # a graph must not die while it runs
        self._free.sort(key=lambda pair: self._seen[pair[0]])
        del self._free[:n]


_pools: weakref.WeakKeyDictionary[Cell, Pool] = weakref.WeakKeyDictionary()
_uncapturable: set[Any] = set()  # keys whose capture failed, and was announced


class Lease:
    """A call's buffers, and how to run in them; `release` gives them back, as does its end."""

    def __init__(self, pool: Pool | None, key: Any, strict: bool, make: Callable[[], Buffers]) -> None:
        self._pool, self._key, self._strict = pool, key, strict
        self._program: Program | None = None
        if pool is not None and (strict or key not in _uncapturable):
            try:
                self._program = pool.take(key, lambda: Program(make()))
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                self._failed(error)
        self.b = make() if self._program is None else self._program.b

    def forward(self) -> None:
        """All steps forward."""
        if self._program is None:
            loop_forward(self.b)
        else:
            self._program.forward.replay()

    def backward(self, d_output: Tensor | None, first: bool) -> None:
        """All steps backward; d_output (R, S, B, H)."""
        graph = None
        if self._program is not None:
            try:
                graph = self._program.backward(d_output)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                assert self._pool is not None
                self._pool.lose(self._key)
                self._program = None
                self._failed(error)
        if graph is None:
            self.b.d_output = None if d_output is None else d_output.contiguous()
            loop_backward(self.b, first)
        else:
            graph.replay()

    def _failed(self, error: Exception) -> None:
        if self._strict:
            raise RuntimeError(f"the graph engine could not capture: {one_line(error)}; use engine='eager'") from error
        _uncapturable.add(self._key)
        announce(f"capturing {self._key} failed, its steps are launched one by one: {one_line(error)}")

    def release(self) -> None:
        """Give the buffers back, for the next call of this shape."""
        program, self._program = self._program, None
        if program is not None and self._pool is not None:
            self._pool.give(self._key, program)

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing():
            self.release()


# --------------------------------------------------------------------------------------------- autograd


def run(
    cell: Cell, x: Tensor, weights: Weights, state: Any, dt: Tensor | None = None, mask: Tensor | None = None,
    strict: bool = True,
) -> tuple[Tensor, Any]:  # fmt: skip
    """Run a cell over a sequence; see `eager.run`, replicas included. strict: raise where no graph can be captured.

    Empty sequences and batches and a gradient to dt go to the eager engine.
    """
    if x.shape[0] == 0 or x[0].numel() == 0 or (dt is not None and dt.requires_grad and torch.is_grad_enabled()):
        return eager.run(cell, x, weights, state, dt, mask)
    x, dt = eager.blanked(x, dt, mask)
    kernel = kernel_of(cell)
    assert kernel is not None, "why_not comes first"
    ih, hh, bias, other = weights
    bias = bias if other is None else bias + other
    age = getattr(state, "age", None)
    tensors = (x, ih, hh, bias, kernel.power, state.h, state.c, age)
    keep = torch.is_grad_enabled() and any(v is not None and v.requires_grad for v in tensors)
    pool = _pools.setdefault(cell, Pool()) if captures(x) else None
    with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
        plan = Plan(kernel._replace(power=None), pool, strict, keep)
        output, h, c, age = Sequence.apply(plan, *tensors, dt, mask)  # type: ignore[no-untyped-call]
    return output, type(state)(*((h, c) if age is None else (h, c, age)))


def run_or_eager(
    cell: Cell, x: Tensor, weights: Weights, state: Any, dt: Tensor | None = None, mask: Tensor | None = None
) -> tuple[Tensor, Any]:
    """`run`, and where that fails the eager engine, with one line that says why: what engine="auto" means."""
    try:
        return run(cell, x, weights, state, dt, mask, strict=False)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        if (reason := one_line(error)) not in _said:
            _said.add(reason)
            announce(reason)
        return eager.run(cell, x, weights, state, dt, mask)


_said: set[str] = set()


class Plan(NamedTuple):
    """What a call is besides its tensors; keep: backward will come."""

    kernel: Kernel
    pool: Pool | None
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


def _forward(plan: Plan, tensors: Any) -> Lease:
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
        key += settings(x.device)
    lease = Lease(plan.pool, key, plan.strict, make)
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


def _backward(lease: Lease, tensors: Any, grads: Any, wanted: dict[str, bool]) -> dict[str, Any]:
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
