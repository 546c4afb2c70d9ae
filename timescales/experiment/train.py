"""One run, from its configuration to its record: skip, build, lock, fit, test, write."""

import contextlib
import copy
import ctypes
import logging
import statistics
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig, OmegaConf

from timescales.config import folders
from timescales.config.compose import Composer
from timescales.config.run import Run, runs_of
from timescales.config.schema import LoopSettings
from timescales.errors import ConfigError
from timescales.experiment import extend
from timescales.extras import quick_imports
from timescales.files import append
from timescales.runs import cost, found, lock, metrics, record
from timescales.runs.found import Action
from timescales.runs.record import Record

LONG = 1000  # steps: a run of more says before it starts what it will cost
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # the numbers of settings of glibc's mallopt


def train_all(cfg: DictConfig, overrides: Sequence[str], direction: Any = None) -> float | None:
    """Train the runs of a composed configuration: one, or one for each of its seeds.

    Returns the mean of their best validations, for a sweeper that searches; None if there is none. An error of a seed
    is raised when the others have ended. overrides: those that were composed. direction: the sweeper's, if it has one.
    """
    runs = runs_of(cfg) if cfg.extend is None else [extend.extended(cfg, overrides)]
    values: list[float] = []
    errors: list[Exception] = []
    for run in runs:
        try:
            saved = train(run, direction)
            if saved.select is not None:  # older records do not have it
                values.append(metrics.selected(saved))
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return statistics.fmean(values) if values else None


@dataclass(frozen=True)
class Job:
    """What a launcher calls in its processes, with the overrides of a run: it composes the run and trains it.

    folder: that of the user's own configurations, if there is one. direction: the sweeper's, if it has one.
    """

    folder: Path | None
    direction: Any

    def __call__(self, overrides: Sequence[str]) -> JobReturn:
        """Return the run's value, or the error that has ended it. An interruption is raised."""
        folders.use(self.folder)
        try:
            value = train_all(Composer()(overrides), overrides, self.direction)
        except Exception as error:
            return JobReturn(status=JobStatus.FAILED, _return_value=error)
        return JobReturn(status=JobStatus.COMPLETED, _return_value=value)

    def checkpoint(self, overrides: Sequence[str]) -> Any:
        """Return the same job once more: submitit asks for it when the job's time is over, and requeues it."""
        import submitit

        return submitit.helpers.DelayedSubmission(self, overrides)


def train(run: Run, direction: Any = None) -> Record:
    """Train a run that has not ended; returns its record.

    direction: that of a sweeper that searches, which is told the run's best validation (`check_direction`).
    Raises RunningElsewhere if another process trains it, KeyboardInterrupt when it was interrupted and has saved.
    """
    if saved := ended(run, direction):
        return saved
    if holder := lock.owner(run.directory):
        raise lock.RunningElsewhere(f"{run.directory} is being run by {holder} right now")

    with quick_imports():  # of torch
        from timescales.runs import loggers
        from timescales.training import build, loop, memory, outcome
        from timescales.training.interrupt import Interrupt, raise_if_requested
        from timescales.training.run import TrainingRun, resume_step

    # What cannot be built leaves nothing behind. `build` replaces each "auto" in this copy.
    config, directory = copy.deepcopy(run.config), run.directory
    model, task, optimizer = build.build(config)
    check_direction(task.spec.select, direction)
    loggers.check(config, model.rnn)
    start = extend.checkpoint_of(run, run.origin, task) if run.origin else None
    settings, times = LoopSettings(**config["loop"]), partial(memory.unit_timescales, model)
    with lock.hold(directory) as held, Interrupt(), logged(directory), freed_memory_kept():
        if saved := ended(run, direction):  # another process has trained it meanwhile
            return saved
        restart = found.action(run, found.read_state(directory)) is Action.RESTART
        saved = record.start(directory, run, restart)
        log = None
        try:
            if run.origin and start:
                extend.begin(run, run.origin, start)
            steps, step = settings.last_step(task.start_of), resume_step(directory, task)
            times_at_start = memory.timescale_quantiles(model)
            saved.change(
                config=config,
                device=config["device"],
                parameters=sum(p.numel() for p in model.parameters()),
                chance=float(task.chance()),
                select=task.spec.select,
                timescales={"start": times_at_start},
                partial=saved.partial + task.partial,
                **({"data": task.data} if task.data else {}),
            )
            saved.write(directory)
            for note in (*task.notes(), *what_it_costs(run, steps, steps - step)):
                print(note, flush=True)
            log = loggers.open_all(saved, directory, step, settings, task, times, held.check)
            if step == 0:
                one_over_e = memory.one_over_e_values(model, task, settings.log_one_over_e)
                log(memory.named("timescale", times_at_start) | one_over_e, 0)
            training = TrainingRun(model, task, optimizer, log, settings, directory)
            loop.fit(training)
            quantiles = memory.timescale_quantiles(model)
            log(memory.named("timescale", quantiles), training.progress.step)
            result = outcome.outcome(training)
            held.check()
            saved.change(timescales=(saved.timescales or {}) | {"end": quantiles}, **vars(result))
            saved.write(directory)
        except Exception as error:
            # Without loggers nothing was trained. If another process has taken the run over, the record is its own.
            if log is not None and not isinstance(error, lock.RunningElsewhere):
                record.failed(directory, error)
            if not isinstance(error, ConfigError):
                with contextlib.suppress(OSError):  # the log cannot be written: that is not what went wrong
                    append(directory / "train.log", "".join(traceback.format_exception(error)))
            raise
        finally:  # every run that has a record comes here, unless a kill or a second signal cuts it off
            if log is not None:
                log.finish(Record.read(directory))
        print(f"{directory}\n  {saved.summary}", flush=True)
        raise_if_requested("after the end of the run")  # a sweep does not go on
        return saved


def ended(run: Run, direction: Any) -> Record | None:
    """Return the record of a run that is to be skipped, and print a line that says so; None for any other run."""
    state = found.read_state(run.directory)
    if (saved := state.record) is None or found.action(run, state) is not Action.SKIP:
        return None
    if direction is not None and saved.select is None:
        raise ConfigError(f"{run.directory} has no value to search by in its record: force=true trains it again")
    check_direction(saved.select, direction)
    remedy = f"stale: {saved.what_changed} since; force=stale" if saved.stale else "force=true"
    print(f"finished, skipped: {run.directory} ({remedy} runs it again)\n  {saved.summary}")
    return saved


def check_direction(select: Any, direction: Any) -> None:
    """Raise ConfigError if a sweeper's direction is not that of the metric that it is told, before it is misled.

    select: the metric, and "max" or "min" for its direction (`Spec.select`).
    """
    given = list(direction) if OmegaConf.is_list(direction) else [direction]
    if direction is not None and [getattr(one, "name", one) for one in given] != [f"{select[1]}imize"]:
        raise ConfigError(
            f"a run's value is valid/{select[0]}, of which the {select[1]}imum is best: "
            f"hydra.sweeper.direction={select[1]}imize"
        )


def what_it_costs(run: Run, whole: int, left: int) -> list[str]:
    """Return a line, for a run of many steps, that says how long it may take, and that it can be stopped; else none.

    whole: the steps of the run; left: those that it has not taken.
    """
    if left <= LONG:
        return []
    seconds = cost.known().get(run.cost_key)
    there = "" if seconds is None else f", about {cost.duration(seconds * left / whole)} by what was measured"
    look = "" if left < 100_000 else ". For a quick look: loop.max_steps=3000"
    return [f"{left:,} steps at most{there}; Ctrl-C saves, and the same command continues{look}"]


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep the memory of freed tensors for later ones, and return it to the system at the end of the block.

    By default glibc, the C library of most Linux systems, returns the memory of large tensors to the system at each
    step. Then each page of a new tensor causes a page fault, which took two fifths of a step of a small word model with
    10,000 words.
    """
    libc = ctypes.CDLL(None)
    in_glibc = hasattr(libc, "mallopt")
    if in_glibc:
        libc.mallopt(MMAP_MAX, 0)  # allocate no memory outside the heap
        libc.mallopt(TRIM_THRESHOLD, -1)  # never return the heap's end
    try:
        yield
    finally:
        if in_glibc:
            # The values that glibc comes to by itself once large tensors have been freed.
            libc.mallopt(MMAP_MAX, 65536)
            libc.mallopt(MMAP_THRESHOLD, 32 << 20)
            libc.mallopt(TRIM_THRESHOLD, 64 << 20)
            libc.malloc_trim(0)  # else a sweep of many runs would hold more and more memory


@contextlib.contextmanager
def logged(directory: Path) -> Iterator[None]:
    """Write what libraries log as a warning into train.log, too, which the first such line makes."""
    handler = logging.FileHandler(directory / "train.log", delay=True)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("[%(asctime)s][%(name)s][%(levelname)s] %(message)s"))
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
        handler.close()
