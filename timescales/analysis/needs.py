"""Checks that an analysis is made for a model or task. Each raises ConfigError otherwise."""

from __future__ import annotations

from timescales.errors import ConfigError
from timescales.tasks import Copy, Dyck2, Task, Words
from timescales.training.model import SequenceModel


def needs_forget_gates(model: SequenceModel) -> None:
    """Every cell of the model must have a forget gate."""
    for cell in model.rnn.layers:
        if "forget" not in getattr(cell.Act, "_fields", ()):
            raise ConfigError(
                f"{type(cell).__name__} has no forget gate: this analysis is for models with forget gates"
            )


def needs_age(model: SequenceModel) -> None:
    """Every cell of the model must have an age, the time since the last reset."""
    for cell in model.rnn.layers:
        if "age" not in cell.State._fields:
            kind = type(cell).__name__
            raise ConfigError(f"this analysis is for power-law LSTMs and GRUs: {kind} has no reference time")


def needs_words(task: Task) -> Words:
    """The task, which must be language modelling by words."""
    if not isinstance(task, Words):
        raise ConfigError(f"this analysis is for language models of words, not for {type(task).__name__}")
    return task


def needs_copy(task: Task) -> Copy:
    """The task, which must be the copy task with one delay."""
    if type(task) is not Copy:
        raise ConfigError(f"this analysis is for the copy task with one delay, not for {type(task).__name__}")
    return task


def needs_brackets(task: Task) -> Dyck2:
    """The task, which must be Dyck-2."""
    if not isinstance(task, Dyck2):
        raise ConfigError(f"this analysis is for strings of brackets (dyck2), not for {type(task).__name__}")
    return task
