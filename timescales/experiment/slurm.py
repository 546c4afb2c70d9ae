"""Launches as SLURM arrays, by submitit, which is optional."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from timescales.errors import ConfigError
from timescales.experiment.queue import Group, Parameters, Work, try_to

ARRAY = 1000  # jobs in one array: SLURM takes 1001 unless told otherwise (MaxArraySize)
GRACE = 20.0  # seconds that a shared file system may take to show a job's answer after its end
# What submitit calls by one name on every cluster; all else is SLURM's.
SHARED = ["timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name"]
SHARED += ["stderr_to_stdout"]


@dataclass
class Job:
    """Work that submitit may put back into the queue, with the same group."""

    work: Work

    def __call__(self, group: Group) -> Any:
        """What the work returns, or the error that it raises."""
        return try_to(self.work, group)

    def checkpoint(self, group: Group) -> Any:
        """The same job once more: submitit asks for it when the job's time is over."""
        import submitit

        return submitit.helpers.DelayedSubmission(self, group)


def launch(work: Work, parameters: Parameters, groups: Sequence[Group]) -> list[Any]:
    """Call work(group) in jobs; returns what each returned, or why it returned nothing.

    No job ends with another, and nobody asks `sacct`, which on clusters without accounting waits for ever: the queue
    is asked. parameters: of conf/hydra/launcher/slurm.yaml.
    """
    jobs, refused = submit(executor(parameters), Job(work), groups)
    arrays = " ".join(dict.fromkeys(job.job_id.partition("_")[0] for job in jobs))
    print(f"SLURM has {len(jobs)} jobs, {arrays}: squeue -j {arrays.replace(' ', ',')}", flush=True)
    try:
        return answers(jobs) + refused
    except KeyboardInterrupt:
        print(f"\nthe jobs go on without this process: scancel {arrays} ends them", flush=True)
        raise


def executor(parameters: Parameters) -> Any:
    """A submitit executor with the parameters of conf/hydra/launcher/slurm.yaml."""
    import submitit

    rest = {k: v for k, v in parameters.items() if k not in ("_target_", "submitit_folder", "max_num_timeout")}
    timeouts = parameters["max_num_timeout"]
    made = submitit.AutoExecutor(parameters["submitit_folder"], cluster="slurm", slurm_max_num_timeout=timeouts)
    made.update_parameters(**{k if k in SHARED else f"slurm_{k}": v for k, v in rest.items()})
    return made


def submit(executor: Any, job: Job, groups: Sequence[Group]) -> tuple[list[Any], list[Any]]:
    """Submit a job for each group, as arrays: the jobs, and an error for each that SLURM refuses.

    Raises sbatch's error if it refuses all.
    """
    jobs: list[Any] = []
    for k in range(0, len(groups), ARRAY):
        try:
            jobs += executor.map_array(job, groups[k : k + ARRAY])
        except Exception as error:  # sbatch's: too many jobs, say
            if not jobs:
                raise
            why = (str(error).strip() or type(error).__name__).splitlines()[-1]
            line = f"SLURM took {len(jobs)} of {len(groups)} jobs ({why}): the same command continues"
            return jobs, [ConfigError(line)] * (len(groups) - len(jobs))
    return jobs, []


def answers(jobs: Sequence[Any]) -> list[Any]:
    """Wait for submitit's jobs; what each returned, or why it returned nothing. Prints the progress."""
    ended: dict[str, object] = {}
    gone: dict[str, float] = {}  # since when a job without an answer has been missing from the queue
    while len(ended) < len(jobs):
        queue = queued()
        for job in jobs:
            if job.job_id in ended or is_running(job, queue, gone):
                continue
            ended[job.job_id] = result = answer(job)
            word = "failed" if isinstance(result, Exception) else "ended"
            print(f"[{len(ended)}/{len(jobs)}] job {job.job_id} {word}", flush=True)
        time.sleep(min(2.0 + len(jobs) / 100, 30.0))  # the scheduler answers everybody
    return [ended[job.job_id] for job in jobs]


def is_running(job: Any, queue: set[str] | None, gone: dict[str, float]) -> bool:
    """Whether a job may still answer: it waits or runs, or has left the queue less than GRACE seconds ago."""
    if job.paths.result_pickle.exists():
        return False
    if queue is None or job.job_id in queue:
        gone.pop(job.job_id, None)
        return True
    return time.monotonic() - gone.setdefault(job.job_id, time.monotonic()) < GRACE


def queued() -> set[str] | None:
    """Our jobs that wait or run; None if the scheduler does not answer just now."""
    command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={os.getuid()}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(done.stdout.split()) if done.returncode == 0 else None


def answer(job: Any) -> Any:
    """What a job that has ended returned; an error if it was killed."""
    output = f"(its output: {job.paths.stderr})"
    if not job.paths.result_pickle.exists():
        return ConfigError(f"job {job.job_id} was cancelled or killed: the same command continues {output}")
    try:
        return job.results()[0]
    except Exception as error:  # the job's, as text: of its time limits, or a bug before our main
        last = [text for text in str(error).splitlines() if "Error: " in text][-1:]
        return ConfigError(f"job {job.job_id}: {''.join(last)} {output}")
