"""The runs that are committed under results/, as rows of runs.csv. Imports no torch and no pandas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from timescales import paths
from timescales.errors import ConfigError
from timescales.files import csv_rows, csv_text
from timescales.runs import provenance
from timescales.runs.metrics import Censored, is_steps, metric
from timescales.runs.record import ENDED

# The columns of results/<table>/runs.csv before those of metrics; the axes are one JSON column.
COLUMNS = (
    *("id", "profile", "status", "seed", "axes", "steps", "diverged_at", "parameters"),
    *("seconds", "device", "threads", "machine", "commit", "golden", "partial", "run"),
)
# Columns that are the record's values.
COPIED = ("id", "status", "seed", "parameters", "device", "threads", "machine", "commit", "golden")


def row(record: Mapping[str, Any], axes: Mapping[str, Any], size: str, metrics: Iterable[str]) -> dict[str, Any]:
    """A record as a row of runs.csv.

    Args:
        size: "paper" or "tiny", the value of its column "profile".
        metrics: as a table names them; a column each.
    """
    config = record["config"]
    values = {key: record[key] for key in COPIED} | {
        "profile": size,
        "axes": json.dumps({k: v for k, v in axes.items() if k != "seed"}),
        "steps": record.get("steps"),
        "diverged_at": record.get("diverged_at"),
        "seconds": round(record["seconds"], 1),
        "partial": "; ".join(record["partial"]),
        "run": "/".join(provenance.names(config)),
    }
    return {key: values[key] for key in COLUMNS} | {name: metric(record, name) for name in metrics}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a runs.csv, numbers as numbers, empty fields as None; no rows if there is no file.

    Raises ConfigError for another file of this name.
    """
    lines = csv_rows(path)
    if lines and not lines[0].keys() >= set(COLUMNS):
        raise ConfigError(f"{path} is not a report's: choose another folder of reports, --out FOLDER")
    return [{key: _value(key, text) for key, text in line.items()} for line in lines]


def _value(key: str, text: str) -> Any:
    if text == "":
        return None if key != "partial" else ""
    if key in ("seed", "steps", "parameters", "threads", "diverged_at") or is_steps(key):
        return Censored(text[1:]) if text.startswith(">") else int(text)
    return text if key in COLUMNS and key != "seconds" else float(text)


def rows_text(rows: list[dict[str, Any]]) -> str:
    """Rows as the text of a runs.csv. What no row has a value of makes no column."""
    known = {key for line in rows for key, value in line.items() if value is not None}
    names = list(COLUMNS) + sorted(known - set(COLUMNS))
    return csv_text([{name: line.get(name) for name in names} for line in rows], names)


def committed(results: Path | None = None) -> dict[str, dict[str, Any]]:
    """All rows under `results` (results/) by the run's id; of a run in several tables with the values of all."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((results or paths.RESULTS).glob("*/runs.csv")):
        for line in read_rows(path):
            known = found.setdefault(line["id"], {})
            if any(known.get(key, line[key]) != line[key] for key in ("commit", "golden", "seconds", "status")):
                continue  # trained twice: values of two trainings are never mixed
            known.update({key: value for key, value in line.items() if value is not None})
    return {run_id: dict.fromkeys(COLUMNS) | line for run_id, line in found.items()}


def counts(line: Mapping[str, Any], allow_partial: bool) -> bool:
    """Whether a committed row counts as its run: it has ended, on the whole data unless a part will do."""
    return line["status"] in ENDED and (allow_partial or not line["partial"])


def stale(line: Mapping[str, Any]) -> bool:
    """Whether a committed row's numbers are not today's."""
    return provenance.changed(line["golden"], line["run"].split("/"))
