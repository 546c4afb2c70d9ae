"""CUDA graphs of the GPU engine's loops: how they are captured, in which buffers, and who has these when.

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
import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from timescales.nn.engine.buffers import Buffers, loop_backward, loop_forward
from timescales.nn.engine.kernel import Kernel

LIVE = 2
KEPT = 64
KEPT_BYTES = 2**33


@functools.cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """Where graphs are captured; one, so that cuBLAS has its workspace there before the first capture."""
    return torch.cuda.Stream(device)


_warmed: set[tuple[Any, ...]] = set()
# One capture at a time: they share that stream. The pools' lock too: during a capture another thread may give buffers
# back to a pool.
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


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """No garbage collection within: a CUDA graph that dies in a capture ends it (pytorch#161037)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_broken: list[torch.cuda.CUDAGraph] = []  # torch's allocator keeps a pointer to a graph whose capture failed


def capture(b: Buffers, loop: Callable[[Buffers], None]) -> torch.cuda.CUDAGraph:
    """A graph that runs `loop` in the buffers `b` whenever it is replayed."""
    with _lock, nothing_collected():
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
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    cause: BaseException | None = None
    try:
        # The outer context restores this stream if the capture fails and torch's own context does not.
        with (
            torch.cuda.stream(torch.cuda.current_stream()),
            torch.cuda.graph(graph, pool=pool, stream=side_stream(device), capture_error_mode="thread_local"),
        ):
            try:
                launch()
            except BaseException as error:
                cause = error
                raise
    except BaseException as error:
        if torch.__version__ < (2, 12):
            # Its allocator believes in the capture that failed, and gives no memory back any more.
            _broken.append(graph)
            with contextlib.suppress(Exception):
                torch._C._cuda_endAllocateToPool(device.index, pool)
        # The end of the capture raises an error, too, which says only that it failed.
        raise (cause or error) from None
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
        self.failures: Counter[Any] = Counter()  # captures that failed, by key: after two it is not tried again

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
        """Take a program back; if there are too many, the one whose shape comes least often goes."""
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


class Lease:
    """A call's buffers, and how to run in them; `release` gives them back, as does its end."""

    def __init__(self, pool: Pool | None, key: Any, strict: bool, make: Callable[[], Buffers]) -> None:
        self._pool, self._key, self._strict = pool, key, strict
        self._program: Program | None = None
        if pool is not None and (strict or pool.failures[key] < 2):
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
        assert self._pool is not None
        self._pool.failures[self._key] += 1
        if self._pool.failures[self._key] == 2:
            announce(f"capturing {self._key} failed twice, its steps are launched one by one: {one_line(error)}")

    def release(self) -> None:
        """Give the buffers back, for the next call of this shape."""
        program, self._program = self._program, None
        if program is not None and self._pool is not None:
            self._pool.give(self._key, program)

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing():
            self.release()


def announce(reason: str) -> None:
    """Say in one line that something slower runs."""
    print(f"timescales: no graph engine, something slower runs: {reason}", file=sys.stderr)


def one_line(error: BaseException) -> str:
    """An exception's kind and the first line of its text."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
