"""Engines: the loops that run a cell over time. All have the signature of `eager.run`; `pick` chooses one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from timescales.errors import other_engine
from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import again, arguments, eager, gpu, kept
from timescales.nn.engine.cpu import fused
from timescales.nn.engine.kernel import Named, tracing_reason, unusual_reason

NAMES = ("auto", "eager", "fused", "compiled", "cudnn")

Engine = Callable[..., tuple[Tensor, Any]]  # as `eager.run`


def checked(name: str) -> str:
    """Return the name of an engine. Raises ValueError for any other name."""
    if name not in NAMES:
        raise ValueError(f"engine must be one of {', '.join(NAMES)}; not {name!r}{other_engine(name, NAMES)}")
    return name


def run(
    name: str,
    cell: Cell,
    x: Tensor,
    weights: Weights,
    state: Any,
    dt: Tensor | None = None,
    mask: Tensor | None = None,
    reset: Tensor | None = None,
    states: bool = False,
) -> tuple[Any, ...]:
    """Run a cell over a sequence with the engine `name`; see `eager.run` and `pick`.

    Arguments:
        reset: (S, B), nonzero where the state is that of `cell.initial_state` before a step.

    Raises: WrongShape, a ValueError and RuntimeError, for tensors that do not fit the cell (arguments.py).
    """
    weights, state = arguments.fitted(cell, x, weights, state, dt, mask, reset)
    state, begins = (state, None) if reset is None else again.split(reset, cell, state)
    others = named(weights, state, dt, mask, begins)
    engine = _choose(name, cell, x, mask is not None, dt is not None, others, begins is not None or states)
    return engine(cell, x, weights, state, dt, mask, begins, states)


def named(
    weights: Weights, state: Any, dt: Tensor | None, mask: Tensor | None, begins: again.Again | None
) -> list[tuple[str, Any]]:
    """The tensors of a call beside x, each with a name for messages."""
    others = [*(("the weights", w) for w in weights), *(("the state", v) for v in state), ("dt", dt), ("mask", mask)]
    if begins is not None:
        others += [*(("the initial state", v) for v in begins.initial), ("reset", begins.after)]
    return others


def pick(name: str, cell: Cell, x: Tensor, masked: bool = False, timed: bool = False, stepwise: bool = False) -> Engine:
    """The engine that runs `cell` over `x`.

    Arguments:
        name: an engine, or "auto" for the fastest engine that can run the cell.
        masked, timed, stepwise: whether the call has a mask, dt, and resets or states.

    Raises: ValueError if the named engine cannot run the cell; the message gives the reason and the fix.
    """
    chosen = _choose(name, cell, x, masked, timed, stepwise=stepwise)
    return chosen.func if isinstance(chosen, functools.partial) else chosen


def _choose(
    name: str, cell: Cell, x: Tensor, masked: bool, timed: bool, others: Named = (), stepwise: bool = False
) -> Engine:
    """As `pick`. An engine comes with the compiled cell or equations. others: the other tensors, with their names."""
    if checked(name) == "auto":
        return pick_fastest(cell, x, masked, timed, others, stepwise)
    if name == "eager":
        return eager.run
    chosen: Engine
    reason = tracing_reason() or plain_reason(cell, x, others)
    if name == "fused":
        reason = reason or fused.call_reason(cell, x, others)
        code = reason or fused.compiled(cell, timed)
        if isinstance(code, str):
            reason = reason or f"{code}; use engine='eager'"
        else:
            chosen = functools.partial(fused.run, given=code)
    elif name == "cudnn":
        reason, chosen = reason or gpu.cudnn_reason(cell, x, masked, stepwise), gpu.cudnn
    else:
        chosen = gpu.compiled
    if reason is not None:
        raise ValueError(f"the {name} engine cannot run here: {reason}")
    return chosen


def plain_reason(cell: Cell, x: Tensor, others: Named) -> str | None:
    """The reason why no kernel can read the tensors of a call or the parameters of a cell; None if all are plain."""
    own = cell.parameters() if cell._modules else cell._parameters.values()
    return unusual_reason([("x", x), *others, *(("the parameters", p) for p in own)])


def pick_fastest(
    cell: Cell, x: Tensor, masked: bool, timed: bool, others: Named = (), stepwise: bool = False
) -> Engine:
    """The fastest engine that can run `cell` over `x`: the engine "auto". Arguments as in `_choose`.

    If a cell runs on the eager engine because of what it is, a warning says why, once.
    """
    if not (cell.compiled or x.is_cuda) or tracing_reason():
        return eager.run
    if reason := plain_reason(cell, x, others):
        kept.warn_once(cell, reason)
        return eager.run
    if x.is_cuda:
        return eager.run if torch.compiler.is_compiling() else gpu.pick(cell, x, masked, stepwise)
    if x.shape[0] < 2 or fused.call_reason(cell, x, others):
        return eager.run
    code = fused.compiled(cell, timed)
    if isinstance(code, str):
        kept.warn_once(cell, f"{code}; {kept.TO_SILENCE}")
        return eager.run
    return functools.partial(fused.run, given=code)


def why_not_compiled(cell: Cell) -> str | None:
    """The reason why the C++ engine has no library for a cell; None if it has one. A warning says it, once."""
    code = fused.compiled(cell, timed=False)
    if isinstance(code, str):
        kept.warn_once(cell, f"{code}; {kept.TO_SILENCE}")
        return code
    return None
