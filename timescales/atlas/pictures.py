"""Draw the atlas: its heat map, the mean ranks, and a user's cell beside the others."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timescales import plotting
from timescales.atlas.inference import Interval, Ranks

RED = "#c0392b"
GREY = "#999999"


def heat_map(path: Path, means: Mapping[str, Mapping[str, float]], title: str) -> list[Path]:
    """Draw the mean score of each cell and ability as a square with its number. means: by cell and ability."""
    columns = list(next(iter(means.values())))

    def fill(figure: Any) -> None:
        (ax,) = plotting.panels(figure, width=1.6 + 0.75 * len(columns), height=1.2 + 0.27 * len(means))
        values = [[of_cell[column] for column in columns] for of_cell in means.values()]
        ax.imshow(values, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                ink = "black" if value > 0.6 else "white"
                ax.text(x, y, two_digits(value), ha="center", va="center", fontsize=8, color=ink)
        ax.set_xticks(range(len(columns)), columns, fontsize=8)
        ax.set_yticks(range(len(means)), list(means), fontsize=8)
        ax.tick_params(length=0, top=True, bottom=False, labeltop=True, labelbottom=False)
        ax.spines[["bottom", "left"]].set_visible(False)

    return plotting.write(fill, path, title)


def rank_diagram(path: Path, ranks: Ranks, title: str) -> list[Path]:
    """Draw mean ranks as dots, the best first. A line joins cells that are not shown to differ (Demsar 2006)."""
    names, groups = list(ranks.mean), ranks.alike()

    def fill(figure: Any) -> None:
        (ax,) = plotting.panels(figure, width=7.0, height=1.4 + 0.24 * len(names))
        values = list(ranks.mean.values())
        ax.plot(values, range(len(names)), "o", color="black", ms=4)
        for k, name in enumerate(names):
            beside = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
            ax.annotate(f"{name} {values[k]:.1f}", (values[k], k), fontsize=8, **beside)
        for k, group in enumerate(groups):
            rows = [names.index(name) for name in group]
            at = min(values) - 0.5 - 0.35 * k
            ax.plot([at, at], [rows[0] - 0.2, rows[-1] + 0.2], color=GREY, lw=2.5, solid_capstyle="butt")
        ax.set(xlabel="mean rank (1 is best)", ylim=(len(names) - 0.5, -0.8), yticks=[])
        ax.set_xlim(min(values) - 0.8 - 0.35 * len(groups), max(values) + 2.5)
        ax.spines["left"].set_visible(False)

    return plotting.write(fill, path, title)


def card(path: Path, own: Mapping[str, Interval], others: Mapping[str, Mapping[str, float]], title: str) -> list[Path]:
    """Draw the abilities of a user's cell, with their intervals, beside those of the committed cells as grey dots.

    others: by cell and ability. The LSTM has its own mark.
    """

    def fill(figure: Any) -> None:
        (ax,) = plotting.panels(figure, width=7.0, height=1.2 + 0.45 * len(own))
        for y, (ability, interval) in enumerate(own.items()):
            grey = [of_cell[ability] for cell, of_cell in others.items() if cell != "lstm"]
            look = {"color": GREY, "alpha": 0.5, "ms": 4, "label": "committed cells" if grey and y == 0 else None}
            ax.plot(grey, [y] * len(grey), "o", **look)
            if "lstm" in others:
                look = {"color": plotting.COLOURS["lstm"], "label": "lstm" if y == 0 else None}
                ax.plot([others["lstm"][ability]], [y], "|", ms=14, mew=2, **look)
            if interval.low is not None and interval.high is not None:
                ax.plot([interval.low, interval.high], [y, y], color=RED, lw=2)
            ax.plot([interval.value], [y], "D", color=RED, ms=6, label="this cell" if y == 0 else None)
        ax.set(xlim=(-0.03, 1.03), ylim=(len(own) - 0.5, -0.5), xlabel="score: 0 at chance, 1 at best")
        ax.set_yticks(range(len(own)), list(own))
        plotting.legend_at_right(ax)

    return plotting.write(fill, path, title)


def two_digits(value: float) -> str:
    """Write a score in two digits: .93, 1.00."""
    return f"{value:.2f}".removeprefix("0")
