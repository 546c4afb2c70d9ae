"""hydra/sweeper=timescales, the default: our own sweeps, which `timescales.experiment` plans and trains."""

from __future__ import annotations

from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig

from timescales.config import command_line
from timescales.experiment import experiment

ConfigStore.instance().store(
    "timescales", {"_target_": f"{__name__}.TimescalesSweeper", "minutes": None}, "hydra/sweeper"
)


class TimescalesSweeper(Sweeper):
    """Stands in Hydra's configuration for our own sweeps; minutes: after how many a sweep stops."""

    def __init__(self, minutes: float | None = None) -> None:
        self.minutes = minutes

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        """Hydra's interface."""
        self.of_hydra = list(config.hydra.overrides.hydra)

    def sweep(self, arguments: list[str]) -> None:
        """Hydra's interface, for whoever calls @hydra.main by himself: train.py does not come here."""
        asked = command_line.read(["--multirun", *self.of_hydra, *arguments])
        experiment.do(asked, lambda: None)
