"""Does a model that copies over T steps copy over other delays too?

Source: Chien et al. 2021, appendix A.4 and Fig. A.2.
"""

from __future__ import annotations

import torch

from timescales.model import SequenceModel
from timescales.schema import ConfigError
from timescales.tasks import Batch, Copy, Task
from timescales.tasks.copy import LENGTH

DELAYS = (50, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000)
TRAINED = 200  # what DELAYS is in proportion to; the paper's models are trained at 200 and at 500
SEQUENCES, SIDE_BY_SIDE, STEPS = (
    1000,
    250,
    100,
)  # read SIDE_BY_SIDE at once, STEPS at a time: little memory at any delay


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Accuracy by delay, "50" to "2000", on 1,000 sequences each; for T other than 200 and 500 in proportion to T.

    The paper states the range of delays; the grid and the number of sequences are ours.
    """
    return {str(T): accuracy(model, at_delay(task, T)) for T in delays(copying(task).T)}


def delays(trained: int) -> list[int]:
    """The delays at which a model trained at one is tried."""
    if trained in (200, 500):
        return list(DELAYS)
    return sorted({max(1, round(trained * T / TRAINED)) for T in DELAYS})


def copying(task: Task) -> Copy:
    """The task if it is the copy task with one delay. Raises ConfigError for any other."""
    if type(task) is not Copy:
        raise ConfigError(f"this probe is for the copy task with one delay, not for {type(task).__name__}")
    return task


def at_delay(task: Task, T: int) -> Copy:
    """The same copy task with another delay, and SEQUENCES to test."""
    own = copying(task)
    return Copy(
        T=T, layout=own.layout, score=own.score, train_size=1, valid_size=1, test_size=SEQUENCES,
        seed=own.seed, device=str(own.device),
    )  # fmt: skip


@torch.no_grad()
def accuracy(model: SequenceModel, task: Copy, sequences: int = SEQUENCES) -> float:
    """Fraction of the ten answers given rightly in the first `sequences` test sequences (or all, if they are fewer)."""
    right, sequences = torch.zeros((), device=task.device), min(sequences, task.size("test"))
    for first in range(0, sequences, SIDE_BY_SIDE):
        batch = task.batch("test", 0, 0, first, min(first + SIDE_BY_SIDE, sequences))
        state = None
        # Carrying the state over pieces is exact; only the last one's logits are wanted.
        for x in (*batch.x[:-LENGTH].split(STEPS), batch.x[-LENGTH:]):
            output = model(Batch(x, x), state)
            state = output.state
        right += (output.logits.argmax(-1) == batch.target[-LENGTH:]).sum()
    return float(right) / (LENGTH * sequences)
