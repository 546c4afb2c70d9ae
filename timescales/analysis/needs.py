"""Check that an analysis is made for a model or task. If not, each function raises NotMadeFor, a ConfigError."""

from timescales.errors import NotMadeFor
from timescales.models.sequence import SequenceModel
from timescales.nn.cells.plstm import PowerLawCell
from timescales.tasks import Copy, Dyck2, Series, Task, Words


def needs_age(model: SequenceModel) -> None:
    """Check that every cell of the model has a power-law gate, whose age is the time since the last reset."""
    for cell in model.rnn.layers:
        if not isinstance(cell, PowerLawCell):
            kind = type(cell).__name__
            raise NotMadeFor(f"this analysis is for power-law LSTMs and GRUs: {kind} has no reference time")


def needs_words(task: Task) -> Words:
    """Return the task, if it is language modelling by words."""
    if not isinstance(task, Words):
        raise NotMadeFor(f"this analysis is for language models of words, not for {type(task).__name__}")
    return task


def needs_softmax(model: SequenceModel) -> None:
    """Check that the model computes the logits of all classes."""
    if model.spec.awd is not None and model.spec.awd.cutoffs is not None:
        raise NotMadeFor("this analysis is for models with a full softmax, not for an adaptive one (task=wt103)")


def needs_forecast(task: Task) -> Series:
    """Return the task, if it is a forecast of series."""
    if not isinstance(task, Series) or task.kind != "forecast":
        kind = "classification" if isinstance(task, Series) else type(task).__name__
        raise NotMadeFor(f"this analysis is for forecasts of series (task=series task.kind=forecast), not for {kind}")
    return task


def needs_copy(task: Task) -> Copy:
    """Return the task, if it is the copy task with one delay."""
    if type(task) is not Copy:
        raise NotMadeFor(f"this analysis is for the copy task with one delay, not for {type(task).__name__}")
    return task


def needs_brackets(task: Task) -> Dyck2:
    """Return the task, if it is Dyck-2."""
    if not isinstance(task, Dyck2):
        raise NotMadeFor(f"this analysis is for strings of brackets (dyck2), not for {type(task).__name__}")
    return task
