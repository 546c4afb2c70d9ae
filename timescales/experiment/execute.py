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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from timescales.config import schema
from timescales.config.compose import parse
from timescales.config.run import Run
from timescales.errors import ConfigError
from timescales.experiment import extend, plan
from timescales.files import append
from timescales.runs import found, lock, metrics, record
from timescales.runs.found import Action
from timescales.runs.record import Record

if TYPE_CHECKING:  # torch is imported when a run is known to be needed
    from timescales.runs.loggers import Loggers
    from timescales.training.interrupt import Interrupt
    from timescales.training.run import TrainingRun

SKIPPED = "skipped"  # what `execute` returns if no run was left to train
DIRECTIONS = {"max": "maximize", "min": "minimize"}
Opened = dict[Path, "Loggers"]  # the loggers of runs that have begun, by the run's directory
CheckSelect = Callable[[Sequence[str]], None]  # of the metric that selects a run's weights, and its direction


def execute(runs: Sequence[Run], check_select: CheckSelect = lambda select: None) -> str:
    """Train those of some runs, which differ in their seeds alone, that have not ended; returns their statuses.

    check_select: may refuse the metric by which a run selects its weights, before it is trained.
    """
    todo = [run for run in runs if left_to_do(run)]  # since the plan was made a run may have ended elsewhere
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
                return train(restarts, locks, check_select)
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


def train(runs: Sequence[tuple[Run, bool]], locks: dict[Path, lock.Lock], check_select: CheckSelect) -> str:
    """Train runs one after another, each with whether it is restarted; returns their statuses.

    An error ends its run alone: the first one is raised when all have ended. An interruption ends them all.
    """
    from timescales.training.interrupt import Interrupt, raise_if_requested

    statuses: set[str] = set()
    errors: list[Exception] = []
    with Interrupt() as interrupt:
        for run, restart in runs:
            try:
                statuses.add(_train_one(run, restart, locks[run.directory], check_select, interrupt))
            except Exception as error:
                errors.append(error)
            raise_if_requested("after the end of the run")  # neither other seeds nor a sweep go on
    try:
        if errors:
            raise errors[0]
    finally:
        errors.clear()  # an error remembers this frame
    return ", ".join(sorted(statuses))


def _train_one(run: Run, restart: bool, held: lock.Lock, check_select: CheckSelect, interrupt: Interrupt) -> str:
    """Train a run and write its record; returns its status."""
    from timescales.training import loop

    opened: Opened = {}
    try:
        with interrupt.immediate():  # while a run is built there is nothing to save
            training = begin(run, restart, held, check_select, opened)
            if training.going and not training.in_step:
                training.draw_batch()
        loop.fit(training)
        return end(run, training, opened)
    except (Exception, KeyboardInterrupt) as error:
        with contextlib.suppress(Exception):  # what is raised in noting an error is not what went wrong
            fail(run, error, opened)
        raise


def begin(run: Run, restart: bool, held: lock.Lock, check_select: CheckSelect, opened: Opened) -> TrainingRun:
    """Begin the record, build the model and all that trains it, and open the loggers, which `opened` gets."""
    from timescales.runs import loggers
    from timescales.training import build, memory
    from timescales.training.run import TrainingRun, resume_step

    directory, config = run.directory, copy.deepcopy(run.config)  # `build` replaces each "auto" in this copy
    # A restart removes what lies there only once the new run has been built.
    start_late = restart and bool(record.files(directory))
    if not start_late:
        saved = record.start(directory, run, restart)
    model, task, optimizer = build.build(config)
    check_select(task.spec.select)
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
    log = opened[directory] = loggers.open_all(saved, directory, step, settings, task, times, held.check)
    if step == 0:
        log(memory.first_values(model, task, settings.log_one_over_e), 0)
    return TrainingRun(model, task, optimizer, log, settings, directory, saved)


def end(run: Run, training: TrainingRun, opened: Opened) -> str:
    """Test a trained model and write the outcome into its record; returns the status."""
    from timescales.training import memory, outcome

    saved = training.record
    assert saved is not None
    quantiles = memory.timescale_quantiles(training.model)
    training.log(memory.timescale_values(quantiles), training.progress.step)
    result = outcome.outcome(training)
    opened[run.directory].check()
    saved.change(timescales=(saved.timescales or {}) | {"end": quantiles}, **vars(result))
    saved.write(run.directory)
    print(f"{run.directory}\n  {saved.summary}")
    over(run, saved, opened)
    return saved.status


def fail(run: Run, error: BaseException, opened: Opened) -> None:
    """Note why a run has failed in its record and its log, unless it was interrupted or its configuration is wrong."""
    try:
        if isinstance(error, Exception) and not isinstance(error, ConfigError):
            record.failed(run.directory, error)
            with contextlib.suppress(OSError):  # the log cannot be written: that is not what went wrong
                append(run.directory / "train.log", "".join(traceback.format_exception(error)))
    finally:
        over(run, Record.read(run.directory), opened)


def over(run: Run, saved: Record | None, opened: Opened) -> None:
    """Close what is open of a run that is over: it has ended or failed, or was interrupted and will go on.

    Every run that has begun comes here once, wherever it was launched, unless a kill or a second signal cuts it off:
    the place for whatever is to happen when a run is over. saved: its record, None if it has none. A run whose
    configuration turned out to be wrong has the one from before: `begin` notes nothing of such an attempt.
    """
    log = opened.pop(run.directory, None)
    if log is not None:
        log.finish(saved)


# --- a sweeper that searches, such as Optuna's ------------------------------------------------------------------------


def composed(cfg: DictConfig) -> float:
    """Train what Hydra has composed, for a sweeper or a launcher that is not ours; returns the run's value."""
    hydra = HydraConfig.get()
    runs = plan.runs_of(cfg, [parse(text) for text in hydra.overrides.task], hydra.runtime.choices)
    return Search(hydra.sweeper.get("direction"))(runs)


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
