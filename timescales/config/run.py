"""A run: what was asked for, composed, checked and hashed once. Imports no torch."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path

from omegaconf import DictConfig

from timescales import paths
from timescales.config import Config, Settings, identity, schema

Axes = Settings  # settings by which a run is asked for, in a sweep or a table


@dataclass(frozen=True)
class Run:
    """A run that was asked for, whether it was trained or not.

    config: the resolved configuration, as in its record. axes: the settings by which it was asked for, in a sweep or a
    table. command: the overrides that make it, as typed. note: what its configuration holds that its user may not
    expect, for the moment before it is trained.
    """

    config: Config
    id: str
    directory: Path
    axes: Axes = field(default_factory=dict)
    command: tuple[str, ...] = ()
    note: str = ""
    origin: Path | None = None  # the directory of the run that it continues (extend=RUN_DIR)
    seeds: int = 1  # how many runs that differ in their seed alone may be trained together
    skip: str = "local"  # what counts as ended: what lies in its directory; "committed": what results/ has, too

    @property
    def seed(self) -> int:
        """The seed of its data and weights."""
        return int(self.config["seed"])

    @property
    def name(self) -> str:
        """The name of its directory, if no other was given: task, model, seed, id."""
        return identity.slug(self.config, self.id)

    @property
    def allow_partial(self) -> bool:
        """Whether it counts if it was trained on a part of the data."""
        return bool(self.config["task"].get("allow_partial", True))

    @functools.cached_property
    def cost_key(self) -> str:
        """The same for runs that cost the same: their identity without the seed and the learning rate."""
        return identity.identity({**self.config, "seed": 0, "optimizer": {**self.config["optimizer"], "lr": 0.0}})

    @functools.cached_property
    def family(self) -> str:
        """The same for runs that differ in their seed alone."""
        return identity.family(self.config, self.id)

    def with_seed(self, seed: int) -> Run:
        """The same run with another seed, in its own directory. No other key of the configuration may name the seed."""
        config = {**self.config, "seed": seed}
        run_id = identity.identity(config)
        directory = paths.RUNS / identity.slug(config, run_id)
        return replace(self, config={**config, "run_dir": str(directory)}, id=run_id, directory=directory)

    def within(self, folder: Path) -> Run:
        """The same run in `folder`, under its own name."""
        directory = folder / self.name
        return replace(self, directory=directory, config={**self.config, "run_dir": str(directory)})


def run_of(cfg: DictConfig) -> Run:
    """The run of a composed configuration, of its first seed. Raises ConfigError if there can be none."""
    schema.check(cfg)
    config = identity.resolved(cfg)
    run_id = identity.identity(config)
    directory = Path(config["run_dir"] or paths.RUNS / identity.slug(config, run_id))
    return Run({**config, "run_dir": str(directory)}, run_id, directory, seeds=cfg.seeds, skip=cfg.skip)
