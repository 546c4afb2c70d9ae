"""How does accuracy depend on the longest pair of brackets, and how are the pairs' lengths distributed?

Source: Mahto et al. 2021, section 3.2.3 and Fig. 2; bins, marks and the spread (population deviation of runs) as in
their released code. Both models do well below 75 steps; above, the multi-timescale one predicts 5 to 10 % more strings.
Our models have the weights of the best validation, theirs those of the last epoch.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.common import answers
from timescales.analysis.run import Run, groups
from timescales.analysis.study import Study
from timescales.errors import ConfigError
from timescales.tasks import Dyck2, Task
from timescales.training.model import SequenceModel

BINS = 9  # between 2 and the longest test string
LONG = 75  # steps above which the paper sees the gain
FIT = (4, 100)  # lengths over which the power law is fitted
TITLE = "Strings without any error by their longest pair; lengths of all pairs in training"


def study(run: Run) -> Study:
    """Rows: what = "accuracy": one a bin of longest pairs: above, up_to, n strings, value, the share predicted without
    error; what = "pairs": one a length: up_to, n pairs, value, their share.

    Values: share of right strings with longest pairs up to and above 75 steps; slope of the law of pairs' lengths.
    Raises ConfigError for a task other than Dyck-2.
    """
    return _told([("", run.colour, "-", [right_by_pair(run.model, run.task)])], run.task)


def compare(runs: Sequence[Run]) -> Study:
    """The same by configuration: value is the mean over its runs, spread their standard deviation."""
    return _told(
        [(g.name, g.colour, g.style, [right_by_pair(run.model, run.task) for run in g.runs]) for g in groups(runs)],
        runs[0].task,
    )


def _told(found: Sequence[tuple[str, str, str, Sequence[tuple[Tensor, Tensor]]]], task: Task) -> Study:
    """The study of some configurations, each (name, colour, style, `right_by_pair` of each of its runs)."""
    pairs = pair_lengths(task)
    lines, rows, values = [], [], {"pairs/slope": slope(pairs)}
    for name, colour, style, each in found:
        own = [_together(same) for same in zip(*(accuracies(*one, task) for one in each), strict=True)]
        lines.append((name, colour, style, own))
        rows += [{"what": "accuracy", **({"run": name} if name else {}), **row} for row in own]
        prefix = f"{name}/" if name else ""
        for key, above in (("up_to", False), ("above", True)):
            parts = [right[(longest > LONG) == above] for longest, right in each]
            if len(parts[0]):
                values[f"{prefix}{key}_{LONG}"] = statistics.fmean(float(part.double().mean()) for part in parts)
    total = sum(pairs.values())
    law = [{"what": "pairs", "up_to": length, "n": n, "value": n / total} for length, n in sorted(pairs.items())]
    return Study(TITLE, rows + law, values, lambda figure: draw(figure, lines, law))


def _together(same: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One bin of several runs."""
    shares = [row["value"] for row in same]
    return {**same[0], "runs": len(same), "value": statistics.fmean(shares), "spread": statistics.pstdev(shares)}


def right_by_pair(model: SequenceModel, task: Task) -> tuple[Tensor, Tensor]:
    """Of each test string, its longest pair in steps and whether it is predicted without error, each (N,)."""
    _check(task)
    assert isinstance(task, Dyck2)
    return task.timescales["test"].long(), answers(model, task)


def accuracies(longest: Tensor, right: Tensor, task: Task) -> list[dict[str, Any]]:
    """One row a bin that has test strings: above, up_to, n, value."""
    assert isinstance(task, Dyck2)
    edges = torch.linspace(2, int(task.lengths["test"].max()), BINS + 1).tolist()
    edges[0] = 0.0  # the shortest belong to the first bin
    rows = []
    for low, high in itertools.pairwise(edges):
        inside = (longest > low) & (longest <= high)
        if inside.any():
            share = float(right[inside].double().mean())
            rows.append({"above": round(low, 1), "up_to": round(high, 1), "n": int(inside.sum()), "value": share})
    return rows


def pair_lengths(task: Task) -> dict[int, int]:
    """How many pairs of each length, opening and closing bracket both counted, the training strings have."""
    _check(task)
    assert isinstance(task, Dyck2)
    symbols, lengths = task.symbols["train"], task.lengths["train"].long()
    exists = torch.arange(symbols.shape[1]) < lengths.unsqueeze(1)
    step = torch.where(exists, 1 - 2 * (symbols % 2).int(), 0)  # up at an opening bracket, down at a closing one
    depth = step.cumsum(1) + (step < 0)  # of a pair, the same at both its ends
    # By string and depth, then by time, openings and closings alternate.
    string, time = exists.nonzero(as_tuple=True)
    order = ((string * (symbols.shape[1] + 1) + depth[exists]) * symbols.shape[1] + time).argsort()
    ends = time[order].view(-1, 2)
    length, n = (ends[:, 1] - ends[:, 0] + 1).unique(return_counts=True)
    return dict(zip(length.tolist(), n.tolist(), strict=True))


def slope(pairs: dict[int, int]) -> float:
    """Slope of the straight line through log n over log length, for lengths 4 to 100."""
    known = torch.tensor([(k, n) for k, n in pairs.items() if FIT[0] <= k <= FIT[1]], dtype=torch.float64).log()
    if len(known) < 2:
        return float("nan")
    x = known[:, 0] - known[:, 0].mean()
    return float((x * known[:, 1]).sum() / x.square().sum())


def _check(task: Task) -> None:
    if not isinstance(task, Dyck2):
        raise ConfigError(f"this question is for strings of brackets (dyck2), not for {type(task).__name__}")


def draw(
    figure: Any, lines: Sequence[tuple[str, str, str, Sequence[dict[str, Any]]]], law: list[dict[str, Any]]
) -> None:
    """Left: share of right strings at the right edge of each bin, a line a configuration; right: shares of lengths."""
    left, right = plotting.panels(figure, 2, width=10.0)
    for name, colour, style, rows in lines:
        x, y, e = ([row[key] for row in rows] for key in ("up_to", "value", "spread"))
        label = f"{name} ({rows[0]['runs']} run{'s' if rows[0]['runs'] > 1 else ''})" if name else None
        left.errorbar(x, y, e if rows[0]["runs"] > 1 else None, color=colour, ls=style, lw=1.8, marker="o", ms=4,
                      capsize=3, label=label)  # fmt: skip
    left.axvline(LONG, color="black", ls="--", lw=1)
    left.text(LONG + 2, 1.0, f"paper: MTS gains above {LONG}", fontsize=8, va="bottom",
              transform=left.get_xaxis_transform())  # fmt: skip
    left.set(xlabel="longest pair of the string (steps)", ylabel="strings without any error (share)", ylim=(0, 1.02))
    if any(name for name, *_ in lines):
        left.legend(frameon=False, fontsize=8)
    x, y = ([row[key] for row in law] for key in ("up_to", "value"))
    right.loglog(x, y, ".", color="black", ms=4)
    fitted = slope({row["up_to"]: row["n"] for row in law})
    near = [row for row in law if FIT[0] <= row["up_to"] <= FIT[1]]
    if len(near) > 1:
        middle = near[len(near) // 2]
        ends = [near[0]["up_to"], near[-1]["up_to"]]
        right.plot(ends, [middle["value"] * (k / middle["up_to"]) ** fitted for k in ends], color="#cc6677", lw=1.2,
                   label=f"slope {fitted:.2f}")  # fmt: skip
        right.legend(frameon=False, fontsize=8)
    right.set(xlabel="length of a pair (steps)", ylabel="share of the training strings' pairs")
