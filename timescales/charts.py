"""Curves as SVG, for the gallery: in the colours of all our pictures, with nothing to load."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from timescales import markdown, plotting, report, tables, verdict

POINTS = 120  # of a drawn curve


@dataclass
class Line:
    """A run's curve: its name, the class of its colour (of `_shades`), its points.

    Lines of one name share a place in the key.
    """

    name: str
    shade: str
    points: Sequence[Mapping[str, float]]
    dash: int = 0


DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 2", "12 4")


def of_table(r: report.Report) -> str:
    """Every run's curve, one picture for each value that was logged and each size."""
    parts = []
    for profile, rows in r.rows.items():
        keys = [key for key in tables.varying([row["axes"] for row in rows]) if key != "model"]
        groups = [", ".join(f"{k.split('.')[-1]}={markdown.say(row['axes'].get(k))}" for k in keys) for row in rows]
        # Colours tell models and gates apart, dashes the rest.
        rest = [", ".join(markdown.say(row["axes"].get(k)) for k in keys if k != "model.gate") for row in rows]
        order = list(dict.fromkeys(rest))
        lines = []
        for row, text, other in zip(rows, groups, rest, strict=True):
            model = str(row["axes"].get("model", row["run"].partition("/")[2]))
            points = report.curve(r.table, row)
            colour = shade({"name": model, "gate": row["axes"].get("model.gate")})
            lines.append(Line(", ".join(filter(None, [model, text])), colour, points, order.index(other)))
        size = "paper size" if profile == "paper" else "shown here"
        parts.append(_charts(f"{r.table['name']}, {size}", [line for line in lines if line.points]))
    drawn = "".join(parts)
    return f"<h4>Curves</h4>{drawn}" if drawn else ""


def of_run(name: str, label: str, run: Mapping[str, Any] | None, points: Sequence[Mapping[str, float]]) -> str:
    """A curve by itself, in its model's colour where its record is known."""
    return _charts(name, [Line(label, shade(run["config"]["model"]) if run else "other", points)])


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


def chart(title: str, key: str, lines: Sequence[Line]) -> str:
    """One value of every line over training, as SVG; a loss that spans decades has a logarithmic axis."""
    every = [
        (line, [(p["step"], p[key]) for p in line.points if p.get(key) is not None and math.isfinite(p[key])])
        for line in lines
    ]
    series = [(line, report.thinned(points, POINTS)) for line, points in every if points]
    if not series:
        return ""
    xs, ys = ([point[k] for _, points in series for point in points] for k in (0, 1))
    logarithmic = min(ys) > 0 and max(ys) / min(ys) > 50
    bend = math.log10 if logarithmic else float
    low, high = bend(min(ys)), bend(max(ys))
    margin = 0.04 * (high - low) or 0.5
    low, high, right = low - margin, high + margin, max(xs) or 1
    left, top, width, height = 52, 14, 330, 190  # of the frame, in a view of 400 x 250

    def place(x: float, y: float) -> tuple[float, float]:
        return left + width * x / right, top + height * (high - bend(y)) / (high - low)

    parts = []
    for value in ticks(low, high, whole=logarithmic):
        y = place(0, 10**value if logarithmic else value)[1]
        label = f"{10**value:.3g}" if logarithmic else f"{value:.4g}"
        parts.append(
            f'<path class="rule" d="M{left} {y:.1f}h{width}"/>'
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for value in ticks(0, right):
        x = place(value, ys[0])[0]
        parts.append(f'<text x="{x:.1f}" y="{top + height + 18}" text-anchor="middle">{value:,.6g}</text>')
    for line, points in series:
        spots = [place(x, y) for x, y in points]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in spots) + ("h.1" if len(spots) == 1 else "")
        parts.append(_path(line, path, f"{line.name}: {verdict.number(points[-1][1])} at step {points[-1][0]:.0f}"))
    parts.append(f'<text x="{left + width}" y="{top + height + 36}" text-anchor="end">training steps</text>')
    ends: dict[str, list[float]] = {}
    for line, points in series:
        ends.setdefault(line.name, []).append(points[-1][1])
    said = "; ".join(f"{name} ends at {' '.join(map(verdict.number, sorted(values)))}" for name, values in ends.items())
    return (
        f'<figure class="chart"><figcaption>{escape(key)}</figcaption><svg role="img" viewBox="0 0 400 250" '
        f'aria-label="{escape(f"{title}: {key} over training steps. {said}")}">{"".join(parts)}</svg></figure>'
    )


def ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Round numbers between two values, three to six of them; whole: only whole ones (powers of ten on a log axis)."""
    raw = (high - low) / 4
    step = 10.0 ** math.floor(math.log10(raw))
    step *= next(m for m in (1, 2, 5, 10) if m * step >= raw)
    step = max(1.0, round(step)) if whole else step
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _shades() -> dict[str, str]:
    """The colours of all our pictures by CSS class, one a model and one a gate."""
    models = {f"m-{name}": code for name, code in plotting.COLOURS.items()}
    return models | {f"g-{name}": code for name, code in plotting.GATES.items()} | {"other": "#444444"}


def shade(model: Mapping[str, Any]) -> str:
    """The class of a model's colour, of its configuration: its gate's where it is one of the nine, as plots.colour."""
    name = f"g-{model.get('gate')}" if model["name"] == "gated" else ""
    return next((shade for shade in (name, f"m-{model['name']}") if shade in _shades()), "other")


def colours() -> str:
    """The colours as CSS: those of all our pictures, and on a dark page halfway to white."""

    def rules(lighter: float) -> str:
        found = []
        for name, code in _shades().items():
            parts = (int(code[k : k + 2], 16) for k in (1, 3, 5))
            mixed = "".join(f"{round(part + lighter * (255 - part)):02x}" for part in parts)
            found.append(f".{name}{{stroke:#{mixed}}}")
        return "".join(found)

    return f"{rules(0.0)}\n@media (prefers-color-scheme: dark) {{{rules(0.45)}}}"
