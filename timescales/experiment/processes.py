"""Jobs in processes of this machine, by joblib, which is optional; each worker saves when a signal comes."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from timescales.experiment.train import Job
from timescales.training.interrupt import PASSED_ON, Interrupt


class Interrupted(NamedTuple):
    """What a worker returns of a job that a signal has ended: a KeyboardInterrupt would end all workers."""

    line: str
    saved: bool  # False: a second signal came before the run was saved


def launch(job: Job, parameters: Mapping[str, Any], jobs: Sequence[Sequence[str]]) -> list[Any]:
    """Call job(overrides) in processes, for each of the jobs' overrides; returns what each returned.

    At a signal joblib kills its workers, and so it does when one of them dies. Here a signal is passed on to the
    workers and no further job begins; what is in training is waited for. A worker is born with signals blocked, so
    that none ends it before it can save.

    parameters: of joblib.Parallel; numbers that Hydra's schema has as strings are made numbers again.
    """
    from joblib import Parallel, delayed

    given = {key: int(v) if isinstance(v, str) and v.isdecimal() else v for key, v in parameters.items()}
    resource_tracker.ensure_running()  # before `masked`: as it starts, it unblocks signals
    with tempfile.TemporaryDirectory() as folder:
        stop = Path(folder) / "stop"
        # The thread of the Interrupt takes the signals; workers inherit what this thread blocks.
        with Interrupt(partial(stop_workers, stop)) as interrupt, masked(signal.SIG_BLOCK):
            call = delayed(partial(in_worker, job, stop, os.getpid()))
            todo = itertools.takewhile(lambda overrides: not stop.exists(), jobs)
            ends = list(Parallel(**given | {"backend": "loky"})(call(overrides) for overrides in todo))
    if interrupt.requested:
        interrupted = [end for end in ends if isinstance(end, Interrupted)]
        print("\n".join(end.line for end in interrupted), flush=True)
        if not all(end.saved for end in interrupted):
            raise KeyboardInterrupt
        raise KeyboardInterrupt(f"in {len(interrupted)} of {len(jobs)} jobs")
    return ends


def stop_workers(stop: Path) -> None:
    """Let no further job begin, and ask the workers to save."""
    stop.touch()
    for process in multiprocessing.active_children():
        if process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, PASSED_ON)


def in_worker(job: Job, stop: Path, launcher: int, overrides: Sequence[str]) -> Any:
    """Do a job in a worker: where a signal ends it, an Interrupted is returned once the run is saved.

    launcher: the process of the sweep, where the job is done if there is one at a time.
    """
    if os.getpid() == launcher:
        return job(overrides)
    # What an Interrupt puts back when it ends. A Ctrl-C reaches a worker twice, from the terminal and from
    # `stop_workers`. The second one may come when the run is saved already, to any thread that does not block it.
    for number in (signal.SIGINT, PASSED_ON):
        signal.signal(number, signal.SIG_IGN)
    # tqdm's own lock is between processes: a semaphore, which a worker leaves behind if a second signal ends it.
    tqdm.set_lock(threading.RLock())
    with Interrupt() as interrupt, masked(signal.SIG_UNBLOCK):
        if stop.exists() or not stop.parent.exists():  # a second signal has ended the launcher, and its folder
            return "not begun"
        try:
            if interrupt.requested:
                raise KeyboardInterrupt("before it began")
            share_gpus()
            return job(overrides)
        except KeyboardInterrupt as error:
            how = f"saved {error}" if str(error) else "interrupted, not saved"
            # A worker that had the signal before the sweep had it would begin another job. So it waits for the sweep,
            # or for a second signal.
            with contextlib.suppress(KeyboardInterrupt):
                for _ in range(100):
                    if stop.exists() or not stop.parent.exists():
                        break
                    time.sleep(0.05)
            return Interrupted(f"{' '.join(overrides)}: {how}", saved=bool(str(error)))


def share_gpus() -> None:
    """Make the GPU of this worker the one that `device=auto` means: the workers take the GPUs of a box in turn."""
    import torch

    if torch.cuda.device_count() > 1:
        (*_, number) = multiprocessing.current_process()._identity or (1,)  # workers are numbered from 1
        torch.cuda.set_device((number - 1) % torch.cuda.device_count())


@contextlib.contextmanager
def masked(how: int) -> Iterator[None]:
    """Block the signals (SIG_BLOCK), or unblock them (SIG_UNBLOCK), in this thread and in those that it starts."""
    before = signal.pthread_sigmask(how, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, PASSED_ON))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
