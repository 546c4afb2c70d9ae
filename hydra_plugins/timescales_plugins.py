"""What Hydra finds: our sweeper (hydra/sweeper=timescales, the default), and our launchers for sweepers that search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig

from timescales import cli
from timescales.config import command_line
from timescales.config.compose import Composer
from timescales.config.hydra_internals import job_return
from timescales.config.run import Run
from timescales.experiment import execute, plan
from timescales.experiment.queue import try_to

SWEEPER = {"_target_": f"{__name__}.TimescalesSweeper", "minutes": None}  # minutes: after how many a sweep stops
ConfigStore.instance().store("timescales", SWEEPER, "hydra/sweeper")


class TimescalesSweeper(Sweeper):
    """Stands in Hydra's configuration for our own sweeps; called by Hydra where train.py did not read the words."""

    def __init__(self, minutes: float | None = None) -> None:
        self.minutes = minutes

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        """Hydra's interface."""
        self.of_hydra = list(config.hydra.overrides.hydra)

    def sweep(self, arguments: list[str]) -> None:
        """Hydra's interface."""
        cli.do(command_line.read(["--multirun", *self.of_hydra, *arguments]), lambda: None)


class TimescalesLauncher(Launcher):
    """Trains the runs of jobs, each given by its overrides, and tells the sweeper each one's value."""

    def __init__(self, **parameters: Any) -> None:
        self.parameters = parameters

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        """Hydra's interface."""
        self.composer, self.sweeper = Composer(hydra_context.config_loader), config.hydra.sweeper
        self.folder = Path(config.hydra.sweep.dir)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        """Hydra's interface."""
        self.folder.mkdir(parents=True, exist_ok=True)  # where the sweeper writes what it has found
        jobs = [try_to(self.runs, overrides) for overrides in job_overrides]
        launch = cli.launch_of(f"{__name__}.{type(self).__name__}")
        task, fine = execute.Search(self.sweeper.get("direction")), [job for job in jobs if isinstance(job, list)]
        ends = iter(launch(task, self.parameters, fine))
        return [job_return(next(ends) if isinstance(job, list) else job) for job in jobs]

    def runs(self, overrides: Sequence[str]) -> list[Run]:
        """The runs of a job."""
        return plan.single([self.composer.parse(text) for text in overrides], self.composer)


class TimescalesJoblib(TimescalesLauncher):
    """In processes of this machine."""


class TimescalesSlurm(TimescalesLauncher):
    """As SLURM arrays."""
