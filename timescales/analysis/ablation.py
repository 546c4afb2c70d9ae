"""How many units can be silenced before a model no longer copies, and whether the later-reset ones matter most.

Source: Chien et al. 2021, section 5.3 and Fig. 5.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.common import mean_and_error, needs_copy, over_runs
from timescales.analysis.generalisation import GUESS, accuracy
from timescales.analysis.reset_units import later_reset
from timescales.analysis.run import Group, Run, groups
from timescales.analysis.study import Study, progress
from timescales.errors import ConfigError
from timescales.tasks import Copy, Task
from timescales.training.model import SequenceModel

ORDERS, SEQUENCES = 10, 200
STEPS, AT_ONCE, OF = 20, 5, 128  # the paper: 20 times 5 more of 128 units


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Accuracy by number of silenced units, "random/0" to "random/100", the mean over 10 random orders.

    For a model with reference times also "later_first/...": the later-reset units first, in random order, then the
    others. ".../mean" is that of the curve. Networks of another size are silenced in proportion.
    The paper leaves open what is silenced (here the output h, the cell running on) and how often (here 10 orders, each
    on the same 200 test sequences).
    """
    return named(curves(model, task), model.rnn.hidden_size)


def curves(model: SequenceModel, task: Task) -> dict[str, Tensor]:
    """The accuracies behind `measure`: "random" and "later_first", each (10 orders, numbers of silenced units)."""
    own = needs_copy(task)
    if len(model.rnn.layers) != 1:
        raise ConfigError(f"this probe is for one layer of units, not for {len(model.rnn.layers)}")
    if model.rnn.layers[0].weight_hh is None:
        kind = type(model.rnn.layers[0]).__name__
        raise ConfigError(f"this probe is for cells whose recurrent weights have a column a unit, not for {kind}")
    H = model.rnn.hidden_size
    orders = [torch.randperm(H, generator=own.generator("ablation", k)) for k in range(ORDERS)]
    found = {"random": curve(model, own, progress(orders, "units silenced", len(orders)))}
    if "age" in model.rnn.layers[0].State._fields:
        late = later_reset(model, own)
        sorted_orders = [torch.cat([o[late[o]], o[~late[o]]]) for o in orders]
        found["later_first"] = curve(model, own, progress(sorted_orders, "later-reset units first", len(orders)))
    return found


def named(found: dict[str, Tensor], hidden_size: int) -> dict[str, float]:
    """The means over orders, by name and number of silenced units, and the mean of each curve."""
    values: dict[str, float] = {}
    for name, each in found.items():
        means = each.mean(0)
        values |= {f"{name}/{n}": mean for n, mean in zip(counts(hidden_size), means.tolist(), strict=True)}
        values[f"{name}/mean"] = float(means.mean())
    return values


LOOKS: dict[str, tuple[dict[str, Any], str]] = {
    "random": ({"lw": 1.8, "ms": 3}, "at random"),
    "later_first": ({"lw": 1.2, "ms": 4.5, "mfc": "white"}, "later-reset units first"),
}


def study(run: Run) -> Study:
    """Rows: one for each kind of order and number of silenced units: mean accuracy, standard error and the accuracy of
    each of the 10 orders. Values: those of `measure`."""
    model, task = run.model, run.task
    found = curves(model, task)
    rows = rows_of(found, model.rnn.hidden_size)
    values = named(found, model.rnn.hidden_size)
    title = "Copy task: accuracy with units silenced, mean and standard error of 10 orders"
    line = (run.config["model"]["name"], run.colour, "-", rows)
    return Study(title, rows, values, lambda figure: draw(figure, [line]))


def compare(runs: Sequence[Run]) -> Study:
    """Rows and values by configuration; mean and standard error over its runs (of one: over orders)."""
    found: list[tuple[Group, list[dict[str, Any]]]] = []
    values = {}
    for group in groups(runs):
        each = [run.earlier("ablation") or study(run).rows for run in group.runs]
        rows = over_runs(each, "silenced", "units", "of")
        found.append((group, rows))
        for kind in {row["silenced"]: None for row in rows}:
            own = [row["accuracy"] for row in rows if row["silenced"] == kind]
            values[f"{group.name}/{kind}/mean"] = sum(own) / len(own)
    rows = [{"run": group.name, **row} for group, own in found for row in own]
    lines = [(group.label, group.colour, group.style, own) for group, own in found]
    return Study("Copy task: accuracy with units silenced", rows, values, lambda figure: draw(figure, lines))


def rows_of(found: dict[str, Tensor], hidden_size: int) -> list[dict[str, Any]]:
    """A row for each kind of order and number of silenced units."""
    rows = []
    for kind, each in found.items():
        for n, values in zip(counts(hidden_size), each.T, strict=True):
            row = {"silenced": kind, "units": n, "of": hidden_size, **mean_and_error(values)}
            rows.append(row | {f"order {k}": value for k, value in enumerate(values.tolist(), 1)})
    return rows


def draw(figure: Any, found: Sequence[tuple[str, str, str, Sequence[dict[str, Any]]]]) -> None:
    """Accuracy over the number of silenced units: colour and line a configuration's, hollow later-reset units first."""
    (one,) = plotting.panels(figure, width=7.5, height=4.6)
    for name, colour, style, rows in found:
        for kind, (look, words) in LOOKS.items():
            own = [row for row in rows if row["silenced"] == kind]
            if not own:
                continue
            x, y, e = ([row[key] for row in own] for key in ("units", "accuracy", "standard_error"))
            plotting.band(one, x, y, e, colour, ls=style, label=f"{name}, {words}", **look)
    one.axhline(GUESS, color="#999999", ls=":", lw=1, label="a guess among 8 symbols")
    sizes = sorted({row["of"] for *_, rows in found for row in rows})
    one.set(xlabel=f"units silenced (h = 0), of {' or '.join(map(str, sizes))}", ylabel="accuracy of the ten answers")
    one.set(ylim=(0, 1.03), xlim=(0, None))
    one.legend(frameon=False, fontsize=8)


def counts(hidden_size: int) -> list[int]:
    """How many units are silenced, step after step: 0, 5, ..., 100 of 128."""
    return sorted({k * AT_ONCE * hidden_size // OF for k in range(STEPS + 1)})


def curve(model: SequenceModel, task: Copy, orders: Iterable[Any]) -> Tensor:
    """Accuracies by order (each a permutation of the units) and number of silenced units."""
    numbers = counts(model.rnn.hidden_size)
    each = [[accuracy(silenced(model, order[:n]), task, SEQUENCES) for n in numbers] for order in orders]
    return torch.tensor(each, dtype=torch.float64)


@torch.no_grad()
def silenced(model: SequenceModel, units: Tensor) -> SequenceModel:
    """A copy of the model in which the outputs h of some units of its one layer are 0 at every step.

    A unit's h is read in two places only, the recurrent product and the readout (or the head before it), and each
    multiplies it by a column of its weights. With these columns at 0 all others see exactly what they would see of
    h = 0, at no cost in time.
    """
    changed = copy.deepcopy(model)
    changed.rnn.layers[0].weight_hh[:, units] = 0.0
    reads = changed.head[0] if isinstance(changed.head, torch.nn.Sequential) else changed.readout
    reads.weight[:, units] = 0.0
    return changed
