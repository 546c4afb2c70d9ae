"""The mathematics: one file per family of cells."""

from timescales.cells.cell import Cell, Weights
from timescales.cells.exprnn import ExpRNNCell
from timescales.cells.gated import GatedGRUCell, GatedLSTMCell
from timescales.cells.gates import URLSTMCell
from timescales.cells.gru import GRUCell, JANETCell
from timescales.cells.lstm import LSTMCell
from timescales.cells.plstm import PGRUCell, PLSTMCell

__all__ = [
    "Cell",
    "ExpRNNCell",
    "GRUCell",
    "GatedGRUCell",
    "GatedLSTMCell",
    "JANETCell",
    "LSTMCell",
    "PGRUCell",
    "PLSTMCell",
    "URLSTMCell",
    "Weights",
]
