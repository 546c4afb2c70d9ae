"""The compiled library of a cell whose equations were traced: loop.cpp with the cell's code, kept in the user's cache.

It is found, checked and compiled as the fused engine's own library; see `fused_library`.
"""

from __future__ import annotations

import ctypes
import functools
import tempfile
from pathlib import Path

from timescales.nn.engine import emit_cpp, fused_library
from timescales.nn.engine.equations import Equations
from timescales.nn.engine.fused_library import BuildError, Library

LOOP = Path(__file__).with_name("loop.cpp")
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
    """The file of the library with the cell `code`, as `fused_library.build`."""
    compiler = fused_library.find_compiler()

    def compile_file(file: Path) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".h") as cell:
            cell.write(code)
            cell.flush()
            fused_library.write_library(file, compiler, [f'-DCELL="{cell.name}"', str(LOOP)])

    return fused_library.in_cache("cell", code + LOOP.read_text(), compiler, compile_file)
