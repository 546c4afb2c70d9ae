"""The generated C++ of three cells, as committed in tests/support/generated: `python tests/support/generated_code.py`
writes them again. A change of these files shows in a review what a change of the tracer does to the kernels."""

from __future__ import annotations

from pathlib import Path

from timescales.nn.cells import GRUCell, LSTMCell, PLSTMCell
from timescales.nn.engine.cpu.emit_cpp import cell_code
from timescales.nn.engine.equations import of_cell

FOLDER = Path(__file__).parent / "generated"
CELLS = {"lstm": LSTMCell, "plstm": PLSTMCell, "gru": GRUCell}


def code(name: str) -> str:
    """The code of a cell, without dt."""
    return cell_code(of_cell(CELLS[name](3, 4), timed=False))


if __name__ == "__main__":
    for name in CELLS:
        (FOLDER / f"{name}.h").write_text(code(name))
