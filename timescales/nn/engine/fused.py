"""The fused CPU engine: the time loop of fused.cpp, compiled on this machine at first use, under autograd.

    engine = pick("fused", cell, x)      # or "auto"; see timescales.nn.engine

The library is built once by the system's C++ compiler into the user's cache directory and loaded with ctypes. It needs
float32 on the CPU and a cell with a kernel (`kernel.kernel_of`). Where there is no compiler, `why_not` says so.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import mmap
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from timescales.files import cache_dir
from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import eager
from timescales.nn.engine.kernel import KINDS, Kernel, check_backward, kernel_of, no_jvp, traced

# --------------------------------------------------------------------------------------------- the library

SOURCE = Path(__file__).with_suffix(".cpp")
COMPILERS = ("g++", "c++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-fPIC", "-shared")


class Problem(ctypes.Structure):
    """One call of the library; the same fields in the same order as `struct Problem` in fused.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("cell", "threads", "S", "B", "I", "H", "keep")),
        *((name, ctypes.c_float) for name in ("epsilon", "floor")),
        *((name, ctypes.c_void_p) for name in ("x", "ih", "hh", "bias", "power")),
        *((name, ctypes.c_int64) for name in ("x_step", "x_row")),
        *((name, ctypes.c_void_p) for name in ("h", "c", "age", "dt", "mask", "order")),
        *((name, ctypes.c_void_p) for name in ("output", "h_last", "c_last", "age_last", "workspace", "d_output")),
        *((name, ctypes.c_int64) for name in ("d_output_step", "d_output_row")),
        *((name, ctypes.c_void_p) for name in ("d_h_last", "d_c_last", "d_age_last")),
        *((name, ctypes.c_void_p) for name in ("d_x", "d_ih", "d_hh", "d_bias", "d_power", "d_h", "d_c", "d_age")),
    ]


class BuildError(Exception):
    """Why there is no library, in one line."""


@functools.cache
def library() -> ctypes.CDLL | str:
    """The compiled library, or in one line why there is none. Asked once; a failure is announced once."""
    try:
        lib = ctypes.CDLL(str(build()))
    except (BuildError, OSError) as error:
        print(f"timescales: no fused engine, the slower eager one runs: {error}", file=sys.stderr)
        return str(error)
    lib.timescales_workspace.restype = ctypes.c_int64
    for function in (lib.timescales_workspace, lib.timescales_forward, lib.timescales_backward):
        function.argtypes = [ctypes.POINTER(Problem)]
    return lib


def build() -> Path:
    """The library's file, compiled if the cache does not hold it whole.

    Its name is a hash of the source, the flags, the compiler and the processor. Its last 32 bytes are the SHA-256 of
    the others, so that a damaged file is known before it is loaded. Processes that want it at once wait for the first.
    """
    compiler = find_compiler()
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout
    made_of = (SOURCE.read_text(), *FLAGS, *compiler, version, processor())
    directory = cache_dir()
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"fused-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:20]}.so"
    if not is_whole(file):
        with open(file.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_whole(file):
                compile_to(file, compiler)
    return file


def find_compiler() -> list[str]:
    """The command of a C++ compiler: $CXX, which may carry arguments, or the first of COMPILERS on the path."""
    if command := shlex.split(os.environ.get("CXX", "")):
        if shutil.which(command[0]):
            return command
        raise BuildError(f"CXX={os.environ['CXX']} is not on the path")
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    raise BuildError(f"no C++ compiler found ({', '.join(COMPILERS)}); install one or set CXX")


def processor() -> str:
    """What -march=native means here: a cache directory may be shared by machines of several kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))


def is_whole(file: Path) -> bool:
    """Whether a library in the cache is as it was written: its last 32 bytes are the hash of the rest."""
    if not file.exists():
        return False
    data = file.read_bytes()
    return hashlib.sha256(data[:-32]).digest() == data[-32:]


def compile_to(file: Path, compiler: list[str]) -> None:
    """Compile fused.cpp into `file`, whole or not at all. Raises BuildError with the compiler's first complaint."""
    print(f"timescales: compiling the fused engine with {compiler[0]}, once ({file})", file=sys.stderr)
    for left_by_a_kill in file.parent.glob(f"{file.stem}.*.build"):  # who compiles holds the lock: nobody's now
        shutil.rmtree(left_by_a_kill, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=f"{file.stem}.", suffix=".build") as scratch:
        made = Path(scratch) / file.name
        # Without OpenMP: one thread; without the processor's own instructions: narrow vectors.
        for left_out in ((), ("-fopenmp",), ("-march=native",), ("-fopenmp", "-march=native")):
            command = [*compiler, *(flag for flag in FLAGS if flag not in left_out), str(SOURCE), "-o", str(made)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode == 0:
                break
        else:
            reason = next((line for line in result.stderr.splitlines() if "error" in line), "it gave no reason")
            raise BuildError(f"{compiler[0]} failed: {reason}")
        data = made.read_bytes()
        made.write_bytes(data + hashlib.sha256(data).digest())
        os.replace(made, file)


# --------------------------------------------------------------------------------------------- workspaces


class Workspace:
    """Memory that a forward call fills for its backward call.

    Fresh memory of this size costs the operating system's page faults every time, as much as a quarter of a training
    step; so released memory is kept for the next call. A workspace is its caller's alone until `release`.
    """

    _free: list[tuple[mmap.mmap, int]] = []
    _lock = threading.Lock()
    _memory: tuple[mmap.mmap, int] | None = None  # also of one that torch.compile makes without __init__
    KEPT = 8  # more free ones than this are given back to the system, the smallest first

    def __init__(self, floats: int) -> None:
        need = 4 * floats
        with self._lock:
            # The smallest that is large enough, but no giant for a dwarf.
            fits = [pair for pair in self._free if need <= len(pair[0]) <= 4 * need + (1 << 20)]
            best = min(fits, key=lambda pair: len(pair[0]), default=None)
            if best is not None:
                self._free.remove(best)
        if best is None:
            # Private: a shared mapping would be one memory for a forked process and its parent.
            memory = mmap.mmap(-1, need, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                memory.madvise(mmap.MADV_HUGEPAGE)
            best = memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._memory = best

    @property
    def address(self) -> int:
        """Where the memory begins."""
        assert self._memory is not None, "a released workspace"
        return self._memory[1]

    def release(self) -> None:
        """Give the memory back, for the next call that wants as much."""
        memory, self._memory = self._memory, None
        if memory is not None:
            with self._lock:
                self._free.append(memory)
                if len(self._free) > self.KEPT:
                    self._free.remove(min(self._free, key=lambda pair: len(pair[0])))

    def __del__(self) -> None:
        self.release()


# --------------------------------------------------------------------------------------------- autograd


def why_not(cell: Cell, x: Tensor) -> str:
    """Why this engine cannot run `cell` over `x`, with what to do about it; "" if it can."""
    if kernel_of(cell) is None:
        return f"it has no kernel for {cell}; use engine='eager'"
    if reason := traced():
        return reason
    for name, tensor in (("x", x), ("the weights", cell.weight_hh)):
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            return f"{name} must be float32 on the CPU, not {tensor.dtype} on {tensor.device}; use engine='eager'"
    if x.dim() != 3 or cell.weight_hh.dim() != 2:
        return f"x must be (S, B, I), not {tuple(x.shape)}; use engine='eager' for stacked replicas"
    lib = library()
    return lib if isinstance(lib, str) else ""


def run(
    cell: Cell, x: Tensor, weights: Weights, state: Any, dt: Tensor | None = None, mask: Tensor | None = None
) -> tuple[Tensor, Any]:
    """Run a cell over a sequence; see `eager.run`.

    What the library does not do goes to the eager engine: empty batches, a gradient to dt, and fewer than two steps,
    where laying out the weights would cost more than it saves.
    """
    if x.shape[0] < 2 or x.shape[1] == 0 or (dt is not None and dt.requires_grad and torch.is_grad_enabled()):
        return eager.run(cell, x, weights, state, dt, mask)
    kernel = kernel_of(cell)
    assert kernel is not None, "why_not comes first"
    kernel = kernel._replace(threads=torch.get_num_threads())
    ih, hh, bias, other = weights
    if other is not None:
        bias = bias + other
    tensors = (x, ih, hh, bias, kernel.power, *state)
    assert all(t is None or (t.dtype, t.device.type) == (torch.float32, "cpu") for t in tensors), "read as raw memory"
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    age = getattr(state, "age", None)
    output, h, c, age = Fused.apply(kernel, keep, x, ih, hh, bias, kernel.power, state.h, state.c, age, dt, mask)
    return output, type(state)(*((h, c) if age is None else (h, c, age)))


class Fused(torch.autograd.Function):
    """The sequence as one node of the graph: (output, h, c, age) from (x, ih, hh, bias, power, h, c, age, dt, mask)."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, keep: bool, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)  # a result without a gradient: None, not zeros of the sequence's size
        x, ih, hh, bias, power, h, c, age, dt, mask = tensors
        plain = (
            _rows(x), *(None if t is None else t.contiguous() for t in (ih, hh, bias, power, h, c, age)),
            None if dt is None else dt.to(torch.float32).contiguous(),
            None if mask is None else mask.bool().contiguous(),
            None if mask is None else _longest_first(mask.bool(), kernel.threads),
        )  # fmt: skip
        ctx.kernel = kernel
        ctx.workspace, results = _forward(kernel, keep, plain)
        if keep:
            ctx.save_for_backward(*plain, results[0])
        else:
            ctx.workspace.release()
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        check_backward("fused", grads)
        *plain, output = ctx.saved_tensors
        workspace, ctx.workspace = ctx.workspace, None
        if workspace is None:  # a second backward through a retained graph: the first used the activations up
            workspace, _ = _forward(ctx.kernel, True, plain)
        wanted = ctx.needs_input_grad[2:]
        if not any(wanted):
            return (None,) * len(ctx.needs_input_grad)
        x, ih, hh, bias, power, h, c, age, *_ = plain
        d_output, *d_last = grads
        d_output = None if d_output is None else _rows(d_output)
        d_last = [None if d is None else d.contiguous() for d in d_last]
        wanted = [wanted[0], *[any(wanted[1:4])] * 3, *wanted[4:8]]  # the weights' gradients are one product
        results = [
            t.new_empty(t.shape) if t is not None and want else None
            for t, want in zip((x, ih, hh, bias, power, h, c, age), wanted, strict=True)
        ]
        problem = _problem(ctx.kernel, True, plain, workspace)
        problem.output = output.data_ptr()
        if d_output is not None:
            problem.d_output = d_output.data_ptr()
            problem.d_output_step, problem.d_output_row = d_output.stride()[:2]
        _point(problem, ("d_h_last", "d_c_last", "d_age_last"), d_last)
        _point(problem, ("d_x", "d_ih", "d_hh", "d_bias", "d_power", "d_h", "d_c", "d_age"), results)
        library().timescales_backward(ctypes.byref(problem))
        workspace.release()
        return None, None, *results, None, None

    jvp = staticmethod(no_jvp)


def _rows(x: Any) -> Tensor:
    """x (S, B, n) with its last dimension contiguous; steps and rows may lie anywhere (batch_first)."""
    return x if x.stride(2) == 1 or x.shape[2] == 1 else x.contiguous()


def _longest_first(mask: Tensor, threads: int) -> Tensor:
    """The batch in the order that costs least, (B,): in each thread's slice the sequences with most steps first.

    A step's products are made for all rows up to the last that exists. Any order gives the same results.
    """
    S, B = mask.shape
    slices = (torch.arange(1, B + 1) * threads - 1) // B  # row b is of slice k if B k // threads <= b, the last such k
    return (slices * (S + 1) - mask.sum(0)).argsort()


def _point(problem: Problem, names: tuple[str, ...], tensors: Any) -> None:
    for name, tensor in zip(names, tensors, strict=True):
        setattr(problem, name, None if tensor is None else tensor.data_ptr())


def _problem(kernel: Kernel, keep: bool, plain: Any, workspace: Workspace | None) -> Problem:
    x, hh = plain[0], plain[2]
    (S, B, I), H = x.shape, hh.shape[-1]  # noqa: E741
    problem = Problem(KINDS.index(kernel.kind), kernel.threads, S, B, I, H, keep, kernel.epsilon, kernel.floor)
    problem.x_step, problem.x_row = x.stride()[:2]
    _point(problem, ("x", "ih", "hh", "bias", "power", "h", "c", "age", "dt", "mask", "order"), plain)
    problem.workspace = None if workspace is None else workspace.address
    return problem


def _forward(kernel: Kernel, keep: bool, plain: Any) -> tuple[Workspace, tuple[Tensor | None, ...]]:
    x, h, age = plain[0], plain[5], plain[7]
    lib = library()
    problem = _problem(kernel, keep, plain, None)
    workspace = Workspace(lib.timescales_workspace(ctypes.byref(problem)))
    problem.workspace = workspace.address
    results = (
        x.new_empty(*x.shape[:2], h.shape[-1]), torch.empty_like(h), torch.empty_like(h),
        None if age is None else torch.empty_like(h),
    )  # fmt: skip
    _point(problem, ("output", "h_last", "c_last", "age_last"), results)
    lib.timescales_forward(ctypes.byref(problem))
    return workspace, results
