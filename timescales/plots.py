"""Pictures of tables: one colour per model everywhere, the paper's value drawn where it prints one."""

from __future__ import annotations

import io
import re
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from timescales import markdown, paths, report, tables, verdict
from timescales.files import write_atomic
from timescales.plotting import STYLES, band, colour, panels


def draw(found: report.Report) -> Path | None:
    """results/<table>/figure.png: panels for the paper's size and for the tiny twin, where they have runs."""
    from matplotlib.figure import Figure

    shown = [(name, settings) for name, rows in found.rows.items() for settings in tables.figures(found.table) if rows]
    if not shown:
        return None
    kinds = {"cells": _cells, "curves": _curves, "line": _line, "probe": _probe}
    drawn = {name for name, settings in shown if settings["kind"] == "cells"}
    rows = max(len(found.cells) if "paper" in drawn else 0, len({tables.group(r["axes"]) for r in found.rows["tiny"]}))
    figure = Figure(dpi=110, layout="constrained")
    below = len({name for name, _ in shown}) if len(tables.figures(found.table)) > 1 else 1  # a row for each size
    across, height = len(shown) // below, 0.26 * rows + 1.8 if drawn else 4.2
    axes = panels(figure, across, below, 7.0 * across, height * below)
    for (name, settings), one in zip(shown, axes, strict=True):
        table = {**(found.table if name == "paper" else tables.twin(found.table)), "figure": settings}
        kinds[settings["kind"]](one, found, name, table)
        metric = table["metric"]
        own = f": {metric}" if metric.startswith("steps to") and metric != found.table["metric"] else ""  # a twin's
        size = "paper size" if name == "paper" else f"tiny twin{own}"
        one.set_title(f"{textwrap.fill(found.table['title'], 72)}\n{size}", loc="left", fontsize=10)
    path = paths.RESULTS / found.table["name"] / "figure.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    out = io.BytesIO()
    figure.savefig(out)
    write_atomic(path, out.getvalue())
    return path


def _name(axes: Mapping[str, Any], keys: Sequence[str]) -> str:
    words = [
        str(axes[k]) if k in ("model", "task") else f"{k.split('.')[-1]}={markdown.say(axes[k])}"
        for k in keys
        if k in axes
    ]
    return ", ".join(words)


def _varying(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return tables.varying([row["axes"] for row in rows]) or ["model"]


def _style(rows: Sequence[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], str]:
    """The style of a run's line, by what runs differ in besides the model: that is told by colour."""
    keys = [k for k in _varying(rows) if k != "model"]
    names = list(dict.fromkeys(_name(row["axes"], keys) for row in rows))
    return lambda row: STYLES[names.index(_name(row["axes"], keys)) % len(STYLES)]


def _legend(one: Any) -> None:
    if one.get_legend_handles_labels()[1]:
        one.legend(frameon=False, fontsize=8)


def _cells(one: Any, found: report.Report, profile: str, table: Mapping[str, Any]) -> None:
    """A line for each cell (or configuration): the paper's value with its spread, and every seed of ours."""
    if profile == "paper":
        lines = [
            (": ".join(filter(None, [c.printed.get("label"), _name(where, list(where))])), c)
            for c in found.cells for where in [c.printed.get("where", {})]
        ]  # fmt: skip
    else:
        rows, keys = found.rows[profile], _varying(found.rows[profile])
        names = dict.fromkeys(_name(row["axes"], keys) for row in rows)
        name = verdict.full_name(table["metric"], table)
        lines = []
        for text in names:
            mine = [r for r in rows if _name(r["axes"], keys) == text]
            values = [(r["seed"], r[name] * verdict.scale({}, table)) for r in mine if r.get(name) is not None]
            lines.append((text, verdict.Cell({"where": mine[0]["axes"], "value": None}, values)))
    for k, (_, cell) in enumerate(lines):
        printed = cell.printed
        if printed["value"] is not None:
            spread = printed.get("sd") or printed.get("se")
            look = {"fmt": "D", "mfc": "white", "color": "#222222", "ms": 6, "capsize": 3, "lw": 1}
            one.errorbar(printed["value"], k, xerr=spread, **look)
        for _, value in cell.values:
            one.plot(value, k, "o", zorder=4, color=colour(printed.get("where", {})), ms=5, alpha=0.75)
    one.set_yticks(range(len(lines)), [text for text, _ in lines], fontsize=8)
    numbers = [cell.printed["value"] for _, cell in lines if cell.printed["value"] is not None]
    if numbers and 0 < 30 * min(numbers) < max(numbers):  # such as perplexities of frequent and of rare words
        one.set_xscale("log")
    paper = "diamonds: the paper, with its spread; " if any(c.printed["value"] is not None for _, c in lines) else ""
    one.set_xlabel(f"{table['metric']} ({table['unit']})\n{paper}dots: ours, one a seed", fontsize=9)
    one.set_ylim(len(lines) - 0.4, -0.6)
    one.grid(axis="y", color="#eeeeee")


def _curves(one: Any, found: report.Report, profile: str, table: Mapping[str, Any]) -> None:
    """Each run's curve over training, and the groups by colour."""
    settings = table["figure"]
    rows = found.rows[profile]
    keys = _varying(rows)
    metric = settings.get("metric", table["metric"].replace("test/", "valid/"))
    style, seen = _style(rows), set()
    for row in rows:
        points = [p for p in report.curve(found.table, row) if p.get(metric) is not None]
        text = _name(row["axes"], keys)
        one.plot(
            [p["step"] for p in points], [p[metric] for p in points], style(row), color=colour(row["axes"]), lw=1.5,
            alpha=0.8, label=None if text in seen else text,
        )  # fmt: skip
        seen.add(text)
    if "chance" in settings and profile == "paper":
        one.axhline(settings["chance"], color="#bbbbbb", ls=":", lw=1, label="chance")
    if counted := re.match(rf"steps to {re.escape(metric)} [<>]=? (\S+)", table["metric"]):
        one.axhline(float(counted[1]), color="#555555", ls=":", lw=1, label=f"threshold {counted[1]}")
    one.set(xlabel="training steps", ylabel=metric, yscale=settings.get("yscale", "linear"), xlim=(0, None))
    _legend(one)


def _line(one: Any, found: report.Report, profile: str, table: Mapping[str, Any]) -> None:
    """The metric over one of the table's keys: means, and every seed as a dot."""
    key, rows = table["figure"]["x"], found.rows[profile]
    metric = verdict.full_name(table["figure"].get("metric", table["metric"]), table)
    unit = verdict.scale({}, table) if metric == verdict.full_name(table["metric"], table) else 1.0
    rest = [k for k in _varying(rows) if k != key] or ["model"]
    for text in dict.fromkeys(_name(row["axes"], rest) for row in rows):
        mine = [r for r in rows if _name(r["axes"], rest) == text and r.get(metric) is not None and key in r["axes"]]
        if not mine:
            continue
        xs = sorted({r["axes"][key] for r in mine})
        means = [statistics.fmean(r[metric] * unit for r in mine if r["axes"][key] == x) for x in xs]
        one.plot(xs, means, "-", color=colour(mine[0]["axes"]), lw=1.5, label=text)
        xs, ys = [r["axes"][key] for r in mine], [r[metric] * unit for r in mine]
        one.plot(xs, ys, "o", color=colour(mine[0]["axes"]), ms=4, alpha=0.6)
    scales = {name: table["figure"].get(name, "linear") for name in ("xscale", "yscale")}
    one.set(xlabel=key, ylabel=metric, **scales)
    _legend(one)


def _probe(one: Any, found: report.Report, profile: str, table: Mapping[str, Any]) -> None:
    """Values "probe/<name>/<x>" of each run over x: the mean of a group, with its standard error as a band."""
    settings, rows = table["figure"], found.rows[profile]
    prefix = f"probe/{settings['probe']}/"
    keys, style = _varying(rows), _style(rows)
    for text in dict.fromkeys(_name(row["axes"], keys) for row in rows):
        mine = [r for r in rows if _name(r["axes"], keys) == text]
        names = {k.removeprefix(prefix) for r in mine for k in r if k.startswith(prefix) and r[k] is not None}
        xs = sorted(float(x) for x in names if x.replace(".", "", 1).isdigit())  # a curve's "mean" is no place on it
        if not xs:
            continue
        values = [[r[k] for r in mine for k in (prefix + f"{x:g}",) if r.get(k) is not None] for x in xs]
        means = [statistics.fmean(v) for v in values]
        errors = [statistics.stdev(v) / len(v) ** 0.5 if len(v) > 1 else 0.0 for v in values]
        label = f"{text} (n={len(mine)})"
        band(one, xs, means, errors, colour(mine[0]["axes"]), ls=style(mine[0]), ms=3, lw=1.5, label=label)
    one.set(xlabel=settings["xlabel"], ylabel=settings["ylabel"], xscale=settings.get("xscale", "linear"))
    _legend(one)
