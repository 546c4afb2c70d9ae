"""What the compiler for GPUs makes of each cell's cluster kernels, without a GPU: registers, spills, shared memory.

    python scripts/bench/cluster_compile.py [--hidden 64 128 256] [--cells lstm plstm] [--architecture sm_90]

It needs NVRTC, which torch's CUDA packages bring. Without them `pip install --target FOLDER nvidia-cuda-nvrtc`
(13.0) does, with PYTHONPATH=FOLDER. Writes results/bench/cluster_compile.md, and exits with 1 if kernels that the
engine takes have more registers than a multiprocessor has, spill, or need more than 48 KiB of shared memory.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import cell_models  # noqa: E402
from tqdm import tqdm  # noqa: E402

from timescales.files import write_atomic  # noqa: E402
from timescales.nn.engine import equations  # noqa: E402
from timescales.nn.engine.gpu import cuda, emit_cuda  # noqa: E402
from timescales.nn.engine.gpu.emit_cuda import Sizes  # noqa: E402

OUT = ROOT / "results" / "bench" / "cluster_compile.md"
REGISTERS, SHARED = 65_536, 48 * 1024  # of a multiprocessor; of a block without asking for more


class Kernel(NamedTuple):
    """What ptxas says of a kernel; spills and shared memory in bytes."""

    registers: int
    spilled: int
    shared: int

    def fits(self, threads: int) -> bool:
        """Whether a block can run, with all of its numbers in registers."""
        return self.registers * threads <= REGISTERS and not self.spilled and self.shared <= SHARED


def kernels_of(log: str) -> dict[str, Kernel]:
    """The kernels by name, from the output of `ptxas -v`."""

    def number(pattern: str, part: str) -> int:
        found = re.search(pattern, part)
        return int(found[1]) if found else 0

    kernels = {}
    for part in log.split("Compiling entry function")[1:]:
        spilled = sum(number(rf"(\d+) bytes {what}", part) for what in ("stack frame", "spill stores", "spill loads"))
        registers = number(r"Used (\d+) registers", part)
        kernels[part.split("'")[1]] = Kernel(registers, spilled, number(r"(\d+) bytes smem", part))
    return kernels


def compiled(name: str, hidden: int, architecture: str = "sm_90") -> dict[str, Kernel] | None:
    """The kernels of a cell with dt, if it reads dt; None if the engine does not take it."""
    cell = cell_models.model(name, 3, hidden).layers[0]
    found, sizes = equations.known(cell, True), Sizes(hidden)
    if isinstance(found, str) or emit_cuda.unsupported_reason(found, sizes) is not None:
        return None
    return kernels_of(cuda.compiled(emit_cuda.code(found, sizes), architecture)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--hidden", type=int, nargs="*", default=[64, 128, 256])
    parser.add_argument("--cells", nargs="*", default=cell_models.KERNELS, choices=cell_models.KERNELS)
    parser.add_argument("--architecture", default="sm_90")
    options = parser.parse_args()
    lines, wrong = [], []
    for hidden in options.hidden:
        for name in tqdm(options.cells, desc=f"{hidden} units"):
            found = compiled(name, hidden, options.architecture)
            if found is None:
                continue
            threads = Sizes(hidden).threads
            numbers = [found[kernel] for kernel in ("forward", "backward")]
            cells = [" / ".join(str(kernel[k]) for kernel in numbers) for k in range(3)]
            blocks = min(REGISTERS // (-(-kernel.registers // 8) * 8 * threads) for kernel in numbers)
            lines.append(f"| {name} | {hidden} | {threads} | {' | '.join(cells)} | {blocks} |")
            wrong += [f"{name} {hidden}" for kernel in numbers if not kernel.fits(threads)]
    text = "\n".join(
        [
            "# The cluster kernels, compiled without a GPU",
            "",
            f"`python scripts/bench/cluster_compile.py`: NVRTC {cuda.nvrtc_version()} for {options.architecture}, "
            "8 thread blocks and 8 sequences a cluster.",
            "Forward / backward; spilled bytes include the stack. The last column: how many blocks the registers of a "
            "multiprocessor hold.",
            "Cells that are not listed have no such kernels at that size.",
            "",
            "| cell | units | threads | registers | spilled bytes | shared bytes | blocks |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
            *lines,
        ]
    )
    write_atomic(OUT, f"{text}\n".encode())
    print(text)
    if wrong:
        sys.exit(f"these do not fit: {', '.join(dict.fromkeys(wrong))}")


if __name__ == "__main__":
    main()
