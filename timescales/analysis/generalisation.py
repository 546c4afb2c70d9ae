"""Measure whether a model that was trained to copy over T steps also copies over other delays.

Source: Chien et al. 2021, appendix A.4 and Fig. A.2.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.groups import Line, groups, line_of, mean_and_error, over_runs
from timescales.analysis.needs import needs
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow
from timescales.models.sequence import SequenceModel
from timescales.tasks import Batch, Copy, Task
from timescales.tasks.copy import LENGTH, SYMBOLS
from timescales.training.progress import progress

DELAYS = (50, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000)
GUESS = 1.0 / SYMBOLS  # accuracy at chance; the paper counts the dummy, too: 1/9
TITLE = "Copy task: accuracy at delays not trained on"
SEQUENCES = 1000
BATCH_SIZE, STEPS = 250, 100  # sequences and steps read at once, so that long delays need little memory


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Return the accuracy by delay, "50" to "2000", on 1,000 sequences each; in proportion to T if T is not 200 or 500.

    The paper states the range of delays; the grid and the number of sequences are ours.
    """
    return {str(T): accuracy(model, at_delay(task, T)) for T in delays(needs(task, Copy).T)}


def study(run: Trained) -> Study:
    """Study the accuracy by delay.

    Rows: one per delay: T, accuracy, its standard error over sequences, the delay of the training.
    Values: those of `measure`.
    """
    trained = needs(run.task, Copy).T
    rows = [
        {"T": T, **mean_and_error(shares(run.model, at_delay(run.task, T))), "trained": trained}
        for T in progress(delays(trained), "delays", len(delays(trained)))
    ]
    values = {str(row["T"]): row["accuracy"] for row in rows}
    return Study(TITLE, rows, values, lambda figure: draw(figure, [line_of(run, rows)]))


def compare(runs: Sequence[Trained]) -> Study:
    """Compare configurations: mean and standard error over the runs of each."""
    rows: list[TableRow] = []
    lines = []
    for group in groups(runs):
        rows_of_runs = [run.earlier("generalisation") or study(run).rows for run in group.runs]
        means = over_runs(rows_of_runs, "T", "trained")
        rows += [{"run": group.name, **row} for row in means]
        lines.append(group.line(means))
    values = {f"{row['run']}/{row['T']}": row["accuracy"] for row in rows}
    return Study(TITLE, rows, values, lambda figure: draw(figure, lines))


def draw(figure: Any, lines: Sequence[Line]) -> None:
    """Draw accuracy by delay, a line per configuration."""
    (ax,) = plotting.panels(figure, width=7.5, height=4.6)
    for label, colour, style, rows in lines:
        x, y, error = ([row[key] for row in rows] for key in ("T", "accuracy", "standard_error"))
        plotting.band(ax, x, y, error, colour, ls=style, lw=1.8, ms=4, label=label)
    for trained in sorted({row["trained"] for line in lines for row in line.data}):
        ax.axvline(trained, color="black", ls="--", lw=1)
        ax.text(trained, 1.0, f" trained at T = {trained}", fontsize=8, transform=ax.get_xaxis_transform())
    ax.axhline(GUESS, color="#999999", ls=":", lw=1, label="chance among 8 symbols")
    ticks = sorted({row["T"] for line in lines for row in line.data})
    ax.set(xscale="log", xlabel="delay T in the test (steps)", ylabel="accuracy of the ten answers", ylim=(0, 1.03))
    ax.set_xticks(ticks, [str(T) for T in ticks], fontsize=8)
    ax.minorticks_off()
    plotting.small_legend(ax)


def delays(trained: int) -> list[int]:
    """Return the delays at which a model is tested that was trained at the delay `trained`."""
    if trained in (200, 500):  # the paper's models
        return list(DELAYS)
    return sorted({max(1, round(trained * T / 200)) for T in DELAYS})


def at_delay(task: Task, T: int) -> Copy:
    """Return the same copy task with another delay and SEQUENCES test sequences."""
    task = needs(task, Copy)
    return Copy(
        T=T,
        layout=task.layout,
        score=task.score,
        train_size=1,
        valid_size=1,
        test_size=SEQUENCES,
        seed=task.seed,
        device=str(task.device),
    )


def accuracy(model: SequenceModel, task: Copy, sequences: int = SEQUENCES) -> float:
    """Return the share of correct answers in the first `sequences` test sequences (or in all, if there are fewer)."""
    return float(shares(model, task, sequences).mean())


@torch.no_grad()
def shares(model: SequenceModel, task: Copy, sequences: int = SEQUENCES) -> Tensor:
    """Return the share of correct answers in each sequence, (sequences,), float64, on the CPU."""
    result, sequences = [], min(sequences, task.size("test"))
    for first in range(0, sequences, BATCH_SIZE):
        batch = task.batch("test", 0, 0, first, min(first + BATCH_SIZE, sequences))
        state = None
        # Reading in pieces with the state carried is exact. Only the logits of the last piece are needed.
        for x in (*batch.x[:-LENGTH].split(STEPS), batch.x[-LENGTH:]):
            output = model(Batch(x, x), state)
            state = output.state
        result.append((output.logits.argmax(-1) == batch.target[-LENGTH:]).double().mean(0).cpu())
    return torch.cat(result)
