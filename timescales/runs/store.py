"""Read and write the committed runs under results/, as rows of runs.csv."""

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from timescales import paths
from timescales.config.run import Axes
from timescales.errors import ConfigError
from timescales.files import csv_rows, csv_text
from timescales.runs import provenance
from timescales.runs.metrics import Censored, is_steps, metric
from timescales.runs.record import Record


@dataclass(frozen=True, kw_only=True)
class Row:
    """Hold a run that has ended, as reports read it. Most fields are columns of results/<table>/runs.csv, in its order.

    values: the value of each metric that the table reads, None if there is none; in the file a column for each metric.
    The file does not have the following fields, which need the run's directory in runs/:
    curve: the points of the run's curve. blocks: the text of its blocks.csv. directory: its directory.
    """

    id: str
    rung: str = "paper"  # or the name of a rung of the table's ladder
    status: str
    seed: int
    axes: Axes  # with the seed, which stands in a column of its own in runs.csv
    steps: int | None = None
    diverged_at: int | None = None
    parameters: int | None = None
    seconds: float = 0.0
    device: str | None = None
    threads: int | None = None
    machine: str | None = None
    commit: str | None = None
    golden: str | None = None
    partial: str = ""
    run: str = ""  # task/model, and users' classes
    values: Mapping[str, float | None] = field(default_factory=dict)
    curve: Sequence[Mapping[str, float]] = ()
    blocks: str | None = None
    directory: Path | None = None

    def value(self, column: str) -> float | None:
        """Return the value of a metric; None if it has none."""
        return self.values.get(column)

    @functools.cached_property
    def stale(self) -> bool:
        """Return whether the run would have other numbers today, because its code has changed since."""
        return bool(self.run) and provenance.changed(self.golden, self.run.split("/"))


# The columns of runs.csv before those of metrics.
COLUMNS = tuple(each.name for each in fields(Row) if each.name not in ("values", "curve", "blocks", "directory"))


def row(record: Record, axes: Axes, size: str, metrics: Iterable[str]) -> Row:
    """Convert a record to a row of runs.csv.

    Args:
        size: "paper" or the name of a rung, the value of its column "rung".
        metrics: as a table names them; a column each.
    """
    copied = ("id", "status", "seed", "steps", "diverged_at", "parameters", "device", "threads", "machine", "commit")
    return Row(
        **{key: getattr(record, key) for key in (*copied, "golden")},
        rung=size,
        axes=axes,
        seconds=round(record.seconds, 1),
        partial="; ".join(record.partial),
        run="/".join(provenance.names(record.config)),
        values={name: metric(record, name) for name in metrics},
    )


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a runs.csv; [] if there is no file. Raises ConfigError for another file of this name."""
    if not path.exists():
        return []
    status = path.stat()
    return list(_rows(path, status.st_mtime_ns, status.st_size))


@functools.lru_cache(maxsize=256)
def _rows(path: Path, written: int, size: int) -> tuple[Row, ...]:
    """Parse a runs.csv. Cached until the file changes: a report of all tables reads every file once for each table."""
    lines = csv_rows(path)
    if lines and not lines[0].keys() >= set(COLUMNS):
        raise ConfigError(f"{path} is not a file of timescales-report: give another folder, --out FOLDER")
    return tuple(_read(line) for line in lines)


def _read(line: Mapping[str, str]) -> Row:
    read = {key: _value(key, text) for key, text in line.items()}
    columns = {key: read.pop(key) for key in COLUMNS}
    axes = {**json.loads(columns.pop("axes")), "seed": columns["seed"]}
    return Row(**columns, axes=axes, values=read)


def _value(key: str, text: str) -> Any:
    """Convert the text of a field: numbers to int or float, an empty field to None."""
    if text == "":
        return None if key != "partial" else ""
    if key in ("seed", "steps", "parameters", "threads", "diverged_at") or is_steps(key):
        return Censored(text[1:]) if text.startswith(">") else int(text)
    return text if key in COLUMNS and key != "seconds" else float(text)


def rows_text(rows: Sequence[Row]) -> str:
    """Write rows as the text of a runs.csv. A metric without a value in any row gets no column."""
    names = sorted({name for line in rows for name, value in line.values.items() if value is not None})
    lines = []
    for line in rows:
        columns = {key: getattr(line, key) for key in COLUMNS}
        axes = {key: value for key, value in line.axes.items() if key != "seed"}
        lines.append(columns | {"axes": json.dumps(axes)} | {name: line.value(name) for name in names})
    return csv_text(lines, [*COLUMNS, *names])


def committed(results: Path | None = None) -> dict[str, Row]:
    """Read the committed runs of all tables under `results` (default: results/), by id.

    A run that is in several tables has the values of all of them.
    """
    found = sorted((results or paths.RESULTS).glob("*/runs.csv"))
    return _committed(tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in found))


@functools.lru_cache(maxsize=4)  # a report of all tables asks for it for each table
def _committed(files: Sequence[tuple[Path, int, int]]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for line in (line for file in files for line in _rows(*file)):
        known = found.get(line.id, line)
        of_training = ("commit", "golden", "seconds", "status")  # the same in all rows of one training
        if all(getattr(known, key) in (None, getattr(line, key)) for key in of_training):
            found[line.id] = _joined(known, line)  # else it was trained twice: their values are never mixed
    return found


def _joined(known: Row, line: Row) -> Row:
    """Combine two rows of the same training into one."""
    columns = {key: value for key in COLUMNS if (value := getattr(line, key)) is not None}
    values = {key: value for key, value in {**known.values, **line.values}.items() if value is not None}
    return replace(known, **columns, values=values)
