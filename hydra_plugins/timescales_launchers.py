"""hydra/launcher=joblib and slurm for sweepers that search, such as Optuna's; our own sweeps do without."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig

from timescales.config.compose import Composer
from timescales.config.hydra_internals import job_return
from timescales.config.run import Run
from timescales.experiment import execute, experiment, plan
from timescales.experiment.queue import try_to


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
        runs = [try_to(self.composed, overrides) for overrides in job_overrides]
        task = execute.Search(self.sweeper.get("direction"))
        launch = experiment.launch_of(f"{__name__}.{type(self).__name__}")
        ends = iter(launch(task, self.parameters, [of_job for of_job in runs if not isinstance(of_job, Exception)]))
        return [job_return(of_job if isinstance(of_job, Exception) else next(ends)) for of_job in runs]

    def composed(self, overrides: Sequence[str]) -> Sequence[Run]:
        """The runs of a job."""
        return plan.single(self.composer.parse_all(overrides), self.composer)


class TimescalesJoblib(TimescalesLauncher):
    """In processes of this machine."""


class TimescalesSlurm(TimescalesLauncher):
    """As SLURM arrays."""
