"""Show the distribution of the units' characteristic times, for every model, before and after training.

A unit's characteristic time follows from its parameters: -1 / ln f at zero input and state (`Cell.timescales`). No
paper shows these times. They put chrono, uniform, inverse gamma and power-law models on one axis.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.groups import groups
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow, by_unit, joined
from timescales.models.sequence import SequenceModel
from timescales.training.memory import quantiles

TITLE = "Characteristic times of all units, from only their parameters: -1 / ln f at zero input and state"


def study(run: Trained) -> Study:
    """Study one run. Rows: one per unit: layer, unit, initial and trained time in steps. Values: quantiles of both."""
    found = {"initial": times(run.initial), "trained": times(run.model)}
    rows = by_unit(run.model, {when: own.tolist() for when, own in found.items()})
    values = {f"{when}/{name}": q for when, own in found.items() for name, q in named_quantiles(own).items()}
    return Study(TITLE, rows, values, lambda figure: draw(figure, [run]))


def compare(runs: Sequence[Trained]) -> Study:
    """Compare several runs. Values: "1/trained/median" is that of the first run."""
    heads: list[TableRow] = [{"run": run.directory.name, "model": run.config["model"]["name"]} for run in runs]
    rows, values = joined([(found.rows, found.values) for found in map(study, runs)], heads)
    return Study(f"{TITLE}\n{runs[0].config['task']['name']}", rows, values, lambda figure: draw(figure, runs))


def times(model: SequenceModel) -> Tensor:
    """Return the characteristic times of the units of all layers, (units,), float64."""
    return torch.cat([cell.timescales().detach().cpu().double() for cell in model.rnn.layers])


def named_quantiles(times: Tensor) -> dict[str, float]:
    """Return q10, median and q90 of the times of units (units,)."""
    return dict(zip(("q10", "median", "q90"), quantiles(times, (0.1, 0.5, 0.9)), strict=True))


def draw(figure: Any, runs: Sequence[Trained]) -> None:
    """Draw each time over the share of units with a longer time: thin before training, thick after."""
    (ax,) = plotting.panels(figure, width=8.0, height=5.0)
    for group in groups(runs):
        for k, run in enumerate(group.runs):
            look = {"ls": group.style, "color": group.colour}
            plotting.by_rank(ax, times(run.initial).tolist(), lw=0.8, **look)
            trained = times(run.model)
            label = group.label if trained.isfinite().any() else f"{group.label} (infinite)"
            plotting.by_rank(ax, trained.tolist(), lw=1.8, label=None if k else label, **look)
    ax.plot([], [], "-", color="#444444", lw=0.8, label="thin: before training")
    ax.set(yscale="log", xlabel="share of units with a longer time", ylabel="characteristic time (steps)", xlim=(0, 1))
    for horizon, carried in sorted({(run.task.spec.horizon, run.task.spec.carried) for run in runs}):
        ax.axhline(horizon, color="#bbbbbb", lw=1, zorder=0)
        words = f"{'window' if carried else 'horizon of the task'}, {horizon:,} steps"
        ax.text(1.0, horizon, words, fontsize=8, color="#777777", ha="right", va="bottom")
    plotting.plain_ticks(ax)
    plotting.legend_at_right(ax)
