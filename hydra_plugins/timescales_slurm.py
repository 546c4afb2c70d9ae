"""hydra/launcher=slurm: a sweep's jobs as SLURM arrays, by submitit, which is optional."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn

from timescales.config import identity
from timescales.config.hydra_internals import error_of, failed_job
from timescales.errors import ConfigError

ARRAY = 1000  # jobs in one array: SLURM takes 1001 unless told otherwise (MaxArraySize)
GRACE = 20.0  # seconds that a shared file system may take to show a job's answer after its end
# What submitit calls by one name on every cluster; all else is SLURM's.
SHARED = {"timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name"}
SHARED |= {"stderr_to_stdout"}

if importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher"):
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher

    class TimescalesSlurm(SlurmLauncher):
        """Jobs in arrays, none of which ends with another.

        The plugin's own launcher raises at the first job that was killed, while others still run, and asks `sacct`: on
        clusters without accounting it waits for ever. This one asks the queue; a job that has left the queue without
        an answer has failed. The sweeper judges the answers.
        """

        def __call__(self, *arguments: Any) -> JobReturn:
            identity.register()  # a job begins here, not with train.py's first lines
            return super().__call__(*arguments)

        def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
            parameters = dict(self.params)
            parameters.pop("_target_", None)
            state = Singleton.get_state()
            calls = [
                (list(overrides), "hydra.sweep.dir", number, f"job_id_for_{number}", state)
                for number, overrides in enumerate(job_overrides, initial_job_idx)
            ]
            jobs, refused = submit(executor(parameters), self, calls)
            arrays = " ".join(dict.fromkeys(job.job_id.partition("_")[0] for job in jobs))
            print(f"SLURM has {len(jobs)} jobs, {arrays}: squeue -j {arrays.replace(' ', ',')}", flush=True)
            try:
                return answers(jobs) + refused
            except KeyboardInterrupt:
                print(f"\nthe jobs go on without this process: scancel {arrays} ends them", flush=True)
                raise


def executor(parameters: dict[str, Any]) -> Any:
    """A submitit executor with the parameters of conf/hydra/launcher/slurm.yaml."""
    import submitit

    rest = {k: v for k, v in parameters.items() if k not in ("submitit_folder", "max_num_timeout")}
    timeouts = parameters["max_num_timeout"]
    made = submitit.AutoExecutor(parameters["submitit_folder"], cluster="slurm", slurm_max_num_timeout=timeouts)
    made.update_parameters(**{k if k in SHARED else f"slurm_{k}": v for k, v in rest.items()})
    return made


def submit(executor: Any, function: Any, calls: Sequence[tuple[Any, ...]]) -> tuple[list[Any], list[JobReturn]]:
    """Submit calls of a function as arrays: the jobs, and a failure for each that SLURM refuses.

    Raises sbatch's error if it refuses all.
    """
    jobs: list[Any] = []
    for k in range(0, len(calls), ARRAY):
        try:
            jobs += executor.map_array(function, *zip(*calls[k : k + ARRAY], strict=True))
        except Exception as error:  # sbatch's: too many jobs, say
            if not jobs:
                raise
            why = (str(error).strip() or type(error).__name__).splitlines()[-1]
            line = f"SLURM took {len(jobs)} of {len(calls)} jobs ({why}): the same command continues"
            return jobs, [failure(line)] * (len(calls) - len(jobs))
    return jobs, []


def answers(jobs: Sequence[Any]) -> list[JobReturn]:
    """Wait for submitit's jobs; what each returned, or a failure if it returned nothing. Prints the progress."""
    ended: dict[str, JobReturn] = {}
    gone: dict[str, float] = {}  # since when a job without an answer has been missing from the queue
    while len(ended) < len(jobs):
        queue = queued()
        for job in jobs:
            if job.job_id in ended or is_running(job, queue, gone):
                continue
            ended[job.job_id] = result = answer(job)
            word = "failed" if error_of(result) else "ended"
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


def answer(job: Any) -> JobReturn:
    """What a job that has ended returned; a failure if it was killed."""
    output = f"(its output: {job.paths.stderr})"
    if not job.paths.result_pickle.exists():
        return failure(f"job {job.job_id} was cancelled or killed: the same command continues {output}")
    try:
        return job.results()[0]
    except Exception as error:  # the job's, as text: of its time limits, or a bug before our main
        last = [text for text in str(error).splitlines() if "Error: " in text][-1:]
        return failure(f"job {job.job_id}: {''.join(last)} {output}")


def failure(line: str) -> JobReturn:
    """The answer of a job that has none."""
    return failed_job(ConfigError(line))
