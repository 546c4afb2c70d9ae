"""What papers print of runs like a given one."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from timescales.analysis.learning_curves import Printed
from timescales.config import compose, folders, identity
from timescales.papers import load, verdict
from timescales.papers.table import expand, matches
from timescales.training import build

# Of `loop`: how long, and how often it is looked at.
LENGTH = ("max_epochs", "max_steps", "eval_every", "log_every", "max_eval_batches")


def printed(config: Mapping[str, Any], horizon: int) -> list[Printed]:
    """What papers print of runs of this configuration, on test or validation data, whatever their seed and length and
    however often they are validated. config: as a run has recorded it; horizon: its task's, meant by T_max: auto.
    """

    def alike(cfg: dict[str, Any]) -> str:
        build.fill_horizon(cfg["model"], horizon)
        loop = {key: value for key, value in cfg["loop"].items() if key not in LENGTH}
        return identity.identity({**cfg, "seed": 0, "loop": loop})

    wanted, found = alike(copy.deepcopy(dict(config))), []
    with compose.composing() as composer:
        for table in map(load.table, folders.choices("table")):
            known = [cell for cell in table["cells"] if measured(cell, table)]
            for run in expand(table, narrow={"seed": [0]}) if known else []:
                cells = [cell for cell in known if matches(run.axes, cell.get("where", {}))]
                if not cells or run.axes.get("task") != config["task"]["name"]:
                    continue
                if alike(identity.resolved(composer(run.overrides))) == wanted:
                    for cell in cells:
                        value = cell["value"] / verdict.scale(cell, table)
                        found.append(Printed(measured(cell, table), value, table["name"]))
    return found


def measured(cell: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    """The score of a run that a cell is about, "test/accuracy"; "" where it is about no score: steps, a probe."""
    _, _, name = verdict.full_name(cell.get("metric", table["metric"]), table).partition(" ")
    scored = name.startswith(("test/", "valid/")) and "compute" not in cell and cell["value"] is not None
    return name if scored else ""
