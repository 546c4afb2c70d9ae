"""Does a model that copies over T steps copy over other delays too?

Source: Chien et al. 2021, appendix A.4 and Fig. A.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.common import mean_and_error, needs_copy, over_runs
from timescales.analysis.run import Run, groups
from timescales.analysis.study import Study, progress
from timescales.tasks import Batch, Copy, Task
from timescales.tasks.copy import LENGTH, SYMBOLS
from timescales.training.model import SequenceModel

DELAYS = (50, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000)
TRAINED = 200  # what DELAYS is in proportion to; the paper's models are trained at 200 and at 500
GUESS = 1.0 / SYMBOLS  # the paper counts the dummy too: 1/9
TITLE = "Copy task: accuracy at delays not trained on"
SEQUENCES = 1000
SIDE_BY_SIDE, STEPS = 250, 100  # sequences read at once, steps at a time: little memory at any delay


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Accuracy by delay, "50" to "2000", on 1,000 sequences each; for T other than 200 and 500 in proportion to T.

    The paper states the range of delays; the grid and the number of sequences are ours.
    """
    return {str(T): accuracy(model, at_delay(task, T)) for T in delays(needs_copy(task).T)}


def study(run: Run) -> Study:
    """Rows: one a delay: T, accuracy, its standard error over sequences, the delay trained on. Values: `measure`."""
    own = needs_copy(run.task)
    rows = [  # of sequences: answers to one of them hang together
        {"T": T, **mean_and_error(shares(run.model, at_delay(run.task, T))), "trained": own.T}
        for T in progress(delays(own.T), "delays", len(delays(own.T)))
    ]
    values = {str(row["T"]): row["accuracy"] for row in rows}
    line = (run.config["model"]["name"], run.colour, "-", rows)
    return Study(TITLE, rows, values, lambda figure: draw(figure, [line]))


def compare(runs: Sequence[Run]) -> Study:
    """Rows and values by configuration: mean and standard error over its runs."""
    found = []
    for group in groups(runs):
        each = [run.earlier("generalisation") or study(run).rows for run in group.runs]
        found.append((group, over_runs(each, "T", "trained")))
    rows = [{"run": group.name, **row} for group, own in found for row in own]
    lines = [(group.label, group.colour, group.style, own) for group, own in found]
    values = {f"{row['run']}/{row['T']}": row["accuracy"] for row in rows}
    return Study(TITLE, rows, values, lambda figure: draw(figure, lines))


def draw(figure: Any, found: Sequence[tuple[str, str, str, Sequence[dict[str, Any]]]]) -> None:
    """Accuracy over the delay, a line a configuration."""
    (one,) = plotting.panels(figure, width=7.5, height=4.6)
    for name, colour, style, rows in found:
        x, y, e = ([row[key] for row in rows] for key in ("T", "accuracy", "standard_error"))
        plotting.band(one, x, y, e, colour, ls=style, lw=1.8, ms=4, label=name)
    for trained in sorted({row["trained"] for *_, rows in found for row in rows}):
        one.axvline(trained, color="black", ls="--", lw=1)
        one.text(trained, 1.0, f" trained at T = {trained}", fontsize=8, transform=one.get_xaxis_transform())
    one.axhline(GUESS, color="#999999", ls=":", lw=1, label="a guess among 8 symbols")
    ticks = sorted({row["T"] for *_, rows in found for row in rows})
    one.set(xscale="log", xlabel="delay T in the test (steps)", ylabel="accuracy of the ten answers", ylim=(0, 1.03))
    one.set_xticks(ticks, [str(T) for T in ticks], fontsize=8)
    one.minorticks_off()
    one.legend(frameon=False, fontsize=8)


def delays(trained: int) -> list[int]:
    """The delays at which a model trained at the delay `trained` is tried."""
    if trained in (200, 500):
        return list(DELAYS)
    return sorted({max(1, round(trained * T / TRAINED)) for T in DELAYS})


def at_delay(task: Task, T: int) -> Copy:
    """The same copy task with another delay, and SEQUENCES to test."""
    own = needs_copy(task)
    return Copy(
        T=T, layout=own.layout, score=own.score, train_size=1, valid_size=1, test_size=SEQUENCES,
        seed=own.seed, device=str(own.device),
    )  # fmt: skip


def accuracy(model: SequenceModel, task: Copy, sequences: int = SEQUENCES) -> float:
    """Fraction of the ten answers given rightly in the first `sequences` test sequences (or all, if they are fewer)."""
    return float(shares(model, task, sequences).mean())


@torch.no_grad()
def shares(model: SequenceModel, task: Copy, sequences: int = SEQUENCES) -> Tensor:
    """`accuracy` of each sequence by itself, float64 (sequences,), on the CPU."""
    right, sequences = [], min(sequences, task.size("test"))
    for first in range(0, sequences, SIDE_BY_SIDE):
        batch = task.batch("test", 0, 0, first, min(first + SIDE_BY_SIDE, sequences))
        state = None
        # Carrying the state over pieces is exact; only the last one's logits are wanted.
        for x in (*batch.x[:-LENGTH].split(STEPS), batch.x[-LENGTH:]):
            output = model(Batch(x, x), state)
            state = output.state
        right.append((output.logits.argmax(-1) == batch.target[-LENGTH:]).double().mean(0).cpu())
    return torch.cat(right)
