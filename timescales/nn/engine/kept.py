"""What engines keep between calls, and for how long. All other results are computed again.

With the equations of a cell, and as long as they live: what `@with_equations` stands above (a compiled library). With a
cell: `equations.KNOWN`, its equations. As long as the process lives: `SAID` and `TRIED` here, `compiler.FAILED`,
`shared_library.LOADED`, the unused memory of `workspace.Workspace`, and what `@functools.cache` stands above, such as
the functions that torch compiles for the engine `compiled`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from torch import nn

P = ParamSpec("P")
T = TypeVar("T")

TO_SILENCE = "engine='eager' silences this, as does compiled = False in the cell's class"

SAID: set[str] = set()  # reasons why a faster engine does not run
TRIED: dict[Any, str | None] = {}  # what trials found, by what was tried


def is_new(reason: str) -> bool:
    """Whether a reason is to be said, since it was not said before."""
    new = reason not in SAID
    SAID.add(reason)
    return new


def warn_once(cell: nn.Module, reason: str) -> None:
    """Warn that a cell runs on the eager engine, unless the reason was said before."""
    if is_new(reason):
        name = f"{type(cell).__name__}({cell.extra_repr()})"  # in one line, whatever modules are in it
        warnings.warn(f"{name} runs on the eager engine, which is slower: {reason}", stacklevel=3)


def tried(key: Any, trial: Callable[[], str | None]) -> str | None:
    """The result of a trial, which runs once for each key: a reason why kernels are not used, or None."""
    if key not in TRIED:
        TRIED[key] = trial()
    return TRIED[key]


def with_equations(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: the result of a function is kept with its first argument, the equations, in the object itself."""
    name = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def once(*arguments: P.args, **named: P.kwargs) -> T:
        values = arguments[0].__dict__
        if name not in values:
            values[name] = function(*arguments, **named)
        result: T = values[name]
        return result

    return once
