"""The compiled library of the fused engine: fused.cpp, built by the system's C++ compiler and loaded with ctypes.

It is compiled on this machine at first use, and kept in the user's cache directory.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from timescales.files import cache_dir

SOURCE = Path(__file__).with_name("fused.cpp")
COMPILERS = ("g++", "c++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-fPIC", "-shared")
# Flags that are left out, in this order, until the compiler accepts the rest. Without -fopenmp the engine uses one
# thread; without -march=native it uses narrow vectors.
OMITTED_FLAGS = ((), ("-fopenmp",), ("-march=native",), ("-fopenmp", "-march=native"))


class Problem(ctypes.Structure):
    """The arguments of a call of the library: the fields of `struct Problem` in fused.cpp, in the same order."""

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
    """The library cannot be built. The message is one line with the reason."""


class Library(NamedTuple):
    """The loaded library, or the reason why there is none. Exactly one of the two is None."""

    functions: ctypes.CDLL | None
    error: str | None


@functools.cache
def load() -> Library:
    """Build the library if necessary, and load it. This is done once; a failure is printed once."""
    try:
        functions = ctypes.CDLL(str(build()))
    except (BuildError, OSError) as error:
        print(f"timescales: no fused engine, the slower eager one runs: {error}", file=sys.stderr)
        return Library(None, str(error))
    functions.timescales_workspace.restype = ctypes.c_int64
    for function in (functions.timescales_workspace, functions.timescales_forward, functions.timescales_backward):
        function.argtypes = [ctypes.POINTER(Problem)]
    return Library(functions, None)


def functions() -> ctypes.CDLL:
    """The functions of the library, which must be available."""
    library = load()
    assert library.functions is not None, library.error
    return library.functions


def build() -> Path:
    """The file of the library in the cache. It is compiled if it is not there or damaged."""
    compiler = find_compiler()
    return in_cache("fused", SOURCE.read_text(), compiler, lambda file: compile_to(file, compiler))


def in_cache(name: str, source: str, compiler: list[str], compile_file: Callable[[Path], None]) -> Path:
    """The file of a library in the cache. `compile_file` writes it if it is not there or damaged.

    The file name is a hash of the source, the headers, the flags, the compiler and the processor. The last 32 bytes of
    the file are the SHA-256 of the others, so a damaged file is detected before it is loaded. If several processes need
    the library at the same time, one compiles it and the others wait.
    """
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout
    headers = [header.read_text() for header in sorted(Path(__file__).parent.glob("*.h"))]
    made_of = (source, *headers, *FLAGS, *compiler, version, processor())
    directory = cache_dir()
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{name}-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:20]}.so"
    if not is_whole(file):
        with open(file.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_whole(file):
                compile_file(file)
    return file


def find_compiler() -> list[str]:
    """The command of a C++ compiler: $CXX, which may include arguments, or the first of COMPILERS on the path.

    Raises BuildError if there is none.
    """
    if command := shlex.split(os.environ.get("CXX", "")):
        if shutil.which(command[0]):
            return command
        raise BuildError(f"CXX={os.environ['CXX']} is not on the path")
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    raise BuildError(f"no C++ compiler found ({', '.join(COMPILERS)}); install one or set CXX")


def processor() -> str:
    """What -march=native depends on: machines with different processors may share a cache directory."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))


def is_whole(file: Path) -> bool:
    """Whether a library file exists and is not damaged: its last 32 bytes are the hash of the rest."""
    if not file.exists():
        return False
    data = file.read_bytes()
    return hashlib.sha256(data[:-32]).digest() == data[-32:]


def compile_to(file: Path, compiler: list[str]) -> None:
    """Compile fused.cpp and move the result to `file`. Raises BuildError with the first error of the compiler."""
    print(f"timescales: compiling the fused engine with {compiler[0]}, once ({file})", file=sys.stderr)
    write_library(file, compiler, [str(SOURCE)])


def write_library(file: Path, compiler: list[str], arguments: list[str]) -> None:
    """Compile with these arguments and move the result to `file`. Raises BuildError as `compile_to`."""
    # Directories of processes that were killed. The caller holds the lock, so no other process compiles.
    for abandoned in file.parent.glob(f"{file.stem}.*.build"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=f"{file.stem}.", suffix=".build") as scratch:
        compiled = Path(scratch) / file.name
        _run_compiler(compiler, [*arguments, "-o", str(compiled)])
        data = compiled.read_bytes()
        compiled.write_bytes(data + hashlib.sha256(data).digest())
        os.replace(compiled, file)


def _run_compiler(compiler: list[str], arguments: list[str]) -> None:
    """Compile with as many of FLAGS as the compiler accepts."""
    for omitted in OMITTED_FLAGS:
        command = [*compiler, *(flag for flag in FLAGS if flag not in omitted), *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return
    reason = next((line for line in result.stderr.splitlines() if "error" in line), "it gave no reason")
    raise BuildError(f"{compiler[0]} failed: {reason}")
