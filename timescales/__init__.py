"""Gated recurrent networks with a controlled time scale of memory, and the experiments of the papers about them.

The public names with their signatures are in __init__.pyi, for editors and type checkers.
"""

import importlib

from timescales import extras
from timescales.nn import registry

__version__ = "1.2.0"

# Where each public name is defined. Modules are imported when a name is first used (PEP 562), so that
# `train.py --help` does not import torch.
_MODULE_OF = {
    "Cell": "timescales.nn.cells.cell",
    "CellRNN": "timescales.nn.rnn",
    "RNN": "timescales.nn.rnn",
    "RNNState": "timescales.nn.state",
    "accelerate": "timescales.nn.accelerate",
    "explain": "timescales.nn.explain",
    "free_memory": "timescales.nn.engine.cpu.workspace",
    "load": "timescales.runs.weights",
    "one_cell_per_layer": "timescales.nn.rnn",
    "restore": "timescales.nn.accelerate",
    "results": "timescales.reports.frames",
    **registry.modules(),
}
__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'timescales' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    except ModuleNotFoundError as error:
        return extras.absent(name, error)


def __dir__() -> list[str]:
    return __all__
