"""How fast does a unit's memory decay, as a power of time or exponentially?

Source: Chien et al. 2021, section 3.1 and Fig. 1: over 200 steps f^t of an LSTM with f = .97, and (t + 1)^(-p) of a
power-law LSTM with p = .3. Section 5.1 asks whether what is learned decays so; the paper does not measure it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.common import needs_forget_gates, part, watched
from timescales.analysis.run import Run, groups
from timescales.analysis.study import Study
from timescales.errors import ConfigError
from timescales.tasks import Copy, Task
from timescales.tasks.copy import LENGTH, SIGNAL
from timescales.training.model import SequenceModel

EXPONENTIAL, POWER, STEPS = 0.97, 0.3, 200  # Fig. 1
SEQUENCES = 100
DRAWN = 25  # units in the picture, at even ranks
TITLE = "What the forget gates leave of a cell state, step after step (copy: over the delay)"


class Left(NamedTuple):
    """What is left of a layer's units after 0, 1, ..., n steps, float64 (n + 1, H): the product of forget gates and its
    logarithm, each the mean over sequences. Laws are fitted to the logarithms: a mean of exponentials of several
    factors bends like a power law, though no unit decays so in any sequence."""

    product: Tensor
    logs: Tensor


class Law(NamedTuple):
    """The nearest law of either kind to units' curves, per unit (H,): exponent p of (n + 1)^(-p), factor f of f^n, and
    whether the power law is the nearer one, by least squares of the logarithm."""

    p: Tensor
    f: Tensor
    power: Tensor


def study(run: Run) -> Study:
    """The product of each unit's forget gates over test sequences, from their first step on; in the copy tasks from the
    end of the ten symbols to the signal. Rows: one a unit, longest memory first: layer, unit, the p and f nearest to
    the mean logarithm, which is the nearer, and what is left after 1, 2, 5, 10, ... steps. Values: the share of units
    nearer to a power law, the median of what is left in the end, and the medians of p and f."""
    curves = kept(run.model, run.task)
    rows, values = summary(curves)
    line = (run.config["model"]["name"], run.colour, "-", curves)
    return Study(TITLE, rows, values, lambda figure: draw(figure, [line]))


def compare(runs: Sequence[Run]) -> Study:
    """The first run of each configuration. Values and rows as in `study`, by name."""
    found = [(g.name, g.colour, g.style, kept(g.runs[0].model, g.runs[0].task)) for g in groups(runs)]
    each = {name: summary(curves) for name, _, _, curves in found}
    rows = [{"run": name, **row} for name, (own, _) in each.items() for row in own]
    values = {f"{name}/{key}": value for name, (_, own) in each.items() for key, value in own.items()}
    return Study(TITLE, rows, values, lambda figure: draw(figure, found))


def summary(curves: list[Left]) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows and values of `study`."""
    laws = [nearest(left.logs) for left in curves]
    rows = []
    for layer, ((curve, _), law) in enumerate(zip(curves, laws, strict=True), 1):
        for unit in curve[-1].argsort(descending=True).tolist():
            row = {"layer": layer, "unit": unit, "p": float(law.p[unit]), "f": float(law.f[unit])}
            row["nearer"] = "power law" if law.power[unit] else "exponential"
            rows.append(row | {f"left_{n}": float(curve[n, unit]) for n in _marks(len(curve) - 1)})
    p, f, power = (torch.cat(parts) for parts in zip(*laws, strict=True))
    last = torch.cat([left.product[-1] for left in curves])
    return rows, {
        "share_power_law": float(power.double().mean()), "steps": float(len(curves[0].product) - 1),
        "left_median": float(last.median()), "left_max": float(last.max()),
        "p_median": float(p.median()), "f_median": float(f.median()),
    }  # fmt: skip


def _marks(last: int) -> list[int]:
    marks = {k * 10**e for e in range(len(str(last))) for k in (1, 2, 5)}
    return sorted({n for n in marks if n < last} | {last})


@torch.no_grad()
def kept(model: SequenceModel, task: Task) -> list[Left]:
    """Per layer: the product of a unit's forget gates over the first 0, 1, ..., n steps that count, means
    over 100 test sequences (or over the first segment of a text's streams). On the CPU.

    Each sequence counts from its own first step that exists. Raises ConfigError for a cell without a forget gate.
    """
    needs_forget_gates(model)
    batch = part(next(iter(task.batches("test"))), slice(SEQUENCES))
    S, B = batch.x.shape[:2]
    exists = task.exists(batch)
    if isinstance(task, Copy):  # the signal is where the first answer is, or the step before: its reset is no decay
        first = (batch.x == SIGNAL).int().argmax(0)
        step = torch.arange(S, device=task.device).unsqueeze(1)
        exists = exists & (step >= LENGTH) & (step < first)
        if not exists.any():
            raise ConfigError("there is no delay over which a memory could decay: give a run with a longer task.T")
    longest = int(exists.sum(0).max())
    sizes = [cell.hidden_size for cell in model.rnn.layers]
    total = [torch.zeros(longest + 1, H, dtype=torch.float64, device=task.device) for H in sizes]
    total_logs = [torch.zeros_like(sums) for sums in total]
    logs = [torch.zeros(B, H, dtype=torch.float64, device=task.device) for H in sizes]
    counts = torch.zeros(longest + 1, dtype=torch.float64, device=task.device)
    at, step_of = [torch.zeros(B, dtype=torch.long, device=task.device) for _ in sizes], [0] * len(sizes)

    def read(layer: int, act: Any) -> None:
        rows = exists[step_of[layer]]
        step_of[layer] += 1
        logs[layer][rows] += act.forget[rows].double().log()
        at[layer][rows] += 1
        total[layer].index_add_(0, at[layer][rows], logs[layer][rows].exp())
        total_logs[layer].index_add_(0, at[layer][rows], logs[layer][rows])

    with watched(model, read):
        model(batch)
    counts.index_add_(0, torch.cat([torch.arange(1, int(n) + 1, device=task.device) for n in at[0]]),
                      torch.ones(int(at[0].sum()), dtype=torch.float64, device=task.device))  # fmt: skip
    counts[0] = 1.0  # no step: the whole is left
    for sums in total:
        sums[0] = 1.0
    means = ([(sums / counts.unsqueeze(1)).cpu() for sums in kind] for kind in (total, total_logs))
    return [Left(*both) for both in zip(*means, strict=True)]


def nearest(logs: Tensor) -> Law:
    """The power law and the exponential, each of one parameter, nearest to curves that begin at 1, from the curves'
    logarithms (n + 1, H)."""
    n = torch.arange(1, len(logs), dtype=logs.dtype).unsqueeze(1)
    logs = logs[1:].clamp(min=math.log(1e-300))
    slopes, errors = [], []
    for x in ((n + 1.0).log(), n):
        slope = (x * logs).sum(0) / x.square().sum()
        slopes.append(slope)
        errors.append((logs - slope * x).square().sum(0))
    return Law(-slopes[0], slopes[1].exp(), errors[0] < errors[1])


def draw(figure: Any, found: Sequence[tuple[str, str, str, list[Left]]]) -> None:
    """The same curves on plain and on logarithmic axes: of some units, of their mean, and the two of Fig. 1."""
    axes = plotting.panels(figure, 2, width=13.0, height=4.8)
    longest = max(len(curves[0].product) for *_, curves in found)
    n = torch.arange(max(STEPS + 1, longest), dtype=torch.float64)
    printed = (("--", EXPONENTIAL**n, f"{EXPONENTIAL:g}^n"), ("-.", (n + 1.0) ** -POWER, f"(n + 1)^-{POWER:g}"))
    for axis, shift in zip(axes, (0, 1), strict=True):
        for style, y, words in printed:
            axis.plot(n + shift, y, color="black", ls=style, lw=1.6, label=f"paper, figure 1: {words}")
        for name, colour, style, curves in found:
            whole = torch.cat([left.product for left in curves], -1)
            some = torch.linspace(0, whole.shape[1] - 1, min(DRAWN // len(found), whole.shape[1])).round().long()
            units = whole[:, whole[-1].argsort(descending=True)[some]]
            x = torch.arange(len(whole)) + shift
            axis.plot(x, units[:, 0], color=colour, lw=0.7, alpha=0.5, ls=style, label=f"{name}: {len(some)} units")
            axis.plot(x, units[:, 1:], color=colour, lw=0.7, alpha=0.5, ls=style)
            axis.plot(x, whole.mean(1), color=colour, lw=2.4, ls=style, label=f"{name}: mean of all units")
        axis.set(xlabel="steps n", ylabel="part of the cell state that is left", ylim=(0, 1.02))
    most = STEPS if longest > STEPS / 2 else longest - 1
    axes[0].set_xlim(0, most)
    axes[1].set(xscale="log", yscale="log", ylim=(1e-4, 1.3), xlim=(1, max(most, longest - 1) + 1))
    axes[1].set_xlabel("steps n + 1 (a power law is a straight line here)")
    plotting.plain(axes[1])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
