"""Sweepers that search for settings, such as Optuna's: they ask each run for a number. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from timescales.errors import ConfigError

OWN = "hydra_plugins.timescales_sweeper.TimescalesSweeper"  # asks for no number
WORDS = {"max": "maximize", "min": "minimize"}


def is_search() -> bool:
    """Whether this run belongs to a sweep of another sweeper than our own."""
    if not HydraConfig.initialized():  # not started by Hydra
        return False
    hydra = HydraConfig.get()
    return hydra.mode == RunMode.MULTIRUN and hydra.sweeper.get("_target_") != OWN


def check_direction(select: Sequence[str]) -> None:
    """Raise ConfigError if the sweeper's `direction`, where it has one, is not that of the metric that it is told.

    select: the metric, and "max" or "min" for its direction (`Spec.select`).
    """
    direction = HydraConfig.get().sweeper.get("direction") if is_search() else None
    if direction is None:
        return
    metric, best = select
    given = list(direction) if OmegaConf.is_list(direction) else [direction]
    if [getattr(one, "name", one) for one in given] != [WORDS[best]]:
        raise ConfigError(
            f"a run's value is valid/{metric}, of which the {best}imum is best: hydra.sweeper.direction={WORDS[best]}"
        )
