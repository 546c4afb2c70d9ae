"""Where finished runs are found again: in runs/, and in the tables committed under results/. No torch, no pandas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from timescales import paths
from timescales.files import csv_rows, csv_text
from timescales.runs import provenance, record
from timescales.runs.metrics import Censored, metric

# What a row of results/<table>/runs.csv says of a run beside its metrics; its axes are one JSON column.
COLUMNS = (
    "id", "profile", "status", "seed", "axes", "steps", "diverged_at", "parameters", "seconds", "device", "threads",
    "machine", "commit", "golden", "partial", "run",
)  # fmt: skip


def row(
    found: Mapping[str, Any], axes: Mapping[str, Any], profile: str | None, metrics: Iterable[str]
) -> dict[str, Any]:
    """A record as a row of runs.csv; `metrics` as a table names them."""
    kind = f"{found['config']['task']['name']}/{found['config']['model']['name']}"
    values = {
        "id": found["id"], "profile": profile or "paper", "status": found["status"], "seed": found["seed"],
        "axes": json.dumps({k: v for k, v in axes.items() if k != "seed"}), "steps": found.get("steps"),
        "diverged_at": found.get("diverged_at"), "parameters": found["parameters"],
        "seconds": round(found["seconds"], 1), "device": found["device"], "threads": found["threads"],
        "machine": found["machine"], "commit": found["commit"], "golden": found["golden"],
        "partial": "; ".join(found["partial"]), "run": kind,
    }  # fmt: skip
    return values | {name: metric(found, name) for name in metrics}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a runs.csv, numbers as numbers, empty fields as None; no rows if there is no file."""
    return [{key: _value(key, text) for key, text in line.items()} for line in csv_rows(path)]


def _value(key: str, text: str) -> Any:
    if text == "":
        return None if key != "partial" else ""
    if key in ("seed", "steps", "parameters", "threads", "diverged_at") or key.startswith("steps to "):
        return Censored(text[1:]) if text.startswith(">") else int(text)
    return text if key in COLUMNS and key != "seconds" else float(text)


def rows_text(rows: list[dict[str, Any]]) -> str:
    """Rows as the text of a runs.csv."""
    names = list(COLUMNS) + sorted({key for line in rows for key in line} - set(COLUMNS))
    return csv_text(rows, names)


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
    """Whether a committed row stands for its run: it has ended, on the whole data unless a part of them will do."""
    return line["status"] in record.ENDED and (allow_partial or not line["partial"])


def stale(line: Mapping[str, Any]) -> bool:
    """Whether a committed row's numbers are not today's."""
    task, _, model = line["run"].partition("/")
    return line["golden"] != provenance.golden(task, model)
