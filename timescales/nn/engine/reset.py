"""Prepare the `reset` argument of a call for the engines.

A reset is a boundary between two sequences before a step, whether that step exists (mask) or not. The engines apply it
after the step before: the output and the returned states of that step are what the step computed, and the next step
reads the initial state.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell
from timescales.nn.engine import arguments


class Resets(NamedTuple):
    """After which steps the state is reset, and to which state.

    after: (S, B) bool, whether the state is reset after a step. False after the last step.
    initial: the state after a reset; fields (B, H).
    """

    after: Tensor
    initial: Any


def reset_where(where: Tensor, initial: Any, state: Any) -> Any:
    """Return `state` with the values of `initial` where `where` (B,) is true; fields (B, ...)."""
    fields = []
    for new, old in zip(initial, state, strict=True):
        # In cells that only the eager engine runs, a field may have more or fewer dimensions than (B, H).
        more = max(new.dim(), old.dim(), where.dim() + 1) - where.dim()
        fields.append(torch.where(where.view(*where.shape, *(1,) * more), new, old))
    return type(state)(*fields)


def split_reset(reset: Tensor, cell: Cell, state: Any) -> tuple[Any, Resets]:
    """Split `reset` (S, B), nonzero before each reset, into the state before the first step and the later resets.

    state: the state that the caller gave; fields (B, H).
    """
    reset, initial = reset.bool(), arguments.first_state(cell, *reset.shape[1:])
    if not len(reset):
        return state, Resets(reset, initial)
    return reset_where(reset[0], initial, state), Resets(torch.cat([reset[1:], torch.zeros_like(reset[:1])]), initial)
