"""Deprecated import path of the layers, which are now in the files of their cells: import them from `timescales`.

It will be removed in the next version. `timescales.nn.modules.plstm` and similar paths work here too.
"""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from typing import Any

from timescales.nn import registry

_FILES = ("elstm", "exprnn", "gated", "gru", "leaky", "lru", "lstm", "mingru", "minlstm", "plscan", "plstm", "rmc")
_MODULE_OF = {model.layer: model.module for model in registry.MODELS}
__all__ = list(_MODULE_OF)
__path__ = ()  # a package, as it was: its submodules are those below


def _moved(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'timescales.nn.modules' has no attribute {name!r}")
    warnings.warn(
        f"timescales.nn.modules is deprecated: use from timescales import {name}", DeprecationWarning, stacklevel=3
    )
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __getattr__(name: str) -> Any:
    return _moved(name)


for _file in _FILES:
    _module = types.ModuleType(f"{__name__}.{_file}", "See timescales.nn.modules.")
    vars(_module)["__getattr__"] = lambda name: _moved(name)
    sys.modules[_module.__name__] = globals()[_file] = _module
