"""Engines run a cell over time. `pick` chooses one; all have the signature of `eager.run`."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from timescales.cells.cell import Cell
from timescales.engine import eager, fused

NAMES = ("auto", "eager", "fused")


def pick(name: str, cell: Cell, x: Tensor) -> Callable:
    """The engine to run `cell` over `x` with: the named one, or with "auto" the fastest that can.

    Raises ValueError, with what to do about it, where the named engine cannot run.
    """
    if name not in NAMES:
        raise ValueError(f"engine must be one of {', '.join(NAMES)}; not {name!r}")
    if name == "eager":
        return eager.run
    reason = fused.why_not(cell, x)
    if reason and name == "fused":
        raise ValueError(f"the fused engine cannot run here: {reason}")
    return eager.run if reason else fused.run
