"""Curves as SVG, for the gallery: in the colours of all our pictures, with nothing to load."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from timescales import plotting
from timescales.papers.table import Row, varying
from timescales.reports import wording
from timescales.reports.gather import thinned
from timescales.reports.report import Report
from timescales.runs.record import Record

POINTS = 120  # of a drawn curve


@dataclass
class Line:
    """A run's curve: its name, the class of its colour (of `plotting.SHADES`), its points.

    Lines of one name share a place in the key.
    """

    name: str
    shade: str
    points: Sequence[Mapping[str, float]]
    dash: int = 0


DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 2", "12 4")


def of_table(report: Report) -> str:
    """Every run's curve, one picture for each value that was logged and each size."""
    parts = []
    for size, rows in report.rows.items():
        words = "paper size" if size == "paper" else "small-scale version"
        lines = [line for line in _lines(report, rows) if line.points]
        parts.append(_charts(f"{report.table.name}, {words}", lines))
    drawn = "".join(parts)
    return f"<h2>Curves</h2>{drawn}" if drawn else ""


def _lines(report: Report, rows: Sequence[Row]) -> Iterator[Line]:
    """The curves of runs: colours tell models and gates apart, dashes the rest."""
    keys = [key for key in varying([row.axes for row in rows]) if key != "model"]
    rest = [", ".join(wording.say(row.axes.get(k)) for k in keys if k != "model.gate") for row in rows]
    order = list(dict.fromkeys(rest))
    for row, other in zip(rows, rest, strict=True):
        axes = row.axes
        model = str(axes.get("model", row.run.split("/")[1]))
        settings = ", ".join(f"{k.split('.')[-1]}={wording.say(axes.get(k))}" for k in keys)
        colour = plotting.shade({**axes, "model": model})
        yield Line(", ".join(filter(None, [model, settings])), colour, report.curve(row), order.index(other))


def of_run(name: str, label: str, run: Record | None, points: Sequence[Mapping[str, float]]) -> str:
    """A curve by itself, in its model's colour where its record is known."""
    model = run.config["model"] if run else {}
    colour = plotting.shade({"model": model.get("name"), "model.gate": model.get("gate")})
    return _charts(name, [Line(label, colour, points)])


def _charts(title: str, lines: Sequence[Line]) -> str:
    """A picture for each value of validation, then the loss of training, and one key for all."""
    count = Counter(key for line in lines for point in line.points for key in point)
    shown = [key for key in count if key.startswith("valid/")]
    # Training loss is in a curve only where its steps coincide with a validation's: not drawn where that is rare.
    shown += [key for key in count if key.startswith("train/") and 3 * count[key] > count["step"]]
    drawn = "".join(text for key in shown if (text := chart(title, key, lines)))
    if not drawn:
        return ""
    entries = {line.name: line for line in lines}.values()
    key = "".join(f"<li>{_stroke(line, 'M0 5h26')}{escape(line.name)}</li>" for line in entries)
    return f'<p class="dim">{escape(title)}</p><div class="charts">{drawn}</div><ul class="key">{key}</ul>'


def _stroke(line: Line, path: str) -> str:
    return f'<svg class="swatch" viewBox="0 0 26 10" aria-hidden="true">{_path(line, path)}</svg>'


def _path(line: Line, path: str, title: str = "") -> str:
    shape = f' stroke-dasharray="{dash}"' if (dash := DASHES[line.dash % len(DASHES)]) else ""
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<path class="line {line.shade}"{shape} d="{path}">{inside}</path>'


# Of a chart's frame, in a view of 400 x 250.
LEFT, TOP, WIDTH, HEIGHT = 52, 14, 330, 190


@dataclass
class Frame:
    """The frame of a chart: what its axes span."""

    low: float  # of the values, or of their logarithms
    high: float
    right: float  # the last step
    logarithmic: bool

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a point lies in the view."""
        height = math.log10(y) if self.logarithmic else y
        return LEFT + WIDTH * x / self.right, TOP + HEIGHT * (self.high - height) / (self.high - self.low)

    def axes(self) -> Iterator[str]:
        """The rules with their values, and the steps below."""
        for value in ticks(self.low, self.high, whole=self.logarithmic):
            y = self.place(0, 10**value if self.logarithmic else value)[1]
            label = f"{10**value:.3g}" if self.logarithmic else f"{value:.4g}"
            yield f'<path class="rule" d="M{LEFT} {y:.1f}h{WIDTH}"/>'
            yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        for value in ticks(0, self.right):
            x = LEFT + WIDTH * value / self.right
            yield f'<text x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{value:,.6g}</text>'


def _frame(points: Sequence[tuple[float, float]]) -> Frame:
    """The frame around points; a loss that spans decades has a logarithmic axis."""
    xs, ys = zip(*points, strict=True)
    logarithmic = min(ys) > 0 and max(ys) / min(ys) > 50
    low, high = (math.log10(y) if logarithmic else float(y) for y in (min(ys), max(ys)))
    margin = 0.04 * (high - low) or 0.5
    return Frame(low - margin, high + margin, max(xs) or 1, logarithmic)


def chart(title: str, key: str, lines: Sequence[Line]) -> str:
    """One value of every line over training, as SVG."""
    every = [(line, _finite(line.points, key)) for line in lines]
    series = [(line, thinned(points, POINTS)) for line, points in every if points]
    if not series:
        return ""
    frame = _frame([point for _, points in series for point in points])
    parts = list(frame.axes())
    for line, points in series:
        spots = [frame.place(x, y) for x, y in points]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in spots) + ("h.1" if len(spots) == 1 else "")
        parts.append(_path(line, path, f"{line.name}: {wording.number(points[-1][1])} at step {points[-1][0]:.0f}"))
    parts.append(f'<text x="{LEFT + WIDTH}" y="{TOP + HEIGHT + 36}" text-anchor="end">training steps</text>')
    return (
        f'<figure class="chart"><figcaption>{escape(key)}</figcaption><svg role="img" viewBox="0 0 400 250" '
        f'aria-label="{escape(f"{title}: {key} over training steps. {_ends(series)}")}">{"".join(parts)}</svg></figure>'
    )


def _finite(points: Sequence[Mapping[str, float]], key: str) -> list[tuple[float, float]]:
    """Steps and values, of those points that have a finite one."""
    return [(p["step"], p[key]) for p in points if p.get(key) is not None and math.isfinite(p[key])]


def _ends(series: Sequence[tuple[Line, Sequence[tuple[float, float]]]]) -> str:
    """The last values of all lines, for those who do not see the picture."""
    ends: dict[str, list[float]] = {}
    for line, points in series:
        ends.setdefault(line.name, []).append(points[-1][1])
    return "; ".join(f"{name} ends at {' '.join(map(wording.number, sorted(v)))}" for name, v in ends.items())


def ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Round numbers between two values, three to six of them; whole: only whole ones (powers of ten on a log axis)."""
    raw = (high - low) / 4
    step = 10.0 ** math.floor(math.log10(raw))
    step *= next(m for m in (1, 2, 5, 10) if m * step >= raw)
    step = max(1.0, round(step)) if whole else step
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def colours() -> str:
    """The colours as CSS: those of all our pictures, and on a dark page halfway to white."""

    def rules(lighter: float) -> str:
        found = []
        for name, code in plotting.SHADES.items():
            parts = (int(code[k : k + 2], 16) for k in (1, 3, 5))
            mixed = "".join(f"{round(part + lighter * (255 - part)):02x}" for part in parts)
            found.append(f".{name}{{stroke:#{mixed}}}")
        return "".join(found)

    return f"{rules(0.0)}\n@media (prefers-color-scheme: dark) {{{rules(0.45)}}}"
