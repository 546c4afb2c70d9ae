"""What Hydra finds: the settings of our sweeps (hydra/sweeper=timescales), and our launchers for other sweepers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig

from timescales import cli
from timescales.config.compose import Composer
from timescales.config.hydra_internals import job_return
from timescales.experiment import execute, plan
from timescales.experiment.queue import try_to

# minutes: after how many a sweep stops. Hydra makes no sweeper of it: `cli.sweep` reads it.
SWEEPER = {"_target_": "timescales.cli.sweep", "minutes": None}
ConfigStore.instance().store("timescales", SWEEPER, "hydra/sweeper")


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
        requests = [[self.composer.parse(text) for text in overrides] for overrides in job_overrides]
        jobs = [try_to(partial(plan.single, composer=self.composer), request) for request in requests]
        launch = cli.launch_of(f"{__name__}.{type(self).__name__}")
        work, fine = execute.Search(self.sweeper.get("direction")), [job for job in jobs if isinstance(job, list)]
        ends = iter(launch(work, self.parameters, fine))
        return [job_return(next(ends) if isinstance(job, list) else job) for job in jobs]


class TimescalesJoblib(TimescalesLauncher):
    """In processes of this machine."""


class TimescalesSlurm(TimescalesLauncher):
    """As SLURM arrays."""
