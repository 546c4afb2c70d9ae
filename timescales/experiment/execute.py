"""Runs of one launch, from their configurations to their records: lock, build, fit, test, write.

Imports no torch before a run is known to be needed.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import statistics
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from timescales.config import folders, schema
from timescales.config.run import Run, each_seed
from timescales.errors import ConfigError
from timescales.experiment import extend
from timescales.files import append
from timescales.runs import found, lock, metrics, record
from timescales.runs.found import Action
from timescales.runs.record import Record

if TYPE_CHECKING:  # torch is imported when a run is known to be needed
    from timescales.runs.loggers import Loggers
    from timescales.training.run import TrainingRun

SKIPPED = "skipped"  # what `execute` returns if no run was left to train
OWN_SWEEPER = "hydra_plugins.timescales_plugins.TimescalesSweeper"  # it asks for no number
DIRECTIONS = {"max": "maximize", "min": "minimize"}
Check = Callable[[Sequence[str]], None]  # of the metric that selects a run's weights, and its direction


def execute(runs: Sequence[Run], check: Check = lambda select: None) -> str:
    """Train those of some runs, which differ in their seeds alone, that have not ended; returns the status.

    check: may refuse the metric by which a run selects its weights, before it is trained.
    """
    todo = [run for run in runs if left_to_do(run)]
    with lock.hold_all([run.directory for run in todo]) as locks:
        todo = [run for run in todo if run.directory in locks]
        before = {run.directory: record.files(run.directory) for run in todo}
        try:
            # Another process may have continued or ended a run before this one got its lock.
            restarts = [(run, action is Action.RESTART) for run in todo if (action := left_to_do(run))]
            if not restarts:
                return SKIPPED
            if note := restarts[0][0].note:
                print(note, flush=True)
            with logged(restarts[0][0].directory / "train.log"):
                return train(restarts, locks, check)
        except lock.RunningElsewhere:  # taken over: what lies there is another process's
            raise
        except ConfigError:
            for run in todo:
                record.discard_unless_begun(run.directory, run.name, before[run.directory])
            raise


@contextlib.contextmanager
def logged(path: Path) -> Iterator[None]:
    """Write what libraries log as a warning or an error into a file, too, which the first such line makes."""
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter("[%(asctime)s][%(name)s][%(levelname)s] %(message)s"))
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
        handler.close()


def left_to_do(run: Run) -> Action | None:
    """What to do with a run; None, after a line that says so, if it is to be skipped."""
    there = found.look(run.directory)
    action = found.action(run, there)
    if action is not Action.SKIP:
        return action
    saved = there.record
    assert saved is not None
    again = f"stale: {saved.what_changed} since; force=stale" if saved.stale else "force=true"
    print(f"finished, skipped: {run.directory} ({again} runs it again)\n  {saved.summary}")
    return None


def train(runs: Sequence[tuple[Run, bool]], locks: dict[Path, lock.Lock], check: Check) -> str:
    """Train runs, each with whether it is restarted, side by side where that is possible; returns their statuses."""
    from timescales.training import seeds

    statuses: set[str] = set()
    seeds.Launch(
        [partial(begin, run, restart, locks[run.directory], check) for run, restart in runs],
        end=lambda k, training: statuses.add(end(runs[k][0], training)),
        fail=lambda k, training, error: fail(runs[k][0], training, error),
    ).train()
    return ", ".join(sorted(statuses))


def begin(run: Run, restart: bool, held: lock.Lock, check: Check) -> TrainingRun:
    """Begin the record, build the model and all that trains it, and open the loggers."""
    from timescales.runs import loggers
    from timescales.training import build, memory
    from timescales.training.run import TrainingRun, resume_step

    directory, config = run.directory, copy.deepcopy(run.config)  # `build` replaces each "auto" in this copy
    # A restart removes what lies there only once the new run has been built.
    start_late = restart and bool(record.files(directory))
    if not start_late:
        saved = record.start(directory, run, restart)
    model, task, optimizer = build.build(config)
    check(task.spec.select)
    loggers.check(config, model.rnn)
    of_origin = extend.checkpoint_of(run, restart, task.partial, task.data)
    if start_late:
        saved = record.start(directory, run, restart)
    extend.begin(run, of_origin)
    settings, step = schema.LoopSettings(**config["loop"]), resume_step(directory, task.partial, task.data)
    saved.change(
        config=config,
        device=config["device"],
        parameters=sum(p.numel() for p in model.parameters()),
        chance=task.chance(),
        select=task.spec.select,
        timescales={"start": memory.timescale_quantiles(model)},
        partial=record.shortened(config) + task.partial,
        **({"data": task.data} if task.data else {}),
    )
    saved.write(directory)
    for note in task.notes():
        print(note, flush=True)
    times = partial(memory.unit_timescales, model)
    log = loggers.open_all(saved, directory, step, settings, task, times, held.check)
    try:
        if step == 0:
            log(memory.first_values(model, task, settings.log_one_over_e), 0)
        return TrainingRun(model, task, optimizer, log, settings, directory, saved)
    except BaseException as error:
        note_failure(run, error)
        log.finish(Record.read(directory))
        raise


def end(run: Run, training: TrainingRun) -> str:
    """Test a trained model and write the outcome into its record; returns the status."""
    from timescales.training import memory, outcome

    saved = training.record
    assert saved is not None
    quantiles = memory.timescale_quantiles(training.model)
    training.log(memory.timescale_values(quantiles), training.progress.step)
    result = outcome.outcome(training)
    cast("Loggers", training.log).check()
    saved.change(timescales=(saved.timescales or {}) | {"end": quantiles}, **vars(result))
    saved.write(run.directory)
    over(run, training, saved)
    print(f"{run.directory}\n  {saved.summary}")
    return saved.status


def fail(run: Run, training: TrainingRun | None, error: BaseException) -> None:
    """Note why a run has failed in its record and its log, unless it was interrupted or its configuration is wrong.

    training: None for a run that could not be built.
    """
    note_failure(run, error)
    over(run, training, Record.read(run.directory))


def note_failure(run: Run, error: BaseException) -> None:
    """Write an error into the record and the log of a run, once; not an interruption or a wrong configuration."""
    saved = Record.read(run.directory)
    noted = saved is not None and saved.error == f"{type(error).__name__}: {error}"
    if noted or isinstance(error, ConfigError) or not isinstance(error, Exception):
        return
    record.failed(run.directory, error)
    with contextlib.suppress(OSError):  # the log cannot be written: that is not what went wrong
        append(run.directory / "train.log", "".join(traceback.format_exception(error)))


def over(run: Run, training: TrainingRun | None, saved: Record | None) -> None:
    """Close what is open of a run that is over: it has ended or failed, or was interrupted and will go on.

    Every run comes here once, wherever it was launched: the place for whatever is to happen when a run is over.
    training: None for one that could not be built. saved: its record, None if it has none.
    """
    if training is not None:
        cast("Loggers", training.log).finish(saved)


# --- a sweeper that searches, such as Optuna's ------------------------------------------------------------------------


def composed(cfg: DictConfig) -> str | float:
    """Train what Hydra has composed; returns the status, or what a sweeper that searches is told of the run."""
    hydra = HydraConfig.get()
    given = tuple(hydra.overrides.task)
    keys = [text.partition("=")[0].lstrip("+~") for text in given]
    note = folders.replaced_by_recipes(hydra.runtime.choices, keys, cfg)
    runs = [replace(run, command=given, note=note) for run in each_seed(cfg)]
    search = hydra.mode == RunMode.MULTIRUN and hydra.sweeper.get("_target_") != OWN_SWEEPER
    return Search(hydra.sweeper.get("direction"))(runs) if search else execute(runs)


@dataclass(frozen=True)
class Search:
    """Trains runs that differ in their seeds; returns the mean of their best validations.

    direction: the sweeper's, if it has one.
    """

    direction: Any

    def __call__(self, runs: Sequence[Run]) -> float:
        execute(runs, self.check)
        values = []
        for run in runs:
            saved = Record.read(run.directory)
            if saved is None or saved.select is None:
                raise ConfigError(f"{run.directory} was trained before runs noted what to search by: force=true")
            self.check(saved.select)  # it may have been skipped
            values.append(metrics.selected(saved))
        return statistics.fmean(values)

    def check(self, select: Sequence[str]) -> None:
        """Raise ConfigError if the direction is not that of the metric that the sweeper is told.

        select: the metric, and "max" or "min" for its direction (`Spec.select`).
        """
        given = list(self.direction) if OmegaConf.is_list(self.direction) else [self.direction]
        metric, best = select
        if self.direction is not None and [getattr(one, "name", one) for one in given] != [DIRECTIONS[best]]:
            raise ConfigError(
                f"a run's value is valid/{metric}, of which the {best}imum is best: "
                f"hydra.sweeper.direction={DIRECTIONS[best]}"
            )
