"""Measure how accuracy depends on the length of a text.

Source: Chien et al. 2021, section 4.4 and Fig. 4 (bins not stated; mean and standard error over all sequences of all
seeds in a bin): the power-law LSTM gains on reviews longer than 150 words.
"""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from timescales import plotting
from timescales.analysis.groups import Line, groups, line_of
from timescales.analysis.needs import needs
from timescales.analysis.observe import answers
from timescales.analysis.run import Trained
from timescales.analysis.study import Study, TableRow, joined
from timescales.tasks import IMDB

EDGES = (0, 100, 150, 200, 250, 300, 400)  # tokens before a review is cut: above one edge, up to the next; ours
LONG = 150  # words above which the paper sees the gain
TITLE = "Test accuracy by the length of the text, mean and standard error over texts"


def study(run: Trained) -> Study:
    """Study accuracy by the length of reviews.

    Rows: one per bin of lengths: above, up_to (empty: any), runs, n texts, right answers, accuracy, standard error.

    Values: accuracy in each bin, "101_150", "above_400", of all texts up to and above 150 tokens, and how much lower
    the latter is (`drop`).
    Raises ConfigError for a task other than IMDB.
    """
    task = needs(run.task, IMDB)
    rows = table(task.lengths["test"], answers(run.model, task))
    return Study(TITLE, rows, summary(rows), lambda figure: draw(figure, [line_of(run, rows)]))


def compare(runs: Sequence[Trained]) -> Study:
    """Compare configurations, over all texts of all runs of each."""
    found, lines = groups(runs), []
    for group in found:
        rows_of_runs = [run.earlier("length_accuracy") or study(run).rows for run in group.runs]
        sums = []
        for same_bin in zip(*rows_of_runs, strict=True):
            n, right, counted = (sum(row[key] for row in same_bin) for key in ("n", "right", "runs"))
            sums.append(row_of(same_bin[0]["above"], same_bin[0]["up_to"] or None, n, right, counted))
        lines.append(group.line(sums))
    parts, heads = [(line.data, summary(line.data)) for line in lines], [{"run": group.name} for group in found]
    rows, values = joined(parts, heads, named=True)
    return Study(TITLE, rows, values, lambda figure: draw(figure, lines))


def table(lengths: Tensor, correct: Tensor) -> list[TableRow]:
    """Make a row per bin that has texts, from lengths (N,) and correct answers (N,) bool."""
    rows = []
    for low, high in zip(EDGES, (*EDGES[1:], None), strict=True):
        inside = (lengths > low) & (lengths <= high if high else True)
        if inside.any():
            rows.append(row_of(low, high, int(inside.sum()), int(correct[inside].sum())))
    return rows


def row_of(low: int, high: int | None, n: int, right: int, runs: int = 1) -> TableRow:
    """Make the row of a bin. n: texts, counted once for each run."""
    share = right / n
    error = math.sqrt(share * (1.0 - share) / n)
    row = {"above": low, "up_to": high or "", "runs": runs, "n": n, "right": right}
    return row | {"accuracy": share, "standard_error": error}


def summary(rows: Sequence[TableRow]) -> dict[str, float]:
    """Return the values of `study`."""
    values = {name(row): row["accuracy"] for row in rows}
    short = [row for row in rows if row["above"] < LONG]
    long = [row for row in rows if row["above"] >= LONG]
    for key, part in ((f"up_to_{LONG}", short), (f"above_{LONG}", long)):
        if part:
            values[key] = sum(row["right"] for row in part) / sum(row["n"] for row in part)
    if short and long:
        values["drop"] = values[f"up_to_{LONG}"] - values[f"above_{LONG}"]
    return values


def name(row: TableRow) -> str:
    """Name a bin in the values: "101_150", "above_400"."""
    return f"{row['above'] + 1}_{row['up_to']}" if row["up_to"] else f"above_{row['above']}"


def draw(figure: Any, lines: Sequence[Line]) -> None:
    """Draw accuracy by bin of lengths, a line per configuration."""
    (ax,) = plotting.panels(figure, width=7.5, height=4.6)
    bins = sorted({row["above"]: row for line in lines for row in line.data}.items())
    place = {low: k for k, (low, _) in enumerate(bins)}
    for k, (label, colour, style, rows) in enumerate(lines):
        x = [place[row["above"]] + 0.06 * (k - (len(lines) - 1) / 2) for row in rows]
        y, error = ([row[key] for row in rows] for key in ("accuracy", "standard_error"))
        ax.errorbar(x, y, error, color=colour, ls=style, lw=1.8, marker="o", ms=4, capsize=3, label=label)
    lengths = [name(row).replace("_", "-" if row["up_to"] else " ") for _, row in bins]
    texts = [f"{row['n'] // row['runs']:,} texts" for _, row in bins]
    ax.set_xticks(range(len(bins)), map("\n".join, zip(lengths, texts, strict=True)), fontsize=8)
    long = [place[low] for low, _ in bins if low >= LONG]
    if long and long[0]:
        ax.axvline(long[0] - 0.5, color="black", ls="--", lw=1)
        look = {"fontsize": 8, "va": "bottom", "transform": ax.get_xaxis_transform()}
        ax.text(long[0] - 0.45, 1.0, f"paper: pLSTM gains above {LONG} words", **look)
    ax.set(xlabel="length of the text (tokens)", ylabel="test accuracy")
    plotting.small_legend(ax)
