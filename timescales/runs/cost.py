"""Estimate the cost of a run from a few timed steps; results/speed.csv stores them by cost_key ("kind")."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from timescales import paths
from timescales.config import Config
from timescales.errors import ConfigError
from timescales.files import csv_rows, csv_text, write_atomic
from timescales.runs import provenance
from timescales.runs.record import Record
from timescales.runs.store import Row

STEPS = 3


@dataclasses.dataclass(frozen=True)
class Timing:
    """Hold a row of speed.csv, as strings. kind: `Run.cost_key`. run: task/model."""

    kind: str
    run: str
    machine: str
    threads: str
    steps: str
    seconds_per_step: str
    seconds_per_validation: str
    seconds: str  # of a whole run


COLUMNS = tuple(each.name for each in dataclasses.fields(Timing))


def rows(results: Path | None = None) -> list[Timing]:
    """Read all timings, of any machine. results: the folder of speed.csv, by default results/."""
    return [Timing(**row) for row in csv_rows((results or paths.RESULTS) / "speed.csv")]


def known() -> dict[str, float]:
    """Return the most seconds that a run may take, by `Run.cost_key`. Timings of this machine win over others."""
    here = provenance.processor()
    ordered = sorted(rows(), key=lambda row: row.machine == here)
    return {row.kind: float(row.seconds) for row in ordered}


def prices(
    runs: Iterable[tuple[str, Record | Row]], results: Path | None = None, typical: float | None = None
) -> dict[str, float]:
    """Estimate the seconds that a run takes, by cost_key.

    It is the time of the longest of `runs` that finished on the complete data. If none has, it is an upper bound from a
    few steps on the fastest machine that was timed.

    Args:
        runs: for each run its cost_key, and its row or record.
        typical: the steps that a run usually takes, where it may stop before its last one.
    """
    ordered = sorted(rows(results), key=lambda row: -float(row.seconds))
    bounds = {row.kind: float(row.seconds) * min(1.0, (typical or math.inf) / float(row.steps)) for row in ordered}
    return bounds | spent(runs)


def spent(runs: Iterable[tuple[str, Record | Row]]) -> dict[str, float]:
    """Return the seconds of the longest run that finished on the complete data, by cost_key."""
    found: dict[str, float] = {}
    for cost_key, run in runs:
        if run.status == "finished" and not run.partial:
            found[cost_key] = max(run.seconds, found.get(cost_key, 0.0))
    return found


def measure(cost_key: str, config: Config, clock: Callable[[], float] | None = None) -> Timing:
    """Time a few training steps and one batch of validation of a resolved configuration. Return a row for speed.csv.

    Its `seconds` are those of all epochs, although the task or patience may stop a run earlier. Raises ConfigError if
    the configuration cannot be built, or if its training ends too early to be timed.

    clock: returns the time. None: time.monotonic. On a machine that others use too, time.process_time only counts the
    work of this process.
    """
    import torch

    from timescales.config import schema
    from timescales.training import build, loop
    from timescales.training.run import TrainingRun

    clock = clock or time.monotonic
    model, task, optimizer = build.build(config)
    settings = schema.LoopSettings(**config["loop"])
    few = dataclasses.replace(settings, max_epochs=STEPS + 2, max_steps=None, eval_every=10**9)
    run = TrainingRun(model, task, optimizer, lambda values, step: None, few, directory=None)
    seconds: list[float] = []
    while len(seconds) <= STEPS and sum(seconds[1:]) <= 3.0:
        run.draw_batch()
        begun = clock()
        loop.fit(run, until=run.progress.step + 1)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(clock() - begun)
        if why := run.progress.stopped:
            raise ConfigError(f"training ended after {run.progress.step} steps ({why}): too few to time")
    begun = clock()
    loop.evaluate(model, task, "valid", 1)
    validation = (clock() - begun) * task.n_batches("valid")
    step = sum(seconds[1:]) / len(seconds[1:])  # the first one warms up
    steps = settings.last_step(task.start_of)
    whole = steps * step + steps / (settings.eval_every or task.start_of(1)) * validation
    origin = provenance.provenance(config["device"])
    return Timing(
        kind=cost_key,
        run=f"{config['task']['name']}/{config['model']['name']}",
        machine=origin.machine,
        threads=str(origin.threads),
        steps=str(steps),
        seconds_per_step=f"{step:.4g}",
        seconds_per_validation=f"{validation:.4g}",
        seconds=f"{whole:.4g}",
    )


def duration(seconds: float) -> str:
    """Write a time in minutes or hours."""
    minutes = seconds / 60
    if minutes < 60:
        return f"{max(1, round(minutes))} min"
    return f"{minutes / 60:.{1 if minutes < 600 else 0}f} h"


def write(measured: Iterable[Timing], results: Path | None = None) -> None:
    """Add timings to speed.csv. They replace older ones of the same cost_key, machine and number of threads."""
    newest = {(row.kind, row.machine, row.threads): row for row in [*rows(results), *measured]}
    lines = map(vars, sorted(newest.values(), key=lambda row: (row.run, row.kind, row.machine)))
    write_atomic((results or paths.RESULTS) / "speed.csv", csv_text(lines, COLUMNS).encode())
