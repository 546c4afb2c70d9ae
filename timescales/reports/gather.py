"""Read the rows of a table's runs: from runs/, else as committed in results/. Never trains."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from timescales import errors
from timescales.config.compose import Composer
from timescales.config.run import Run
from timescales.experiment import plan
from timescales.files import csv_rows
from timescales.papers.table import Rung, Table, columns, expand, metric_of
from timescales.runs import cost, found, store
from timescales.runs.record import ENDED, Record
from timescales.runs.store import Row


def planned_runs(table: Table, composer: Composer) -> tuple[dict[str, list[Run]], list[str]]:
    """Compose the runs of a table by size. Also return a line for each run that cannot be composed here."""
    found = {size: plan.table_runs(table, size, composer) for size in table.sizes}
    missing = dict.fromkeys(line for _, wrong in found.values() for line in wrong)
    return {size: runs for size, (runs, _) in found.items()}, list(missing)


def gather(
    table: Table,
    planned: Mapping[str, Sequence[Run]],
    results_dir: Path,
    runs_dir: Path | None,
    out: Path | None = None,
) -> tuple[dict[str, list[Row]], int]:
    """Read the rows of the runs that have ended, by size. Also count the committed runs that the table no longer has.

    Runs are found by their ids: first in `runs_dir` (if it is not None), then as committed in `results_dir`, then in
    the last report in `out`, so that a report keeps the numbers of runs whose directories were deleted. A run that is
    in training, or that stopped with an error, has no result yet and is open.
    """
    own = {row.id: row for row in store.read_rows(results_dir / table.name / "runs.csv")}
    last = {row.id: row for row in store.read_rows(out / table.name / "runs.csv")} if out else {}
    committed = store.committed(results_dir) | own
    names, prefixes = columns(table), tuple(f"probe/{name}/" for name in table.probe)
    rows: dict[str, list[Row]] = {}
    for size, of_size in planned.items():
        rows[size] = []
        for run in of_size:
            directory = runs_dir / run.name if runs_dir else None
            last_row = last.get(run.id) if directory is None or not directory.exists() else None
            state = found.read_state(directory, committed.get(run.id, last_row))
            if isinstance(saved := state.outcome, Record) and directory:
                further = [key for probe in saved.probes if (key := f"probe/{probe}").startswith(prefixes)]
                row = store.row(saved, run.axes, size, dict.fromkeys([*names, *further]))
                blocks = _text(directory / "blocks.csv")
                rows[size].append(replace(row, curve=saved.curve, blocks=blocks, directory=directory))
            elif isinstance(saved, Row):  # only the values that this table reads
                further = [key for key in saved.values if key.startswith(prefixes)]
                values = {key: saved.value(key) for key in [*names, *further]}
                name = f"{table.name}/blocks/{run.id}.csv"
                blocks = _text(results_dir / name) or (_text(out / name) if out else None)
                rows[size].append(replace(saved, values=values, blocks=blocks, axes=run.axes, rung=size))
    return rows, len(set(own) - {run.id for of_size in planned.values() for run in of_size})


def _text(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


def open_runs(
    table: Table, planned: Sequence[Run], rows: Sequence[Row], results_dir: Path
) -> list[tuple[Run, float | None]]:
    """Return the planned runs that have not ended, each with the seconds that it will take (None if unknown).

    Args:
        table: at the size of the runs. A rung may state how many steps a run typically takes.
        rows: the rows of the runs that have ended.
    """
    ended = {row.id for row in rows if row.status in ENDED and not row.stale}
    todo = [run for run in planned if run.id not in ended]
    if not todo:
        return []  # the keys of a thousand runs take a second
    keys, steps = {run.id: run.cost_key for run in planned}, table.steps if isinstance(table, Rung) else None
    seconds = cost.prices(((keys[row.id], row) for row in rows), results_dir, steps)
    return [(run, seconds.get(run.cost_key)) for run in todo]


def unread(table: Table, planned: Mapping[str, Sequence[Run]], runs_dir: Path) -> list[str]:
    """Return a line for each metric that a table reads and none of its runs has: probably a typing error.

    Sizes that do not have all their runs in `runs_dir` are skipped.
    """
    lines: dict[str, None] = {}
    for size, part in table.sizes.items():
        records = [saved for run in planned[size] if (saved := Record.read(runs_dir / run.name))]
        if len(records) < len(expand(table, size)):
            continue
        have = {key for saved in records for key in itertools.chain(saved.metrics, saved.last, *saved.curve)}
        for name in columns(part):
            metric = metric_of(name)
            if metric not in have and not name.startswith("probe/"):
                lines[f"none of its {len(records)} runs here has {metric}{errors.nearest(metric, have)}"] = None
    return list(lines)


def curve(run_id: str, table: str, results: Path, out: Path) -> list[dict[str, float]]:
    """Read a run's curve: that of a table in `results`, else in `out`, else of another table in `results`, or none."""
    own = (place / table / "curves" / f"{run_id}.csv" for place in (results, out))
    paths = [path for path in own if path.is_file()] or sorted(results.glob(f"*/curves/{run_id}.csv"))
    return [{key: float(text) for key, text in row.items() if text} for path in paths[:1] for row in csv_rows(path)]


def thinned(points: Sequence[Any], most: int) -> Sequence[Any]:
    """Return at most `most` points of a curve, evenly spaced, including the first and the last."""
    if len(points) <= most:
        return points
    return [points[round(k * (len(points) - 1) / (most - 1))] for k in range(most)]
