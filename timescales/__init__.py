"""Gated recurrent networks whose memory has a controlled time scale, and the papers' experiments with them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers and editors; at run time see __getattr__
    from timescales.cells import (
        Cell,
        ExpRNNCell,
        GatedGRUCell,
        GatedLSTMCell,
        GRUCell,
        JANETCell,
        LSTMCell,
        PGRUCell,
        PLSTMCell,
        URLSTMCell,
    )
    from timescales.lstm import LSTM, MTSLSTM, PLSTM, URLSTM, ChronoLSTM
    from timescales.relatives import GRU, JANET, PGRU, ExpRNN, GatedRNN
    from timescales.rnn import RNN

__version__ = "0.1.0"

_WHERE = {
    "timescales.rnn": ("RNN",),
    "timescales.lstm": ("LSTM", "ChronoLSTM", "URLSTM", "MTSLSTM", "PLSTM"),
    "timescales.relatives": ("GatedRNN", "GRU", "PGRU", "JANET", "ExpRNN"),
    "timescales.cells": (
        "Cell", "LSTMCell", "URLSTMCell", "PLSTMCell", "GatedLSTMCell", "GatedGRUCell", "GRUCell", "PGRUCell",
        "JANETCell", "ExpRNNCell",
    ),
}  # fmt: skip
_MODULE = {name: module for module, names in _WHERE.items() for name in names}
__all__ = [
    "GRU",
    "JANET",
    "LSTM",
    "MTSLSTM",
    "PGRU",
    "PLSTM",
    "RNN",
    "URLSTM",
    "Cell",
    "ChronoLSTM",
    "ExpRNN",
    "ExpRNNCell",
    "GRUCell",
    "GatedGRUCell",
    "GatedLSTMCell",
    "GatedRNN",
    "JANETCell",
    "LSTMCell",
    "PGRUCell",
    "PLSTMCell",
    "URLSTMCell",
    "__version__",
]


def __getattr__(name: str) -> object:
    # Lazy (PEP 562), so that `train.py --help` does not wait for torch.
    if name in _MODULE:
        return getattr(importlib.import_module(_MODULE[name]), name)
    raise AttributeError(f"module 'timescales' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
