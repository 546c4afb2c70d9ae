"""Cells: the equations of one time step, one file per family."""

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.cells.elstm import ELSTMCell
from timescales.nn.cells.exprnn import ExpRNNCell
from timescales.nn.cells.gated import GatedGRUCell, GatedLSTMCell
from timescales.nn.cells.gates import URLSTMCell
from timescales.nn.cells.gru import GRUCell
from timescales.nn.cells.janet import JANETCell
from timescales.nn.cells.leaky import LeakyRNNCell
from timescales.nn.cells.lru import LRUCell
from timescales.nn.cells.lstm import LSTMCell
from timescales.nn.cells.mingru import MinGRUCell
from timescales.nn.cells.minlstm import MinLSTMCell
from timescales.nn.cells.plscan import PLScanCell
from timescales.nn.cells.plstm import PGRUCell, PLSTMCell
from timescales.nn.cells.rmc import RMCCell

__all__ = [
    "Cell",
    "ELSTMCell",
    "ExpRNNCell",
    "GRUCell",
    "GatedGRUCell",
    "GatedLSTMCell",
    "JANETCell",
    "LRUCell",
    "LSTMCell",
    "LeakyRNNCell",
    "MinGRUCell",
    "MinLSTMCell",
    "PGRUCell",
    "PLSTMCell",
    "PLScanCell",
    "RMCCell",
    "URLSTMCell",
    "Weights",
]
