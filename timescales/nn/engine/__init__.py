"""Engines: the loops that run a cell over time. All have the signature of `eager.run`; `pick` chooses one."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from timescales.errors import nearest
from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import arguments, caches, eager, gpu
from timescales.nn.engine.cpu import fused
from timescales.nn.engine.kernel import Named, is_plain, tracing_reason
from timescales.nn.engine.reset import split_reset

NAMES = ("auto", "eager", "fused", "compiled", "cudnn")

Engine = Callable[..., tuple[Tensor, Any]]  # as `eager.run`


def checked(name: str) -> str:
    """Return the name of an engine. Raises ValueError for any other name."""
    if name not in NAMES:
        raise ValueError(f"engine must be one of {', '.join(NAMES)}; not {name!r}{nearest(name, NAMES)}")
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
        reset: (S, B), nonzero where the state is reset to `cell.initial_state` before a step.

    Raises: WrongShape, a ValueError and RuntimeError, for tensors that do not fit the cell (arguments.py).
    """
    weights, state = arguments.fitted(cell, x, weights, state, dt, mask, reset)
    state, resets = (state, None) if reset is None else split_reset(reset, cell, state)
    others: list[tuple[str, Any]] = [("the weights", w) for w in weights]
    others += [*(("the state", v) for v in state), ("dt", dt), ("mask", mask)]
    if resets is not None:
        others += [*(("the initial state", v) for v in resets.initial), ("reset", resets.after)]
    engine = _choose(name, cell, x, mask is not None, dt is not None, others, resets is not None or states)
    return engine(cell, x, weights, state, dt, mask, resets, states)


def pick(name: str, cell: Cell, x: Tensor, masked: bool = False, timed: bool = False, stepwise: bool = False) -> Engine:
    """Return the engine of a name that runs `cell` over `x`, or for "auto" the fastest that can.

    masked, timed: whether the call has a mask, and dt. stepwise: whether it has resets, or asks for all states.

    Raises: ValueError if the named engine cannot run the cell; the message gives the reason and the fix.
    """
    chosen = _choose(name, cell, x, masked, timed, stepwise=stepwise)
    return chosen.func if isinstance(chosen, functools.partial) else chosen


def name_of_auto(cell: Cell, timed: bool = False) -> tuple[str, str]:
    """Return the name of the engine that "auto" runs a cell with, on the cell's device, and its first warning or "".

    timed: whether the call has dt.
    """
    x = next(cell.parameters()).new_zeros(2, 1, cell.input_size)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chosen = pick("auto", cell, x, timed=timed)
    name = chosen.__module__.rpartition(".")[2]
    name = chosen.__name__ if name == "gpu" else name
    if name == "compiled" and gpu.failure(cell, x.device):
        name = "eager"
    return name, str(caught[0].message) if caught else ""


def _choose(
    name: str, cell: Cell, x: Tensor, masked: bool, timed: bool, others: Named = (), stepwise: bool = False
) -> Engine:
    """Choose an engine as `pick` does, and bind the compiled cell or the equations to it.

    others: the tensors of the call except x, with their names.
    """
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
    """Return why no kernel can read the tensors of a call or the parameters of a cell. Return None if all are plain."""
    own = cell.parameters() if cell._modules else cell._parameters.values()
    for name, tensor in (("x", x), *others, *(("the parameters", p) for p in own)):
        if tensor is not None and not is_plain(tensor):
            found = type(tensor).__name__ if tensor.layout is torch.strided else tensor.layout
            return f"{name} must be plain tensors, not {found}; use engine='eager'"
    return None


def pick_fastest(
    cell: Cell, x: Tensor, masked: bool, timed: bool, others: Named = (), stepwise: bool = False
) -> Engine:
    """Return the fastest engine that can run `cell` over `x`: the engine "auto". Arguments as in `_choose`.

    If the cell itself is the reason why it runs on the eager engine, one warning says so.
    """
    if not (cell.compiled or x.is_cuda) or tracing_reason():
        return eager.run
    if reason := plain_reason(cell, x, others):
        caches.warn_once(cell, reason)
        return eager.run
    if x.is_cuda:
        if torch.compiler.is_compiling():
            return eager.run
        return gpu.cudnn if gpu.cudnn_reason(cell, x, masked, stepwise) is None else gpu.compiled
    if x.shape[0] < 2 or fused.call_reason(cell, x, others):
        return eager.run
    code = compiled_or_warn(cell, timed)
    return eager.run if code is None else functools.partial(fused.run, given=code)


def compiled_or_warn(cell: Cell, timed: bool = False) -> fused.Compiled | None:
    """Return the compiled form of a cell. Return None, and warn once, if there is none."""
    code = fused.compiled(cell, timed)
    if isinstance(code, str):
        caches.warn_once(cell, f"{code}; {caches.HOW_TO_SILENCE}")
        return None
    return code
