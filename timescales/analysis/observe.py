"""Run a model on test data and observe it: its gates at every step, its answers, its time scales."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from timescales.models.sequence import SequenceModel
from timescales.tasks import Batch, Task
from timescales.training.gates import needs_forget_gates, part, watched
from timescales.training.memory import segments
from timescales.training.progress import progress

SEQUENCES = 1000  # of the test split, for means over all their steps
BATCH_SIZE = 100  # sequences; the eager engine keeps every step's pre-activations, so a larger batch needs more memory


@torch.no_grad()
def mean_forget(model: SequenceModel, task: Task) -> list[Tensor]:
    """Return each unit's forget gate, averaged over the steps that exist in test sequences: per layer (H,), float64.

    It reads the first 1,000 sequences, or the whole split if the state is carried from batch to batch. A refined gate
    is measured after its refinement. Raises ConfigError for a cell without a forget gate.
    """
    needs_forget_gates(model.rnn)
    carried = task.spec.carried
    total = [torch.zeros(cell.hidden_size, dtype=torch.float64, device=task.device) for cell in model.rnn.layers]
    weights: list[Iterator[Tensor]] = []  # of the current batch: for each layer the weights (B, 1) of its steps

    def read(layer: int, act: Any) -> None:
        total[layer] += (act.forget.double() * next(weights[layer])).sum(0)

    n, state = torch.zeros((), dtype=torch.float64, device=task.device), None
    with watched(model, read):
        batches = task.batches("test")
        if not carried:
            batches = itertools.chain.from_iterable(segments(task, "test", SEQUENCES, BATCH_SIZE))
        for batch in progress(batches, "forget gates", task.n_batches("test") if carried else None):
            exists = task.exists(batch).double().unsqueeze(-1)
            weights[:] = [iter(exists) for _ in total]
            final = model(batch, state).state
            state = final if carried else None
            n += exists.sum()
    return [sums / n for sums in total]


def sequence(task: Task, k: int) -> Batch:
    """Return test sequence k as a batch of one; of a text, its first segment.

    It is cut from a batch of the evaluation, since not every task can make single sequences.
    """
    return part(next(iter(task.batches("test"))), slice(k, k + 1))


@torch.no_grad()
def answers(model: SequenceModel, task: Task) -> Tensor:
    """Return whether each test sequence is answered correctly, (N,) bool, in the task's order."""
    batches = progress(task.batches("test"), "sequences", task.n_batches("test"))
    return torch.cat([task.correct(model(batch).logits, batch).cpu() for batch in batches])


def by_timescale(times: Tensor, size: int, of: int) -> dict[str, Tensor]:
    """Group units with neighbouring time scales (H,), the longest first: indices of units by name.

    A group has `size` of every `of` units; the last one may be smaller. Names are the ranks of the first and last
    unit, such as "1-100".
    """
    size = max(1, round(len(times) * size / of))
    parts = times.argsort(descending=True, stable=True).split(size)
    return {f"{k * size + 1}-{k * size + len(units)}": units for k, units in enumerate(parts)}
