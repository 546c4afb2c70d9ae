"""Which engine "auto" tries first on a GPU: the fastest one in measured.csv at the nearest size.

`python scripts/bench/bench.py --device cuda` measures the engines and writes measured.csv. A row has the kind of cell
(see `kind_of`), the sizes S, B and H, the engine, the time of a forward and backward pass in float32 (in milliseconds),
and the device. Without measurements, cuDNN comes first for the plain LSTM and the graph engine for the other cells.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import NamedTuple

from timescales.files import csv_rows
from timescales.nn.cells.cell import Cell
from timescales.nn.engine.equations import Equations
from timescales.nn.engine.gpu.cudnn import is_plain_lstm

MEASURED = Path(__file__).with_name("measured.csv")
DEFAULT = ("cudnn", "graph", "eager")
MEASURABLE = ("cluster", *DEFAULT)  # the cluster engine is taken only where it was measured


class Row(NamedTuple):
    """A row of measured.csv."""

    cell: str
    S: int
    B: int
    H: int
    engine: str
    ms: float
    device: str


def kind_of(cell: Cell, found: Equations | str | None = None) -> str:
    """The kind of a cell in measured.csv: "lstm" for the equations of torch.nn.LSTM, else the name of its class.

    found: `equations.known`, if the caller has it.
    """
    return "lstm" if is_plain_lstm(cell, found) else type(cell).__name__


@functools.cache
def measured() -> tuple[Row, ...]:
    """The rows of measured.csv."""
    return tuple(
        Row(row["cell"], int(row["S"]), int(row["B"]), int(row["H"]), row["engine"], float(row["ms"]), row["device"])
        for row in csv_rows(MEASURED)
    )


def ranking(kind: str, S: int, B: int, H: int, device: str) -> list[str]:
    """Names of the engines, the fastest first.

    The order is that of the nearest measured size at which two engines were compared; the distance is measured by the
    ratios of S, B and H. Rows of this device are used, or rows of all devices if it has none.
    """
    rows = [row for row in measured() if row.cell == kind]
    rows = [row for row in rows if row.device == device] or rows
    times_by_size: dict[tuple[str, int, int, int], dict[str, float]] = {}
    for row in rows:
        times_by_size.setdefault((row.device, row.S, row.B, row.H), {})[row.engine] = row.ms
    compared = {size: times for size, times in times_by_size.items() if len(times) > 1}
    if not compared:
        return list(DEFAULT)
    sizes = (S, B, H)
    nearest = min(compared, key=lambda size: sum(math.log(a / b) ** 2 for a, b in zip(size[1:], sizes, strict=True)))
    times = compared[nearest]
    return sorted(times, key=times.__getitem__) + [name for name in DEFAULT if name not in times]
