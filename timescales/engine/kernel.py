"""Which cells have a fast kernel, and which one: what the fused, graph and cuDNN engines and `auto` all go by."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from timescales.cells import GatedLSTMCell, LSTMCell, PLSTMCell, URLSTMCell
from timescales.cells.cell import Cell

KINDS = ("lstm", "refine", "coupled", "separate")  # as `with_cell` in fused.cpp numbers them; pLSTM has two


class Kernel(NamedTuple):
    """A cell as its kernel knows it: one of KINDS, and its constants."""

    kind: str
    power: Tensor | None = None  # (H,)
    epsilon: float = 0.0
    floor: float = 0.0
    threads: int = 1  # of fused.cpp; backward's are forward's: the workspace is laid out for them


def kernel_of(cell: Cell) -> Kernel | None:
    """The kernel for a cell; None if there is none, or none for its arguments.

    By exact class: a subclass may have another step, and only its author knows.
    """
    if type(cell) is LSTMCell:
        return Kernel("lstm")
    if type(cell) is URLSTMCell:
        return Kernel("refine")
    if type(cell) is PLSTMCell:
        p = cell.p
        power = p if isinstance(p, Tensor) else cell.weight_hh.new_full((cell.hidden_size,), p)
        return Kernel("coupled" if cell.coupled else "separate", power, cell.epsilon, cell.floor)
    if type(cell) is GatedLSTMCell and cell.mechanism.main == "sigmoid" and not (cell.zoneout_h or cell.zoneout_c):
        # A cumax, master gates and zoneout have no kernel; bias laws are in the weights already.
        return {"none": Kernel("lstm"), "refine": Kernel("refine")}.get(cell.mechanism.auxiliary)
    return None
