"""The cluster kernels, compiled for a GPU that is not here. Where NVRTC is missing, the committed table is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from timescales.nn.engine.gpu import cuda

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "results" / "bench" / "cluster_compile.md"
MARGIN = 16  # registers that another version of the compiler may take in addition


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "bench"))


def pairs(cell):
    return tuple(int(number) for number in cell.split(" / "))


def rows():
    """Cell, units, threads, registers, spilled bytes, shared bytes."""
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7 and cells[1].isdigit():
            yield (cells[0], int(cells[1]), int(cells[2]), *map(pairs, cells[3:6]))


def test_every_cell_fits_a_multiprocessor():
    found = list(rows())
    assert len(found) > 60
    assert {"lstm", "ur", "plstm", "gru", "gated_lstm_o"} <= {name for name, units, *_ in found if units == 256}
    assert {"gated_lstm_om", "gated_gru_om_4"} <= {name for name, units, *_ in found if units == 128}
    for name, units, threads, registers, spilled, shared in found:
        assert max(registers) * threads <= 65_536, (name, units)
        assert max(registers) <= 255, (name, units)
        assert spilled == (0, 0), (name, units)
        assert max(shared) <= 48 * 1024, (name, units)


def test_what_the_compiler_says_is_read():
    import cluster_compile

    log = """
ptxas info    : Compiling entry function 'backward' for 'sm_90'
ptxas info    : Function properties for backward
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 183 registers, used 1 barriers, 22528 bytes smem
ptxas info    : Compiling entry function 'forward' for 'sm_90'
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 17408 bytes smem
"""
    found = cluster_compile.kernels_of(log)
    assert found == {"backward": (183, 36, 22528), "forward": (128, 0, 17408)}
    assert not found["backward"].fits(128)
    assert found["forward"].fits(512)
    assert not found["forward"].fits(544)


@pytest.mark.full
@pytest.mark.parametrize("name", ["lstm", "plstm", "gru", "gated_lstm_o"])
def test_the_table_is_what_the_compiler_says_here(name):
    """NVRTC comes with torch's CUDA packages, or by itself: see scripts/bench/cluster_compile.py."""
    try:
        cuda.nvrtc()
    except cuda.CudaError as error:
        pytest.skip(str(error))
    import cluster_compile

    for cell, units, threads, registers, _, _ in rows():
        if cell == name and units <= 128:
            found = cluster_compile.compiled(name, units)
            for kernel, committed in zip((found["forward"], found["backward"]), registers, strict=True):
                assert kernel.fits(threads)
                assert kernel.registers <= committed + MARGIN
