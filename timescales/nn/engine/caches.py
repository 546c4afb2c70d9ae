"""Caches of the engines, and how long each lives. Everything else is computed again in each call.

- As long as the equations of a cell live: its compiled library, in the attribute `compiled` that cpu/fused.py sets.
- As long as the cell lives: its equations, in `equations.CACHE`.
- As long as the process lives: `WARNED` and `TRIAL_RESULTS` here, `compiler.FAILED`, `shared_library.LOADED`, the
  unused memory of `workspace.Workspace`, and results of functions under `@functools.cache`, such as the functions that
  torch compiles for the engine `compiled`.
"""

import warnings
from collections.abc import Callable
from typing import Any

from torch import nn

HOW_TO_SILENCE = "engine='eager' silences this, as does compiled = False in the cell's class"

WARNED: set[str] = set()  # reasons that a warning has given
TRIAL_RESULTS: dict[Any, str | None] = {}  # results of trials, by the key of what was tried


def is_first_warning(reason: str) -> bool:
    """Return whether no warning has given this reason so far, and remember the reason."""
    new = reason not in WARNED
    WARNED.add(reason)
    return new


def warn_once(cell: nn.Module, reason: str) -> None:
    """Warn that a cell runs on the eager engine, unless an earlier warning gave the same reason."""
    if is_first_warning(reason):
        name = f"{type(cell).__name__}({cell.extra_repr()})"  # in one line, whatever modules are in it
        warnings.warn(f"{name} runs on the eager engine, which is slower: {reason}", stacklevel=3)


def trial_result(key: Any, trial: Callable[[], str | None]) -> str | None:
    """Run a trial once for each key. Return the reason why kernels are not used, or None if the trial passed."""
    if key not in TRIAL_RESULTS:
        TRIAL_RESULTS[key] = trial()
    return TRIAL_RESULTS[key]
