"""The two pictures of the README's second and third paragraph: how fast gates are, and what of each table is decided.

`scripts/report.py` draws them, from results/bench and from the verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from timescales import plotting
from timescales.files import csv_rows
from timescales.papers.judge import AGAINST, FOR, NOT_RUN, UNDECIDED
from timescales.reports.report import Report

BENCH = "amd-epyc-1-threads.csv"  # in results/bench
CONFIG = {"config": "A", "loss": "all", "flush": "0"}  # 220 steps, batches of 128, 128 units
# What the first picture shows: the section of the benchmark and its name there, in words, and the colour.
SPEED = {
    ("layer", "loop pLSTM"): ("power law, loop in Python", "#bbbbbb"),
    ("layer", "loop LSTM"): ("LSTM, loop in Python", "#bbbbbb"),
    ("gates", "lstm o"): ("LSTM with ordered gates", plotting.GATES["o"]),
    ("layer", "fused UR"): ("UR-LSTM", plotting.COLOURS["ur"]),
    ("layer", "fused LSTM"): ("LSTM", plotting.COLOURS["lstm"]),
    ("layer", "fused coupled"): ("power law", plotting.COLOURS["plstm"]),
    ("gates", "GRU"): ("GRU", plotting.COLOURS["gru"]),
    ("gates", "own gate"): ("the gate of ten lines", "#000000"),
    ("gates", "JANET"): ("JANET", plotting.COLOURS["janet"]),
    ("gates", "LRU"): ("LRU", plotting.COLOURS["lru"]),
    ("gates", "minGRU"): ("minGRU", plotting.COLOURS["mingru"]),
}
# What the second one shows, from the left, and the colour.
DECIDED = {
    **dict.fromkeys(FOR, "#1e8449"),
    **dict.fromkeys(AGAINST, "#c0392b"),
    UNDECIDED: "#f9e79f",
    NOT_RUN: "#e3e3e3",
}


def draw(reports: Sequence[Report], results: Path) -> list[Path]:
    """results/speed.png and results/decided.png. Returns their paths."""
    speed = plotting.write(
        lambda figure: draw_speed(figure, results),
        results / "speed.png",
        "Time of a training step of one layer (220 steps, batch 128, 128 units), divided by that of torch.nn.LSTM",
    )
    decided = plotting.write(
        lambda figure: draw_decided(figure, reports),
        results / "decided.png",
        "Conclusions of each table of a paper, and what our runs at the paper's size say of them",
    )
    return [*speed, *decided]


def draw_speed(figure: Any, results: Path) -> None:
    """A bar for each layer, from the slowest."""
    rows = [row for row in csv_rows(results / "bench" / BENCH) if CONFIG.items() <= row.items()]
    ratios = {(row["section"], row["variant"]): float(row["ratio"]) for row in rows}
    shown = sorted((key for key in SPEED if key in ratios), key=lambda key: ratios[key])
    (ax,) = plotting.panels(figure, width=7.0, height=3.2)
    words, colours = zip(*(SPEED[key] for key in shown), strict=True)
    bars = ax.barh(words, [ratios[key] for key in shown], color=colours, height=0.7)
    ax.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    ax.axvline(1.0, color="black", ls="--", lw=1)
    ax.set(xlim=(0, 1.5), xlabel="share of the time of torch.nn.LSTM (dashed)")
    ax.tick_params(axis="y", labelsize=8)


def draw_decided(figure: Any, reports: Sequence[Report]) -> None:
    """A bar for each table of a paper: its conclusions, or its values where the paper concludes nothing."""
    shown = [(report.table.name, counted(report)) for report in reversed(reports) if report.table.paper != "ours"]
    (ax,) = plotting.panels(figure, width=7.0, height=4.4)
    names = [name for name, _ in shown]
    left = [0] * len(shown)
    drawn = {word for _, counts in shown for word in counts}
    for word, colour in DECIDED.items():
        if word in drawn:
            numbers = [counts.get(word, 0) for _, counts in shown]
            ax.barh(names, numbers, left=left, color=colour, label=word, height=0.8)
            left = [a + b for a, b in zip(left, numbers, strict=True)]
    ax.set(xlabel="conclusions (printed values where the paper concludes nothing)", ylim=(-0.6, len(shown) - 0.4))
    ax.tick_params(axis="y", labelsize=7)
    for name in (name for name, counts in shown if not counts):
        ax.text(0.2, name, "its text is not available", va="center", fontsize=7)
    plotting.legend_at_right(ax)


def counted(report: Report) -> dict[str, int]:
    """How many of a table's conclusions have which word; of its values where it has no conclusions."""
    conclusions, values = report.counts
    return dict(conclusions or values)
