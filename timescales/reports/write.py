"""Write a report to disk: runs.csv, curves/, blocks/ and table.md."""

from __future__ import annotations

from pathlib import Path

from timescales.files import csv_text, make_folder, write_atomic
from timescales.reports import markdown
from timescales.reports.gather import thinned
from timescales.reports.report import Report
from timescales.runs import store

POINTS = 200  # of a committed curve, at most; with the first and the last


def write(report: Report) -> list[Path]:
    """Write the files of a table, without its pictures (figures.py). Return their paths.

    Without runs, only the page is written. If a run's row is removed, its curve and blocks stay, because another table
    may draw them. No row is removed while some runs of the table cannot be composed here (`report.missing`), because
    the row may belong to one of them.
    """
    folder, rows = report.folder, [row for of_size in report.rows.values() for row in of_size]
    ids = {row.id for row in rows}
    older = [row for row in store.read_rows(folder / "runs.csv") if report.missing and row.id not in ids]
    make_folder(folder / "curves" if rows else folder)
    files = {folder / "table.md": markdown.table(report)}
    if rows or older:
        files[folder / "runs.csv"] = store.rows_text([*rows, *older])
    for row in (row for row in rows if row.curve):
        points = thinned(row.curve, POINTS)
        files[folder / "curves" / f"{row.id}.csv"] = csv_text(points, list(dict.fromkeys(k for p in points for k in p)))
    files |= {folder / "blocks" / f"{row.id}.csv": row.blocks for row in rows if row.blocks}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.encode())
    return list(files)
