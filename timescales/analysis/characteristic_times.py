"""The law of characteristic times of every model, before and after training, on one axis.

A unit's characteristic time is what its parameters alone say: -1 / ln f at zero input and state (`Cell.timescales`).
No paper shows it; it is where chrono, uniform, inverse gamma and power-law models meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.run import Run, by_unit, groups
from timescales.analysis.study import Study
from timescales.training.model import SequenceModel

TITLE = "Characteristic times of all units, from their parameters alone: -1 / ln f at zero input and state"
QUANTILES = {"q10": 0.1, "median": 0.5, "q90": 0.9}


def study(run: Run) -> Study:
    """Rows: one a unit: layer, place, initial and trained time in steps. Values: quantiles of both."""
    return Study(TITLE, rows_of(run), values_of(run), lambda figure: draw(figure, [run]))


def compare(runs: Sequence[Run]) -> Study:
    """The same of several runs, as of every model on one task. Values: "1/trained/median" is the first run's."""
    rows = [
        {"run": run.directory.name, "model": run.config["model"]["name"], **row} for run in runs for row in rows_of(run)
    ]
    values = {f"{k}/{key}": value for k, run in enumerate(runs, 1) for key, value in values_of(run).items()}
    return Study(f"{TITLE}\n{runs[0].config['task']['name']}", rows, values, lambda figure: draw(figure, runs))


def times(model: SequenceModel) -> Tensor:
    """Of all layers' units, float64 (units,)."""
    return torch.cat([own.cpu().double() for own in model.rnn.timescales()])


def rows_of(run: Run) -> list[dict[str, Any]]:
    """A row a unit."""
    return by_unit(run.model, {"initial": times(run.initial).tolist(), "trained": times(run.model).tolist()})


def values_of(run: Run) -> dict[str, float]:
    """Quantiles before and after training."""
    q = torch.tensor(list(QUANTILES.values()), dtype=torch.float64)
    return {
        f"{when}/{name}": value
        for when, model in (("initial", run.initial), ("trained", run.model))
        for name, value in zip(QUANTILES, times(model).quantile(q, interpolation="nearest").tolist(), strict=True)
    }


def draw(figure: Any, runs: Sequence[Run]) -> None:
    """Time by the share of units whose time is longer: thin before training, thick after it."""
    (one,) = plotting.panels(figure, width=8.0, height=5.0)
    for group in groups(runs):
        for k, run in enumerate(group.runs):
            for model, width in ((run.initial, 0.8), (run.model, 1.8)):
                own = times(model).sort(descending=True).values
                share = (torch.arange(len(own)) + 0.5) / len(own)
                shown = own.where((own > 0) & own.isfinite(), torch.nan)
                name = group.label if own.isfinite().any() else f"{group.label} (infinite)"
                label = name if model is run.model and k == 0 else None
                one.plot(share, shown, ls=group.style, lw=width, color=group.colour, label=label)
    one.plot([], [], "-", color="#444444", lw=0.8, label="thin: before training")
    one.set(yscale="log", xlabel="share of units with a longer time", ylabel="characteristic time (steps)", xlim=(0, 1))
    plotting.plain(one)
    spec = runs[0].task.spec
    horizon = spec.horizon
    words = "the window" if spec.carried else "the task's horizon"  # a carried state reaches beyond its window
    one.axhline(horizon, color="#bbbbbb", lw=1, zorder=0)
    one.text(1.0, horizon, f"{words}, {horizon:,} steps", fontsize=8, color="#777777", ha="right", va="bottom")
    one.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
