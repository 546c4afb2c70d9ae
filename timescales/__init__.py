"""Gated recurrent networks with a controlled time scale of memory, and the experiments of the papers about them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers and editors; at run time see __getattr__
    from timescales.nn.cells import *  # noqa: F403
    from timescales.nn.engine.cpu.workspace import free_memory
    from timescales.nn.explain import explain
    from timescales.nn.modules import *  # noqa: F403
    from timescales.nn.rnn import *  # noqa: F403
    from timescales.nn.state import *  # noqa: F403
    from timescales.reports.frames import results

__version__ = "1.0.0"

__all__ = [  # noqa: F405
    "ELSTM",
    "GRU",
    "JANET",
    "LRU",
    "LSTM",
    "MTSLSTM",
    "PGRU",
    "PLSTM",
    "RMC",
    "RNN",
    "URLSTM",
    "Cell",
    "ChronoLSTM",
    "ELSTMCell",
    "ExpRNN",
    "ExpRNNCell",
    "GRUCell",
    "GatedGRUCell",
    "GatedLSTMCell",
    "GatedRNN",
    "JANETCell",
    "LRUCell",
    "LSTMCell",
    "LeakyRNN",
    "LeakyRNNCell",
    "MinGRU",
    "MinGRUCell",
    "MinLSTM",
    "MinLSTMCell",
    "PGRUCell",
    "PLSTMCell",
    "PLScan",
    "PLScanCell",
    "RMCCell",
    "RNNState",
    "URLSTMCell",
    "__version__",
    "explain",
    "free_memory",
    "one_cell_per_layer",
    "results",
]

# Where each public name is defined. Modules are imported when a name is first used (PEP 562), so that
# `train.py --help` does not import torch.
_MODULE_OF = {
    "ChronoLSTM": "timescales.nn.modules",
    "ELSTM": "timescales.nn.modules",
    "ExpRNN": "timescales.nn.modules",
    "GRU": "timescales.nn.modules",
    "GatedRNN": "timescales.nn.modules",
    "JANET": "timescales.nn.modules",
    "LRU": "timescales.nn.modules",
    "LSTM": "timescales.nn.modules",
    "MTSLSTM": "timescales.nn.modules",
    "LeakyRNN": "timescales.nn.modules",
    "MinGRU": "timescales.nn.modules",
    "MinLSTM": "timescales.nn.modules",
    "PLScan": "timescales.nn.modules",
    "PGRU": "timescales.nn.modules",
    "PLSTM": "timescales.nn.modules",
    "RMC": "timescales.nn.modules",
    "URLSTM": "timescales.nn.modules",
    "RNN": "timescales.nn.rnn",
    "explain": "timescales.nn.explain",
    "free_memory": "timescales.nn.engine.cpu.workspace",
    "one_cell_per_layer": "timescales.nn.rnn",
    "RNNState": "timescales.nn.state",
    "results": "timescales.reports.frames",
    "Cell": "timescales.nn.cells",
    "ELSTMCell": "timescales.nn.cells",
    "ExpRNNCell": "timescales.nn.cells",
    "GRUCell": "timescales.nn.cells",
    "GatedGRUCell": "timescales.nn.cells",
    "GatedLSTMCell": "timescales.nn.cells",
    "JANETCell": "timescales.nn.cells",
    "LRUCell": "timescales.nn.cells",
    "LSTMCell": "timescales.nn.cells",
    "LeakyRNNCell": "timescales.nn.cells",
    "MinGRUCell": "timescales.nn.cells",
    "MinLSTMCell": "timescales.nn.cells",
    "PLScanCell": "timescales.nn.cells",
    "PGRUCell": "timescales.nn.cells",
    "PLSTMCell": "timescales.nn.cells",
    "RMCCell": "timescales.nn.cells",
    "URLSTMCell": "timescales.nn.cells",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'timescales' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
