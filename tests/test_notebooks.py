"""The notebooks: what the tutorial prints, and that it runs. tests/test_pages.py compares them with their sources."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import notebooks  # noqa: E402


def test_what_the_tutorial_prints():
    pytest.importorskip("jupytext")
    shown = notebooks.as_page(notebooks.read("tutorial"))
    assert re.search(r"^finished 4\d\d\d parameters", shown, re.M)
    assert "output (20, 4, 8) and the last h of each layer (2, 4, 8)" in shown
    ended = r"^runs/frequency-(lstm|decay)-s\d-\w+\n  finished: test/accuracy ([\d.]+)"
    accuracy = {model: float(value) for model, value in re.findall(ended, shown, re.M)}
    assert accuracy["decay"] > max(0.75, accuracy["lstm"] + 0.1)


@pytest.mark.slow
def test_the_tutorial_runs():
    """As a notebook. `make tour` runs what the notebook of the tour has."""
    pytest.importorskip("nbclient")
    book = notebooks.execute(notebooks.BOOKS["tutorial"]())
    last = [out.text for cell in book.cells if cell.cell_type == "code" for out in cell.outputs][-1]
    assert "| decay better than lstm |" in last
