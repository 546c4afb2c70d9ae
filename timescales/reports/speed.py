"""Draw the picture of the speed of cells on the site's front page, from results/bench."""

from pathlib import Path
from typing import Any

from timescales import plotting
from timescales.files import csv_rows

BENCH = "amd-epyc-1-threads.csv"  # in results/bench
CONFIG = {"config": "A", "loss": "all", "flush": "0"}  # 220 steps, batches of 128, 128 units
# What the picture shows. Keys: the section and the variant of the benchmark. Values: the words and the colour.
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


def draw(results: Path) -> list[Path]:
    """Draw results/speed.png: a bar for each layer, the slowest first. Return its path."""

    def fill(figure: Any) -> None:
        ratios = {(row["section"], row["variant"]): float(row["ratio"]) for row in rows(results)}
        shown = sorted((key for key in SPEED if key in ratios), key=lambda key: ratios[key])
        (ax,) = plotting.panels(figure, width=7.0, height=3.2)
        words, colours = zip(*(SPEED[key] for key in shown), strict=True)
        bars = ax.barh(words, [ratios[key] for key in shown], color=colours, height=0.7)
        ax.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
        ax.axvline(1.0, color="black", ls="--", lw=1)
        ax.set(xlim=(0, 1.5), xlabel="share of the time of torch.nn.LSTM (dashed)")
        ax.tick_params(axis="y", labelsize=8)

    title = "Time of a training step of one layer (220 steps, batch 128, 128 units), divided by that of torch.nn.LSTM"
    return plotting.write(fill, results / "speed.png", title)


def rows(results: Path) -> list[dict[str, str]]:
    """Return the rows of the benchmark that the picture may show."""
    return [row for row in csv_rows(results / "bench" / BENCH) if CONFIG.items() <= row.items()]
