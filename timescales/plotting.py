"""Colours, panels, bands, saving: what every picture uses. Knows no tables."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from timescales.files import write_atomic

COLOURS = {
    "lstm": "#666666", "chrono": "#2471a3", "ur": "#8e44ad", "mts": "#1e8449", "plstm": "#c0392b", "gru": "#a0522d",
    "pgru": "#e67e22", "janet": "#16a085", "exprnn": "#7f8c8d", "gated": "#8e44ad",
}  # fmt: skip
# The plain LSTM, chrono and UR again, and six more.
GATES = {
    "-": COLOURS["lstm"], "c": COLOURS["chrono"], "ur": COLOURS["ur"], "o": "#b7950b", "u": "#17a2b8", "r": "#e74c3c",
    "om": "#117864", "or": "#d35400", "um": "#34495e",
}  # fmt: skip
STYLES = ("-", "--", ":", "-.")  # tell one model's lines apart: layers, laws


def shades(n: int) -> list[Any]:
    """Colours for an ordered series, dark to light; no model's."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.9 * k / max(1, n - 1)) for k in range(n)]


def say(value: float) -> str:
    """A number for people: three digits, thousands with commas."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def plain(one: Any) -> None:
    """Plain numbers on logarithmic axes: powers of ten, and their 2- and 5-fold on an axis of less than 30-fold."""

    def text(value: float, _: Any) -> str:
        return say(value) if f"{value:e}"[0] in "125" else ""

    for axis, (low, high) in ((one.xaxis, one.get_xlim()), (one.yaxis, one.get_ylim())):
        if axis.get_scale() == "log":
            axis.set_major_formatter(text)
            axis.set_minor_formatter(text if high < 30 * low else "")


def panels(figure: Any, columns: int = 1, rows: int = 1, width: float = 7.0, height: float = 4.2, **more: Any) -> list:
    """Axes without frames, side by side (and in rows), in an empty figure, which is given its size in inches."""
    figure.set_size_inches(width, height)
    axes = figure.subplots(rows, columns, squeeze=False, **more)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
    return list(axes.flat)


def band(axis: Any, x: Sequence[float], y: Sequence[float], error: Sequence[float], colour: str, **line: Any) -> None:
    """A line with a dot at every point and its error as a band around it; `line` says how the line looks."""
    axis.plot(x, y, color=colour, marker="o", **line)
    low, high = ([a + sign * b for a, b in zip(y, error, strict=True)] for sign in (-1, 1))
    axis.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)


def _reduced(picture: io.BytesIO, colours: int) -> io.BytesIO:
    """A PNG of so few colours: hundreds of thin lines take half the bytes, and look the same."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(picture).convert("RGB").quantize(colours).save(out, "png", optimize=True)
    return out


LARGEST = 200_000  # bytes of a picture: many of them lie in git


def write(draw: Callable[[Any], None], path: Path, title: str, svg: bool = False) -> list[Path]:
    """PATH.png, at most 200 KB, and on request PATH.svg, of what `draw` puts into an empty figure; their paths."""
    from matplotlib.figure import Figure

    figure = Figure(dpi=110, layout="constrained")
    draw(figure)
    fits = int(13 * figure.get_figwidth())  # letters of this size
    lines = [textwrap.fill(line, fits) for line in title.split("\n")]
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10)
    paths = [path.with_suffix(".png")]
    for dpi, colours in ((110, None), (110, 256), (80, 256), (60, 256), (45, 256)):
        out = io.BytesIO()
        figure.savefig(out, dpi=dpi)
        out = _reduced(out, colours) if colours else out
        if len(out.getvalue()) <= LARGEST:
            break
    write_atomic(paths[0], out.getvalue())
    if svg:
        out = io.BytesIO()
        figure.savefig(out, format="svg")
        write_atomic(path.with_suffix(".svg"), out.getvalue())
        paths.append(path.with_suffix(".svg"))
    return paths


def colour(axes: Mapping[str, Any]) -> str:
    """A run's colour: its model's, or its gate's where it is one of the nine."""
    model = str(axes.get("model"))
    return GATES.get(str(axes.get("model.gate")) if model == "gated" else "", COLOURS.get(model, "#444444"))
