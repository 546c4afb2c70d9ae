"""A sweep's jobs in processes of this machine (joblib) and as SLURM arrays (submitit, here without a cluster)."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hydra.core.utils import JobReturn, JobStatus
from quick import QUICK, SIZES, records
from trainings import saved_step

from timescales.experiment import processes
from timescales.paths import ROOT
from timescales.runs import lock
from timescales.training.interrupt import Interrupt

QUICK = [*QUICK, "engine=eager", "logger=csv"]


@pytest.mark.slow
def test_joblib_trains_in_processes_and_collects_failures(tmp_path, train_process):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    of_joblib = [f"hydra.launcher.{setting}" for setting in ("n_jobs=2", "batch_size=1", "max_nbytes=100000")]
    sweep = ["-m", "hydra/launcher=joblib", *of_joblib, *QUICK, "loop.max_steps=20"]
    process = train_process(*sweep, "model.hidden_size=4,0")
    output = process.communicate()[0]
    assert process.returncode == 1
    assert "hidden_size must be greater than zero" in output
    assert "1 of 2 runs failed" in output
    assert "deprecated" not in output
    assert [saved["status"] for saved in records(tmp_path / "runs")] == ["finished"]


LONG = ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "task=copy", "task.T=2", "task.train_size=80000"]
LONG += [*SIZES[1:], "loop.log_every=1", "logger=csv", "engine=eager"]


@pytest.fixture
def start_sweep(train_process):
    """Start a sweep and its workers in a process group of their own, which is killed at the end of the test."""
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    started = []

    def start(*arguments):
        started.append(train_process(*LONG, *arguments, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def wait_until(true, process):
    while not true():
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.02)


def begun(tmp_path):
    """The directories of runs whose curves have a header and at least three further lines: of steps 0, 1 and 2."""
    curves = (tmp_path / "runs").glob("*/curve.csv")
    return sorted(path.parent for path in curves if len(path.read_text().splitlines()) >= 4)


def output_of_interrupted(process):
    output = process.communicate(timeout=300)[0]
    assert process.returncode == 130, output
    assert "Traceback" not in output
    return output


def assert_saved(directory):
    assert json.loads((directory / "record.json").read_text())["status"] == "interrupted"
    assert saved_step(directory) >= 2
    assert not lock.owner(directory)
    assert not [path.name for path in directory.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [True, False], ids=["Ctrl-C", "SIGTERM to the sweep alone"])
def test_a_signal_ends_a_joblib_sweep_when_each_worker_has_saved(tmp_path, start_sweep, whole_group):
    process = start_sweep("seed=0,1,2,3,4,5")
    wait_until(lambda: len(begun(tmp_path)) >= 2, process)
    runs = begun(tmp_path)
    if whole_group:  # a terminal sends it to all processes
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.terminate()
    output = output_of_interrupted(process)
    for directory in runs:
        assert_saved(directory)
        assert re.search(rf"run_dir=\S*{directory.name}\S*: saved at step {saved_step(directory)}\n", output)
    assert "Saved in 2 of 6 jobs. Run the same command to continue." in output
    assert output.index("Press Ctrl-C again") < output.index(": saved at step")
    assert len(list((tmp_path / "runs").glob("*/record.json"))) == 2  # no further one has begun


@pytest.mark.slow
@pytest.mark.parametrize("second", ["Ctrl-C", "Ctrl-C, late at the sweep", "SIGTERM to the sweep alone"])
def test_a_second_signal_ends_a_joblib_sweep_at_once(tmp_path, start_sweep, monkeypatch, second):
    """While the workers are in a step of a minute, which the first signal would let them finish."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*sys.path, str(ROOT / "tests" / "support")]))
    monkeypatch.setenv("PACE", "60")
    pauses = tmp_path / "pauses"
    pauses.mkdir()
    monkeypatch.setenv("PAUSES", str(pauses))
    process = start_sweep("task._target_=odd_tasks.Paced", "seed=1", "model.hidden_size=4,5,6")
    wait_until(lambda: len(list(pauses.iterdir())) == 2, process)  # between two steps a signal would save at once
    for time_sent in range(2):
        if "SIGTERM" in second:
            process.terminate()
        else:
            if "late" in second and time_sent == 1:
                for pid in children(process):
                    os.kill(int(pid), signal.SIGINT)
                time.sleep(0.3)  # the workers have ended when it reaches the sweep
            os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)  # two signals at the same moment are one
    output = output_of_interrupted(process)
    assert "Stopped without saving. Run the same command to continue." in output
    assert "leaked" not in output  # semaphores of the workers' progress bars
    runs = [path.parent for path in (tmp_path / "runs").glob("*/record.json")]
    assert len(runs) == 2  # no further one has begun; Hydra may have made its folder
    for directory in runs:
        assert not (directory / "last.pt").exists()
        while lock.owner(directory):  # until its worker has ended
            time.sleep(0.02)


@pytest.mark.slow
def test_a_signal_to_a_worker_ends_its_run_alone(tmp_path, start_sweep):
    process = start_sweep("seed=0,1,2")
    wait_until(lambda: len(begun(tmp_path)) >= 2, process)
    first, second = begun(tmp_path)
    os.kill(json.loads((first / "lock").read_text())["process"], signal.SIGTERM)
    wait_until(lambda: len(begun(tmp_path)) == 3, process)  # the worker goes on with the next run
    assert_saved(first)
    assert lock.owner(second)
    process.terminate()
    output = process.communicate(timeout=300)[0]
    assert "Saved in 3 of 3 jobs." in output
    for directory in begun(tmp_path):
        assert_saved(directory)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to see the workers")
@pytest.mark.slow
def test_a_signal_while_workers_start_kills_none_of_them(tmp_path, start_sweep):
    """They load torch for seconds; joblib would kill all others as soon as it misses one."""
    process = start_sweep("seed=0,1,2")
    wait_until(lambda: "popen_loky_posix" in "".join(map(command_line, children(process))), process)
    os.killpg(process.pid, signal.SIGTERM)
    output = output_of_interrupted(process)
    assert "jobs. Run the same command to continue." in output
    assert "Terminated" not in output


WORKER = """
import os, signal, sys, tempfile, threading
from pathlib import Path
from timescales.experiment.processes import in_worker

def job(overrides):
    signal.raise_signal(signal.SIGTERM)  # the run saves
    after = stop.touch if sys.argv[1] == "the sweep stops" else lambda: os.kill(os.getpid(), signal.SIGTERM)
    threading.Timer(0.2, after).start()
    raise KeyboardInterrupt("at step 3")

stop = Path(tempfile.mkdtemp()) / "stop"
print(in_worker(job, stop, 0, ["seed=1"]), stop.exists())
"""


@pytest.mark.parametrize("later", ["the sweep stops", "another signal"])
def test_a_worker_that_has_saved_waits_until_the_sweep_stops_or_another_signal_comes(later):
    """Else it would begin another job. However the wait ends, the sweep is told that the run is saved."""
    done = subprocess.run([sys.executable, "-c", WORKER, later], capture_output=True, text=True, check=True)
    told = f"Interrupted(line='seed=1: saved at step 3', saved=True) {later == 'the sweep stops'}"
    assert done.stdout.strip() == told


def test_workers_take_the_gpus_of_a_box_in_turn(monkeypatch):
    taken = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    for number in (1, 2, 3, 4):
        worker = SimpleNamespace(_identity=(number,))
        monkeypatch.setattr(processes.multiprocessing, "current_process", lambda worker=worker: worker)
        processes.share_gpus()
    assert taken == [0, 1, 2, 0]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    processes.share_gpus()
    assert taken == [0, 1, 2, 0]


def children(process):
    """The ids of the processes that a process has started."""
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()


def command_line(pid):
    """What a process was started with; "" if it has ended."""
    path = Path(f"/proc/{pid}/cmdline")
    return path.read_text() if path.exists() else ""


class Job:
    """A submitted job as submitit shows it."""

    def __init__(self, folder, name, answer=None):
        self.job_id, self.answer = name, answer
        result = folder / f"{name}.pkl"
        self.paths = SimpleNamespace(result_pickle=result, stderr=folder / f"{name}.err")
        if answer is not None:
            result.touch()

    def results(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return [self.answer]


def test_each_slurm_job_ends_by_itself(tmp_path, monkeypatch, capsys):
    """One returned, one raised, one vanishes, one is requeued and returns last; the scheduler is away for a while."""
    from timescales.experiment import slurm

    monkeypatch.setattr(slurm, "GRACE", 0.0)
    monkeypatch.setattr(slurm.time, "sleep", lambda seconds: None)
    done = JobReturn(status=JobStatus.COMPLETED, _return_value=0.5)
    trace = RuntimeError("failed with trace\nsubmitit.core.utils.UncompletedJobError: timed-out too many times.\nsee")
    jobs = [Job(tmp_path, "5_0", done), Job(tmp_path, "5_1", trace), Job(tmp_path, "5_2"), Job(tmp_path, "5_3")]

    def queues():
        yield from ({"5_2", "5_3"}, None, None, {"5_2"}, {"5_2"})
        jobs[2].paths.result_pickle.touch()
        jobs[2].answer = done
        while True:
            yield set()

    queue = queues()
    monkeypatch.setattr(slurm, "queued", lambda: next(queue))
    ends = slurm.answers(jobs)
    assert ends[0] is ends[2] is done
    assert [end.status for end in ends] == 2 * [JobStatus.COMPLETED, JobStatus.FAILED]
    assert "timed-out too many times" in str(ends[1]._return_value)
    assert "job 5_3 was cancelled or killed: the same command continues" in str(ends[3]._return_value)
    assert "[3/4] job 5_3 failed" in capsys.readouterr().out


def test_the_first_array_goes_on_where_slurm_refuses_a_second(tmp_path, monkeypatch):
    import submitit

    from timescales.experiment import slurm

    given, fine = [], JobReturn(status=JobStatus.COMPLETED)

    class Executor:
        def __init__(self, *arguments, **more): ...

        def update_parameters(self, **parameters): ...

        def map_array(self, function, *arguments):
            given.append(len(arguments[0]))
            if len(given) > 1 or "nothing" in arguments[0][0]:
                raise RuntimeError("sbatch: error\nsbatch: error: QOSMaxSubmitJobPerUserLimit\n")
            return [Job(tmp_path, f"5_{k}", fine) for k in range(len(arguments[0]))]

    monkeypatch.setattr(submitit, "AutoExecutor", Executor)
    monkeypatch.setattr(slurm, "ARRAY", 2)
    monkeypatch.setattr(slurm, "queued", lambda: set())
    monkeypatch.setattr(slurm.time, "sleep", lambda seconds: None)
    parameters = {"submitit_folder": str(tmp_path), "max_num_timeout": 1}
    ends = slurm.launch(len, parameters, [[f"seed={k}"] for k in range(5)])
    assert given == [2, 2]
    line = "SLURM took 2 of 5 jobs (sbatch: error: QOSMaxSubmitJobPerUserLimit): the same command continues"
    assert ends[:2] == [fine, fine]
    assert [str(end._return_value) for end in ends[2:]] == 3 * [line]
    given.clear()
    with pytest.raises(RuntimeError, match="QOSMax"):
        slurm.launch(len, parameters, [["nothing"]])


def test_a_cluster_s_warning_is_passed_on_when_all_is_saved():
    given = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: given.append("requeued"))
    try:
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGUSR2)
            assert interrupt.requested
            assert given == []
        assert given == ["requeued"]
        with Interrupt() as interrupt:
            assert not interrupt.requested
        assert given == ["requeued"]
    finally:
        signal.signal(signal.SIGUSR2, before)
