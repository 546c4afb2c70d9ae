"""Gated recurrent networks whose memory has a controlled time scale, and the papers' experiments with them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers and editors; at run time see __getattr__
    from timescales.nn.cells import *  # noqa: F403
    from timescales.nn.modules import *  # noqa: F403
    from timescales.nn.rnn import *  # noqa: F403

__version__ = "0.1.0"

__all__ = [  # noqa: F405
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
    if name in __all__:
        for module in ("cells", "rnn", "modules"):  # each stands on those before it
            found = vars(importlib.import_module(f"timescales.nn.{module}"))
            if name in found:
                return found[name]
    raise AttributeError(f"module 'timescales' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
