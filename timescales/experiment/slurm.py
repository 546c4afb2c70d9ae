"""Launches as SLURM arrays, by submitit, which is optional."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.utils import JobReturn, JobStatus

from timescales.errors import ConfigError

ARRAY = 1000  # jobs in one array: SLURM takes 1001 unless told otherwise (MaxArraySize)
GRACE = 20.0  # seconds that a shared file system may take to show a job's answer after its end
# What submitit calls by one name on every cluster; all else is SLURM's.
SHARED = ["timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name"]
SHARED += ["stderr_to_stdout"]


@dataclass
class Requeued:
    """A job that submitit may put back into the queue, with the same overrides."""

    job: Callable[[list[str]], JobReturn]

    def __call__(self, overrides: list[str]) -> JobReturn:
        """Return how the job ended."""
        return self.job(overrides)

    def checkpoint(self, overrides: list[str]) -> Any:
        """Return the same job once more: submitit asks for it when the job's time is over."""
        import submitit

        return submitit.helpers.DelayedSubmission(self, overrides)


def launch(
    job: Callable[[list[str]], JobReturn], parameters: Mapping[str, Any], overrides: Sequence[list[str]]
) -> list[JobReturn]:
    """Call job(overrides) in jobs of SLURM; returns how each ended.

    No job ends with another, and nobody asks `sacct`, which on clusters without accounting waits for ever: the queue
    is asked. parameters: of conf/hydra/launcher/slurm.yaml.
    """
    jobs, refused = submit(executor(parameters), Requeued(job), overrides)
    arrays = " ".join(dict.fromkeys(job.job_id.partition("_")[0] for job in jobs))
    print(f"SLURM has {len(jobs)} jobs, {arrays}: squeue -j {arrays.replace(' ', ',')}", flush=True)
    try:
        return answers(jobs) + refused
    except KeyboardInterrupt:
        print(f"\nthe jobs go on without this process: scancel {arrays} ends them", flush=True)
        raise


def executor(parameters: Mapping[str, Any]) -> Any:
    """Make a submitit executor with the parameters of conf/hydra/launcher/slurm.yaml."""
    import submitit

    rest = {k: v for k, v in parameters.items() if k not in ("_target_", "submitit_folder", "max_num_timeout")}
    timeouts = parameters["max_num_timeout"]
    made = submitit.AutoExecutor(parameters["submitit_folder"], cluster="slurm", slurm_max_num_timeout=timeouts)
    made.update_parameters(**{k if k in SHARED else f"slurm_{k}": v for k, v in rest.items()})
    return made


def submit(executor: Any, job: Requeued, overrides: Sequence[list[str]]) -> tuple[list[Any], list[JobReturn]]:
    """Submit a job for each run, as arrays: the jobs, and an error for each that SLURM refuses.

    Raises sbatch's error if it refuses all.
    """
    jobs: list[Any] = []
    for k in range(0, len(overrides), ARRAY):
        try:
            jobs += executor.map_array(job, overrides[k : k + ARRAY])
        except Exception as error:  # sbatch's: too many jobs, say
            if not jobs:
                raise
            why = (str(error).strip() or type(error).__name__).splitlines()[-1]
            line = f"SLURM took {len(jobs)} of {len(overrides)} jobs ({why}): the same command continues"
            return jobs, [failed(line)] * (len(overrides) - len(jobs))
    return jobs, []


def answers(jobs: Sequence[Any]) -> list[JobReturn]:
    """Wait for submitit's jobs; how each ended. Prints the progress."""
    ended: dict[str, JobReturn] = {}
    missing_since: dict[str, float] = {}  # since when a job without an answer has been missing from the queue
    while len(ended) < len(jobs):
        queue = queued()
        for job in jobs:
            if job.job_id in ended or is_running(job, queue, missing_since):
                continue
            ended[job.job_id] = result = answer(job)
            word = "failed" if result.status is JobStatus.FAILED else "ended"
            print(f"[{len(ended)}/{len(jobs)}] job {job.job_id} {word}", flush=True)
        time.sleep(min(2.0 + len(jobs) / 100, 30.0))  # the scheduler answers everybody
    return [ended[job.job_id] for job in jobs]


def is_running(job: Any, queue: set[str] | None, missing_since: dict[str, float]) -> bool:
    """Return whether a job may still answer: it waits or runs, or has left the queue less than GRACE seconds ago."""
    if job.paths.result_pickle.exists():
        return False
    if queue is None or job.job_id in queue:
        missing_since.pop(job.job_id, None)
        return True
    return time.monotonic() - missing_since.setdefault(job.job_id, time.monotonic()) < GRACE


def queued() -> set[str] | None:
    """Our jobs that wait or run; None if the scheduler does not answer just now."""
    command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={os.getuid()}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(done.stdout.split()) if done.returncode == 0 else None


def answer(job: Any) -> JobReturn:
    """Return how a job has ended; an error if it was killed."""
    output = f"(its output: {job.paths.stderr})"
    if not job.paths.result_pickle.exists():
        return failed(f"job {job.job_id} was cancelled or killed: the same command continues {output}")
    try:
        ended: JobReturn = job.results()[0]
        return ended
    except Exception as error:  # the job's, as text: of its time limits, or a bug before our main
        last = [text for text in str(error).splitlines() if "Error: " in text][-1:]
        return failed(f"job {job.job_id}: {''.join(last)} {output}")


def failed(line: str) -> JobReturn:
    """Return the end of a job that has returned nothing."""
    return JobReturn(status=JobStatus.FAILED, _return_value=ConfigError(line))
