"""What papers print of runs like a given one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

from timescales.analysis.learning_curves import Printed
from timescales.config import Config, compose, folders, identity
from timescales.config.run import Axes
from timescales.papers import load
from timescales.papers.table import Cell, Table, expand, matches
from timescales.training import build

# Of `loop`: how long, and how often it is looked at.
LENGTH = ("max_epochs", "max_steps", "eval_every", "log_every", "max_eval_batches")


def printed(config: Config, horizon: int) -> list[Printed]:
    """What papers print of runs of a configuration, on test or validation data.

    Seeds, lengths, and how often a run is validated may differ.

    Args:
        config: as a run has recorded it.
        horizon: its task's, meant by T_max: auto.
    """

    def alike(cfg: Config) -> str:
        build.fill_horizon(cfg["model"], horizon)
        loop = {key: value for key, value in cfg["loop"].items() if key not in LENGTH}
        return identity.identity({**cfg, "seed": 0, "loop": loop})

    wanted = alike(copy.deepcopy(dict(config)))
    with compose.composing() as composer:

        def is_wanted(table: Table, axes: Axes) -> bool:
            same_task = axes.get("task") == config["task"]["name"]
            return same_task and alike(identity.resolved(composer(load.request(axes)))) == wanted

        tables = map(load.table, folders.choices("table"))
        return [value for table in tables for value in _of_table(table, is_wanted)]


def _of_table(table: Table, is_wanted: Callable[[Table, Axes], bool]) -> Iterator[Printed]:
    """What a table prints of the runs that are wanted."""
    scores = [(cell, metric) for cell in table.cells if (metric := measured(cell))]
    for axes in expand(table, narrow={"seed": [0]}) if scores else []:
        cells = [(cell, metric) for cell, metric in scores if matches(axes, cell.where)]
        for cell, metric in cells if cells and is_wanted(table, axes) else []:
            assert cell.value is not None, "it is a score"
            yield Printed(metric, cell.value / cell.scale, table.name)


def measured(cell: Cell) -> str:
    """The score of a run that a cell is about, "test/accuracy"; "" where it is about no score: steps, an analysis."""
    _, _, metric = cell.column.partition(" ")
    scored = metric.startswith(("test/", "valid/")) and not cell.compute and cell.value is not None
    return metric if scored else ""
