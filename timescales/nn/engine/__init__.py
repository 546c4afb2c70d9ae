"""Engines: the loops that run a cell over time. All have the signature of `eager.run`; `pick` chooses one."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import again, arguments, eager, equations, kept
from timescales.nn.engine.cpu import fused
from timescales.nn.engine.gpu import choice, cudnn
from timescales.nn.engine.kernel import Named, tracing_reason, unusual_reason

NAMES = ("auto", "eager", "fused", "graph", "cluster", "cudnn")

TO_SILENCE = "engine='eager' silences this, as does compiled = False in the cell's class"

Engine = Callable[..., tuple[Tensor, Any]]  # as `eager.run`


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
    if name not in NAMES:
        raise ValueError(f"engine must be one of {', '.join(NAMES)}; not {name!r}")
    if name == "auto":
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
        reason, chosen = reason or cudnn.unsupported_reason(cell, x, masked, stepwise=stepwise), cudnn.run
    else:
        from timescales.nn.engine.gpu import cluster, graph  # they import Triton, which only a GPU needs

        found = reason or equations.known(cell, timed)
        if name == "cluster":
            reason, chosen = reason or cluster.unsupported_reason(cell, x, timed, found), cluster.run
        else:
            reason, chosen = reason or graph.unsupported_reason(cell, x, timed, found), graph.run
        chosen = functools.partial(chosen, found=found)
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
    if not cell.compiled or tracing_reason():
        return eager.run
    if reason := plain_reason(cell, x, others):
        _warn_once(cell, reason)
        return eager.run
    if x.is_cuda:
        found = equations.known(cell, timed)
        engine = pick_on_gpu(cell, x, masked, timed, found, stepwise)
        return engine if engine in (eager.run, cudnn.run) else functools.partial(engine, found=found)
    if x.shape[0] < 2 or fused.call_reason(cell, x, others):
        return eager.run
    code = fused.compiled(cell, timed)
    if isinstance(code, str):
        _warn_once(cell, f"{code}; {TO_SILENCE}")
        return eager.run
    return functools.partial(fused.run, given=code)


def why_not_compiled(cell: Cell) -> str | None:
    """The reason why the C++ engine has no library for a cell; None if it has one. A warning says it, once."""
    code = fused.compiled(cell, timed=False)
    if isinstance(code, str):
        _warn_once(cell, f"{code}; {TO_SILENCE}")
        return code
    return None


def _warn_once(cell: Cell, reason: str) -> None:
    if kept.is_new(reason):
        name = f"{type(cell).__name__}({cell.extra_repr()})"  # in one line, whatever modules are in it
        warnings.warn(f"{name} runs on the eager engine, which is slower: {reason}", stacklevel=3)


def pick_on_gpu(
    cell: Cell,
    x: Tensor,
    masked: bool,
    timed: bool = False,
    found: equations.Equations | str | None = None,
    stepwise: bool = False,
) -> Engine:
    """The fastest engine on a GPU, according to measured.csv. found: `equations.known`, if the caller has it."""
    from timescales.nn.engine.gpu import cluster, graph

    if 0 in x.shape:
        return eager.run
    found = equations.known(cell, timed) if found is None else found
    if isinstance(found, str):
        _warn_once(cell, f"{found}; {TO_SILENCE}")
        return eager.run
    sizes = (x.shape[0], x[0, ..., 0].numel(), cell.hidden_size)
    # cuDNN is deterministic only with other cuBLAS workspaces than build.py sets (torch's documentation of nn.LSTM).
    cudnn_allowed = not torch.are_deterministic_algorithms_enabled()
    for name in choice.ranking(choice.kind_of(cell, found), *sizes, torch.cuda.get_device_name(x.device)):
        if name == "cudnn" and cudnn_allowed and cudnn.unsupported_reason(cell, x, masked, found, stepwise) is None:
            return cudnn.run
        if name == "cluster" and cluster.unsupported_reason(cell, x, timed, found) is None:
            return cluster.run_or_graph
        if name == "graph" and graph.unsupported_reason(cell, x, timed, found) is None:
            return graph.run_or_eager
        if name == "eager":
            break
    return eager.run
