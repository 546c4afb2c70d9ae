"""How does accuracy depend on the length of a text?

Source: Chien et al. 2021, section 4.4 and Fig. 4 (bins not stated; mean and standard error over all sequences of all
seeds in a bin): the power-law LSTM gains on reviews longer than 150 words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from timescales import plotting
from timescales.analysis.common import answers
from timescales.analysis.run import Run, groups
from timescales.analysis.study import Study
from timescales.errors import ConfigError
from timescales.tasks import IMDB

EDGES = (0, 100, 150, 200, 250, 300, 400)  # tokens before a review is cut: above one, up to the next; ours
LONG = 150  # above this many words the paper sees the gain
TITLE = "Test accuracy by the length of the text, mean and standard error over texts"


def study(run: Run) -> Study:
    """Rows: one a bin of lengths: above, up_to (empty: any), runs, n texts, right answers, accuracy, standard error.

    Values: accuracy in each bin, "101_150", "above_400", and of all texts up to and above 150 tokens.
    Raises ConfigError for another task than IMDB.
    """
    model, task = run.model, run.task
    if not isinstance(task, IMDB):  # the picture shows the paper's claim on its reviews
        raise ConfigError(f"this question is for texts of different length (imdb), not for {type(task).__name__}")
    rows = table(task.lengths["test"], answers(model, task))
    line = (run.config["model"]["name"], run.colour, "-", rows)
    return Study(TITLE, rows, summary(rows), lambda figure: draw(figure, [line]))


def compare(runs: Sequence[Run]) -> Study:
    """Rows and values by configuration, over all texts of all its runs."""
    found = []
    for group in groups(runs):
        each = [run.earlier("length_accuracy") or study(run).rows for run in group.runs]
        rows = []
        for same in zip(*each, strict=True):
            counted = (sum(row[key] for row in same) for key in ("n", "right", "runs"))
            rows.append(row_of(same[0]["above"], same[0]["up_to"] or None, *counted))
        found.append((group, rows))
    rows = [{"run": group.name, **row} for group, own in found for row in own]
    lines = [(group.label, group.colour, group.style, own) for group, own in found]
    values = {f"{g.name}/{key}": value for g, own in found for key, value in summary(own).items()}
    return Study(TITLE, rows, values, lambda figure: draw(figure, lines))


def table(lengths: Tensor, right: Tensor) -> list[dict[str, Any]]:
    """A row a bin that has texts, from lengths (N,) and right answers (N,)."""
    rows = []
    for low, high in zip(EDGES, (*EDGES[1:], None), strict=True):
        inside = (lengths > low) & (lengths <= high if high else True)
        if inside.any():
            rows.append(row_of(low, high, int(inside.sum()), int(right[inside].sum())))
    return rows


def row_of(low: int, high: int | None, n: int, right: int, runs: int = 1) -> dict[str, Any]:
    """One bin, its texts counted once for each run."""
    share = right / n
    error = math.sqrt(share * (1.0 - share) / n)
    row = {"above": low, "up_to": high or "", "runs": runs, "n": n, "right": right}
    return row | {"accuracy": share, "standard_error": error}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Accuracies by bin, and up to and above 150 tokens."""
    values = {name(row): row["accuracy"] for row in rows}
    for key, own in (
        (f"up_to_{LONG}", [row for row in rows if row["above"] < LONG]),
        (f"above_{LONG}", [row for row in rows if row["above"] >= LONG]),
    ):
        if own:
            values[key] = sum(row["right"] for row in own) / sum(row["n"] for row in own)
    return values


def name(row: dict[str, Any]) -> str:
    """A bin as a key."""
    return f"{row['above'] + 1}_{row['up_to']}" if row["up_to"] else f"above_{row['above']}"


def draw(figure: Any, found: Sequence[tuple[str, str, str, Sequence[dict[str, Any]]]]) -> None:
    """Accuracy over bins of length, a line a configuration."""
    (one,) = plotting.panels(figure, width=7.5, height=4.6)
    bins = sorted({row["above"]: row for *_, rows in found for row in rows}.items())
    place = {low: k for k, (low, _) in enumerate(bins)}
    for k, (words, colour, style, rows) in enumerate(found):
        x = [place[row["above"]] + 0.06 * (k - (len(found) - 1) / 2) for row in rows]
        y, e = ([row[key] for row in rows] for key in ("accuracy", "standard_error"))
        one.errorbar(x, y, e, color=colour, ls=style, lw=1.8, marker="o", ms=4, capsize=3, label=words)
    labels = [
        name(row).replace("_", "-" if row["up_to"] else " ") + f"\n{row['n'] // row['runs']:,} texts" for _, row in bins
    ]
    one.set_xticks(range(len(labels)), labels, fontsize=8)
    long = [place[low] for low, _ in bins if low >= LONG]
    if long and long[0]:
        one.axvline(long[0] - 0.5, color="black", ls="--", lw=1)
        one.text(long[0] - 0.45, 1.0, f"paper: pLSTM gains above {LONG} words", fontsize=8, va="bottom",
                 transform=one.get_xaxis_transform())  # fmt: skip
    one.set(xlabel="length of the text (tokens)", ylabel="test accuracy")
    one.legend(frameon=False, fontsize=8)
