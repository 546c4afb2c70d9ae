"""Measure how the accuracy of copying falls when units are silenced, at random or the later-reset units first.

Source: Chien et al. 2021, section 5.3 and Fig. 5.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.generalisation import GUESS, accuracy
from timescales.analysis.groups import Line, groups, line_of, mean_and_error, over_runs
from timescales.analysis.needs import needs
from timescales.analysis.reset_units import later_reset
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.nn.cells.plstm import PowerLawCell
from timescales.tasks import Copy, Task
from timescales.training.progress import progress

ORDERS, SEQUENCES = 10, 200
TITLE = "Copy task: accuracy with units silenced"


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Return the accuracy by number of silenced units, "random/0" to "random/100", the mean over 10 random orders.

    A model with reference times also has "later_first/...": the later-reset units first, in random order, then the
    others. In networks without exactly 128 units, the numbers are in proportion. The paper does not state what is
    silenced (here the output h, while the cell continues) nor how often (here 10 orders, each on the same 200 test
    sequences).

    ".../mean" is the mean over the numbers of units. ".../kept" is the mean share of the accuracy above chance that
    remains. It is 0 below chance, so that a network that guesses worse than at random does not count as less robust. A
    network that is at chance with no unit silenced has no ".../kept".
    """
    return named(curves(model, task), model.rnn.hidden_size)


def curves(model: SequenceModel, task: Task) -> dict[str, Tensor]:
    """Return the accuracies of `measure`: "random" and "later_first", each (10 orders, numbers of silenced units)."""
    copy_task = needs(task, Copy)
    if len(model.rnn.layers) != 1:
        raise ConfigError(f"this analysis is for one layer of units, not for {len(model.rnn.layers)}")
    if model.blocks is not None:
        raise ConfigError("this analysis is for plain layers: in residual blocks the readout does not read h")
    cell = model.rnn.layers[0]
    if cell.weight_hh is None:
        kind = type(cell).__name__
        raise ConfigError(f"this analysis is for cells whose recurrent weights have a column per unit, not for {kind}")
    orders = [torch.randperm(cell.hidden_size, generator=task.generator("ablation", k)) for k in range(ORDERS)]
    result = {"random": curve(model, copy_task, progress(orders, "units silenced", ORDERS))}
    if isinstance(cell, PowerLawCell):
        late = later_reset(model, copy_task)
        late_first = [torch.cat([order[late[order]], order[~late[order]]]) for order in orders]
        result["later_first"] = curve(model, copy_task, progress(late_first, "later-reset units first", ORDERS))
    return result


def named(curves: dict[str, Tensor], hidden_size: int) -> dict[str, float]:
    """Name the values of `measure`, from the accuracies of `curves`."""
    values: dict[str, float] = {}
    for kind, accuracies in curves.items():
        means = accuracies.mean(0)
        values |= {f"{kind}/{n}": mean for n, mean in zip(counts(hidden_size), means.tolist(), strict=True)}
        values[f"{kind}/mean"] = float(means.mean())
        if means[0] > GUESS:
            values[f"{kind}/kept"] = float(((means - GUESS) / (means[0] - GUESS)).clamp(min=0.0).mean())
    return values


def study(run: Trained) -> Study:
    """Study the accuracy by number of silenced units.

    Rows: one per order and number of silenced units, with the mean accuracy, its standard error, and the accuracy of
    each of the 10 orders. Values: those of `measure`.
    """
    hidden_size = run.model.rnn.hidden_size
    accuracies = curves(run.model, run.task)
    rows = rows_of(accuracies, hidden_size)
    title = f"{TITLE}, mean and standard error of 10 orders"
    lines = [line_of(run, rows)]
    return Study(title, rows, named(accuracies, hidden_size), lambda figure: draw(figure, lines))


def compare(runs: Sequence[Trained]) -> Study:
    """Compare configurations: mean and standard error over the runs of each (for one run, over orders)."""
    rows: list[TableRow] = []
    values = {}
    lines = []
    for group in groups(runs):
        rows_of_runs = [run.earlier("ablation") or study(run).rows for run in group.runs]
        means = over_runs(rows_of_runs, "silenced", "units", "of")
        rows += [{"run": group.name, **row} for row in means]
        for kind in {row["silenced"]: None for row in means}:
            accuracies = [row["accuracy"] for row in means if row["silenced"] == kind]
            values[f"{group.name}/{kind}/mean"] = sum(accuracies) / len(accuracies)
        lines.append(group.line(means))
    return Study(TITLE, rows, values, lambda figure: draw(figure, lines))


def rows_of(curves: dict[str, Tensor], hidden_size: int) -> list[TableRow]:
    """Return the rows of `study`."""
    rows = []
    for kind, accuracies in curves.items():
        for n, values in zip(counts(hidden_size), accuracies.T, strict=True):
            row = {"silenced": kind, "units": n, "of": hidden_size, **mean_and_error(values)}
            rows.append(row | {f"order {k}": value for k, value in enumerate(values.tolist(), 1)})
    return rows


def draw(figure: Any, lines: Sequence[Line]) -> None:
    """Draw accuracy by number of silenced units, a line per configuration; hollow dots: later-reset units first."""
    (ax,) = plotting.panels(figure, width=7.5, height=4.6)
    looks: dict[str, tuple[plotting.Look, str]] = {
        "random": ({"lw": 1.8, "ms": 3}, "at random"),
        "later_first": ({"lw": 1.2, "ms": 4.5, "mfc": "white"}, "later-reset units first"),
    }
    for label, colour, style, rows in lines:
        for kind, (look, words) in looks.items():
            points = [row for row in rows if row["silenced"] == kind]
            if not points:
                continue
            x, y, error = ([row[key] for row in points] for key in ("units", "accuracy", "standard_error"))
            plotting.band(ax, x, y, error, colour, ls=style, label=f"{label}, {words}", **look)
    ax.axhline(GUESS, color="#999999", ls=":", lw=1, label="chance among 8 symbols")
    sizes = sorted({row["of"] for line in lines for row in line.data})
    ax.set_xlabel(f"units silenced (h = 0), of {' or '.join(map(str, sizes))}")
    ax.set(ylabel="accuracy of the ten answers", ylim=(0, 1.03), xlim=(0, None))
    plotting.small_legend(ax)


def counts(hidden_size: int) -> list[int]:
    """Return the numbers of silenced units: 0, 5, ..., 100 of 128."""
    return sorted({k * 5 * hidden_size // 128 for k in range(21)})


def curve(model: SequenceModel, task: Copy, orders: Iterable[Tensor]) -> Tensor:
    """Return accuracies by order (each a permutation of the units) and number of silenced units."""
    numbers = counts(model.rnn.hidden_size)
    rows = [[accuracy(silenced(model, order[:n]), task, SEQUENCES) for n in numbers] for order in orders]
    return torch.tensor(rows, dtype=torch.float64)


@torch.no_grad()
def silenced(model: SequenceModel, units: Tensor) -> SequenceModel:
    """Copy the model so that the outputs h of some units of its one layer are 0 at every step.

    h is read in only two places, the recurrent product and the readout (or the head before it). Each multiplies a
    unit's h by a column of its weights. With these columns at 0, everything else is computed as if h were 0.
    """
    changed = copy.deepcopy(model)
    head = changed.head
    reader = head[0] if isinstance(head, torch.nn.Sequential) else changed.readout
    for weight in (changed.rnn.layers[0].weight_hh, reader.weight):
        assert isinstance(weight, Tensor)
        weight[:, units] = 0.0
    return changed
