"""The cluster kernels on a CPU, for tests: each thread of a cluster is a fiber; cluster_on_cpu.h says what it finds."""

from __future__ import annotations

import ctypes
import functools
import itertools
import tempfile
from typing import Any

from timescales.nn.engine.cpu import compiler
from timescales.nn.engine.gpu import emit_cuda
from timescales.nn.engine.gpu.emit_cuda import Sizes

RUN = """
static Arguments arguments;
static int which;
static void run_kernel() { which ? backward(arguments) : forward(arguments); }
extern "C" int size_of_arguments() { return sizeof(Arguments); }
extern "C" const char* run(int kernel, const Arguments* a, int grid, int seeds, int order) {
    arguments = *a, which = kernel, emulator::kernel = run_kernel, emulator::coin.seed(order + 1);
    std::mt19937 random(order);
    for (int seed = 0; seed < seeds; seed++)
        for (int block = 0; block < grid; block += CLUSTER)
            if (auto error = emulator::run_cluster(block, seed, CLUSTER, THREADS, random)) return error;
    return nullptr;
}
"""
Arguments = ctypes.Array[ctypes.c_int64]
orders = itertools.count()  # each run has another order of the threads


@functools.cache
def compiled(code: str) -> Any:
    """The kernels with this code, compiled for this CPU. Raises compiler.BuildError."""
    source = code + RUN
    command = compiler.find_compiler()

    def compile_file(file: Any) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as text:
            text.write(source)
            text.flush()
            folder = f"-I{emit_cuda.EMULATOR.parent}"
            options = ["-O1", "-DON_CPU", "-Wno-unknown-pragmas", folder, text.name]
            compiler.write_compiled(file, command, options)

    found = ctypes.CDLL(str(compiler.in_cache(source + emit_cuda.EMULATOR.read_text(), command, compile_file)))
    found.run.restype = ctypes.c_char_p
    return found


def launch(code: str, kernel: str, arguments: Arguments, sizes: Sizes, batch: int, seeds: int) -> None:
    """Run a kernel to its end. Raises RuntimeError for a fault that the emulator finds."""
    functions, which = compiled(code), ("forward", "backward").index(kernel)
    assert functions.size_of_arguments() == ctypes.sizeof(arguments)
    if error := functions.run(which, ctypes.byref(arguments), sizes.grid(batch), seeds, next(orders)):
        raise RuntimeError(f"{kernel}: {error.decode()}")
