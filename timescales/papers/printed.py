"""Find what papers print about runs like a given one."""

import copy
import functools
from pathlib import Path

from timescales.analysis.learning_curves import Printed
from timescales.config import Config, compose, folders, schema
from timescales.papers import load
from timescales.papers.table import expand, matches
from timescales.training import build

# Keys of `loop`: how long a run is, and how often it is validated and logged.
LENGTH = ("max_epochs", "max_steps", "eval_every", "log_every", "max_eval_batches")


def printed(config: Config, horizon: int) -> list[Printed]:
    """Find what papers print about runs of a configuration, on test or validation data.

    Seeds, lengths, and how often a run is validated may differ.

    Args:
        config: as a run has recorded it.
        horizon: the horizon of its task, which T_max: auto stands for.
    """

    def alike(cfg: Config) -> str:
        """Return the hash of a configuration without its seed and lengths."""
        build.fill_horizon(cfg["model"], horizon)
        loop = {key: value for key, value in cfg["loop"].items() if key not in LENGTH}
        return schema.identity({**cfg, "seed": 0, "loop": loop})

    wanted = alike(copy.deepcopy(dict(config)))
    scores = _scores(config["task"]["name"], tuple(folders.places()))
    return [found for found, cfg in scores if alike(copy.deepcopy(cfg)) == wanted]


@functools.cache
def _scores(task: str, places: tuple[Path, ...]) -> list[tuple[Printed, Config]]:
    """List what papers print about runs of a task, each value with its configuration. Cached: composing takes seconds.

    places: the folders of configurations, from which tables are read. They are part of the cache's key.
    """
    found = []
    composer = compose.Composer()
    for table in map(load.table, folders.choices("table")):
        # Values of a metric of a run; not those of its steps or of an analysis.
        scores = [
            (cell.where, Printed(metric, cell.value / cell.scale, table.name))
            for cell in table.cells
            if cell.value is not None and not cell.compute
            if (metric := cell.column.partition(" ")[2]).startswith(("test/", "valid/"))
        ]
        for axes in expand(table, narrow={"seed": [0]}) if scores else []:
            own = [score for where, score in scores if matches(axes, where)]
            if own and axes.get("task") == task:
                config = schema.resolved(composer(load.request(axes)))
                found += [(score, config) for score in own]
    return found
