"""Register our sweeper and launchers with Hydra, which finds only classes that are defined in hydra_plugins.

Every command imports this module, so what it needs is imported when it is used.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig, OmegaConf

# hydra/sweeper=timescales. runs: the settings of the sweep (see train.py); minutes: after how many it stops.
SWEEPER: dict[str, Any] = {"_target_": f"{__name__}.TimescalesSweeper", "runs": [], "minutes": None}
ConfigStore.instance().store("timescales", SWEEPER, "hydra/sweeper")


class TimescalesSweeper(Sweeper):
    """Trains the runs of a sweep or a table that have not ended (`timescales.experiment.sweep`)."""

    def __init__(self, minutes: float | None, **_: Any) -> None:
        self.minutes = minutes

    def setup(self, **context: Any) -> None:
        """Hydra's interface."""
        self.context = context

    def sweep(self, arguments: list[str]) -> None:
        """Hydra's interface. arguments: with hydra.mode=MULTIRUN, which train.py does not see."""
        from timescales.experiment.sweep import Sweep

        # As typed: Hydra's copy of them has read what they refer to, such as a secret in the environment.
        typed: Any = OmegaConf.to_container(self.context["config"].hydra.sweeper.runs)
        runs = [str(text).replace("\\${", "${") for text in typed]
        Sweep([*arguments, *runs], self.minutes, **self.context).sweep()


class TimescalesLauncher(Launcher):
    """Trains the runs of jobs, each given by its overrides, and tells the sweeper each one's value."""

    module: str  # its launch(job, parameters, jobs) calls job(overrides) for each of the jobs

    def __init__(self, **parameters: Any) -> None:
        self.parameters = parameters

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        """Hydra's interface."""
        self.sweeper, self.folder = config.hydra.sweeper, Path(config.hydra.sweep.dir)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        """Hydra's interface."""
        from timescales.config import folders
        from timescales.experiment.train import Job

        self.folder.mkdir(parents=True, exist_ok=True)  # where a sweeper such as Optuna's writes what it has found
        job = Job(next(iter(folders.places()[1:]), None), self.sweeper.get("direction"))
        return importlib.import_module(self.module).launch(job, self.parameters, job_overrides)


class TimescalesJoblib(TimescalesLauncher):
    """In processes of this machine."""

    module = "timescales.experiment.processes"


class TimescalesSlurm(TimescalesLauncher):
    """As SLURM arrays."""

    module = "timescales.experiment.slurm"
