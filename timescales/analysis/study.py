"""What an analysis returns, and how it is written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timescales.files import csv_text, write_atomic

if TYPE_CHECKING:
    pass


class Answer(dict[str, float]):
    """A probe's numbers, and its `files`, texts by name that are kept beside the record."""

    def __init__(self, values: Mapping[str, float], files: Mapping[str, str]) -> None:
        super().__init__(values)
        self.files = files


@dataclass
class Study:
    """What a question's answer leaves.

    title: what the picture shows, in one line; the run's own words are put under it.
    rows: a line each of NAME.csv; values: the few numbers to remember.
    draw: is given an empty matplotlib figure (`plots.panels` puts axes into it) and makes NAME.png of it.
    notes: what a reader of the values must know, a line each.
    """

    title: str
    rows: list[dict[str, Any]]
    values: Mapping[str, float]
    draw: Callable[[Any], None]
    notes: Sequence[str] = ()


def write(found: Study, folder: Path, name: str, svg: bool = False) -> list[Path]:
    """NAME.csv, NAME.png and, on request, NAME.svg in a folder; returns their paths."""
    from timescales import plotting

    folder.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(key for row in found.rows for key in row))
    write_atomic(folder / f"{name}.csv", csv_text(found.rows, columns).encode())
    return [folder / f"{name}.csv", *plotting.write(found.draw, folder / name, found.title, svg)]


def progress(items: Iterable[Any], label: str, total: int | None = None) -> Iterable[Any]:
    """The items, with a bar for those who wait longer than two seconds."""
    from tqdm import tqdm

    quiet = not sys.stderr.isatty()
    return tqdm(items, label, total, leave=False, delay=2.0, dynamic_ncols=True, mininterval=30.0 if quiet else 0.2)
