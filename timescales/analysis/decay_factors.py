"""Compare the decay factors p before and after training, and after training with different delays.

Source: Chien et al. 2021, section 5.2 and Fig. A.4B, D. The paper's numbers (t = 6.9, d = .87 at T = 200 against 500)
are those of Student's test over the 128 units of one model for each delay; it does not name the test.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.groups import titles
from timescales.analysis.needs import needs_age
from timescales.analysis.reset_units import MEAN_P, factors, later_reset
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow, by_unit, joined
from timescales.analysis.two_delays import Units, two_samples
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.tasks import Copy

TITLE = "Decay factors p of the units"
BINS = [k / 20 for k in range(21)]


def study(run: Trained) -> Study:
    """Study p before and after training.

    Rows: one per unit: layer, unit, p before and after training, and in the copy task whether it is a later-reset unit
    (`reset_units`).

    Values: mean and standard deviation before and after; `t`, `p_value` and `cohens_d` of after against before by the
    paper's test (two samples, pooled variance; above 0: p has grown), and `t_paired`, since the units are the same.
    """
    from scipy import stats

    before, after = learned(run.initial), learned(run.model)
    late = later_reset(run.model, run.task) if type(run.task) is Copy else None
    values = {"before_mean": float(before.mean()), "before_sd": float(before.std())}
    values |= {"after_mean": float(after.mean()), "after_sd": float(after.std())}
    if len(after) > 1:
        values |= two_samples(Units.of(after), Units.of(before))
        values["t_paired"] = float(stats.ttest_rel(after.numpy(), before.numpy()).statistic)
    rows = rows_of(run, late)
    return Study(f"{TITLE}, before and after training", rows, values, lambda f: draw(f, before, after, late, run))


def compare(runs: Sequence[Trained]) -> Study:
    """Compare the learned p of several runs.

    Values: "1/mean" is the mean of the first run; "1_2/t", "1_2/p_value" and "1_2/cohens_d" are those of the first
    against the second run, and so on for all pairs.
    """
    learned_p = [learned(run.model) for run in runs]
    names = titles(runs)
    parts = [(rows_of(run, None), {"mean": float(p.mean())}) for run, p in zip(runs, learned_p, strict=True)]
    rows, values = joined(parts, [{"run": name} for name in names])
    for (j, a), (k, b) in itertools.combinations(enumerate(map(Units.of, learned_p), 1), 2):
        values |= {f"{j}_{k}/{key}": value for key, value in two_samples(a, b).items()}
    lines = list(zip(names, runs, learned_p, strict=True))
    return Study(f"{TITLE} after training", rows, values, lambda figure: draw_several(figure, lines))


def learned(model: SequenceModel) -> Tensor:
    """Return the learned p of all units, (units,), float64. Raises ConfigError for a model without learned p."""
    needs_age(model)
    for cell in model.rnn.layers:
        if cell.fixed_power is not None:
            raise ConfigError(f"this analysis is for power-law models that learn p: here it is fixed at {cell.p}")
    return factors(model)


def rows_of(run: Trained, late: Tensor | None) -> list[TableRow]:
    """Return the rows of `study`. late: which units are later-reset units, (units,), or None."""
    columns = {"before": learned(run.initial).tolist(), "after": learned(run.model).tolist()}
    return by_unit(run.model, columns | ({} if late is None else {"later_reset": late.int().tolist()}))


def draw(figure: Any, before: Tensor, after: Tensor, late: Tensor | None, run: Trained) -> None:
    """Draw both distributions (left), and each unit's p before and after (right)."""
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
    if (delay := _printed_delay(run)) is not None:
        left.axvline(MEAN_P[delay], color="black", ls="--", lw=1, label=f"paper: mean after {MEAN_P[delay]}")
    for units, colour, words, marker in kinds:
        label = f"{int(units.sum())} {words}"
        right.plot(before[units], after[units], marker, color=colour, ms=4.5, alpha=0.8, label=label)
    right.plot([0, 1], [0, 1], color="black", lw=1, ls=":", label="no change")
    left.set(xlabel="decay factor p", ylabel="units", xlim=(0, 1))
    left.margins(y=0.4)  # room for a legend of four lines
    right.set(xlabel="p before training", ylabel="p after training", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    plotting.small_legend(left)
    plotting.small_legend(right)


def draw_several(figure: Any, lines: Sequence[tuple[str, Trained, Tensor]]) -> None:
    """Draw each run's units by rank: the share of units with a larger p. lines: name, run and p (units,)."""
    (ax,) = plotting.panels(figure)
    shades = plotting.shades(len(lines))  # the runs differ in their delay; all are power-law models
    for (name, run, p), shade in zip(lines, shades, strict=True):
        share = (torch.arange(len(p)) + 0.5) / len(p)
        label = f"{plotting.literal(name)}: mean {p.mean():.2f}"
        ax.plot(p.sort(descending=True).values, share, color=shade, lw=1.8, label=label)
        if (delay := _printed_delay(run)) is not None:
            label = f"paper: mean at T = {delay}, {MEAN_P[delay]}"
            ax.axvline(MEAN_P[delay], color=shade, ls="--", lw=1, label=label)
    ax.plot([0, 1], [1, 0], color="black", ls=":", lw=1, label="before training: uniform")
    ax.set(xlabel="decay factor p", ylabel="share of units with a larger p", xlim=(0, 1), ylim=(0, 1))
    plotting.small_legend(ax)


def _printed_delay(run: Trained) -> int | None:
    """Return the delay of a run of the copy task, if the paper prints the mean p for it."""
    task = run.config["task"]
    delay = task.get("T") if task["name"] == "copy" else None
    return delay if delay in MEAN_P else None
