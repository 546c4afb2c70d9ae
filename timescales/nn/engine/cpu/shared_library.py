"""Compile and load the library of a cell: loop.cpp or scan.cpp with the cell's code, loaded with ctypes.

It is compiled on this machine at first use, and stored in the user's cache directory.
"""

import ctypes
import sys
import tempfile
from pathlib import Path

from timescales.nn.engine.cpu import compiler
from timescales.nn.engine.cpu.compiler import BuildError

LOOP = Path(__file__).with_name("loop.cpp")
SCAN = Path(__file__).with_name("scan.cpp")  # the loop of cells without recurrent weights
Addresses = ctypes.POINTER(ctypes.c_void_p)


class Problem(ctypes.Structure):
    """The arguments of a call of the library: the fields of `struct Problem` in problem.h, in the same order."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("threads", "S", "B", "I", "H", "keep")),
        *((name, ctypes.c_void_p) for name in ("x", "ih", "hh", "bias_ih", "bias_hh")),
        *((name, ctypes.c_int64) for name in ("x_step", "x_row")),
        *((name, Addresses) for name in ("state", "vectors", "noise")),
        *((name, ctypes.c_void_p) for name in ("dt", "mask", "order", "reset_after")),
        ("initial", Addresses),
        ("output", ctypes.c_void_p),
        *((name, Addresses) for name in ("last", "states")),
        *((name, ctypes.c_void_p) for name in ("workspace", "d_output")),
        *((name, ctypes.c_int64) for name in ("d_output_step", "d_output_row")),
        *((name, Addresses) for name in ("d_last", "d_states")),
        *((name, ctypes.c_void_p) for name in ("d_x", "d_ih", "d_hh", "d_bias_ih", "d_bias_hh")),
        *((name, Addresses) for name in ("d_state", "d_vectors")),
        ("d_dt", ctypes.c_void_p),
        ("d_initial", Addresses),
    ]


LOADED: dict[tuple[str, bool], ctypes.CDLL] = {}


def load(code: str, name: str, scan: bool = False) -> ctypes.CDLL:
    """Return the library of the cell with this code. Compile it if necessary, and print a line with `name`.

    scan: whether its loop is scan.cpp, for which every gate has one row per unit, and no recurrent weights.
    Raises: BuildError.
    """
    if (code, scan) not in LOADED:
        try:
            functions = ctypes.CDLL(str(build(code, name, scan)))
        except OSError as error:
            raise BuildError(str(error)) from None
        functions.timescales_workspace.restype = ctypes.c_int64
        for function in (functions.timescales_workspace, functions.timescales_forward, functions.timescales_backward):
            function.argtypes = [ctypes.POINTER(Problem)]
        LOADED[code, scan] = functions
    return LOADED[code, scan]


def build(code: str, name: str, scan: bool = False) -> Path:
    """Return the file of the library with the cell `code` in the cache. Compile it if it is missing or damaged.

    Without a compiler, a library in the cache is used that another machine's compiler made for this processor.
    """
    loop = SCAN if scan else LOOP
    source = code + loop.read_text()
    try:
        command = compiler.find_compiler()
    except BuildError:
        if file := compiler.of_any_compiler(source):
            return file
        raise

    def compile_file(file: Path) -> None:
        print(f"timescales: compiling {name} with {command[0]}, once ({file})", file=sys.stderr)
        with tempfile.NamedTemporaryFile("w", suffix=".h") as cell:
            cell.write(code)
            cell.flush()
            products = compiler.products(command)
            compiler.write_compiled(file, command, [f'-DCELL="{cell.name}"', str(loop), str(products)])

    return compiler.in_cache(source, command, compile_file)
