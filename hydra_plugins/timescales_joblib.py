"""hydra/launcher=joblib: a sweep's jobs in processes of this machine, each of which saves when a signal comes."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from tqdm import tqdm

from timescales.config.hydra_internals import error_of
from timescales.training.interrupt import PASSED_ON, Interrupt

NOT_BEGUN = "not begun"  # what a job returns after the sweep was interrupted
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, PASSED_ON)

if importlib.util.find_spec("hydra_plugins.hydra_joblib_launcher"):
    from hydra_plugins.hydra_joblib_launcher.joblib_launcher import JoblibLauncher

    class TimescalesJoblib(JoblibLauncher):
        """The plugin's launcher, whose workers save before they end.

        At a signal joblib kills its workers, and so it does when one of them dies. Here a signal is passed on to the
        workers and no further job begins; the launcher waits for the runs in training. A worker is born with signals
        blocked, so that none ends it before it can save.
        """

        task_function: Any

        def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
            resource_tracker.ensure_running()  # before `masked`: as it starts, it unblocks signals
            with tempfile.TemporaryDirectory() as folder:
                stop, task = Path(folder) / "stop", self.task_function
                self.task_function = functools.partial(run_in_worker, task, stop, os.getpid())
                try:
                    # The thread of the Interrupt takes the signals; workers inherit what this thread blocks.
                    with Interrupt(functools.partial(stop_workers, stop)) as interrupt, masked(signal.SIG_BLOCK):
                        returns = super().launch(UntilStopped(job_overrides, stop), initial_job_idx)
                finally:
                    self.task_function = task
            if interrupt.requested:
                ends = [error for result in returns if isinstance(error := error_of(result), RunInterrupted)]
                print("\n".join(map(str, ends)), flush=True)
                if any(isinstance(error, RunLost) for error in ends):
                    raise KeyboardInterrupt
                raise KeyboardInterrupt(f"in {len(ends)} of {len(job_overrides)} jobs")
            return returns


class RunInterrupted(Exception):
    """A signal has ended a job; its runs are saved. A KeyboardInterrupt would end all workers."""


class RunLost(RunInterrupted):
    """A second signal has ended a job before its runs were saved."""


class UntilStopped(list[Sequence[str]]):
    """Jobs that joblib takes one after another, until a file exists."""

    def __init__(self, jobs: Sequence[Sequence[str]], stop: Path) -> None:
        super().__init__(jobs)
        self.stop = stop

    def __iter__(self) -> Iterator[Sequence[str]]:
        for job in super().__iter__():
            if self.stop.exists():
                return
            yield job


def stop_workers(stop: Path) -> None:
    """Let no further job begin, and ask the workers to save."""
    stop.touch()
    for process in multiprocessing.active_children():
        if process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, PASSED_ON)


def run_in_worker(task: Any, stop: Path, launcher: int, cfg: Any) -> Any:
    """The task in a worker: a signal ends it with RunInterrupted, once the run is saved.

    launcher: the process of the sweep, where the task runs by itself if there is one job at a time.
    """
    if os.getpid() == launcher:
        return task(cfg)
    # What an Interrupt puts back when it ends. A Ctrl-C reaches a worker twice, from the terminal and from
    # `stop_workers`. The second one may come when the run is saved already, to any thread that does not block it.
    for number in (signal.SIGINT, PASSED_ON):
        signal.signal(number, signal.SIG_IGN)
    # tqdm's own lock is between processes: a semaphore, which a worker leaves behind if a second signal ends it.
    tqdm.set_lock(threading.RLock())
    with Interrupt() as interrupt, masked(signal.SIG_UNBLOCK):
        if stop.exists() or not stop.parent.exists():  # a second signal has ended the launcher, and its folder
            return NOT_BEGUN
        try:
            if interrupt.requested:
                raise KeyboardInterrupt("before it began")
            return task(cfg)
        except KeyboardInterrupt as error:
            if not str(error):
                raise RunLost(f"{cfg.run_dir}: interrupted, not saved") from None
            raise RunInterrupted(f"{cfg.run_dir}: interrupted {error}") from None


@contextlib.contextmanager
def masked(how: int) -> Iterator[None]:
    """A context in which this thread, and what it starts, blocks the signals (SIG_BLOCK) or does not (SIG_UNBLOCK)."""
    before = signal.pthread_sigmask(how, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
