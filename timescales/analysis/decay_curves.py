"""Measure how a unit's memory decays: as a power of time, or exponentially.

Source: Chien et al. 2021, section 3.1 and Fig. 1: over 200 steps f^t of an LSTM with f = .97, and (t + 1)^(-p) of a
power-law LSTM with p = .3. Section 5.1 discusses whether trained units decay so; the paper does not measure it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.groups import Line, groups, line_of
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow, joined
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.tasks import Copy, Task
from timescales.tasks.copy import LENGTH, SIGNAL
from timescales.training.gates import needs_forget_gates, part, recorded
from timescales.training.memory import SMALLEST

EXPONENTIAL, POWER, STEPS = 0.97, 0.3, 200  # Fig. 1
SEQUENCES = 100
DRAWN = 25  # units in the picture, at even ranks
TITLE = "What the forget gates leave of a cell state, step after step"


class Retention(NamedTuple):
    """Hold which share of a layer's cell states is left after 0, 1, ..., n steps: the product of forget gates.

    product: its mean over sequences, float64 (n + 1, H). logs: the mean of its logarithm, (n + 1, H). Decays are fitted
    to the logarithms, because a mean of exponentials with several factors bends like a power law, even if every
    sequence decays exponentially.
    """

    product: Tensor
    logs: Tensor


class Fit(NamedTuple):
    """Hold the nearest decay of either kind, per unit (H,), by least squares of the logarithm.

    p: exponent of the power law (n + 1)^(-p). f: factor of the exponential f^n. power: whether the power law is nearer.
    """

    p: Tensor
    f: Tensor
    power: Tensor


def study(run: Trained) -> Study:
    """Study the product of each unit's forget gates over test sequences, from the first step.

    In the copy tasks the steps are those from the end of the ten symbols to the signal.

    Rows: one per unit, longest memory first: layer, unit, the p and f of the nearest decays, which of them is nearer,
    and what is left after 1, 2, 5, 10, ... steps. Values: the share of units that are nearer to a power law, the median
    of what is left at the end, and the medians of p and f.
    """
    layers = remaining(run.model, run.task)
    rows, values = summary(layers)
    lines = [line_of(run, layers)]
    return Study(title([run]), rows, values, lambda figure: draw(figure, lines))


def compare(runs: Sequence[Trained]) -> Study:
    """Compare the first run of each configuration.

    Rows and values are those of `study`, with the configuration's name.
    """
    lines = [Line(g.name, g.colour, g.style, remaining(g.runs[0].model, g.runs[0].task)) for g in groups(runs)]
    rows, values = joined([summary(line.data) for line in lines], [{"run": line.label} for line in lines], named=True)
    return Study(title(runs), rows, values, lambda figure: draw(figure, lines))


def title(runs: Sequence[Trained]) -> str:
    """Return the title of the picture, which says for the copy tasks over which steps."""
    return f"{TITLE}, over the delay" if isinstance(runs[0].task, Copy) else TITLE


def summary(layers: list[Retention]) -> tuple[list[TableRow], dict[str, float]]:
    """Return the rows and values of `study`."""
    fits = [nearest(layer.logs) for layer in layers]
    rows = []
    for layer, (retention, fit) in enumerate(zip(layers, fits, strict=True), 1):
        product, last_step = retention.product, len(retention.product) - 1
        marks = {k * 10**e for e in range(len(str(last_step))) for k in (1, 2, 5)}  # 1, 2, 5, 10, 20, ...
        marks = {n for n in marks if n < last_step} | {last_step}
        for unit in product[-1].argsort(descending=True).tolist():
            row = {"layer": layer, "unit": unit, "p": float(fit.p[unit]), "f": float(fit.f[unit])}
            row["nearer"] = "power law" if fit.power[unit] else "exponential"
            rows.append(row | {f"left_{n}": float(product[n, unit]) for n in sorted(marks)})
    p, f, power = (torch.cat(values) for values in zip(*fits, strict=True))
    last = torch.cat([layer.product[-1] for layer in layers])
    return rows, {
        "share_power_law": float(power.double().mean()),
        "steps": float(len(layers[0].product) - 1),
        "left_median": float(last.median()),
        "left_max": float(last.max()),
        "p_median": float(p.median()),
        "f_median": float(f.median()),
    }


@torch.no_grad()
def remaining(model: SequenceModel, task: Task) -> list[Retention]:
    """Return what is left of each layer's cell states, over test sequences or the first segment of a text's streams.

    At most 100 test sequences are read. Each counts from its own first step that exists. On the CPU. Raises ConfigError
    for a cell without a forget gate, and for a copy task without a delay.
    """
    needs_forget_gates(model.rnn)
    batch = part(next(iter(task.batches("test"))), slice(SEQUENCES))
    exists = task.exists(batch)
    if isinstance(task, Copy):
        # Up to the signal, at or before the first answer: the reset that it causes is no decay.
        signal = (batch.x == SIGNAL).int().argmax(0)
        step = torch.arange(len(batch.x), device=task.device).unsqueeze(1)
        exists = exists & (step >= LENGTH) & (step < signal)
        if not exists.any():
            raise ConfigError("there is no delay over which a memory could decay: give a run with a longer task.T")
    return [products(forget, exists) for forget in recorded(model, batch)[0]]


def products(forget: Tensor, exists: Tensor) -> Retention:
    """Multiply the forget gates (S, B, H) of the steps that exist, (S, B) bool. The means are over sequences."""
    log_gates = forget.double().clamp(min=SMALLEST).log()
    log_products = torch.where(exists.unsqueeze(-1), log_gates, 0.0).cumsum(0)[exists]
    n = exists.cumsum(0)[exists]  # of how many gates each is the product
    counts = n.bincount().unsqueeze(1)
    counts[0] = 1
    nothing = log_products.new_zeros(len(counts), forget.shape[-1])
    product, logs = (nothing.index_add(0, n, values) / counts for values in (log_products.exp(), log_products))
    product[0] = 1.0  # after 0 steps everything is left
    return Retention(product.cpu(), logs.cpu())


def nearest(logs: Tensor) -> Fit:
    """Fit the nearest power law and the nearest exponential, each with one parameter, to curves that begin at 1.

    logs: the logarithms of the curves, (n + 1, H).
    """
    n = torch.arange(1, len(logs), dtype=logs.dtype).unsqueeze(1)
    logs = logs[1:]
    slopes, errors = [], []
    for x in ((n + 1.0).log(), n):
        slope = (x * logs).sum(0) / x.square().sum()
        slopes.append(slope)
        errors.append((logs - slope * x).square().sum(0))
    return Fit(-slopes[0], slopes[1].exp(), errors[0] < errors[1])


def draw(figure: Any, lines: Sequence[Line]) -> None:
    """Draw the same curves on plain and on logarithmic axes: some units, their mean, and the two curves of Fig. 1."""
    plain, logarithmic = plotting.panels(figure, 2, width=13.0, height=4.8)
    longest = max(len(line.data[0].product) for line in lines)
    for ax, shift in ((plain, 0), (logarithmic, 1)):
        n = torch.arange(max(STEPS + 1, longest), dtype=torch.float64)
        printed = (("--", EXPONENTIAL**n, f"{EXPONENTIAL:g}^n"), ("-.", (n + 1.0) ** -POWER, f"(n + 1)^-{POWER:g}"))
        for style, y, words in printed:
            ax.plot(n + shift, y, color="black", ls=style, lw=1.6, label=f"paper, figure 1: {words}")
        for line in lines:
            product = torch.cat([layer.product for layer in line.data], -1)
            drawn = min(max(1, DRAWN // len(lines)), product.shape[1])
            ranks = torch.linspace(0, product.shape[1] - 1, drawn).round().long()
            units = product[:, product[-1].argsort(descending=True)[ranks]]
            x = torch.arange(len(product)) + shift
            look = {"color": line.colour, "lw": 0.7, "alpha": 0.5, "ls": line.style}
            name = plotting.literal(line.label)
            ax.plot(x, units[:, 0], label=f"{name}: {drawn} unit{'s' * (drawn > 1)}", **look)
            ax.plot(x, units[:, 1:], **look)
            label = f"{name}: mean of all units"
            ax.plot(x, product.mean(1), color=line.colour, lw=2.4, ls=line.style, label=label)
        ax.set(xlabel="steps n", ylabel="part of the cell state that is left", ylim=(0, 1.02))
    last = STEPS if longest > STEPS / 2 else longest - 1
    plain.set_xlim(0, last)
    logarithmic.set(xscale="log", yscale="log", ylim=(1e-4, 1.3), xlim=(1, max(last, longest - 1) + 1))
    logarithmic.set_xlabel("steps n + 1 (a power law is a straight line here)")
    plotting.plain_ticks(logarithmic)
    handles = plain.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
