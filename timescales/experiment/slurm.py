"""Launches as SLURM arrays, by submitit, which is optional."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.utils import JobReturn, JobStatus

from timescales.errors import ConfigError
from timescales.experiment.train import Job

ARRAY = 1000  # jobs in one array: SLURM takes 1001 unless told otherwise (MaxArraySize)
GRACE = 20.0  # seconds that a shared file system may take to show a job's answer after its end


def launch(job: Job, parameters: Mapping[str, Any], overrides: Sequence[Sequence[str]]) -> list[JobReturn]:
    """Call job(overrides) in jobs of SLURM; returns how each ended.

    No job ends with another, and nobody asks `sacct`, which on clusters without accounting waits for ever: the queue
    is asked. parameters: of conf/hydra/launcher/slurm.yaml. Raises sbatch's error if SLURM refuses all jobs.
    """
    import submitit
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf

    shared = vars(BaseQueueConf())  # what submitit calls by one name on every cluster; all else is SLURM's
    named = {key if key in shared else f"slurm_{key}": value for key, value in parameters.items()}
    folder, timeouts = named.pop("submitit_folder"), named.pop("slurm_max_num_timeout")
    executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=timeouts)
    executor.update_parameters(**named)
    jobs: list[Any] = []
    refused: list[JobReturn] = []
    for k in range(0, len(overrides), ARRAY):
        try:
            jobs += executor.map_array(job, overrides[k : k + ARRAY])
        except Exception as error:  # sbatch's: too many jobs, say
            if not jobs:
                raise
            why = (str(error).strip() or type(error).__name__).splitlines()[-1]
            line = f"SLURM took {len(jobs)} of {len(overrides)} jobs ({why}): the same command continues"
            refused = [failed(line)] * (len(overrides) - len(jobs))
            break
    arrays = " ".join(dict.fromkeys(job.job_id.partition("_")[0] for job in jobs))
    print(f"SLURM has {len(jobs)} jobs, {arrays}: squeue -j {arrays.replace(' ', ',')}", flush=True)
    try:
        return answers(jobs) + refused
    except KeyboardInterrupt:
        print(f"\nthe jobs go on without this process: scancel {arrays} ends them", flush=True)
        raise


def answers(jobs: Sequence[Any]) -> list[JobReturn]:
    """Wait for submitit's jobs; how each ended. Prints the progress."""
    ended: dict[str, JobReturn] = {}
    missing_since: dict[str, float] = {}  # since when a job without an answer has been missing from the queue
    while len(ended) < len(jobs):
        queue, now = queued(), time.monotonic()
        for job in (job for job in jobs if job.job_id not in ended):
            answered = job.paths.result_pickle.exists()
            if not answered and (queue is None or job.job_id in queue):  # it waits or runs, maybe once more
                missing_since.pop(job.job_id, None)
            elif answered or now - missing_since.setdefault(job.job_id, now) >= GRACE:
                ended[job.job_id] = result = answer(job)
                word = "failed" if result.status is JobStatus.FAILED else "ended"
                print(f"[{len(ended)}/{len(jobs)}] job {job.job_id} {word}", flush=True)
        time.sleep(min(2.0 + len(jobs) / 100, 30.0))  # the scheduler answers everybody
    return [ended[job.job_id] for job in jobs]


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
