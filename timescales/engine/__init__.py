"""Engines run a cell over time. `pick` chooses one; all have the signature of `eager.run`."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from timescales.cells.cell import Cell
from timescales.engine import eager

NAMES = ("auto", "eager")


def pick(name: str, cell: Cell, x: Tensor) -> Callable:
    """The engine to run `cell` over `x` with: the named one, or with "auto" the fastest that can."""
    if name not in NAMES:
        raise ValueError(f"engine must be one of {', '.join(NAMES)}; not {name!r}")
    return eager.run
