"""The mathematics: one file per family of cells."""

from timescales.cells.cell import Cell, Weights
from timescales.cells.gates import URLSTMCell
from timescales.cells.lstm import LSTMCell
from timescales.cells.plstm import PLSTMCell

__all__ = ["Cell", "LSTMCell", "PLSTMCell", "URLSTMCell", "Weights"]
