"""Read all committed runs and verdicts as pandas tables: `timescales.results()`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from timescales import paths
from timescales.errors import ConfigError
from timescales.reports import verdicts
from timescales.runs import store
from timescales.runs.metrics import Censored, is_steps

if TYPE_CHECKING:  # imported only where it is used, because training does not need it
    import pandas


class Results(NamedTuple):
    """What `results` returns."""

    runs: pandas.DataFrame
    verdicts: pandas.DataFrame


def results(folder: str | os.PathLike | None = None) -> Results:
    """Read all runs and verdicts of a folder of results.

    runs: a row for each run of each table; a run that several tables share is in each of them. Columns: `table`, `size`
    (paper, or the name of a rung), the other columns of runs.csv, and one for each setting that the table varies
    ("model", "task.T"). Metrics are in the unit of records, an accuracy as a fraction. A run that never reached a
    threshold has its last step in the column "steps to ..." and True in "steps to ..., never". verdicts: a row for each
    verdict, with the fields of `reports.verdicts.Line`.

    Args:
        folder: results/ of a checkout, or your own (the FOLDER of `timescales-report`). By default that of the checkout
            or, in an installation, of the current folder.

    Raises ConfigError if there are no results. An installation has none.
    """
    import pandas

    place = Path(folder or paths.results())
    rows: list[dict[str, object]] = []
    for path in sorted(place.glob("*/runs.csv")):
        for row in store.read_rows(path):
            columns = {key: getattr(row, key) for key in store.COLUMNS if key not in ("axes", "rung")}
            rows.append({"table": path.parent.name, "size": row.rung, **columns, **row.values, **row.axes})
    judged = verdicts.read(place)
    if not rows and not judged:
        raise ConfigError(
            paths.lost_results(place)
            or f"no results in {place.resolve()}: an installation has none; give results/ of a checkout, "
            "timescales.results(FOLDER), or write your own with timescales-report"
        )
    runs = pandas.DataFrame(rows)
    for name in filter(is_steps, list(runs)):  # of Censored values pandas makes plain numbers
        runs[f"{name}, never"] = [isinstance(row.get(name), Censored) for row in rows]
    return Results(runs, pandas.DataFrame(judged))
