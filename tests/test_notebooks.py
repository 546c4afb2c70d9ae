"""The notebooks are what their sources give, and run."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import notebooks  # noqa: E402


@pytest.mark.parametrize("name", notebooks.BOOKS)
def test_a_notebook_is_what_its_source_gives(name):
    pytest.importorskip("jupytext")
    assert notebooks.cells(notebooks.BOOKS[name]()) == notebooks.cells(notebooks.read(name)), "make notebooks"


@pytest.mark.slow
def test_the_tutorial_runs():
    """As a notebook. `make tour` runs what the notebook of the tour has."""
    pytest.importorskip("nbclient")
    book = notebooks.execute(notebooks.BOOKS["tutorial"]())
    last = [out.text for cell in book.cells if cell.cell_type == "code" for out in cell.outputs][-1]
    assert "| decay better than lstm |" in last
