"""Compose, check and hash what the user asked for, once: a Run."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path

from omegaconf import DictConfig

from timescales import paths
from timescales.config import Config, Settings, schema
from timescales.errors import ConfigError

Axes = Settings  # settings by which a run is asked for, in a sweep or a table


@dataclass(frozen=True)
class Run:
    """A run that was asked for, whether it was trained or not.

    config: the resolved configuration, as in its record. axes: the settings by which it was asked for, in a sweep or a
    table. overrides: those that compose it, in a sweep.
    """

    config: Config
    id: str
    directory: Path
    axes: Axes = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    origin: Path | None = None  # the directory of the run that it continues (extend=RUN_DIR)
    skip: str = "local"  # what counts as ended: the record in its directory; "committed": also what results/ has

    @property
    def seed(self) -> int:
        """Return the seed of its data and weights."""
        return int(self.config["seed"])

    @property
    def name(self) -> str:
        """Return the name of its directory, if no other was given: task, model, seed, id."""
        return schema.slug(self.config, self.id)

    @property
    def allow_partial(self) -> bool:
        """Return whether it counts if it was trained on a part of the data."""
        return bool(self.config["task"].get("allow_partial", True))

    @functools.cached_property
    def cost_key(self) -> str:
        """Return a key that is equal for runs that cost the same: the id without the seed and the learning rate."""
        return schema.identity({**self.config, "seed": 0, "optimizer": {**self.config["optimizer"], "lr": 0.0}})

    @functools.cached_property
    def family(self) -> str:
        """Return the name that all seeds of a setting share."""
        return schema.family(self.config)

    def within(self, folder: Path) -> Run:
        """Return the same run in `folder`, under its own name."""
        directory = folder / self.name
        return replace(self, directory=directory, config={**self.config, "run_dir": str(directory)})


def run_of(cfg: DictConfig) -> Run:
    """Make the run of a composed configuration, of its first seed. Raises ConfigError if there can be none."""
    schema.refuse_environment(cfg)
    if cfg.skip == "committed" and not paths.RESULTS.is_dir():
        raise ConfigError(f"skip=committed: {paths.lost_results() or 'a checkout has results/: leave it out here'}")
    config = schema.resolved(cfg)
    schema.check({**config, "seeds": cfg.seeds})
    run_id = schema.identity(config)
    directory = Path(config["run_dir"] or paths.RUNS / schema.slug(config, run_id))
    return Run({**config, "run_dir": str(directory)}, run_id, directory, skip=str(cfg.skip))


def runs_of(cfg: DictConfig, several: bool = False) -> list[Run]:
    """Make the runs of a composed configuration: one, or one for each of `seeds` seeds from `seed` on.

    several: they may be some of many, as in a sweep. Of several runs with run_dir=DIR each is in DIR/<its name>.
    """
    if cfg.rung is not None:
        raise ConfigError(f"rung={cfg.rung} is a size of a table: give table=NAME too")
    place = Path(cfg.run_dir) if cfg.run_dir and (several or cfg.seeds > 1) else None
    runs = [run_of(cfg)]  # which refuses numbers of seeds that cannot be
    # Seeds are trained one after another. A batch dimension over seeds was no faster, and complicated every cell.
    for seed in range(cfg.seed + 1, cfg.seed + cfg.seeds):
        cfg.seed = seed
        runs.append(run_of(cfg))
    return [run.within(place) for run in runs] if place else runs
