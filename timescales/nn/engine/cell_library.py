"""The compiled library of a cell whose equations were traced: loop.cpp with the cell's code, kept in the user's cache.

It is found, checked and compiled as the fused engine's own library; see `fused_library`.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from timescales.files import cache_dir
from timescales.nn.engine import emit_cpp, fused_library
from timescales.nn.engine.equations import Equations
from timescales.nn.engine.fused_library import FLAGS, OMITTED_FLAGS, BuildError, Library

LOOP = Path(__file__).with_name("loop.cpp")
VECTORS = Path(__file__).with_name("vectors.h")
Addresses = ctypes.POINTER(ctypes.c_void_p)


class Problem(ctypes.Structure):
    """The arguments of a call of the library: the fields of `struct Problem` in loop.cpp, in the same order."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("threads", "S", "B", "I", "H", "keep")),
        *((name, ctypes.c_void_p) for name in ("x", "ih", "hh", "bias_ih", "bias_hh")),
        *((name, ctypes.c_int64) for name in ("x_step", "x_row")),
        *((name, Addresses) for name in ("state", "vectors", "noise")),
        *((name, ctypes.c_void_p) for name in ("dt", "mask", "order", "output")),
        ("last", Addresses),
        *((name, ctypes.c_void_p) for name in ("workspace", "d_output")),
        *((name, ctypes.c_int64) for name in ("d_output_step", "d_output_row")),
        ("d_last", Addresses),
        *((name, ctypes.c_void_p) for name in ("d_x", "d_ih", "d_hh", "d_bias_ih", "d_bias_hh")),
        *((name, Addresses) for name in ("d_state", "d_vectors")),
        ("d_dt", ctypes.c_void_p),
    ]


def load(equations: Equations) -> Library:
    """Compile the library of a cell if necessary, and load it."""
    return _load(emit_cpp.cell_code(equations))


@functools.cache
def _load(code: str) -> Library:
    try:
        functions = ctypes.CDLL(str(build(code)))
    except (BuildError, OSError) as error:
        return Library(None, str(error))
    functions.timescales_workspace.restype = ctypes.c_int64
    for function in (functions.timescales_workspace, functions.timescales_forward, functions.timescales_backward):
        function.argtypes = [ctypes.POINTER(Problem)]
    return Library(functions, None)


def build(code: str) -> Path:
    """The file of the library with the cell `code`. It is compiled if it is not in the cache or damaged."""
    compiler = fused_library.find_compiler()
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout
    made_of = (code, LOOP.read_text(), VECTORS.read_text(), *FLAGS, *compiler, version, fused_library.processor())
    directory = cache_dir()
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"cell-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:20]}.so"
    if not fused_library.is_whole(file):
        with open(file.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not fused_library.is_whole(file):
                _compile(file, code, compiler)
    return file


def _compile(file: Path, code: str, compiler: list[str]) -> None:
    for abandoned in file.parent.glob(f"{file.stem}.*.build"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=f"{file.stem}.", suffix=".build") as scratch:
        cell, compiled = Path(scratch) / "cell.h", Path(scratch) / file.name
        cell.write_text(code)
        for omitted in OMITTED_FLAGS:
            flags = [flag for flag in FLAGS if flag not in omitted]
            command = [*compiler, *flags, f'-DCELL="{cell}"', str(LOOP), "-o", str(compiled)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode == 0:
                data = compiled.read_bytes()
                compiled.write_bytes(data + hashlib.sha256(data).digest())
                os.replace(compiled, file)
                return
    reason = next((line for line in result.stderr.splitlines() if "error" in line), "it gave no reason")
    raise BuildError(f"{compiler[0]} failed: {reason}")
