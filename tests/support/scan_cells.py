"""Base classes of cells without recurrent product."""

from typing import NamedTuple

from torch import Tensor

from timescales.nn.cells import Cell


class OneField(Cell):
    gates = ("cell",)
    recurrent = False

    class State(NamedTuple):
        h: Tensor


class TwoFields(Cell):
    gates = ("cell",)
    recurrent = False

    class State(NamedTuple):
        h: Tensor
        n: Tensor
