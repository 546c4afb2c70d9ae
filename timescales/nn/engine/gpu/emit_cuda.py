"""The CUDA C++ of a cell for clusters of thread blocks: cluster.cu around the cell's equations, for one hidden size."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

from timescales.nn.engine.cpu.emit_cpp import cell_code
from timescales.nn.engine.equations import NO_MEANS, Equations
from timescales.nn.engine.kept import with_equations

FUNCTIONS, KERNELS, EMULATOR = (Path(__file__).with_name(f"cluster{end}") for end in (".h", ".cu", "_on_cpu.h"))
# Numbers of the recurrent weights in the registers of a thread, which has 255. results/bench/cluster_compile.md has
# what the compiler makes of each cell.
MOST_WEIGHTS = 128
MOST_SHARED = 48 * 1024  # bytes of shared memory of a block


class Sizes(NamedTuple):
    """Sizes of a cluster: hidden units, thread blocks, sequences. A power of two of blocks, a multiple of sequences."""

    hidden: int
    blocks: int = 8
    sequences: int = 8

    @property
    def threads(self) -> int:
        """Threads of a block: as many as there are blocks for each of its units, and whole warps."""
        return -(-self.units * self.blocks // 32) * 32

    @property
    def units(self) -> int:
        """Units of a block; the last one may have fewer."""
        return -(-self.hidden // self.blocks)

    def grid(self, batch: int) -> int:
        """Thread blocks for so many sequences of a seed."""
        return self.blocks * -(-batch // self.sequences)


def unsupported_reason(equations: Equations, sizes: Sizes) -> str | None:
    """Why a cell has no such kernel; None if it has one."""
    if not any(block.has_h for block in equations.blocks):
        return "a cell without recurrent product is a scan; use engine='graph'"
    if equations.has_means:
        return NO_MEANS
    most = MOST_WEIGHTS // sum(block.has_h for block in equations.blocks) * sizes.blocks
    if sizes.hidden > most:
        return f"the recurrent weights must fit into registers: at most {most} units; use engine='graph'"
    if ahead(equations, sizes) == 0:
        return f"a step of {sizes.hidden} units has more inputs than fit into shared memory; use engine='graph'"
    return None


def ahead(equations: Equations, sizes: Sizes) -> int:
    """The steps by which copies begin before they are needed: as many as backward has memory for, at most two."""
    e = equations
    weights = -(-sum(block.has_h for block in e.blocks) * sizes.units // 4) * 4
    cumaxes = sum(block.is_row for block in e.blocks)
    fixed = sizes.sequences * (weights + 2 * sizes.blocks * sizes.units + 2 * cumaxes * (sizes.units + sizes.blocks))
    # The pre-activations, each cumax, the state that is read, noises, dt, flags, the gradient of the output.
    inputs = len(e.blocks) + cumaxes + len(e.fields) - (not e.reads_h) + e.noises + (e.d_dt is not None) + 2
    of_step = inputs * sizes.sequences // sizes.blocks * sizes.threads
    return max(0, min(2, (MOST_SHARED // 4 - fixed) // of_step - 1))


def code(equations: Equations, sizes: Sizes) -> str:
    """The text of both kernels. Equal texts are equal kernels."""
    constants = {"H": sizes.hidden, "CLUSTER": sizes.blocks, "SEQUENCES": sizes.sequences}
    constants["AHEAD"] = ahead(equations, sizes)
    values = ", ".join(f"{name} = {value}" for name, value in constants.items())
    functions, kernels = texts()
    return "\n".join([functions, f"constexpr int {values};", cell_code(equations), kernels])


class Kernels(NamedTuple):
    """The code of a cell's kernels, for these sizes."""

    code: str
    sizes: Sizes


def kernels(equations: Equations, sizes: Sizes) -> Kernels:
    """The kernels of a cell, kept with its equations."""
    of_sizes = _of_sizes(equations)
    if sizes not in of_sizes:
        of_sizes[sizes] = Kernels(code(equations, sizes), sizes)
    return of_sizes[sizes]


@with_equations
def _of_sizes(equations: Equations) -> dict[Sizes, Kernels]:
    return {}


@functools.cache
def texts() -> tuple[str, str]:
    """The files with the functions and the kernels."""
    return FUNCTIONS.read_text(), KERNELS.read_text()
