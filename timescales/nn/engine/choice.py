"""Which engine "auto" tries first on a GPU: what measured.csv says is fastest at the nearest size.

`python scripts/bench/bench.py --device cuda` measures and writes that file: a row per cell (lstm, refine, coupled,
separate), sizes S, B, H, engine and device, in milliseconds of one forward and backward pass in float32. Where nothing
was measured: cuDNN for the plain LSTM, the graph engine for the others.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import NamedTuple

from timescales.files import csv_rows

MEASURED = Path(__file__).with_name("measured.csv")
DEFAULT = ("cudnn", "graph", "eager")


class Row(NamedTuple):
    """A line of measured.csv."""

    cell: str
    S: int
    B: int
    H: int
    engine: str
    ms: float
    device: str


@functools.cache
def measured() -> tuple[Row, ...]:
    """The rows of measured.csv."""
    return tuple(
        Row(r["cell"], int(r["S"]), int(r["B"]), int(r["H"]), r["engine"], float(r["ms"]), r["device"])
        for r in csv_rows(MEASURED)
    )


def ranking(kind: str, S: int, B: int, H: int, device: str) -> list[str]:
    """Engines, the fastest first: by the nearest measured size (ratios of S, B and H) at which two were compared.

    Rows of this device count, or if it has none those of any.
    """
    rows = [row for row in measured() if row.cell == kind]
    rows = [row for row in rows if row.device == device] or rows
    by_size: dict[tuple[str, int, int, int], dict[str, float]] = {}
    for row in rows:
        by_size.setdefault((row.device, row.S, row.B, row.H), {})[row.engine] = row.ms
    compared = {size: engines for size, engines in by_size.items() if len(engines) > 1}
    if not compared:
        return list(DEFAULT)
    sizes = (S, B, H)
    nearest = min(compared, key=lambda size: sum(math.log(a / b) ** 2 for a, b in zip(size[1:], sizes, strict=True)))
    found = compared[nearest]
    return sorted(found, key=found.__getitem__) + [name for name in DEFAULT if name not in found]
