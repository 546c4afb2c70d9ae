"""What several questions stand on: for which model and task they are, and what a model does while it runs."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from timescales.analysis.study import progress
from timescales.errors import ConfigError
from timescales.tasks import Batch, Copy, Task, Words
from timescales.tasks.task import EVAL_BATCH
from timescales.training.model import SequenceModel

SEQUENCES = 1000  # of the test split: enough for means over all their steps
SIDE_BY_SIDE = 100  # the eager engine keeps every step's pre-activations: little memory, however long the sequences


@contextlib.contextmanager
def replaced(model: SequenceModel, instead: Callable[[int, Any, Callable], Callable]) -> Iterator[None]:
    """Within it the model runs on the eager engine, and `instead(layer, cell, act)` is every cell's `act`."""
    engine, model.rnn.engine = model.rnn.engine, "eager"
    for layer, cell in enumerate(model.rnn.layers):
        # On the instance, before the class's: `step` of every cell begins with act.
        cell.act = instead(layer, cell, cell.act)  # type: ignore[method-assign]
    try:
        yield
    finally:
        model.rnn.engine = engine
        for cell in model.rnn.layers:
            del cell.act


def watched(model: SequenceModel, read: Callable[[int, Any], None]) -> contextlib.AbstractContextManager[None]:
    """Within it the model runs on the eager engine, and `read(layer, act)` is given every step's `Cell.act`.

    A layer's steps come in the order of time, layer after layer.
    """
    return replaced(model, lambda layer, cell, act: _reporting(act, layer, read))


def _reporting(act: Callable, layer: int, read: Callable[[int, Any], None]) -> Callable:
    def reported(*arguments: Any) -> Any:
        found = act(*arguments)
        read(layer, found)
        return found

    return reported


def needs_forget_gates(model: SequenceModel) -> None:
    """Raise ConfigError for a model with a cell that has no forget gate."""
    for cell in model.rnn.layers:
        if "forget" not in getattr(cell.Act, "_fields", ()):
            raise ConfigError(f"{type(cell).__name__} has no forget gate: this probe is for models that have one")


def needs_words(task: Task) -> Words:
    """The task if it is language modelling by words. Raises ConfigError for any other."""
    if not isinstance(task, Words):
        raise ConfigError(f"this probe is for language models of words, not for {type(task).__name__}")
    return task


def needs_age(model: SequenceModel) -> None:
    """Raise ConfigError for a model whose units have no age."""
    for cell in model.rnn.layers:
        if "age" not in cell.State._fields:
            kind = type(cell).__name__
            raise ConfigError(f"this question is for power-law LSTMs and GRUs: {kind} has no reference time")


def needs_copy(task: Task) -> Copy:
    """The task if it is the copy task with one delay. Raises ConfigError for any other."""
    if type(task) is not Copy:
        raise ConfigError(f"this probe is for the copy task with one delay, not for {type(task).__name__}")
    return task


@torch.no_grad()
def mean_forget(model: SequenceModel, task: Task) -> list[Tensor]:
    """Each unit's forget gate, averaged over the steps that exist in test sequences: per layer (H,), float64.

    Reads the first 1,000 sequences, or, where the state is carried from batch to batch, the whole split. Gates that a
    cell refines are taken as they act on the memory. Raises ConfigError for a cell without a forget gate.
    """
    needs_forget_gates(model)
    carried = task.spec.carried
    total = [torch.zeros(cell.hidden_size, dtype=torch.float64, device=task.device) for cell in model.rnn.layers]
    weights: list[Iterator[Tensor]] = []  # of the batch now read: for each layer, each step's (B, 1)

    def read(layer: int, act: Any) -> None:
        total[layer] += (act.forget.double() * next(weights[layer])).sum(0)

    n, state = torch.zeros((), dtype=torch.float64, device=task.device), None
    with watched(model, read):
        batches = task.batches("test") if carried else _pieces(task)
        for batch in progress(batches, "forget gates", task.n_batches("test") if carried else None):
            exists = task.exists(batch).double().unsqueeze(-1)
            weights[:] = [iter(exists) for _ in total]
            after = model(batch, state).state
            state = after if carried else None
            n += exists.sum()
    return [sums / n for sums in total]


def _pieces(task: Task) -> Iterator[Batch]:
    for batch in itertools.islice(task.batches("test"), SEQUENCES // EVAL_BATCH):
        for first in range(0, batch.x.shape[1], SIDE_BY_SIDE):
            yield part(batch, slice(first, first + SIDE_BY_SIDE))


def part(batch: Batch, own: slice) -> Batch:
    """Some of a batch's sequences, to be read by a model; their targets are left out."""
    mask, dt = (None if v is None else v[:, own] for v in (batch.mask, batch.dt))
    return Batch(batch.x[:, own], batch.x[:, own], mask, dt)


def sequence(task: Task, k: int) -> Batch:
    """Test sequence k alone, as a batch; of a text, its first segment. Sliced from the batch that evaluation reads:
    not every task draws its sequences one by one."""
    batch = task.batch("test", 0, 0, 0, k + 1) if isinstance(task, Copy) else next(iter(task.batches("test")))
    return part(batch, slice(k, k + 1))


def timescale(forget: Tensor) -> Tensor:
    """-1 / ln f in steps: the time scale of a forget gate held at f. 0 at f = 0, infinite at f = 1."""
    return 1.0 / forget.log().abs()


def by_timescale(times: Tensor, size: int, of: int) -> dict[str, Tensor]:
    """Groups of units (their places) of neighbouring time scales (H,), the longest first; `size` of every `of` units.

    The names are the ranks of a group's first and last unit, "1-100". The last group may be smaller.
    """
    size = max(1, round(len(times) * size / of))
    parts = times.argsort(descending=True, stable=True).split(size)
    return {f"{k * size + 1}-{k * size + len(units)}": units for k, units in enumerate(parts)}


@torch.no_grad()
def answers(model: SequenceModel, task: Task) -> Tensor:
    """Which test sequences are answered rightly, (N,) bool, in the task's order."""
    batches = progress(task.batches("test"), "sequences", task.n_batches("test"))
    return torch.cat([task.correct(model(batch).logits, batch).cpu() for batch in batches])


def mean_and_error(values: Tensor) -> dict[str, float]:
    """Mean and standard error of accuracies (n,), as a row's."""
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {"accuracy": float(values.mean()), "standard_error": error}


def over_runs(each: list[list[dict[str, Any]]], *keys: str) -> list[dict[str, Any]]:
    """The rows of several runs of one configuration as one: `keys`, by which they are alike, and the mean accuracy and
    its standard error over runs. A single run's are left as they are."""
    if len(each) == 1:
        return each[0]
    return [
        {key: same[0][key] for key in keys}
        | mean_and_error(torch.tensor([row["accuracy"] for row in same], dtype=torch.float64))
        for same in zip(*each, strict=True)
    ]
