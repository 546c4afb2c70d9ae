"""hydra/launcher=slurm: a sweep's jobs as SLURM arrays, by submitit, which is optional."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus

from timescales import errors
from timescales.config import identity

ARRAY = 1000  # jobs in one array: SLURM takes 1001 unless told otherwise (MaxArraySize)
GRACE = 20.0  # seconds that a shared file system may take to show a job's answer after its end
# What submitit calls by one name on every cluster; all else is SLURM's.
SHARED = ("timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name",
          "stderr_to_stdout")  # fmt: skip

if importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher"):
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher

    class TimescalesSlurm(SlurmLauncher):
        """Jobs in arrays, none of which ends with another.

        The plugin's own launcher raises at the first job that was killed, while others still run, and asks `sacct`:
        on clusters without it, it waits for ever. This one asks the queue; a job that has left the queue without an
        answer has failed. The sweeper judges the answers.
        """

        def __call__(self, *arguments: Any) -> JobReturn:
            identity.register()  # a job begins here, not with train.py's first lines
            return super().__call__(*arguments)

        def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
            import submitit

            given = dict(self.params)
            given.pop("_target_", None)
            folder, again = given.pop("submitit_folder"), given.pop("max_num_timeout")
            executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=again)
            executor.update_parameters(**{k if k in SHARED else f"slurm_{k}": v for k, v in given.items()})
            state = Singleton.get_state()
            asked = [
                (list(overrides), "hydra.sweep.dir", number, f"job_id_for_{number}", state)
                for number, overrides in enumerate(job_overrides, initial_job_idx)
            ]
            jobs: list[Any] = []
            refused: list[JobReturn] = []
            for k in range(0, len(asked), ARRAY):
                try:
                    jobs += executor.map_array(self, *zip(*asked[k : k + ARRAY], strict=True))
                except Exception as error:  # sbatch's: too many jobs, say
                    if not jobs:
                        raise
                    why = (str(error).strip() or type(error).__name__).splitlines()[-1]
                    line = f"SLURM took {len(jobs)} of {len(asked)} jobs ({why}): the same command continues"
                    refused = [failure(line)] * (len(asked) - len(jobs))
                    break
            arrays = " ".join(dict.fromkeys(job.job_id.partition("_")[0] for job in jobs))
            print(f"SLURM has {len(jobs)} jobs, {arrays}: squeue -j {arrays.replace(' ', ',')}", flush=True)
            try:
                return answers(jobs) + refused
            except KeyboardInterrupt:
                print(f"\nthe jobs go on without us: scancel {arrays} ends them", flush=True)
                raise


def answers(jobs: Sequence[Any]) -> list[JobReturn]:
    """Wait for submitit's jobs; what each returned, or a failure if it returned nothing. Prints the progress."""
    found: dict[str, JobReturn] = {}
    gone: dict[str, float] = {}  # since when a job without an answer has been missing from the queue
    while len(found) < len(jobs):
        queue = queued()
        for job in jobs:
            if job.job_id in found:
                continue
            if not job.paths.result_pickle.exists():
                if queue is None or job.job_id in queue:
                    gone.pop(job.job_id, None)
                    continue
                if time.monotonic() - gone.setdefault(job.job_id, time.monotonic()) < GRACE:
                    continue
            found[job.job_id] = one = answer(job)
            ended = "ended" if one.status == JobStatus.COMPLETED else "failed"
            print(f"[{len(found)}/{len(jobs)}] job {job.job_id} {ended}", flush=True)
        time.sleep(min(2.0 + len(jobs) / 100, 30.0))  # the scheduler answers everybody
    return [found[job.job_id] for job in jobs]


def queued() -> set[str] | None:
    """Our jobs that wait or run; None if the scheduler does not answer just now."""
    command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={os.getuid()}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(found.stdout.split()) if found.returncode == 0 else None


def answer(job: Any) -> JobReturn:
    """What a job that has ended returned; a failure if it was killed."""
    if not job.paths.result_pickle.exists():
        line = f"job {job.job_id} was cancelled or killed: the same command continues (its output: {job.paths.stderr})"
    else:
        try:
            return job.results()[0]
        except Exception as error:  # the job's, as text: of its time limits, or a bug before our main
            last = [text for text in str(error).splitlines() if "Error: " in text][-1:]
            line = f"job {job.job_id}: {''.join(last)} (its output: {job.paths.stderr})"
    return failure(line)


def failure(line: str) -> JobReturn:
    """The answer of a job that has none."""
    return JobReturn(status=JobStatus.FAILED, _return_value=errors.ConfigError(line))
