"""The sweeper: all combinations, or a paper's table; skips finished runs before torch is loaded."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn

from timescales import cli, sweep
from timescales.config import check, compose, messages
from timescales.config.hydra_internals import BasicLauncher, BasicSweeper, error_of
from timescales.errors import ConfigError
from timescales.papers import load
from timescales.runs import cost, lock
from timescales.sweep import Overrides, Status, SweepRun

ConfigStore.instance().store(
    "timescales", {"_target_": f"{__name__}.TimescalesSweeper", "minutes": None, "narrow": []}, "hydra/sweeper"
)


class TimescalesSweeper(BasicSweeper):
    """Runs that are known by their identity: all combinations of the values given, or with table=NAME its runs.

    A table is narrowed by overrides of its keys, which `cli.table_arguments` puts into `narrow`. The basic launcher
    trains one job at a time, seed by seed and the longest first; any other gets all at once. With seeds=R up to R runs
    that differ in their seed alone are one job; a table keeps to the seeds that it names. With `minutes` the shortest
    come first, and the sweep stops after so many; the next call continues. With run_dir=DIR each run gets DIR/<its
    usual name>. Runs that another process is training are left to it, and looked at again at the end: so several
    sweeps share the work. Raises SweepFailed at the end if any job failed.
    """

    def __init__(self, minutes: float | None = None, narrow: Sequence[str] = ()) -> None:
        super().__init__(max_batch_size=None)
        if minutes is not None and not (isinstance(minutes, int | float) and minutes > 0):
            raise ConfigError(f"hydra.sweeper.minutes must be a number above 0, or null; not {minutes}")
        self.minutes, self.narrow = minutes, narrow
        self.failures = 0
        self.elsewhere: list[SweepRun] = []  # left to other processes
        self.seconds: dict[str, float] = {}  # what a run takes, by cost_key
        self.analyses: Sequence[str] = ()  # what the table asks for of each finished run

    def sweep(self, arguments: list[str]) -> list[JobReturn]:
        assert self.hydra_context is not None
        assert self.config is not None
        self.one_by_one = isinstance(self.launcher, BasicLauncher)
        if self.minutes is not None and not self.one_by_one:
            raise ConfigError("hydra.sweeper.minutes is for one job at a time: leave it out with this launcher")
        self.compose = compose.Composer(self.hydra_context.config_loader)
        requests = self._requests(arguments)
        runs = self._plan(requests)
        returns = self._train(runs)
        if self.elsewhere:
            print(f"{len(self.elsewhere)} running elsewhere: the same command says how they ended", flush=True)
        if self.config.table is None and len(runs) > 1:
            print("\n".join(["", *sweep.outcomes(runs)]), flush=True)
        if self.failures:
            raise cli.SweepFailed(f"{self.failures} of {sweep.number_of_runs(len(requests))} failed")
        return returns

    def _requests(self, arguments: list[str]) -> list[Overrides]:
        """The overrides of every run that the command line asks for."""
        assert self.config is not None
        parsed = [self.compose.parse(argument) for argument in arguments]
        if any(o.key_or_group == "table" and o.is_sweep_override() for o in parsed):
            raise ConfigError("table=A,B: one table at a time")
        if empty := [o.input_line for o in parsed if o.is_discrete_sweep() and not self.compose.values(o)]:
            raise ConfigError(f"{empty[0]}: there is no such name, so there is nothing to run")
        if self.config.table is None:
            last = {o.get_key_element(): k for k, o in enumerate(parsed)}  # the last of several counts, at its place
            given = [o for k, o in enumerate(parsed) if last[o.get_key_element()] == k]
            combinations = sweep.fitting(self.split_arguments(given, None)[0], self.compose)
            return [run for overrides in combinations for run in sweep.overrides_of_each_seed(overrides, self.compose)]
        check.check(self.config)
        table = load.table(self.config.hydra.runtime.choices.table)
        self.analyses = table.probe
        shared = [a for a in arguments if sweep.key_of(a) not in ("table", "profile", "skip")]
        return sweep.of_table(table, self.config.profile, self.narrow, shared, self.compose)

    def _plan(self, requests: list[Overrides]) -> list[SweepRun]:
        """All runs that are asked for. Prints what there is to do, and what is wrong."""
        assert self.config is not None
        runs, wrong = sweep.plan(requests, self.compose, self.config.skip)
        for overrides, error, more, mistyped in wrong:
            line = messages.one_line(error, overrides)
            if mistyped and line is not None and self.config.table is None:
                raise ConfigError(line)  # one wrong value of several would be found once the others are trained
            self._failed(overrides, error, more=more)
        self.seconds = cost.known() | {run.cost_key: run.seconds for run in runs if run.seconds is not None}
        print(sweep.counts(runs, len(requests), self.failures), flush=True)
        if stale := [str(run.directory) for run in runs if run.stale]:
            print(
                f"{len(stale)} of the skipped are stale (force=stale runs them again): {', '.join(stale)}", flush=True
            )
        if self.config.table is None and (note := sweep.unequal(runs, self.compose)):  # a table states its settings
            print(note, flush=True)
        return runs

    def _train(self, runs: list[SweepRun]) -> list[JobReturn]:
        """Train what is to be trained, and analyse what the table asks for, until the time is over."""
        todo = sweep.in_order(runs, self.seconds, limited=self.minutes is not None)
        returns: list[JobReturn] = []
        begun = time.monotonic()
        with sweep.deadline(self.minutes) as over:
            try:
                returns += self._launch_all(todo)
                self._analyse([run for run in runs if run.status is Status.FINISHED])
                returns += self._launch_all(self._left_over())
            except KeyboardInterrupt:
                if not over():
                    raise
                done = sum(run.ended() for run in todo)
                spent = (
                    f"{(time.monotonic() - begun) / 60:.1f} minutes, {done} of {sweep.number_of_runs(len(todo))} done"
                )
                print(f"\nstopped after {spent}: {cli.continuing(sys.argv[1:])}", flush=True)
        return returns

    def _launch_all(self, todo: list[SweepRun]) -> list[JobReturn]:
        """Launch the runs that no other process is training, one job at a time or all together, and analyse them."""
        free: list[SweepRun] = []
        for run in todo:
            (free if lock.owner(run.directory) is None else self.elsewhere).append(run)
        groups = sweep.launch_groups(free)
        returns: list[JobReturn] = []
        for batch in [[group] for group in groups] if self.one_by_one else [groups] if groups else []:
            if self.one_by_one:
                self._announce(groups, len(returns))
            returns += self._launch(batch, len(returns))
            self._analyse([run for group in batch for run in group])
        return returns

    def _announce(self, groups: list[list[SweepRun]], done: int) -> None:
        """Print which job comes next, and how long the rest will take."""
        left = sweep.minutes_left([run for group in groups[done:] for run in group], self.seconds)
        next_up = groups[done]
        others = len(next_up) - 1
        more = ""
        if others:
            more = f" and {others} more seed" if others == 1 else f" and {others} more seeds"
        print(f"[{done + 1}/{len(groups)}]{left} {next_up[0].directory}{more}", flush=True)

    def _left_over(self) -> list[SweepRun]:
        """Those of the runs left to other processes that have not ended; analyses those that have."""
        left, self.elsewhere = self.elsewhere, []
        self._analyse([run for run in left if run.ended()])
        return [run for run in left if not run.ended()]

    def _launch(self, batch: list[list[SweepRun]], done: int) -> list[JobReturn]:
        """Launch some jobs, and note how each ended."""
        assert self.launcher is not None
        started = time.monotonic()
        try:
            returns = list(self.launcher.launch([sweep.overrides_of(group) for group in batch], initial_job_idx=done))
        except Exception as error:
            if self.one_by_one:
                raise
            # A worker was killed, and with it the others, or nothing could be submitted.
            line = messages.one_line(error, []) or f"{type(error).__name__}: {error}"
            print(f"failed: {type(self.launcher).__name__}\n  {line}", flush=True)
            self.failures += sum(not run.ended() for group in batch for run in group)
            return []
        for group, result in zip(batch, returns, strict=True):
            result.cfg = result.hydra_cfg = None  # nobody reads them, and there may be thousands
            if why := error_of(result):
                self._not_ended(group, why)
            elif self.one_by_one and result.return_value != cli.SKIPPED:
                self.seconds[group[0].cost_key] = (time.monotonic() - started) / len(group)
        return returns

    def _not_ended(self, group: list[SweepRun], error: Exception) -> None:
        """Note why the runs of a job have not ended: another process trains them, or they failed."""
        left = [run for run in group if not run.ended()]
        if isinstance(error, lock.RunningElsewhere):
            print(f"left to another process: {error}", flush=True)
            self.elsewhere += left
        else:
            self._failed(sweep.overrides_of(group), error, max(1, len(left)), group[0].directory)

    def _analyse(self, runs: list[SweepRun]) -> None:
        """Make the analyses that the table asks for, of those of its runs that do not have them yet."""
        for run in runs if self.analyses else []:
            try:
                missing = sweep.missing_analyses(run.directory, self.analyses)
            except Exception as error:  # its record is damaged
                self._failed(run.overrides, error)
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
                    self._failed(run.overrides, error)

    def _failed(
        self, overrides: Overrides, error: Exception, runs: int = 1, directory: Path | None = None, more: int = 0
    ) -> None:
        """Print how a launch of some runs failed, and that as many `more` did in the same way."""
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
