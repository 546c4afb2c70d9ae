"""Draw pictures, unless they are drawn already: those of all tables take a minute."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from timescales.config import folders
from timescales.files import make_folder, write_atomic
from timescales.plotting import fixed_style, small_png
from timescales.reports import figures, forest
from timescales.reports.report import Report

PICTURES = {"figure.png": figures.draw, "verdicts.png": forest.verdicts, "ladder.png": forest.ladder}
NOTE = ".drawn"  # beside the pictures; git ignores it


def draw(report: Report) -> None:
    """Draw figure.png, verdicts.png and ladder.png of a table, unless they are drawn already."""
    unless_drawn(report.folder, [*PICTURES], shown(report), lambda: write(report))


@fixed_style()
def write(report: Report) -> list[Path]:
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
        pictures = [(folder / name).read_bytes() for name in names if (folder / name).is_file()]
        return hashlib.sha256(repr([_code(), shown, pictures]).encode()).hexdigest()

    make_folder(folder)
    note = folder / NOTE
    if not note.is_file() or note.read_text() != state():
        draw()
        write_atomic(note, state().encode())


@functools.cache
def _code() -> list[str]:
    """Return the code that judges and draws, and the version of matplotlib."""
    package = Path(__file__).parents[1]
    names = ("plotting.py", "nn/registry.py", "runs/metrics.py")  # the styles, the colours, the numbers that are drawn
    folders = ("papers", "reports")
    paths = [*(package / name for name in names), *(path for each in folders for path in package.glob(f"{each}/*.py"))]
    return [metadata.version("matplotlib"), *(path.read_text() for path in sorted(paths))]
