"""Measure how accuracy depends on the longest pair of brackets, and the distribution of the lengths of pairs.

Source: Mahto et al. 2021, section 3.2.3 and Fig. 2; bins, their positions and the spread (population standard deviation
over runs) as in their released code. Both models do well below 75 steps; above, the multi-timescale model predicts 5 to
10 % more strings. The weights are those of the last epoch, as theirs.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.groups import Line, groups
from timescales.analysis.needs import needs
from timescales.analysis.observe import answers
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow
from timescales.tasks import Dyck2

BINS = 9  # between 2 and the length of the longest test string of all runs
LONG = 75  # steps above which the paper sees the gain
WEIGHTS = "last"
FIT = (4, 100)  # lengths to which the power law is fitted
TITLE = "Strings without any error by their longest pair; lengths of all pairs in training"


def study(run: Trained) -> Study:
    """Study the strings by their longest pair, and the lengths of pairs.

    Rows with what = "accuracy": one per bin of longest pairs: above, up_to, n strings, and as value the share of
    strings without an error. Rows with what = "pairs": one per length of pairs: up_to, n pairs, and as value their
    share of all pairs.

    Values: the share of correct strings with longest pairs up to and above 75 steps, and of the former the share of
    wrong ones; the slope of the power law of the lengths of pairs. Raises ConfigError for a task other than Dyck-2.
    """
    return _study([Line("", run.colour, "-", [right_by_pair(run)])], [needs(run.task, Dyck2)])


def compare(runs: Sequence[Trained]) -> Study:
    """Compare configurations: value is the mean over the runs of each, spread their standard deviation.

    The lengths of pairs are those of the first run.
    """
    lines = [Line(g.name, g.colour, g.style, [right_by_pair(run) for run in g.runs]) for g in groups(runs)]
    return _study(lines, [needs(run.task, Dyck2) for run in runs])


def _study(lines: Sequence[Line], tasks: Sequence[Dyck2]) -> Study:
    """Make the study of configurations. data: `right_by_pair` of each run. A label is "" for a single run."""
    pairs = pair_lengths(tasks[0])
    edges = torch.linspace(2, max(int(task.lengths["test"].max()) for task in tasks), BINS + 1).tolist()
    edges[0] = 0.0  # the shortest strings belong to the first bin
    rows: list[TableRow] = []
    values = {"pairs/slope": slope(pairs)}
    drawn = []
    for line in lines:
        rows_of_runs = [accuracies(longest, correct, edges) for longest, correct in line.data]
        means = []
        for same_bin in zip(*rows_of_runs, strict=True):
            shares = [row["value"] for row in same_bin]
            mean, spread = statistics.fmean(shares), statistics.pstdev(shares)
            means.append({**same_bin[0], "runs": len(same_bin), "value": mean, "spread": spread})
        rows += [{"what": "accuracy", **({"run": line.label} if line.label else {}), **row} for row in means]
        prefix = f"{line.label}/" if line.label else ""
        values |= {f"{prefix}{key}": value for key, value in _short_and_long(line.data).items()}
        drawn.append(line._replace(data=means))
    total = sum(pairs.values())
    pair_rows = [{"what": "pairs", "up_to": length, "n": n, "value": n / total} for length, n in sorted(pairs.items())]
    return Study(TITLE, rows + pair_rows, values, lambda figure: draw(figure, drawn, pair_rows))


def _short_and_long(runs: Sequence[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Return the share of correct strings with longest pairs up to and above LONG steps, averaged over runs."""
    values = {}
    for key, above in ((f"up_to_{LONG}", False), (f"above_{LONG}", True)):
        parts = [correct[(longest > LONG) == above] for longest, correct in runs]
        if len(parts[0]):
            values[key] = statistics.fmean(float(part.double().mean()) for part in parts)
    if f"up_to_{LONG}" in values:
        values[f"wrong_up_to_{LONG}"] = 1.0 - values[f"up_to_{LONG}"]
    return values


def right_by_pair(run: Trained) -> tuple[Tensor, Tensor]:
    """Return the length of each test string's longest pair in steps, and whether it has no error, (N,) each."""
    task = needs(run.task, Dyck2)
    return task.timescales["test"].long(), answers(run.model, task)


def accuracies(longest: Tensor, correct: Tensor, edges: Sequence[float]) -> list[TableRow]:
    """Make a row per bin between two edges that has test strings: above, up_to, n, value."""
    rows = []
    for low, high in itertools.pairwise(edges):
        inside = (longest > low) & (longest <= high)
        if inside.any():
            share = float(correct[inside].double().mean())
            rows.append({"above": round(low, 1), "up_to": round(high, 1), "n": int(inside.sum()), "value": share})
    return rows


def pair_lengths(task: Dyck2) -> dict[int, int]:
    """Count the pairs in the training strings by their length, which includes both brackets."""
    symbols, lengths = task.symbols["train"], task.lengths["train"].long()
    exists = torch.arange(symbols.shape[1]) < lengths.unsqueeze(1)
    change = torch.where(exists, 1 - 2 * (symbols % 2).int(), 0)  # 1 at an opening bracket, -1 at a closing one
    depth = change.cumsum(1) + (change < 0)  # equal at both ends of a pair
    # Sorted by string, depth and time, opening and closing brackets alternate.
    string, time = exists.nonzero(as_tuple=True)
    order = ((string * (symbols.shape[1] + 1) + depth[exists]) * symbols.shape[1] + time).argsort()
    ends = time[order].view(-1, 2)
    length, n = (ends[:, 1] - ends[:, 0] + 1).unique(return_counts=True)
    return dict(zip(length.tolist(), n.tolist(), strict=True))


def slope(pairs: dict[int, int], lengths: tuple[int, int] = FIT) -> float:
    """Return the slope of the straight line through log n over log length; nan for fewer than two lengths."""
    points = [(math.log(k), math.log(n)) for k, n in pairs.items() if lengths[0] <= k <= lengths[1]]
    return statistics.linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else math.nan


def draw(figure: Any, lines: Sequence[Line], pair_rows: list[TableRow]) -> None:
    """Draw the share of correct strings at the upper edge of each bin (left), and the lengths of pairs (right)."""
    left, right = plotting.panels(figure, 2, width=10.0)
    for name, colour, style, rows in lines:
        runs = rows[0]["runs"]
        x, y, spread = ([row[key] for row in rows] for key in ("up_to", "value", "spread"))
        look = {"color": colour, "ls": style, "lw": 1.8, "marker": "o", "ms": 4, "capsize": 3}
        label = f"{plotting.literal(name)} ({runs} run{'s' if runs > 1 else ''})" if name else None
        left.errorbar(x, y, spread if runs > 1 else None, label=label, **look)
    left.axvline(LONG, color="black", ls="--", lw=1)
    at_top = {"fontsize": 8, "va": "bottom", "transform": left.get_xaxis_transform()}
    left.text(LONG + 2, 1.0, f"paper: MTS gains above {LONG}", **at_top)
    left.set(xlabel="longest pair of the string (steps)", ylabel="strings without any error (share)", ylim=(0, 1.02))
    if any(line.label for line in lines):
        plotting.small_legend(left)
    right.loglog([row["up_to"] for row in pair_rows], [row["value"] for row in pair_rows], ".", color="black", ms=4)
    fitted_rows = [row for row in pair_rows if FIT[0] <= row["up_to"] <= FIT[1]]
    if len(fitted_rows) > 1:
        exponent = slope({row["up_to"]: row["n"] for row in pair_rows})
        middle = fitted_rows[len(fitted_rows) // 2]  # the line of the power law goes through it
        x = [fitted_rows[0]["up_to"], fitted_rows[-1]["up_to"]]
        y = [middle["value"] * (length / middle["up_to"]) ** exponent for length in x]
        right.plot(x, y, color="#cc6677", lw=1.2, label=f"slope {exponent:.2f}")
        plotting.small_legend(right)
    right.set(xlabel="length of a pair (steps)", ylabel="share of all pairs in training")
