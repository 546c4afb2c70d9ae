"""Many runs: a sweep or a table (table=NAME), planned whole, then trained by Hydra's launcher."""

import contextlib
import math
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus

from timescales import analysis
from timescales.config import folders, schema
from timescales.config.compose import WRONG_INPUT, Composer, parse
from timescales.config.run import Run
from timescales.config.values import fits, spell
from timescales.errors import ConfigError, one_line
from timescales.experiment import plan
from timescales.papers import load
from timescales.papers.table import varying
from timescales.runs import cost, found, lock, store
from timescales.runs.found import Action, Found
from timescales.runs.record import Record, State


class Sweep:
    """Trains the runs of a sweep or a table that have not ended, seed by seed, the longest first.

    With `minutes` the shortest come first, and it stops after so many; the same command continues. Runs that another
    process is training are left to it, and looked at again at the end: so several sweeps share the work.

    runs: the overrides of the runs, which may have several values.
    """

    def __init__(self, runs: Sequence[str], minutes: float | None, hydra_context: Any, task_function: Any, config: Any):
        folders.use_sources(config.hydra.runtime.config_sources)
        if minutes is not None and not (fits(minutes, float) and minutes > 0):
            raise ConfigError(f"hydra.sweeper.minutes must be a number above 0, or null; not {minutes}")
        self.asked, self.minutes, self.composer = runs, minutes, Composer()
        self.of_table = any(parse(text).key_or_group == "table" for text in runs)
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )
        self.one_by_one = config.hydra.launcher._target_.endswith("BasicLauncher")
        if minutes is not None and not self.one_by_one:
            raise ConfigError("hydra.sweeper.minutes is for one job at a time: leave it out with this launcher")
        self.probe: tuple[str, ...] = ()  # the analyses that a table asks for
        self.seconds: dict[str, float] = {}  # what a run takes, by cost_key
        self.failed: set[Path] = set()  # the directories of runs that have failed
        self.elsewhere: list[Run] = []  # left to other processes

    def sweep(self) -> None:
        """Train what is left, and say how it ended."""
        asked = self.planned()
        runs = list({run.directory: run for run in asked}.values())
        committed = store.committed() if any(run.skip == "committed" for run in runs) else {}
        states: dict[Path, Found] = {}
        todo: list[Run] = []
        skipped: list[Run] = []
        for run in runs:
            try:
                state = found.read_state(run.directory, committed.get(run.id))
                (skipped if found.action(run, state) is Action.SKIP else todo).append(run)
                states[run.directory] = state
            except ConfigError as error:  # of the files in its directory: the other runs are trained
                self.fail(run, error)
        self.say(len(asked) - len(runs), skipped, todo, states)
        for warning in plan.unequal(runs) if not self.of_table else ():
            print(warning, flush=True)
        devices = {run.config["device"] for run in todo}
        if self.one_by_one and self.minutes is None and len(todo) > 1 and devices <= {"auto", "cpu"}:
            line = "small runs on a CPU are fastest one on each core, with one thread each: hydra/launcher=joblib"
            print(line, file=sys.stderr, flush=True)
        self.seconds = cost.known() if todo else {}
        if self.minutes is None:
            todo.sort(key=lambda run: (run.seed, -self.seconds.get(run.cost_key, math.inf)))
        else:
            todo.sort(key=lambda run: (self.seconds.get(run.cost_key, math.inf), run.seed))
        with stopping_after(self.minutes) as time_is_up:
            try:
                self.train(todo)
                self.measure(skipped)
                left, self.elsewhere = self.elsewhere, []
                self.train(
                    [run for run in left if found.action(run, found.read_state(run.directory)) is not Action.SKIP]
                )
            except KeyboardInterrupt:
                if not time_is_up():
                    raise
                ended = sum(found.read_state(run.directory).state.ended for run in todo)
                done = f"{ended} of {number_of_runs(len(todo))} done"
                print(f"\nstopped after {self.minutes:g} minutes, {done}: the same command continues", flush=True)
        if self.elsewhere:
            print(
                f"{len(self.elsewhere)} being trained by other processes. Repeat the command to see their results.",
                flush=True,
            )
        if not self.of_table and len(runs) > 1:
            print("\n".join(["", *self.outcomes(runs)]), flush=True)
        if self.failed:
            raise ConfigError(f"{len(self.failed)} of {number_of_runs(len(runs))} failed")

    # --- what there is to do ------------------------------------------------------------------------------------------

    def planned(self) -> list[Run]:
        """List the runs that are asked for."""
        given = {text: parse(text).key_or_group for text in self.asked}
        if several := [text for text, key in given.items() if key == "extend"]:
            raise ConfigError(f"{several[0]} continues one run: give it without -m, table=")
        if not self.of_table:
            requests = plan.combinations(self.asked, self.composer)
        else:
            narrow = [text for text, key in given.items() if schema.is_of_identity(key)]
            shared = {key: text for text, key in given.items() if text not in narrow}
            if lists := [text for text in shared.values() if parse(text).is_sweep_override()]:
                raise ConfigError(f"{lists[0]}: give one value: the runs of a table do not differ in it")
            table = load.table(str(parse(shared.pop("table")).value()))
            rung = str(parse(shared.pop("rung")).value()) if "rung" in shared else None
            shared["logger.table"] = f"++logger.table={spell(table.name)}"  # only for W&B; no part of a run's identity
            of_table = plan.of_table(table, table.size_of(rung), self.composer, narrow)
            requests, self.probe = [[*request, *shared.values()] for request in of_table], table.probe
        runs = []
        for request in requests:
            axes = {override.key_or_group: override.value() for override in map(parse, request)}
            kept = [text for text in request if parse(text).key_or_group not in ("seed", "seeds", "run_dir")]
            for run in self.composer.runs(request):
                own = [f"seed={run.seed}", "seeds=1", f"run_dir={spell(str(run.directory))}"]
                runs.append(replace(run, axes=axes | {"seed": run.seed}, overrides=(*kept, *own)))
        return runs

    def say(self, repeated: int, skipped: list[Run], todo: list[Run], states: dict[Path, Found]) -> None:
        """Print what there is to do. repeated: how many of the runs were asked for more than once."""
        asked = len(skipped) + len(todo) + len(self.failed) + repeated
        finished = sum(states[run.directory].state.ended for run in skipped)
        elsewhere = sum(lock.owner(run.directory) is not None for run in todo)
        parts = [f"{number_of_runs(asked)}: {finished} already finished", f"{len(todo) - elsewhere} to train"]
        parts += [f"{elsewhere} running elsewhere"] if elsewhere else []
        parts += [f"{len(skipped) - finished} in results/"] if len(skipped) > finished else []
        if repeated:
            parts.append(f"{repeated} asked for more than once (engine, device and logger make no other run)")
        print(", ".join(parts), flush=True)
        if stale := [str(run.directory) for run in skipped if states[run.directory].stale]:
            print(f"{len(stale)} of them are stale (force=stale runs them again): {', '.join(stale)}", flush=True)

    # --- the runs -----------------------------------------------------------------------------------------------------

    def train(self, todo: Sequence[Run]) -> None:
        """Launch the runs that no other process is training, one by one or all together, and analyse them."""
        free: list[Run] = []
        for run in todo:
            (free if lock.owner(run.directory) is None else self.elsewhere).append(run)
        for k, batch in enumerate([[run] for run in free] if self.one_by_one else [free] if free else []):
            if self.one_by_one:
                print(f"[{k + 1}/{len(free)}]{self.time_left(free[k:])} {batch[0].directory}", flush=True)
            begun = time.monotonic()
            jobs = self.launcher.launch([run.overrides for run in batch], k)
            if self.one_by_one and jobs[0].status is JobStatus.COMPLETED:
                self.seconds[batch[0].cost_key] = time.monotonic() - begun
            for run, job in zip(batch, jobs, strict=True):
                error = job._return_value if job.status is JobStatus.FAILED else None  # the property would raise it
                if isinstance(error, lock.RunningElsewhere):
                    print(f"skipped: {error}", flush=True)
                    self.elsewhere.append(run)
                elif error is not None:
                    self.fail(run, error)
            self.measure(batch)

    def time_left(self, todo: Sequence[Run]) -> str:
        """Say how long the runs take, from what those of the same cost took; others count as the mean of these."""
        known = [self.seconds[run.cost_key] for run in todo if run.cost_key in self.seconds]
        return f" (about {cost.duration(len(todo) * statistics.fmean(known))} left)" if known else ""

    def measure(self, runs: Iterable[Run]) -> None:
        """Make the analyses that a table asks for, of those finished runs that do not have them yet."""
        for run in runs if self.probe else ():
            try:
                analysis.measure_missing(run.directory, self.probe)
            except lock.RunningElsewhere as error:
                print(f"skipped: {error}", flush=True)
            except Exception as error:
                self.fail(run, error)

    def fail(self, run: Run, error: BaseException) -> None:
        """Print why a run has failed."""
        line, log = one_line(error), run.directory / "train.log"
        if not isinstance(error, WRONG_INPUT):  # a bug
            line = f"{type(error).__name__}: {error}"
            if log.is_file():
                line += f" (traceback in {log})"
            else:
                traceback.print_exception(error)
        print(f"failed: {' '.join(run.overrides)}\n  {line}", flush=True)
        traceback.clear_frames(error.__traceback__)  # the frames of the failed run would keep its tensors alive
        self.failed.add(run.directory)

    def outcomes(self, runs: Sequence[Run]) -> Iterator[str]:
        """Yield a line for each setting, in the order asked for: its tests' mean and, in brackets, sd over seeds."""
        differ = [key for key in varying([run.axes for run in runs]) if key not in ("run_dir", "seeds")]
        settings: dict[str, list[Run]] = {}
        for run in runs:
            name = " ".join(f"{key}={spell(run.axes[key])}" for key in differ if key in run.axes)
            settings.setdefault(name, []).append(run)
        for name, of_all in settings.items():
            saved = [Record.read(run.directory) for run in of_all if run.directory not in self.failed]
            finished = [record.metrics for record in saved if record is not None and record.state is State.FINISHED]
            words = []
            for metric in sorted({key for metrics in finished for key in metrics if key.startswith("test/")}):
                values = [value for metrics in finished if (value := metrics.get(metric)) is not None]
                sd = f" ({statistics.stdev(values):.4f})" if len(values) > 1 else ""
                words.append(f"{metric} {statistics.fmean(values):.4f}{sd}" if values else f"{metric} none")
            yield f"{name or 'all'}: {', '.join([*words, ''])}{len(finished)} of {number_of_runs(len(of_all))} finished"


def number_of_runs(n: int) -> str:
    """In words: "1 run", "2 runs"."""
    return f"{n} run" if n == 1 else f"{n} runs"


@contextlib.contextmanager
def stopping_after(minutes: float | None) -> Iterator[Callable[[], bool]]:
    """Interrupt what runs in it after some minutes as Ctrl-C would; yields whether that has happened."""

    def ring(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)  # ignored in a job in the background of a shell script
        (handler if callable(handler) else signal.default_int_handler)(number, frame)

    if minutes is None:
        yield lambda: False
        return
    end = time.monotonic() + 60.0 * minutes
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 60.0 * minutes)
    try:
        yield lambda: time.monotonic() >= end
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
