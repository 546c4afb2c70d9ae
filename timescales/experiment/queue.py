"""The runs of a plan, trained: here one by one, in processes (joblib), as SLURM arrays (submitit). Imports no torch."""

from __future__ import annotations

import contextlib
import signal
import statistics
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from timescales.config import messages
from timescales.config.run import Run
from timescales.config.values import spell
from timescales.experiment import execute
from timescales.experiment.plan import NO_SETTING, Plan
from timescales.papers.table import varying
from timescales.runs import cost, lock, record
from timescales.runs.found import Found
from timescales.runs.record import Record

Group = list[Run]  # runs that are launched together: one, or several that differ in their seeds alone
End = str | BaseException  # how a launch ended: with its status, or an error
Work = Callable[[Group], Any]  # what a launcher calls in each of its jobs
Parameters = Mapping[str, Any]  # of a launcher, as its file in conf/hydra/launcher has them
Launcher = Callable[[Sequence[Group]], Iterable[End]]


@dataclass
class Queue:
    """Trains a plan's runs, skipping those that have ended.

    Without a launcher one launch at a time, seed by seed and the longest first; a launcher gets all at once. With
    `minutes` the shortest come first, and it stops after so many; the same command continues. Runs that another process
    is training are left to it, and looked at again at the end: so several sweeps share the work.

    analyses: those that a table asks for of each finished run. continuing: in words, how the command is continued.
    """

    plan: Plan
    launcher: Launcher | None = None
    minutes: float | None = None
    analyses: Sequence[str] = ()
    continuing: str = "the same command continues"
    failures: int = 0
    elsewhere: list[Run] = field(default_factory=list)  # left to other processes

    def __post_init__(self) -> None:
        self.replaces = {run.directory: written(run.directory) for run in self.plan.todo}
        self.seconds: dict[str, float] = {}  # what a run takes, by cost_key
        if self.plan.todo:
            spent = [(run, self._found(run).outcome) for run in self.plan.runs]
            self.seconds = cost.known() | {run.cost_key: there.seconds for run, there in spent if there is not None}

    def ended(self, run: Run) -> bool:
        """Whether a run needs nothing more, whoever trained it; the record that it is to replace does not count."""
        return record.has_ended(run.directory) and written(run.directory) != self.replaces.get(run.directory, 0)

    def outcome(self, run: Run) -> Record | None:
        """The record of a run that has ended here, before or now; None for others."""
        if run.directory not in self.replaces:
            return self._found(run).record
        return Record.read(run.directory) if self.ended(run) else None

    def work(self, note: str = "") -> None:
        """Print what there is to do, and the note, and do it."""
        for run, error in self.plan.refused.values():
            self._failed(run.command, error)
        skipped = [run for run in self.plan.runs if run.directory not in self.replaces]
        print(self._counts(skipped), flush=True)
        if stale := [str(run.directory) for run in skipped if self._found(run).stale]:
            note = f"{len(stale)} of the skipped are stale (force=stale runs them again): {', '.join(stale)}\n{note}"
        if note:
            print(note.strip(), flush=True)
        todo, begun = self._in_order(), time.monotonic()
        with deadline(self.minutes) as passed:
            try:
                self._launch_all(todo)
                self._analyse([run for run in skipped if self._found(run).state.ended])
                left, self.elsewhere = self.elsewhere, []
                self._analyse([run for run in left if self.ended(run)])
                self._launch_all([run for run in left if not self.ended(run)])
            except KeyboardInterrupt:
                if not passed():
                    raise
                minutes, done = (time.monotonic() - begun) / 60, sum(map(self.ended, todo))
                so_far = f"{minutes:.1f} minutes, {done} of {number_of_runs(len(todo))} done"
                print(f"\nstopped after {so_far}: {self.continuing}", flush=True)
        if self.elsewhere:
            print(f"{len(self.elsewhere)} running elsewhere: the same command says how they ended", flush=True)

    def _found(self, run: Run) -> Found:
        return self.plan.found[run.directory]

    def _counts(self, skipped: Sequence[Run]) -> str:
        """What is about to be done, in one line."""
        plan, finished = self.plan, sum(self._found(run).state.ended for run in skipped)
        committed = len(skipped) - finished
        elsewhere = sum(lock.owner(run.directory) is not None for run in plan.todo)
        asked = number_of_runs(plan.requested)
        parts = [f"{asked}: {finished} finished, skipped", f"{len(plan.todo) - elsewhere} to run"]
        if elsewhere:
            parts.append(f"{elsewhere} running elsewhere")
        if same := plan.requested - len(plan.runs) - self.failures:
            parts.append(f"{same} the same as another of them (engine, device, logger and the like make no other run)")
        if committed:
            parts.append(f"{committed} committed, skipped")
        return "; ".join(parts)

    def _in_order(self) -> list[Run]:
        """The runs to be trained. Those of which nothing is known count as the longest.

        With `minutes` the shortest come first, with all their seeds, so that as many as possible end; else they go seed
        by seed, the longest first, so that all workers end together.
        """

        def place(run: Run) -> tuple[float, float]:
            price = self.seconds.get(run.cost_key, float("inf"))
            return (run.seed, -price) if self.minutes is None else (price, run.seed)

        return sorted(self.plan.todo, key=place)

    def _launch_all(self, todo: Sequence[Run]) -> None:
        """Launch the runs that no other process is training, one by one or all together, and analyse them."""
        free: list[Run] = []
        for run in todo:
            (free if lock.owner(run.directory) is None else self.elsewhere).append(run)
        groups, launch = groups_of(free), self.launcher or self._one_by_one
        try:
            ends = launch(groups) if groups else ()
        except Exception as error:  # a worker was killed, and with it the others, or nothing could be submitted
            print(f"failed: {messages.one_line(error) or in_words(error)}", flush=True)
            self.failures += sum(not self.ended(run) for run in free)
            return
        for group, end in zip(groups, ends, strict=True):
            self._note(group, end)

    def _one_by_one(self, groups: Sequence[Group]) -> Iterator[End]:
        """The launcher in this process: how each launch ends, one after another, with a line for each before it."""
        for k, group in enumerate(groups):
            seeds = f" and {len(group) - 1} more seed{'s' * (len(group) > 2)}" if len(group) > 1 else ""
            print(f"[{k + 1}/{len(groups)}]{self._minutes_left(groups[k:])} {group[0].directory}{seeds}", flush=True)
            started = time.monotonic()
            end = try_to(execute.execute, group)
            if isinstance(end, str) and end != execute.SKIPPED:
                self.seconds[group[0].cost_key] = (time.monotonic() - started) / len(group)
            yield end

    def _note(self, group: Group, end: End) -> None:
        """Note how a launch ended: if not all have, another process trains its runs, or they failed; analyse them."""
        left = [run for run in group if not self.ended(run)]
        if isinstance(end, lock.RunningElsewhere):
            print(f"left to another process: {end}", flush=True)
            self.elsewhere += left
        elif not isinstance(end, str):
            self._failed(group[0].command, end, max(1, len(left)), [run.directory for run in left])
        self._analyse(group)

    def _minutes_left(self, groups: Sequence[Group]) -> str:
        """ " (about 12 min left)" from what runs of the same cost took; any other run counts as the mean of these."""
        todo = [run.cost_key for group in groups for run in group]
        known = [self.seconds[key] for key in todo if key in self.seconds]
        return f" (about {len(todo) * statistics.fmean(known) / 60:.0f} min left)" if known else ""

    def _analyse(self, runs: Sequence[Run]) -> None:
        """Make the analyses that a table asks for, of those of its runs that do not have them yet."""
        for run in runs if self.analyses else ():
            try:
                missing = missing_analyses(run.directory, self.analyses)
            except Exception as error:  # its record is damaged
                self._failed(run.command, error)
                continue
            for name in missing:
                from timescales import analysis

                try:
                    print(f"{name} of {run.directory}", flush=True)
                    analysis.measure_run(run.directory, name)
                except lock.RunningElsewhere as error:
                    print(f"{name} is left to another process: {error}", flush=True)
                except analysis.NotMadeFor:  # a table of several models may ask for an analysis of some of them
                    continue
                except Exception as error:
                    self._failed(run.command, error)

    def _failed(self, command: Sequence[str], error: BaseException, runs: int = 1, places: Sequence[Path] = ()) -> None:
        """Print how runs failed. places: where a log may be."""
        line = messages.one_line(error)
        if line is None:
            line, logs = in_words(error), [log for place in places if (log := place / "train.log").is_file()]
            if logs:
                line += f" (traceback in {logs[0]})"
            else:
                traceback.print_exception(error)
        print(f"failed: {' '.join(command)}\n  {line}", flush=True)
        traceback.clear_frames(error.__traceback__)  # the frames of the failed run would keep its tensors alive
        self.failures += runs


def try_to(function: Callable[[Any], Any], argument: Any) -> Any:
    """What a function returns, or the error that it raises; an interruption is raised."""
    try:
        return function(argument)
    except Exception as error:
        return error


def groups_of(todo: Sequence[Run]) -> list[Group]:
    """Runs by launch: each is trained by itself."""
    return [[run] for run in todo]


def in_words(error: BaseException) -> str:
    """The kind of an error, and what it says."""
    return f"{type(error).__name__}: {error}"


def number_of_runs(n: int) -> str:
    """In words: "1 run", "2 runs"."""
    return f"{n} run" if n == 1 else f"{n} runs"


def written(directory: Path) -> int:
    """When a run's record was written, in nanoseconds; 0 if there is none."""
    path = directory / "record.json"
    return path.stat().st_mtime_ns if path.exists() else 0


@contextlib.contextmanager
def deadline(minutes: float | None) -> Iterator[Callable[[], bool]]:
    """Interrupt what runs in it after some minutes as Ctrl-C would; yields whether that has happened."""
    passed = False

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal passed
        passed = True
        handler = signal.getsignal(signal.SIGINT)  # ignored in a job in the background of a shell script
        (handler if callable(handler) else signal.default_int_handler)(number, frame)

    if minutes is None:
        yield lambda: False
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 60.0 * minutes)
    try:
        yield lambda: passed
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


# --- how they ended ---------------------------------------------------------------------------------------------------


def missing_analyses(directory: Path, names: Sequence[str]) -> list[str]:
    """Which of a table's analyses have no result in the record of a finished run."""
    saved = record.Record.read(directory)
    if saved is None or saved.state is not record.State.FINISHED:
        return []
    done = {key.partition("/")[0] for key in saved.probes}
    return [name for name in names if name not in done]


def outcomes(queue: Queue) -> list[str]:
    """For each setting of a sweep, in the order asked for, a line: its tests, mean and, in brackets, spread over seeds.

    Of how many, where not all seeds have a finished record here: some failed, were committed elsewhere, or go on.
    """
    differ = [key for key in varying([run.axes for run in queue.plan.runs]) if key not in NO_SETTING]
    records: dict[str, list[Record | None]] = {}
    for run in queue.plan.runs:
        setting = " ".join(f"{key}={spell(run.axes[key])}" for key in differ if key in run.axes)
        records.setdefault(setting, []).append(queue.outcome(run))
    lines = []
    for setting, of_all in records.items():
        finished = [saved.metrics for saved in of_all if saved is not None and saved.state is record.State.FINISHED]
        words = []
        for name in sorted({name for metrics in finished for name in metrics if name.startswith("test/")}):
            values = [value for metrics in finished if (value := metrics.get(name)) is not None]
            spread = f" ({statistics.stdev(values):.4f})" if len(values) > 1 else ""
            words.append(f"{name} {statistics.fmean(values):.4f}{spread}" if values else f"{name} none")
        said = ", ".join(words) or "no finished record here"
        of = f" of {len(of_all)}" if len(finished) < len(of_all) else ""
        lines.append(f"{setting or 'all'}: {said}; n = {len(finished)}{of}")
    return lines
