"""Complete the signature of a constructor that passes `**arguments` on.

Each argument, its type and its default are written once, where it is used; `inspect.signature`, `help` and notebooks
show all of them. For editors and type checkers, which do not run the code, timescales/__init__.pyi has the same
(scripts/pages.py writes it).
"""

import inspect
import types
from collections.abc import Callable, Collection
from typing import Any

VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def complete(constructor: Any, *takers: Callable[..., Any], without: Collection[str] = ()) -> None:
    """Replace `**arguments` in a constructor's signature by the parameters of the functions that receive them.

    A constructor without `**arguments` is not changed. If several functions have a parameter of one name, the
    constructor's own is used, then that of the first function.

    Arguments:
        takers: the functions that receive the arguments.
        without: names to leave out.
    """
    own = parameters(constructor)
    passed_on = own.get("arguments")
    if passed_on is None or passed_on.kind is not inspect.Parameter.VAR_KEYWORD:
        return
    found = dict(own)
    for taker in takers:
        found |= {name: parameter for name, parameter in parameters(taker).items() if name not in found}
    listed = [p for name, p in found.items() if p.kind not in VARIABLE and name not in without]
    constructor.__signature__ = inspect.Signature(sorted(listed, key=lambda p: p.kind))


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function or a class by name, with types as objects where these can be found."""
    try:
        return dict(inspect.signature(function, eval_str=True).parameters)
    except NameError:  # a type that only type checkers import
        return dict(inspect.signature(function).parameters)


def copy(function: Any) -> Any:
    """Copy a function, so that the copy can have its own signature."""
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    made.__annotations__ = function.__annotations__
    return made
