"""The sweeper: all combinations, or a paper's table; skips finished runs before torch is loaded, says how far it is."""

from __future__ import annotations

import contextlib
import signal
import statistics
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus

from timescales import cli, errors
from timescales.config import check, compose, identity, messages, schema
from timescales.config.overrides import spell
from timescales.papers import load
from timescales.papers.table import Run, expand, varying
from timescales.runs import cost, lock, record, store

ConfigStore.instance().store(
    "timescales", {"_target_": f"{__name__}.TimescalesSweeper", "minutes": None, "narrow": []}, "hydra/sweeper"
)


class Job(NamedTuple):
    """One run that was asked for."""

    overrides: list[str]
    directory: Path
    seed: int
    seeds: int  # how many runs that differ in their seed alone may be launched as one job
    family: str  # the same for all such runs
    kind: str  # the same for runs that cost the same
    state: str  # to run, finished, finished elsewhere
    stale: bool
    seconds: float | None  # what it took, if it is finished
    before: int  # `written` of the record that it is to replace


class TimescalesSweeper(BasicSweeper):
    """Runs that are known by their identity: all combinations of the values given, or with table=NAME its runs.

    A table is narrowed by overrides of its keys (`expand`), which `cli.narrowing` puts into `narrow`. One job at
    a time with the basic launcher, seed by seed and the longest first; all at once with any other. With seeds=R up
    to R runs that differ in their seed alone are one job; a table keeps to the seeds that it names. After
    `minutes` it stops, and the next call continues. With run_dir=DIR each run gets DIR/<its usual name>. Runs that
    another process is training are left to it, and looked at again at the end: so several sweeps share the work. Raises
    SweepFailed at the end if any job failed.
    """

    def __init__(self, minutes: float | None = None, narrow: Sequence[str] = ()) -> None:
        super().__init__(max_batch_size=None)
        if minutes is not None and not (isinstance(minutes, int | float) and minutes > 0):
            raise errors.ConfigError(f"hydra.sweeper.minutes must be a number above 0, or null; not {minutes}")
        self.minutes, self.narrow = minutes, narrow
        self.failures = 0
        self.elsewhere: list[Job] = []  # left to other processes
        self.probes: Sequence[str] = ()  # the analyses that measure each finished run of a table

    def sweep(self, arguments: list[str]) -> list[JobReturn]:
        assert self.hydra_context is not None
        assert self.launcher is not None
        one_by_one = isinstance(self.launcher, BasicLauncher)
        if self.minutes is not None and not one_by_one:
            raise errors.ConfigError("hydra.sweeper.minutes is for one job at a time: leave it out with this launcher")
        self.compose = compose.Composer(self.hydra_context.config_loader)
        asked = self._asked(arguments)
        jobs, planned, seconds = self._plan(asked)
        returns: list[JobReturn] = []
        begun = time.monotonic()
        with deadline(self.minutes) as over:
            try:
                returns += self._launch_all(planned, one_by_one, seconds)
                self._probe([job for job in jobs if job.state == "finished"])
                if again := self._look_again():
                    returns += self._launch_all(again, one_by_one, seconds)
            except KeyboardInterrupt:
                if not over():
                    raise
                done = sum(ended(job) for job in planned)
                spent = f"{(time.monotonic() - begun) / 60:.1f} minutes, {done} of {len(planned)} runs done"
                print(f"\nstopped after {spent}: {cli.continuing(sys.argv[1:])}", flush=True)
        if self.elsewhere:
            print(f"{len(self.elsewhere)} running elsewhere: the same command says how they ended", flush=True)
        if self.config is not None and self.config.table is None and len(jobs) > 1:
            print("\n".join(["", *outcomes(jobs)]), flush=True)
        if self.failures:
            raise cli.SweepFailed(f"{self.failures} of {len(asked)} runs failed")
        return returns

    def _launch_all(self, planned: list[Job], one_by_one: bool, seconds: dict[str, float]) -> list[JobReturn]:
        """Launch the jobs that no other process is doing, one by one or together, and put the table's questions."""
        todo = launches(self._free(planned))
        returns: list[JobReturn] = []
        for batch in [[jobs] for jobs in todo] if one_by_one else [todo] if todo else []:
            if one_by_one:
                left = minutes_left([job for jobs in todo[len(returns) :] for job in jobs], seconds)
                more = f" and {len(batch[0]) - 1} more seeds" if len(batch[0]) > 1 else ""
                print(f"[{len(returns) + 1}/{len(todo)}]{left} {batch[0][0].directory}{more}", flush=True)
            returns += self._launch(batch, len(returns), seconds)
            self._probe([job for jobs in batch for job in jobs])
        return returns

    def _free(self, jobs: list[Job]) -> list[Job]:
        """The jobs that no other process is doing; the others are kept for later."""
        free: list[Job] = []
        for job in jobs:
            (free if lock.owner(job.directory) is None else self.elsewhere).append(job)
        return free

    def _look_again(self) -> list[Job]:
        """Those of the runs left to other processes that have not ended; puts questions to those that have."""
        left, self.elsewhere = self.elsewhere, []
        self._probe([job for job in left if ended(job)])
        return [job for job in left if not ended(job)]

    def _launch(self, batch: list[list[Job]], done: int, seconds: dict[str, float]) -> list[JobReturn]:
        """Launch some jobs, and note how each ended."""
        assert self.launcher is not None
        started = time.monotonic()
        try:
            returns = list(self.launcher.launch([launch(jobs) for jobs in batch], initial_job_idx=done))
        except Exception as error:
            if isinstance(self.launcher, BasicLauncher):
                raise
            # A worker was killed, and with it the others, or nothing could be submitted.
            line = messages.one_line(error, []) or f"{type(error).__name__}: {error}"
            print(f"failed: {type(self.launcher).__name__}\n  {line}", flush=True)
            self.failures += sum(not ended(job) for jobs in batch for job in jobs)
            return []
        for jobs, result in zip(batch, returns, strict=True):
            result.cfg = result.hydra_cfg = None  # nobody reads them, and there may be thousands
            if result.status == JobStatus.COMPLETED:
                continue
            left = [job for job in jobs if not ended(job)]
            if isinstance(result._return_value, lock.Elsewhere):
                print(f"left to another process: {result._return_value}", flush=True)
                self.elsewhere += left
            else:
                self._failed(launch(jobs), result._return_value, max(1, len(left)), jobs[0].directory)
        if len(batch) == 1 and returns[0].status == JobStatus.COMPLETED and returns[0].return_value != "skipped":
            seconds[batch[0][0].kind] = (time.monotonic() - started) / len(batch[0])
        return returns

    def _asked(self, arguments: list[str]) -> list[list[str]]:
        """The overrides of every run that the command line asks for."""
        assert self.config is not None
        overrides = [self.compose.parse(argument) for argument in arguments]
        if any(o.key_or_group == "table" and o.is_sweep_override() for o in overrides):
            raise errors.ConfigError("table=A,B: one table at a time")
        if self.config.table is None:
            return [one for run in self.split_arguments(overrides, None)[0] for one in self._each_seed(run)]
        check.check(self.config)
        table, profile = load.table(self.config.hydra.runtime.choices.table), self.config.profile
        self.probes = table.probe
        narrow = [self.compose.parse(text) for text in self.narrow]
        known = {key for run in expand(table, profile) for key in run.axes}
        # A key that is in no configuration yet is added to all runs: +model.head_size=16.
        wanted = {o.key_or_group if o.key_or_group in known else o.get_key_element(): o for o in narrow}
        runs = expand(table, profile, {key: self.compose.values(o) for key, o in wanted.items()})
        if not runs and profile == "tiny":
            raise errors.ConfigError(f"profile={profile}: {table.name} has no small-scale version (its key `tiny`)")
        if narrow and runs:
            try:
                self.compose(runs[0].overrides)
            except Exception as error:  # an unknown key is one error, not one for each run
                raise errors.ConfigError(messages.one_line(error, runs[0].overrides) or str(error)) from error
            full = {self._identity(run) for run in expand(table, profile)}
            if beyond := sum(self._identity(run) not in full for run in runs):
                print(f"{beyond} of {len(runs)} runs are beyond {table.name}: they fill no cell of it", flush=True)
        alike = [a for a in arguments if key_of(a) not in ("table", "profile", "skip")]
        # For W&B's tag alone; a logger's keys are no part of a run's identity.
        return [[*run.overrides, *alike, f"++logger.table={table.name}"] for run in runs]

    def _each_seed(self, overrides: Sequence[str]) -> list[list[str]]:
        """The overrides of each of the seeds that `seeds` asks for."""
        given = {o.key_or_group: o.value() for o in map(self.compose.parse, overrides)}
        seed, seeds = given.get("seed", 0), given.get("seeds", 1)
        if not (isinstance(seed, int) and isinstance(seeds, int) and 1 < seeds <= schema.MOST_SEEDS):
            return [list(overrides)]  # one run, or nonsense, which its check names
        return [[*(o for o in overrides if key_of(o) != "seed"), f"seed={seed + k}"] for k in range(seeds)]

    def _identity(self, run: Run) -> str | None:
        try:
            return identity.identity(self.compose(run.overrides))
        except Exception:  # said by _plan, run by run
            return None

    def _plan(self, asked: list[list[str]]) -> tuple[list[Job], list[Job], dict[str, float]]:
        """All jobs as asked for; those to be run, in order; seconds by kind of run. Prints the counts."""
        assert self.config is not None
        committed = store.committed()
        jobs: dict[Path, Job] = {}  # the same run asked for twice is one
        wrong: dict[str, list[tuple[list[str], Exception]]] = {}  # what is wrong with many runs is said once
        for overrides in asked:
            try:
                job = self._job(overrides, committed)
                jobs[job.directory] = job
            except Exception as error:
                wrong.setdefault(str(error), []).append((overrides, error))
        for failed in wrong.values():
            self._failed(*failed[0], more=len(failed) - 1)
        seconds = cost.known() | {job.kind: job.seconds for job in jobs.values() if job.seconds is not None}
        count = Counter(job.state for job in jobs.values())
        todo = [job for job in jobs.values() if job.state == "to run"]
        elsewhere = sum(lock.owner(job.directory) is not None for job in todo)
        todo.sort(key=lambda job: (job.seed, -seconds.get(job.kind, float("inf"))))
        line = f"{len(asked)} runs: {count['finished']} finished, skipped; {len(todo) - elsewhere} to run"
        if elsewhere:
            line += f"; {elsewhere} running elsewhere"
        if alike := len(asked) - len(jobs) - sum(map(len, wrong.values())):
            line += f"; {alike} the same as another of them (engine, device, logger and the like make no other run)"
        if count["finished elsewhere"]:
            line += f"; {count['finished elsewhere']} committed, skipped"
        print(line, flush=True)
        if stale := [str(job.directory) for job in jobs.values() if job.stale and job.state != "to run"]:
            print(
                f"{len(stale)} of the skipped are stale (force=stale runs them again): {', '.join(stale)}", flush=True
            )
        return list(jobs.values()), todo, seconds

    def _probe(self, jobs: list[Job]) -> None:
        """Put the table's questions to those of its runs that have not answered them."""
        for job in jobs if self.probes else []:
            for name in unanswered(job.directory, self.probes):
                from timescales import analysis

                try:
                    with record.lock(job.directory):
                        if name in unanswered(job.directory, self.probes):
                            print(f"{name} of {job.directory}", flush=True)
                            analysis.measure_run(job.directory, name)
                except lock.Elsewhere as error:
                    print(f"{name} is left to another process: {error}", flush=True)
                except Exception as error:
                    self._failed(job.overrides, error)

    def _job(self, overrides: list[str], committed: dict[str, dict[str, Any]]) -> Job:
        assert self.config is not None
        cfg = self.compose(overrides)
        run_id, directory = identity.identity(cfg), Path(cfg.run_dir)
        if any(key_of(override) == "run_dir" for override in overrides):
            directory = directory / identity.slug(cfg)
            place = spell(str(directory))
            overrides = [*(o for o in overrides if key_of(o) != "run_dir"), f"run_dir={place}"]
        found, line = record.read(directory), committed.get(run_id)
        state, stale, seconds = "to run", False, line["seconds"] if line else None
        allow_partial = cfg.task.get("allow_partial", True)
        if record.done(directory, run_id, allow_partial or cfg.force is True):
            assert found is not None
            state, stale, seconds = "finished", record.stale(found), found["seconds"]
        elif self.config.skip == "committed" and line is not None and store.counts(line, allow_partial):
            state, stale = "finished elsewhere", store.stale(line)
        if cfg.force is True or (stale and cfg.force == "stale"):
            state = "to run"
        if state == "to run":  # what is finished was right
            check.check(cfg)
        family = identity.identity(identity.with_seed(cfg, 0)) if cfg.seeds > 1 else run_id
        before = written(directory) if state == "to run" else 0
        return Job(overrides, directory, cfg.seed, cfg.seeds, family, identity.kind(cfg), state, stale, seconds, before)

    def _failed(
        self, overrides: Any, error: BaseException, runs: int = 1, directory: Path | None = None, more: int = 0
    ) -> None:
        """Say how a launch of some runs failed, and that as many more did in the same way."""
        line = messages.one_line(error, list(overrides))
        if line is None:
            line = f"{type(error).__name__}: {error}"
            # Of seeds trained together it lies with the first, or in the run_dir that was given.
            logs = [place / "train.log" for place in (directory, directory.parent)] if directory else []
            if log := next((path for path in logs if path.is_file()), None):
                line += f" (traceback in {log})"
            else:
                traceback.print_exception(error)
        others = f" (and {more} more)" if more else ""
        print(f"failed: {' '.join(overrides)}{others}\n  {line}", flush=True)
        # The frames of the failed job would keep its tensors alive.
        traceback.clear_frames(error.__traceback__)
        self.failures += runs + more


def ended(job: Job) -> bool:
    """Whether a run needs nothing more, whoever trained it; the record that it is to replace does not count."""
    return record.has_outcome(job.directory) and written(job.directory) != job.before


def written(directory: Path) -> int:
    """When a run's record was written, in nanoseconds; 0 if there is none."""
    path = directory / "record.json"
    return path.stat().st_mtime_ns if path.exists() else 0


def outcomes(jobs: Sequence[Job]) -> list[str]:
    """For each setting of a sweep, in the order asked for, a line: its tests, mean and, in brackets, spread over seeds.

    Of how many, where not all seeds have a finished record here: some failed, were committed elsewhere, or go on.
    """
    axes = [{key_of(text): text.partition("=")[2] for text in job.overrides} for job in jobs]
    differ = [key for key in varying(axes) if key not in ("run_dir", "seeds")]
    found: dict[str, list[dict[str, float]]] = {}
    asked: Counter[str] = Counter()
    for job, at in zip(jobs, axes, strict=True):
        setting = " ".join(f"{key}={at[key]}" for key in differ if key in at)
        metrics = found.setdefault(setting, [])
        asked[setting] += 1
        if ended(job) and (outcome := record.read(job.directory)) is not None and outcome["status"] == "finished":
            metrics.append(outcome["metrics"])
    lines = []
    for setting, metrics in found.items():
        words = []
        for name in sorted({name for one in metrics for name in one if name.startswith("test/")}):
            values = [one[name] for one in metrics if one.get(name) is not None]
            spread = f" ({statistics.stdev(values):.4f})" if len(values) > 1 else ""
            words.append(f"{name} {statistics.fmean(values):.4f}{spread}" if values else f"{name} none")
        of = f" of {asked[setting]}" if len(metrics) < asked[setting] else ""
        lines.append(f"{setting or 'all'}: {', '.join(words) or 'no finished record here'}; n = {len(metrics)}{of}")
    return lines


def unanswered(directory: Path, names: Sequence[str]) -> list[str]:
    """Which of a table's questions a finished run has not answered."""
    found = record.read(directory)
    if found is None or found["status"] != "finished":
        return []
    answered = {key.partition("/")[0] for key in found.get("probes", {})}
    return [name for name in names if name not in answered]


def launches(todo: Sequence[Job]) -> list[list[Job]]:
    """Jobs by launch: up to `seeds` that differ in their seed alone, with consecutive seeds, go together."""
    found: list[list[Job]] = []
    newest: dict[str, list[Job]] = {}
    for job in todo:
        before = newest.get(job.family)
        if before is not None and len(before) < job.seeds and job.seed == before[-1].seed + 1:
            before.append(job)
        else:
            newest[job.family] = [job]
            found.append(newest[job.family])
    return found


def launch(jobs: Sequence[Job]) -> list[str]:
    """The overrides that train some runs which differ in their seed alone."""
    first = jobs[0].overrides
    if len(jobs) == 1:
        return [o for o in first if key_of(o) != "seeds"]
    rest = [o for o in first if key_of(o) not in ("seed", "seeds", "run_dir")]
    if any(key_of(o) == "run_dir" for o in first):
        rest.append(f"run_dir={spell(str(jobs[0].directory.parent))}")
    return [*rest, f"seed={jobs[0].seed}", f"seeds={len(jobs)}"]


def key_of(override: str) -> str:
    """The key that an override sets."""
    return override.partition("=")[0].lstrip("+~")


def minutes_left(todo: list[Job], seconds: dict[str, float]) -> str:
    """ " (about 12 min left)" from what runs of the same kind took; an unknown kind counts as the mean of the known."""
    known = [seconds[job.kind] for job in todo if job.kind in seconds]
    if not known:
        return ""
    mean = sum(known) / len(known)
    return f" (about {(sum(known) + mean * (len(todo) - len(known))) / 60:.0f} min left)"


@contextlib.contextmanager
def deadline(minutes: float | None) -> Iterator[Callable[[], bool]]:
    """Interrupt what runs in it after some minutes as Ctrl-C would; yields whether that has happened."""
    rung = False

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal rung
        rung = True
        interrupt = signal.getsignal(signal.SIGINT)
        assert callable(interrupt)
        interrupt(signal.SIGINT, frame)

    if minutes is None:
        yield lambda: False
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 60.0 * minutes)
    try:
        yield lambda: rung
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
