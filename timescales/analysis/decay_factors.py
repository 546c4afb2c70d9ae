"""What has become of the decay factors p: before and after training, and after one delay against another.

Source: Chien et al. 2021, section 5.2 and Fig. A.4B, D. The paper's numbers (t = 6.9, d = .87 at T = 200 against 500)
agree if they are of Student's test over the 128 units of one model for each delay; it names no test.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.common import needs_age
from timescales.analysis.reset_units import MEAN_P, factors, later_reset, two_samples
from timescales.analysis.run import Run, by_unit, titles
from timescales.analysis.study import Study
from timescales.errors import ConfigError
from timescales.tasks import Copy
from timescales.training.model import SequenceModel

TITLE = "Decay factors p of the units"


def study(run: Run) -> Study:
    """Rows: one a unit: layer, unit, p before and after training, and in the copy task whether it is a later-reset one.

    Values: mean and standard deviation before and after; `t`, `p_value` and `cohens_d` of after against before as the
    paper tests (two samples, pooled variance; above 0: p has grown), and `t_paired`, since they are the same units.
    """
    from scipy import stats

    before, after = learned(run.initial), learned(run.model)
    late = later_reset(run.model, run.task) if type(run.task) is Copy else None
    values = {"before_mean": float(before.mean()), "before_sd": float(before.std())}
    values |= {"after_mean": float(after.mean()), "after_sd": float(after.std())}
    if len(after) > 1:
        values |= two_samples(after, before)
        values["t_paired"] = float(stats.ttest_rel(after.numpy(), before.numpy()).statistic)
    rows = rows_of(run, late)
    return Study(f"{TITLE}, before and after training", rows, values, lambda f: draw(f, before, after, late, run))


def compare(runs: Sequence[Run]) -> Study:
    """The learned p of several runs. Values: of each pair of runs, in the order given, t, p_value and Cohen's d of the
    earlier against the later, "1_2/t", and each run's mean, "1/mean"."""
    found = [learned(run.model) for run in runs]
    values = {f"{k}/mean": float(p.mean()) for k, p in enumerate(found, 1)}
    for (j, a), (k, b) in itertools.combinations(enumerate(found, 1), 2):
        values |= {f"{j}_{k}/{key}": value for key, value in two_samples(a, b).items()}
    words = titles(runs)
    rows = [{"run": name, **row} for name, run in zip(words, runs, strict=True) for row in rows_of(run, None)]
    lines = list(zip(words, runs, found, strict=True))
    return Study(f"{TITLE} after training", rows, values, lambda figure: draw_several(figure, lines))


def learned(model: SequenceModel) -> Tensor:
    """The learned p of all units, (units,), float64. Raises ConfigError where there is none to learn."""
    needs_age(model)
    for cell in model.rnn.layers:
        if cell.fixed_power is not None:
            raise ConfigError(f"this question is for power-law models that learn p: here it is fixed at {cell.p}")
    return factors(model)


def rows_of(run: Run, late: Tensor | None) -> list[dict[str, Any]]:
    """A row a unit."""
    columns = {"before": learned(run.initial).tolist(), "after": learned(run.model).tolist()}
    return by_unit(run.model, columns | ({} if late is None else {"later_reset": late.int().tolist()}))


BINS = [k / 20 for k in range(21)]


def draw(figure: Any, before: Tensor, after: Tensor, late: Tensor | None, run: Run) -> None:
    """Left: both distributions. Right: each unit's p before and after."""
    left, right = plotting.panels(figure, 2, width=12.0)
    left.hist(before, BINS, color="#cccccc", label=f"before, mean {before.mean():.2f}")
    left.hist(after, BINS, histtype="step", lw=2, color=run.colour, label=f"after, mean {after.mean():.2f}")
    kinds = [(torch.ones_like(after, dtype=torch.bool), run.colour, "units", "o")]
    if late is not None:
        kinds = [(~late, "#999999", "other units", "o"), (late, run.colour, "later-reset units", "D")]
        if late.any():
            label = f"after, {int(late.sum())} later-reset units, mean {after[late].mean():.2f}"
            look = {"histtype": "stepfilled", "facecolor": "none", "edgecolor": run.colour, "hatch": "////", "lw": 0}
            left.hist(after[late], BINS, label=label, **look)
    delay = run.config["task"].get("T") if run.config["task"]["name"] == "copy" else None
    if delay in MEAN_P:
        left.axvline(MEAN_P[delay], color="black", ls="--", lw=1, label=f"paper: mean after {MEAN_P[delay]}")
    for chosen, colour, words, mark in kinds:
        label = f"{int(chosen.sum())} {words}"
        right.plot(before[chosen], after[chosen], mark, color=colour, ms=4.5, alpha=0.8, label=label)
    right.plot([0, 1], [0, 1], color="black", lw=1, ls=":", label="as before")
    left.set(xlabel="decay factor p", ylabel="units", xlim=(0, 1))
    right.set(xlabel="p before training", ylabel="p after training", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    left.legend(frameon=False, fontsize=8)
    right.legend(frameon=False, fontsize=8)


def draw_several(figure: Any, found: Sequence[tuple[str, Run, Tensor]]) -> None:
    """Each run's units by rank: the share of them with a larger p."""
    (one,) = plotting.panels(figure)
    shades = plotting.shades(len(found))  # an order of delays, not of models: all are power-law ones
    for (name, run, p), shade in zip(found, shades, strict=True):
        share = (torch.arange(len(p)) + 0.5) / len(p)
        one.plot(p.sort(descending=True).values, share, color=shade, lw=1.8, label=f"{name}: mean {p.mean():.2f}")
        delay = run.config["task"].get("T")
        if run.config["task"]["name"] == "copy" and delay in MEAN_P:
            one.axvline(MEAN_P[delay], color=shade, ls="--", lw=1, label=f"paper: mean at T = {delay}, {MEAN_P[delay]}")
    one.plot([0, 1], [1, 0], color="black", ls=":", lw=1, label="before training: uniform")
    one.set(xlabel="decay factor p", ylabel="share of units with a larger p", xlim=(0, 1), ylim=(0, 1))
    one.legend(frameon=False, fontsize=8)
