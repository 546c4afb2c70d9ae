"""Train one run, or with -m a sweep: `python train.py model=plstm task=copy task.T=500`; keys: conf/config.yaml."""

from __future__ import annotations

import contextlib
import copy
import logging
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from timescales import cli, errors, paths
from timescales.config import check, folders, identity, schema, search
from timescales.runs import lock, metrics, record
from timescales.runs.decide import Action, decide

if TYPE_CHECKING:  # torch is imported when a run is known to be needed
    from timescales.runs import loggers
    from timescales.training.run import TrainingRun

identity.register()


class RunToTrain(NamedTuple):
    """A configuration whose run has not ended, or is to be restarted."""

    cfg: DictConfig
    run_id: str
    slug: str
    directory: Path
    restart: bool  # whether what lies in the directory is to be removed
    before: dict[str, tuple[int, int]]  # its files


@hydra.main(version_base="1.3", config_path=str(paths.conf()), config_name="config")
@cli.job
def main(cfg: DictConfig) -> str | float:
    """Run one composed configuration; returns the status, or to a sweeper that searches the run's value."""
    status = run(cfg)
    return value_of([Path(run.run_dir) for run in identity.each_seed(cfg)]) if search.is_search() else status


def run(cfg: DictConfig) -> str:
    """Train a configuration, or each of its seeds, unless it has ended already; returns the status."""
    todo = [run for seed_cfg in identity.each_seed(cfg) if (run := unfinished(seed_cfg))]
    with lock.hold_all([run.directory for run in todo]) as locks:
        todo = [run for run in todo if run.directory in locks]
        try:
            check.check(cfg)
            # Another process may have continued or ended a run before this one got its lock.
            todo = [still for run in todo if (still := unfinished(run.cfg))]
            return train(todo, locks) if todo else cli.SKIPPED
        except lock.RunningElsewhere:  # taken over: what lies there is another process's
            raise
        except (errors.ConfigError, OmegaConfBaseException):  # OmegaConf's: data_root=${oc.env:NOPE}
            for run in todo:
                record.discard_unless_begun(run.directory, run.slug, run.before)
            raise


def unfinished(cfg: DictConfig) -> RunToTrain | None:
    """The run of a configuration; None, after a line that says so, if it is to be skipped."""
    directory, run_id = Path(cfg.run_dir), identity.identity(cfg)
    action = decide(directory, run_id, cfg.force, cfg.resume, cfg.task.get("allow_partial", True))
    if action is not Action.SKIP:
        before = record.files(directory)
        return RunToTrain(cfg, run_id, identity.slug(cfg), directory, action is Action.RESTART, before)
    check.check(cfg)  # a wrong value is named, whether or not there is something to train
    saved = record.read(directory)
    again = f"stale: {record.what_changed(saved)} since; force=stale" if record.stale(saved) else "force=true"
    print(f"finished, skipped: {directory} ({again} runs it again)")
    print(f"  {record.summary(saved)}")
    return None


def print_replaced(cfg: DictConfig) -> None:
    """Print which values of the user's own model a recipe has replaced."""
    job = HydraConfig.get()
    given = [override.partition("=")[0].lstrip("+") for override in job.overrides.task]
    for line in folders.replaced_by_recipes(job.runtime.choices, given, cfg):
        print(line, flush=True)


def train(runs: list[RunToTrain], held: dict[Path, lock.Lock]) -> str:
    """Train one run, or several that differ in their seeds side by side; returns their statuses."""
    from timescales.training import seeds  # here, not above: --help does not wait for torch

    print_replaced(runs[0].cfg)
    jobs = [Job(run, held[run.directory]) for run in runs]
    seeds.train(jobs)
    return ", ".join(sorted({job.status for job in jobs}))


def value_of(directories: list[Path]) -> float:
    """What a sweeper that searches is told of a run, or of runs that differ in their seeds: their mean."""
    values = []
    for directory in directories:
        saved = record.read(directory)
        if saved is None or saved.get("select") is None:
            raise errors.ConfigError(f"{directory} was trained before runs noted what to search by: force=true")
        search.check_direction(saved["select"])
        values.append(metrics.selected(saved))
    return statistics.fmean(values)


class Job:
    """One run from its configuration to its record: `begin`, then the training loop, then `end` or `fail`."""

    def __init__(self, run: RunToTrain, held: lock.Lock) -> None:
        self.run_id, self.directory, self.restart, self.held = run.run_id, run.directory, run.restart, held
        self.config = identity.resolved(run.cfg)
        self.timescales: dict[str, Any] = {}
        self.log: loggers.Loggers | None = None
        self.status = ""

    def begin(self) -> TrainingRun:
        """Build the model and all that trains it, begin the record, and open the loggers."""
        from timescales.runs import loggers
        from timescales.training import build, memory
        from timescales.training.run import TrainingRun, resume_step

        directory, config = self.directory, copy.deepcopy(self.config)  # `build` replaces each "auto" in this copy
        # A restart removes what lies there only once the new run has been built.
        start_late = self.restart and bool(record.files(directory))
        if not start_late:
            record.start(directory, self.run_id, self.config, self.restart)
        model, task, optimizer = build.build(config)
        search.check_direction(task.spec.select)
        loggers.check(config, model.rnn)
        if start_late:
            record.start(directory, self.run_id, self.config, self.restart)
        settings, step = schema.LoopSettings(**config["loop"]), resume_step(directory, task.partial)
        chance = task.chance()
        self.timescales["start"] = memory.timescale_quantiles(model)
        record.update(
            directory,
            config=config,
            device=config["device"],
            parameters=sum(p.numel() for p in model.parameters()),
            chance=chance,
            select=task.spec.select,
            timescales=self.timescales,
            partial=record.shortened(config) + task.partial,
        )
        self.log = loggers.open_all(
            config, directory, step, settings, task, chance, model.rnn.timescales, self.held.check
        )
        if step == 0:
            self.log(memory.first_values(model, task, settings.log_one_over_e), 0)
        return TrainingRun(model, task, optimizer, self.log, settings, directory)

    def end(self, run: TrainingRun) -> None:
        """Test the trained model, and write the outcome into the record."""
        from timescales.training import memory, outcome

        self.timescales["end"] = memory.timescale_quantiles(run.model)
        run.log(memory.timescale_values(self.timescales["end"]), run.progress.step)
        result = outcome.outcome(run)
        self.held.check()
        record.update(self.directory, timescales=self.timescales, **result)
        self.close()
        print(f"{self.directory}\n  {record.summary(record.read(self.directory))}")
        self.status = result["status"]

    def fail(self, error: BaseException) -> None:
        """Write into the record why the run failed; nothing for a wrong configuration or an interruption."""
        if isinstance(error, errors.ConfigError) or not isinstance(error, Exception):
            return
        record.failed(self.directory, error)
        with contextlib.suppress(OSError):  # the log cannot be written: that is not what went wrong
            logging.getLogger(__name__).error("the run failed", exc_info=error)

    def close(self) -> None:
        """Finish the loggers with the record as it is now."""
        log, self.log = self.log, None
        if log is not None:
            log.finish(record.read(self.directory))


if __name__ == "__main__":
    cli.run(main)
