"""Where sequences begin again: what `reset` of a call becomes for the engines.

A reset is a boundary before a step, whether the step exists (mask) or not. Engines see it after the step before: its
output and, if they are asked for, its states are what the step gave, and what the next step reads is the initial state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell
from timescales.nn.engine import arguments


class Again(NamedTuple):
    """Where sequences begin again, and from which state.

    after: (S, B) bool, whether the state after a step is the initial one again; False after the last step.
    initial: that state; fields (B, H).
    """

    after: Tensor
    initial: Any


def begin(reset: Tensor, initial: Any, state: Any) -> Any:
    """`state` with `initial` where `reset` (B,) is true; fields (B, ...)."""
    fields = []
    for new, old in zip(initial, state, strict=True):
        # A field of a cell for the eager engine alone may have more dimensions than (B, H), or fewer.
        more = max(new.dim(), old.dim(), reset.dim() + 1) - reset.dim()
        fields.append(torch.where(reset.view(*reset.shape, *(1,) * more), new, old))
    return type(state)(*fields)


def split(reset: Tensor, cell: Cell, state: Any) -> tuple[Any, Again]:
    """The state before the first step, and where the sequences begin again after it.

    Arguments:
        reset: (S, B), nonzero where the state is the cell's initial one before a step.
        state: the state that was given; fields (B, H).
    """
    reset, initial = reset.bool(), arguments.first_state(cell, *reset.shape[1:])
    if not len(reset):
        return state, Again(reset, initial)
    return begin(reset[0], initial, state), Again(torch.cat([reset[1:], torch.zeros_like(reset[:1])]), initial)
