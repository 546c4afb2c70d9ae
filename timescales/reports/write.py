"""A report on disk: runs.csv, curves/, blocks/ and table.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from timescales.files import csv_text, make_folder, write_atomic
from timescales.reports import markdown
from timescales.reports.gather import thinned
from timescales.reports.report import Report
from timescales.runs import store
from timescales.runs.store import Row

POINTS = 200  # of a committed curve


def write(report: Report) -> list[Path]:
    """Write the files of a table; returns their paths (pictures: figures.py). Without any runs there is the page only.

    Where a run's row goes, its curve and blocks stay: another table may draw them. No row goes while some runs of the
    table cannot be composed here (`report.missing`): it may be one of theirs.
    """
    folder, rows = report.folder, every_row(report)
    ids = {row.id for row in rows}
    kept = [row for row in store.read_rows(folder / "runs.csv") if report.missing and row.id not in ids]
    make_folder(folder / "curves" if rows else folder)
    files = {folder / "table.md": markdown.table(report)}
    if rows or kept:
        files[folder / "runs.csv"] = store.rows_text([*rows, *kept])
    files |= {folder / "curves" / f"{row.id}.csv": _curve(row.curve) for row in rows if row.curve}
    files |= {folder / "blocks" / f"{row.id}.csv": row.blocks for row in rows if row.blocks}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.encode())
    return list(files)


def every_row(report: Report) -> list[Row]:
    """The rows of all sizes; a run of several rungs stands in each."""
    return [row for rows in report.rows.values() for row in rows]


def _curve(points: Sequence[Mapping[str, float]]) -> str:
    """A curve as CSV, at most POINTS lines of it, the first and the last among them."""
    points = thinned(points, POINTS)
    names = list(dict.fromkeys(key for point in points for key in point))
    return csv_text(points, names)
