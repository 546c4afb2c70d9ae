"""Check that an analysis is made for a model or task. If not, each function raises NotMadeFor, a ConfigError."""

from typing import TypeVar

from timescales.errors import NotMadeFor
from timescales.models.sequence import SequenceModel
from timescales.nn.cells.plstm import PowerLawCell
from timescales.tasks import IMDB, Copy, Dyck2, Series, Task, Words

Kind = TypeVar("Kind", bound=Task)
# The tasks that `needs` checks, as its message names them.
IN_WORDS: dict[type[Task], str] = {
    Words: "language models of words",
    Copy: "the copy task with one delay",
    Dyck2: "strings of brackets (dyck2)",
    IMDB: "texts of different length (imdb)",
}


def needs_age(model: SequenceModel) -> None:
    """Check that every cell of the model has a power-law gate, whose age is the time since the last reset."""
    for cell in model.rnn.layers:
        if not isinstance(cell, PowerLawCell):
            kind = type(cell).__name__
            raise NotMadeFor(f"this analysis is for power-law LSTMs and GRUs: {kind} has no reference time")


def needs(task: Task, kind: type[Kind]) -> Kind:
    """Return the task, if it is of a class, one of `IN_WORDS`."""
    several_delays = kind is Copy and type(task) is not Copy  # a class derived from it, such as VariableCopy
    if not isinstance(task, kind) or several_delays:
        raise NotMadeFor(f"this analysis is for {IN_WORDS[kind]}, not for {type(task).__name__}")
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
