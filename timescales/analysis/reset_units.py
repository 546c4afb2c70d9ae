"""Find the units of a power-law model that keep their memory through a copy delay, and measure how slowly units forget.

Source: Chien et al. 2021, section 5.2 and Fig. A.4.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.needs import needs, needs_age
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, by_unit
from timescales.analysis.two_delays import Units, two_samples
from timescales.models.sequence import SequenceModel
from timescales.tasks import Batch, Copy, Task
from timescales.tasks.copy import SIGNAL

SEQUENCES = 100
FRACTIONS = (0.25, 0.5, 0.75)
MEAN_P, SHARE = {200: 0.41, 500: 0.19}, 0.2  # printed in section 5.2; "around 1/5 of the units"


def measure(model: SequenceModel, task: Task) -> dict[str, float]:
    """Return mean and standard deviation of the decay factor p, and the numbers of units and of later-reset units.

    The paper describes later-reset units in words: they "do not reset k_t until the reproduction of target elements
    starts". Here a unit is one if its age at the last step of the delay, averaged over 100 test sequences, is at least
    half the delay: "units_50". "units_25" and "units_75" show how much the number depends on this choice.

    Also the number of units that keep resetting, so that this age is below a tenth of the delay ("units_resetting"),
    and of all others ("units_not_resetting"); the share of units with p below .5 ("p_below_half"); the mean p of
    later-reset units and of the others ("later_p_mean", "others_p_mean"), if there are units of both kinds.
    """
    task = needs(task, Copy)
    return _values(ages_before_signal(model, task), factors(model), task)


def _values(ages: Tensor, p: Tensor, task: Copy) -> dict[str, float]:
    numbers = {f"units_{100 * x:.0f}": float((ages >= x * task.T).sum()) for x in FRACTIONS}
    resetting = float((ages < 0.1 * task.T).sum())
    numbers |= {"units_resetting": resetting, "units_not_resetting": len(ages) - resetting}
    late = ages >= task.T / 2
    both = {"later_p_mean": float(p[late].mean()), "others_p_mean": float(p[~late].mean())}
    p_below_half = float((p < 0.5).double().mean())
    values = {"p_mean": float(p.mean()), "p_sd": float(p.std()), "p_below_half": p_below_half, "units": float(len(p))}
    return values | numbers | (both if 0 < late.sum() < len(late) else {})


def factors(model: SequenceModel) -> Tensor:
    """Return the decay factor p of each unit, (units,), float64, also if all units share one."""
    needs_age(model)
    layers = model.rnn.layers
    p = [torch.as_tensor(cell.p, dtype=torch.float64).detach().cpu().expand(cell.hidden_size) for cell in layers]
    return torch.cat(p)


def study(run: Trained) -> Study:
    """Study the number of later-reset units, by the threshold that defines them, and their p: section 5.2.

    Rows: one per unit, oldest first: layer, unit, p, age at the last step of the delay, the same as a fraction of T.
    Values: those of `measure`, and the difference of the p of both kinds (`later_t` and `later_cohens_d`, later-reset
    units minus others, pooled variance).
    """
    model, task = run.model, needs(run.task, Copy)
    ages, p = ages_before_signal(model, task), factors(model)
    late = ages >= task.T / 2
    values = _values(ages, p, task)
    if 2 <= int(late.sum()) <= len(late) - 2:
        test = two_samples(Units.of(p[late]), Units.of(p[~late]))
        values |= {"later_t": test["t"], "later_cohens_d": test["cohens_d"]}
    of_delay = [age / max(task.T, 1) for age in ages.tolist()]
    units = by_unit(model, {"p": p.tolist(), "age": ages.tolist(), "of_delay": of_delay})
    rows = [units[k] for k in ages.argsort(descending=True).tolist()]
    return Study("Which units keep their memory through the delay", rows, values, lambda f: draw(f, rows, task, run))


def draw(figure: Any, rows: Sequence[Mapping[str, float]], task: Copy, run: Trained) -> None:
    """Draw the number of later-reset units by the threshold that defines them (left), and p by age (right)."""
    left, right = plotting.panels(figure, 2, width=12.0)
    age_label = f"age at the end of the delay (times T = {task.T} steps)"
    n, of_delay = len(rows), [row["of_delay"] for row in rows]  # the oldest first
    left.plot(range(1, n + 1), of_delay, drawstyle="steps-pre", color=run.colour, lw=2)
    for fraction in FRACTIONS:
        count = sum(age >= fraction for age in of_delay)
        main = fraction == 0.5
        left.plot([0, count], [fraction, fraction], color="#999999", lw=1, ls=":")
        left.plot(count, fraction, "o", color=run.colour, ms=6 if main else 4)
        look = {"fontsize": 9, "weight": "bold" if main else None, "textcoords": "offset points"}
        left.annotate(f"{count} of {n} at {fraction:g} T", (count, fraction), (8, 4), **look)
    left.axvline(SHARE * n, color="black", ls="--", lw=1)
    at_top = {"transform": left.get_xaxis_transform(), "va": "top", "fontsize": 8}
    left.text(SHARE * n, 1.0, " paper: around 1/5 of the units", **at_top)
    left.set(xlabel="units with at least this age", ylabel=age_label, xlim=(0, None), ylim=(0, None))
    for late, colour, words in ((False, "#aaaaaa", "other units"), (True, run.colour, "later-reset units")):
        units = [row for row in rows if (row["of_delay"] >= 0.5) is late]
        ages, p = [row["of_delay"] for row in units], [row["p"] for row in units]
        mean = f", mean p {sum(p) / len(p):.2f}" if p else ""
        right.plot(ages, p, "o", color=colour, ms=5, alpha=0.8, label=f"{len(units)} {words}{mean}")
    if task.T in MEAN_P:
        label = f"paper: mean p {MEAN_P[task.T]} of all units"
        right.axhline(MEAN_P[task.T], color="black", ls="--", lw=1, label=label)
    right.axvline(0.5, color="#999999", ls=":", lw=1)
    right.set(xlabel=age_label, ylabel="decay factor p", ylim=(-0.02, None))
    right.set_ylim(top=max(1.02, *right.get_ylim()))
    plotting.small_legend(right)


@torch.no_grad()
def ages_before_signal(model: SequenceModel, task: Copy) -> Tensor:
    """Return the age t - k_t of each unit at the last step of the delay, the mean over 100 test sequences, (units,).

    Raises ConfigError for a model whose units have no age.
    """
    needs_age(model)
    batch = task.batch("test", 0, 0, 0, min(SEQUENCES, task.size("test")))
    signal = int((task.blank == SIGNAL).nonzero()[0])
    state = model(Batch(batch.x[:signal], batch.target[:signal])).state
    return torch.cat([layer.age.mean(0) for layer in model.rnn.split_state(state)]).cpu()


def later_reset(model: SequenceModel, task: Copy) -> Tensor:
    """Return which units are later-reset units, (units,) bool; see `measure`."""
    return ages_before_signal(model, task) >= task.T / 2
