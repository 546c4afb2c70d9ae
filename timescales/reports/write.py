"""Write a report to disk: runs.csv, curves/, blocks/, table.md and its pictures."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from timescales.config import folders
from timescales.files import csv_text, make_folder, write_atomic
from timescales.plotting import fixed_style, small_png
from timescales.reports import figures, forest, markdown
from timescales.reports.gather import thinned
from timescales.reports.report import Report
from timescales.runs import store

POINTS = 200  # of a committed curve, at most; with the first and the last
PICTURES = {"figure.png": figures.draw, "verdicts.png": forest.verdicts, "ladder.png": forest.ladder}


def write(report: Report) -> list[Path]:
    """Write the files of a table, without its pictures. Return their paths.

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


def draw(report: Report) -> None:
    """Draw figure.png, verdicts.png and ladder.png of a table, unless they are drawn already."""
    baselines = any(figure.trivial_baselines for figure in report.table.figure)
    if baselines and (report.own or report.table.needs):  # by data, or by a task of the user's: `shown` has neither
        pictures(report)
    else:
        unless_drawn(report.folder, [*PICTURES], shown(report), lambda: pictures(report))


@fixed_style()
def pictures(report: Report) -> list[Path]:
    """Write the pictures that have something to show, at most 200 KB each; remove the others. Return their paths."""
    make_folder(report.folder)
    drawn = {report.folder / name: draw(report) for name, draw in PICTURES.items()}
    for path, figure in drawn.items():
        if figure is None:
            path.unlink(missing_ok=True)
        else:
            write_atomic(path, small_png(figure))
    return [path for path, figure in drawn.items() if figure is not None]


def shown(report: Report) -> list[object]:
    """Return what the pictures of a table depend on: its file, its runs, and their curves if they are drawn."""
    path = folders.file("table", report.table.name)
    curves = any(figure.kind == "curves" for figure in report.table.figure)
    return [path and path.read_text(), report.rows, [report.curve(row) for row in report.all_rows if curves]]


def unless_drawn(folder: Path, names: Sequence[str], shown: object, draw: Callable[[], object]) -> None:
    """Draw pictures, unless what they show, the code and the pictures are as after the last drawing here."""

    def state() -> str:
        drawn = [(folder / name).read_bytes() for name in names if (folder / name).is_file()]
        return hashlib.sha256(repr([_code(), shown, drawn]).encode()).hexdigest()

    make_folder(folder)
    note = folder / ".drawn"  # git ignores it
    if not note.is_file() or note.read_text() != state():
        draw()
        write_atomic(note, state().encode())


@functools.cache
def _code() -> list[str]:
    """Return the code that judges and draws, that of the tasks' baselines, and the version of matplotlib."""
    package = Path(__file__).parents[1]
    names = ("plotting.py", "nn/registry.py", "runs/metrics.py")  # the styles, the colours, the numbers that are drawn
    folders = ("papers", "reports", "tasks")
    paths = [*(package / name for name in names), *(path for each in folders for path in package.glob(f"{each}/*.py"))]
    return [metadata.version("matplotlib"), *(path.read_text() for path in sorted(paths))]
