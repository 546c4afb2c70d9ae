"""Checks that an analysis is made for a model or task. Each raises NotMadeFor, a ConfigError, otherwise."""

from __future__ import annotations

from typing import Any

import torch

from timescales.analysis.study import NotMadeFor
from timescales.errors import ConfigError
from timescales.nn.cells import Cell
from timescales.nn.cells.plstm import PowerLawCell
from timescales.nn.engine import eager
from timescales.tasks import Copy, Dyck2, Task, Words
from timescales.training.model import SequenceModel


def needs_forget_gates(model: SequenceModel) -> None:
    """Every cell of the model must have a forget gate, one of the activations that `act` returns to `step`.

    Raises NotMadeFor for a cell without one, and ConfigError for a cell whose `step` or `act` hides it (docs/gates.md).
    """
    for cell in model.rnn.layers:
        name = type(cell).__name__
        if not hasattr(cell, "Act"):
            needed = "one with a field forget, and a method act that returns it"
            raise NotMadeFor(f"{name} has no class Act: this analysis needs {needed}; see docs/gates.md")
        if "forget" not in getattr(cell.Act, "_fields", ()):
            raise NotMadeFor(f"{name} has no forget gate: this analysis is for models with forget gates")
        act = _act_of_a_step(cell)
        if act is None:
            raise ConfigError(f"{name}.step must call self.act, where analyses see its gates; see docs/gates.md")
        if act.forget.shape != (2, cell.hidden_size):
            shape = f"(batch, hidden), here (2, {cell.hidden_size}), not {tuple(act.forget.shape)}"
            raise ConfigError(f"{name}.act must return forget of shape {shape}: use expand_as; see docs/gates.md")


@torch.no_grad()
def _act_of_a_step(cell: Any) -> Any:
    """What `act` returns in a step of two sequences at zero input; None if the step does not call it."""
    seen = []
    act = cell.act

    def noted(*arguments: Any, **named: Any) -> Any:
        seen.append(act(*arguments, **named))
        return seen[-1]

    cell.act = noted  # an attribute of the instance, which hides the method
    try:
        cell(cell.weight_ih.new_zeros(1, 2, cell.input_size), None, None, None, eager.run)
    finally:
        del cell.act
    return seen[0] if seen else None


def needs_fixed_forget(cell: Cell) -> None:
    """The forget biases of the layer must be assigned, not trained."""
    if "forget" not in getattr(cell, "frozen", ()):
        kind = type(cell).__name__
        raise NotMadeFor(
            f"this analysis is for layers with assigned time scales (model=mts): those of {kind} are learned"
        )


def needs_age(model: SequenceModel) -> None:
    """Every cell of the model must have a power-law gate, whose age is the time since the last reset."""
    for cell in model.rnn.layers:
        if not isinstance(cell, PowerLawCell):
            kind = type(cell).__name__
            raise NotMadeFor(f"this analysis is for power-law LSTMs and GRUs: {kind} has no reference time")


def needs_words(task: Task) -> Words:
    """The task, which must be language modelling by words."""
    if not isinstance(task, Words):
        raise NotMadeFor(f"this analysis is for language models of words, not for {type(task).__name__}")
    return task


def needs_softmax(model: SequenceModel) -> None:
    """The model must compute the logits of all classes."""
    if model.spec.awd is not None and model.spec.awd.cutoffs is not None:
        raise NotMadeFor("this analysis is for models with a full softmax, not for an adaptive one (task=wt103)")


def needs_copy(task: Task) -> Copy:
    """The task, which must be the copy task with one delay."""
    if type(task) is not Copy:
        raise NotMadeFor(f"this analysis is for the copy task with one delay, not for {type(task).__name__}")
    return task


def needs_brackets(task: Task) -> Dyck2:
    """The task, which must be Dyck-2."""
    if not isinstance(task, Dyck2):
        raise NotMadeFor(f"this analysis is for strings of brackets (dyck2), not for {type(task).__name__}")
    return task
