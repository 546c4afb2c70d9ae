"""The models of the library, one file each: the equations of one time step (the cell), and the layers made of it.

    rnn = PLSTM(10, 128, num_layers=2)
    output, state = rnn(x)                  # x (S, B, 10), output (S, B, 128); state.h, state.c, state.age (2, B, 128)
    output, state = rnn(x, state, dt, mask)

    lstm = LSTM(10, 128, num_layers=2)
    output, (h_n, c_n) = lstm(x)            # as torch.nn.LSTM

`CellRNN` describes the arguments that all layers have, and `RNN.forward` the call: inputs, outputs and their shapes.
A class is imported when its name is first used, since the engines, which the layers use, import cell.py.
"""

import importlib
from typing import Any

from timescales.nn import registry

_MODULE_OF = {"Cell": "timescales.nn.cells.cell", "Weights": "timescales.nn.cells.cell", **registry.modules()}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'timescales.nn.cells' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
