"""Read series from the user's CSV or parquet file, which has a row for each time of each series, as arrays.

Rows are counted as a spreadsheet shows them: in a CSV file row 1 is the header, in a parquet file row 1 is the first.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from timescales.errors import nearest
from timescales.tasks.data import own

MISSING = ("nan", "na", "n/a", "null", "none", "nat")  # gaps in a column of numbers, also in upper case; else words
OFFSET = "2024-10-27T02:30+01:00"  # a time with its UTC offset, for messages


class Columns(NamedTuple):
    """The columns of a file with R rows: their cells, as text or as parquet has them, and the number of each row."""

    path: Path
    cells: dict[str, list[Any]]
    rows: Sequence[int]

    def error(self, k: int, message: str) -> ValueError:
        """Return a ValueError about row k of the arrays."""
        return ValueError(f"{self.path}, row {self.rows[k]:,}: {message}")


class Series(NamedTuple):
    """The series of a file, one after another.

    names: names of the series.
    begins: where each series begins, and the number R of rows.
    time: (R,), increasing within a series.
    dates: whether the times are seconds since 1970.
    inputs: (R, I), NaN where a number is missing.
    target: (R,), NaN where a number is missing; for classification the number of each series' class.
    classes: names of the classes.
    rows: the number of each row in the file, (R,).
    """

    names: list[str]
    begins: np.ndarray
    time: np.ndarray
    dates: bool
    inputs: np.ndarray
    target: np.ndarray
    classes: list[str]
    rows: np.ndarray


def read(
    path: Path, *, time: str | None, identity: str | None, inputs: Sequence[str], target: str, labels: bool
) -> Series:
    """Return the series of a file.

    Arguments:
        identity: the column that names a row's series.
        labels: whether target is a class.

    Raises: ValueError, with the file, the row and what to do, for a file that cannot be used.
    """
    columns = _columns(path, list(dict.fromkeys(name for name in (time, identity, *inputs, target) if name)))
    n = len(columns.rows)
    ids = _texts(columns, identity, "task.id") if identity else ["all rows"] * n
    number = {name: k for k, name in enumerate(dict.fromkeys(ids))}
    of_row = np.array([number[name] for name in ids])
    order = of_row.argsort(kind="stable")  # the rows of each series, in the order of the file
    begins = np.searchsorted(of_row[order], np.arange(len(number) + 1))
    if time:
        times = _times(columns, time)
        _check_order(columns, times, of_row, order, list(number))
    else:
        times = Times(np.empty(n), False, False)
        times.values[order] = np.arange(n) - begins[of_row[order]]
    values = np.stack([_numbers(columns, name) for name in inputs], 1)
    classes: list[str] = []
    if labels:
        answers, classes = _classes(columns, target, of_row, list(number))
    else:
        answers = _numbers(columns, target)
    rows = np.array(columns.rows)[order]
    return Series(list(number), begins, times.values[order], times.dates, values[order], answers[order], classes, rows)


def _columns(path: Path, wanted: list[str]) -> Columns:
    kind = path.suffix.lower()
    if kind in (".parquet", ".pq"):
        names, take, rows = _parquet(path)
    elif kind in (".csv", ".tsv", ".txt"):
        names, take, rows = _csv(path)
    else:
        raise ValueError(f"{path} is neither .csv nor .parquet: save the table as one of them, with that ending")
    if missing := [name for name in wanted if name not in names]:
        # After a quotation mark that is not closed, the rest of the file is one name.
        shown = [re.sub(r"\n.*", " ...", name, flags=re.DOTALL) for name in names]
        hint = nearest(missing[0], shown) or f"; its columns are {', '.join(shown)}"
        raise ValueError(f"{path} has no column {missing[0]!r}{hint}")
    if not rows:
        raise ValueError(f"{path} has no rows below its header: give a file with data")
    return Columns(path, {name: take(name) for name in wanted}, rows)


def _csv(path: Path) -> tuple[list[str], Callable[[str], list[Any]], list[int]]:
    text = own.read_text(path)
    first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=first.count))
    lines, rows = [], []
    try:
        names = [name.strip() for name in next(reader)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{path}, row 1: two columns are called {twice[0]!r}: give each its own name")
        for line in reader:
            if line:  # else an empty line
                if len(line) != len(names):
                    raise ValueError(
                        f"{path}, row {reader.line_num:,}: {len(line)} cells, but the header has {len(names)}: "
                        "fill or quote the cells of this row"
                    )
                lines.append(line)
                rows.append(reader.line_num)
    except csv.Error as error:
        raise ValueError(f"{path}, row {reader.line_num:,}: {error}: correct the row") from error
    by_name = dict(zip(names, zip(*lines, strict=True), strict=True)) if lines else {}
    return names, lambda name: [cell.strip() for cell in by_name[name]], rows


def _parquet(path: Path) -> tuple[list[str], Callable[[str], list[Any]], Sequence[int]]:
    import pandas

    try:
        frame = pandas.read_parquet(path)
    except ImportError as error:
        raise ValueError(f"{path} needs pyarrow (pip install pyarrow), or save it as CSV") from error
    except Exception as error:  # each engine raises its own
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} cannot be read as parquet ({why}): write it again, or save it as CSV") from error
    frame = frame.reset_index() if any(frame.index.names) else frame  # an index with a name is a column
    frame.columns = [str(name) for name in frame.columns]
    return list(frame.columns), lambda name: list(frame[name]), range(1, len(frame) + 1)


def _is_empty(cell: Any) -> bool:
    """Return whether a cell is empty; in a parquet file also None, NaN, NaT or NA. A word is never empty."""
    if isinstance(cell, str):
        return not cell
    return cell is None or str(cell).lower() in ("nan", "nat", "<na>")


def _texts(columns: Columns, name: str, key: str) -> list[str]:
    """Return the words of a column. `none` and `NA` are words too. Raises ValueError for an empty cell."""
    for k, cell in enumerate(columns.cells[name]):
        if _is_empty(cell):
            raise columns.error(k, f"{name} is empty, and {key} is needed in each row: fill it or leave the row out")
    return [str(cell) for cell in columns.cells[name]]


def _numbers(columns: Columns, name: str) -> np.ndarray:
    """Return the numbers of a column: NaN where the cell is empty or has a word of `MISSING`."""
    found = np.full(len(columns.rows), np.nan)
    for k, cell in enumerate(columns.cells[name]):
        if not (_is_empty(cell) or str(cell).lower() in MISSING):
            try:
                found[k] = float(cell)
            except (TypeError, ValueError) as error:
                fix = "write a number, or leave the cell empty if it is not known"
                if isinstance(cell, str) and "," in cell:
                    fix = "write a point for the decimal comma, and no commas between thousands"
                raise columns.error(k, f"{name} is {cell!r}, which is no number: {fix}") from error
            if math.isinf(found[k]):
                raise columns.error(k, f"{name} is infinite: leave the cell empty if the value is not known")
    return found


class Times(NamedTuple):
    """The times of all rows, (R,): numbers or, for dates, seconds since 1970.

    dates: whether they are dates. local: whether they are times of day without a UTC offset, and so may occur twice.
    """

    values: np.ndarray
    dates: bool
    local: bool


def _times(columns: Columns, name: str) -> Times:
    """Return the times of a column. Dates have a UTC offset in all rows or in none; without one they count as UTC."""
    cells = columns.cells[name]
    try:
        float(cells[0])
        dates = False
    except (TypeError, ValueError):
        dates = True
    found: list[Any] = []
    for k, cell in enumerate(cells):
        if _is_empty(cell):
            raise columns.error(k, f"{name} is empty: fill in the time, or leave the row out")
        try:
            if dates:
                found.append(datetime.fromisoformat(cell if isinstance(cell, str) else cell.isoformat()))
            else:
                found.append(float(cell))
        except (AttributeError, TypeError, ValueError) as error:  # cells of a parquet file may be of any kind
            kind = "date such as 2024-05-31 or 2024-05-31T12:30" if dates else "number"
            like = " as in the first row" if k else ", or a number"
            raise columns.error(k, f"{name} is {cell!r}: give a {kind}{like}") from error
        if not dates and not math.isfinite(found[k]):
            raise columns.error(k, f"{name} is {cell!r}: give a time")
    if not dates:
        return Times(np.array(found), False, False)
    offset = found[0].tzinfo is not None
    for k, date in enumerate(found):
        if (date.tzinfo is not None) != offset:
            what = "without a UTC offset, and the first row has one"
            if not offset:
                what = "with a UTC offset, and the first row has none"
            raise columns.error(k, f"{name} is {cells[k]}, {what}: write one in each row, as in {OFFSET}")
    seconds = np.array([(date if offset else date.replace(tzinfo=UTC)).timestamp() for date in found])
    return Times(seconds, True, not offset and any(date.time() != datetime.min.time() for date in found))


def _check_order(columns: Columns, times: Times, of_row: np.ndarray, order: np.ndarray, names: list[str]) -> None:
    """Raise ValueError for the first row whose time does not come after that of the row before it.

    A local hour occurs twice when clocks go back. For local times the message mentions this first.
    """
    together = of_row[order][1:] == of_row[order][:-1]
    steps = np.diff(times.values[order])
    for at in np.flatnonzero(together & (steps <= 0.0))[:1]:
        before, k = order[at], order[at + 1]
        series = f" of series {names[of_row[k]]}" if len(names) > 1 else ""
        row = f"row {columns.rows[before]:,}"
        if steps[at] == 0.0:
            what = f"the same time as {row}{series}"
            fix = "leave one of them out" if len(names) > 1 else "leave one out, or name the series with task.id=COLUMN"
        else:
            what, fix = f"its time is before that of {row}{series}", "sort the file by time"
        if times.local and steps[at] >= -3600.0:  # clocks go back by at most an hour
            fix = f"if clocks went back here, write each time with its UTC offset, as in {OFFSET}; if not, {fix}"
        raise columns.error(k, f"{what}: {fix}")


def _classes(columns: Columns, name: str, of_row: np.ndarray, names: list[str]) -> tuple[np.ndarray, list[str]]:
    """Return the number of each row's class, and the classes' names, sorted. A series has one class."""
    labels = _texts(columns, name, "task.target")
    of_series: dict[int, str] = {}
    for k, label in enumerate(labels):
        if of_series.setdefault(of_row[k], label) != label:
            was = f"and was {of_series[of_row[k]]!r} before in series {names[of_row[k]]}"
            raise columns.error(k, f"{name} is {label!r} {was}: a series has one class")
    classes = sorted(set(labels))
    if len(classes) < 2:
        raise ValueError(f"{columns.path}: all series are of class {classes[0]!r}: give a file with two or more")
    number = {label: k for k, label in enumerate(classes)}
    return np.array([number[label] for label in labels], float), classes
