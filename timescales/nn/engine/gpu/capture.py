"""CUDA graphs of the graph engine's loops: how they are captured, their buffers, and which call owns them.

A graph runs in its own buffers. A call owns its buffers until its backward pass is done or its autograd node is
deleted, whatever other calls come in between; results are copied out. Buffers belong to a cell and are deleted with it.

A shape is captured when it occurs for the second time, since most lengths of a text occur rarely. At most `LIVE` calls
of a shape have captured buffers at the same time. The buffers of the `KEPT` most frequent shapes are kept; if they need
more than 8 GiB, only four are kept. All other calls launch the same kernels without a graph. So does a call during
another capture, for example of a whole training step.

All graphs share cuBLAS's workspace: calls on several streams at the same time are not supported.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import torch_private
from timescales.nn.engine import kept
from timescales.nn.engine.gpu import emit_triton
from timescales.nn.engine.gpu.buffers import Buffers
from timescales.nn.engine.gpu.loops import loop_backward, loop_forward

LIVE = 2
KEPT = 64
KEPT_BYTES = 2**33


@functools.cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream for captures. There is only one, so cuBLAS has its workspace before the first capture."""
    return torch.cuda.Stream(device)


WARMED: set[tuple[Any, ...]] = set()
# Captures share a stream, so there is one at a time. The pools use this lock too: another thread may return buffers to
# a pool during a capture.
_lock = threading.RLock()


def warm_up(b: Buffers, loop: Callable[[Buffers], None]) -> None:
    """Run `loop` on two steps in other buffers, so that all kernels are compiled and loaded before a capture.

    Which kernels are compiled depends on H and on the buffers that exist; what cuBLAS loads depends on the sizes of the
    products.
    """
    R, _, B = b.sizes
    key: tuple[Any, ...] = (loop, emit_triton.code(b.equations), R, B, b.H, *b.given)
    key += (b.d_output is None, *settings(b.z.device))
    key += (threading.get_ident(),)  # cuBLAS has a handle per thread, and autograd uses another thread
    if key in WARMED:
        return
    small = b.like(steps=2)
    stream = side_stream(b.z.device)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        loop(small)
    torch.cuda.synchronize()
    WARMED.add(key)


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Turn garbage collection off: deleting a CUDA graph during a capture ends the capture (pytorch#161037)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


FAILED: list[torch.cuda.CUDAGraph] = []  # torch's allocator keeps a pointer to a graph whose capture failed


def graph_of(b: Buffers, loop: Callable[[Buffers], None]) -> torch.cuda.CUDAGraph:
    """A graph whose replay runs `loop` in the buffers `b`."""
    with _lock:
        warm_up(b, loop)
        return guarded(lambda: loop(b), b.z.device)


def guarded(launch: Callable[[], Any], device: torch.device, pool: Any = None) -> torch.cuda.CUDAGraph:
    """`record`, without anything else that could end a capture; after a failed one torch is as before."""
    with _lock, no_garbage_collection():
        try:
            return record(launch, device, pool)
        except BaseException:
            # torch's random generator still expects the failed capture, and refuses to draw until a capture succeeds.
            with contextlib.suppress(Exception):
                record(torch.zeros(1, device=device).zero_, device)
            raise


def record(launch: Callable[[], Any], device: torch.device, pool: Any = None) -> torch.cuda.CUDAGraph:
    """A graph of the kernels that `launch` launches. pool: memory that it shares with graphs that run before or after.

    Graphs share what none of them holds in a tensor once it has run.
    """
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle() if pool is None else pool
    cause: BaseException | None = None
    try:
        # The outer context restores the current stream if the capture fails; torch's own context does not.
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
        if torch.__version__ < "2.12":  # a TorchVersion, which compares by numbers
            FAILED.append(graph)
            with contextlib.suppress(Exception):
                torch_private.end_failed_capture(device, pool)
        # The end of the capture also raises an error, but it only says that the capture failed.
        raise (cause or error) from None
    return graph


_allowed = contextvars.ContextVar("allowed", default=True)


@contextlib.contextmanager
def no_graphs() -> Iterator[None]:
    """Calls in the block capture nothing."""
    token = _allowed.set(False)
    try:
        yield
    finally:
        _allowed.reset(token)


def is_wanted(x: Tensor) -> bool:
    """Whether to capture graphs. During another capture the steps become part of that one."""
    return x.is_cuda and _allowed.get() and not torch.cuda.is_current_stream_capturing()


def rounding() -> str:
    """The precision of float32 products on a GPU: "tf32", or another word for full precision."""
    # torch.get_float32_matmul_precision raises if the newer torch.backends.cuda.matmul.fp32_precision was set.
    precision = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    return precision or ("ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32")


def settings(device: torch.device) -> tuple[Any, ...]:
    """What the kernels of a capture depend on: device, stream, and torch's settings."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    return device, torch.cuda.current_stream(device).cuda_stream, rounding(), deterministic


class Captured:
    """Buffers and the graphs that run in them. The graphs for backward are captured when they are first needed."""

    def __init__(self, b: Buffers) -> None:
        self.b = b
        self.forward = graph_of(b, loop_forward)
        self.d_output: Tensor | None = None
        self._backward: dict[bool, torch.cuda.CUDAGraph] = {}

    def backward(self, d_output: Tensor | None) -> torch.cuda.CUDAGraph:
        """The graph for a backward pass with the gradient of the outputs (R, S, B, H), or without it."""
        has_d_output = d_output is not None
        if d_output is not None:
            if self.d_output is None:
                self.d_output = torch.empty(d_output.shape, device=d_output.device, dtype=torch.float32)
            self.d_output.copy_(d_output)
        self.b.d_output = self.d_output if has_d_output else None
        if has_d_output not in self._backward:
            self._backward[has_d_output] = graph_of(self.b, loop_backward)
        return self._backward[has_d_output]


class Pool:
    """The captured calls of one cell."""

    def __init__(self) -> None:
        self._seen: Counter[Any] = Counter()
        self._live: Counter[Any] = Counter()
        self._free: list[tuple[Any, Captured]] = []
        self.failures: Counter[Any] = Counter()  # failed captures by key; after two, a key is not captured any more

    def take(self, key: Any, make: Callable[[], Captured]) -> Captured | None:
        """Captured buffers for calls with this key; None if the call should run without a graph.

        The caller owns them until it calls `give`.
        """
        with _lock:
            self._seen[key] += 1
            if self._seen[key] < 2 or self._live[key] >= LIVE:
                return None
            captured = self._take_free(key)
            if captured is None:
                # A capture for a single use would cost more than it saves.
                if self._full() and self._seen[key] <= min(self._seen[other] for other, _ in self._free):
                    return None
                captured = self._make(make)
            self._live[key] += 1
            return captured

    def _take_free(self, key: Any) -> Captured | None:
        for k, (other, captured) in enumerate(self._free):
            if other == key:
                del self._free[k]
                return captured
        return None

    def _make(self, make: Callable[[], Captured]) -> Captured:
        try:
            return make()
        except torch.OutOfMemoryError:  # what is kept for later may use the memory
            if not self._free:
                raise
            self._drop(len(self._free))
            torch.cuda.empty_cache()
            return make()

    def give(self, key: Any, captured: Captured) -> None:
        """Return captured buffers. If too many are kept, those with the rarest shape are deleted."""
        with _lock:
            self._live[key] -= 1
            full = self._full()
            self._free.append((key, captured))
            # `_drop` synchronises, which is not allowed during a capture. Then a later call drops them.
            if full and not torch.cuda.is_current_stream_capturing():
                self._drop(1)

    def lose(self, key: Any) -> None:
        """Forget captured buffers that were taken."""
        with _lock:
            self._live[key] -= 1
        torch.cuda.synchronize()  # a graph must not be deleted while it runs

    def _full(self) -> bool:
        large = sum(captured.b.bytes() for _, captured in self._free) > KEPT_BYTES
        # Four: a whole and a last batch in training and in validation.
        return len(self._free) >= KEPT or (large and len(self._free) >= 4)

    def _drop(self, n: int) -> None:
        """Delete the n captured buffers with the rarest shapes."""
        torch.cuda.synchronize()  # a graph must not be deleted while it runs
        self._free.sort(key=lambda pair: self._seen[pair[0]])
        del self._free[:n]


class Lease:
    """The buffers of a call, and how to run in them. `release` returns them; so does the deletion of the lease."""

    def __init__(self, pool: Pool | None, key: Any, strict: bool, make: Callable[[], Buffers]) -> None:
        self._pool, self._key, self._strict = pool, key, strict
        self._captured: Captured | None = None
        if pool is not None and (strict or pool.failures[key] < 2):
            try:
                self._captured = pool.take(key, lambda: Captured(make()))
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                self._failed(error)
        self.b = make() if self._captured is None else self._captured.b

    def forward(self) -> None:
        """Run all steps forward."""
        if self._captured is None:
            loop_forward(self.b)
        else:
            self._captured.forward.replay()

    def backward(self, d_output: Tensor | None, first: bool) -> None:
        """Run all steps backward. d_output: gradient of the outputs, (R, S, B, H). first: see `loop_backward`."""
        graph = None
        if self._captured is not None:
            try:
                graph = self._captured.backward(d_output)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                assert self._pool is not None
                self._pool.lose(self._key)
                self._captured = None
                self._failed(error)
        if graph is None:
            self.b.d_output = None if d_output is None else d_output.contiguous()
            loop_backward(self.b, first)
        else:
            graph.replay()

    def _failed(self, error: Exception) -> None:
        """Raise for a failed capture (strict), or count it and print it when the key is given up."""
        if self._strict:
            raise RuntimeError(f"the graph engine could not capture: {one_line(error)}; use engine='eager'") from error
        assert self._pool is not None
        self._pool.failures[self._key] += 1
        if self._pool.failures[self._key] == 2:
            announce(f"capturing {self._key} failed twice, its steps are launched one by one: {one_line(error)}")

    def release(self) -> None:
        """Return the buffers for the next call with this shape."""
        captured, self._captured = self._captured, None
        if captured is not None and self._pool is not None:
            self._pool.give(self._key, captured)

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing():
            self.release()


def announce(reason: str, engine: str = "graph") -> None:
    """Print one line: an engine for GPUs does not run, and why."""
    print(f"timescales: no {engine} engine, something slower runs: {reason}", file=sys.stderr)


def one_line(error: BaseException) -> str:
    """The class of an exception and the first line of its message."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def run_or(
    engine: str, run: Callable[..., tuple[Any, ...]], other: Callable[..., tuple[Any, ...]], call: Sequence[Any]
) -> tuple[Any, ...]:
    """`run` of a call, with the engine of this name; if it fails, print the reason once, and run the other one."""
    try:
        return run(*call)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        reason = one_line(error)
        if kept.is_new(reason):
            announce(reason, engine)
        return other(*call)
