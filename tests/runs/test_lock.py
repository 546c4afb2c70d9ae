"""Who works in a run's directory: one process, found out without waiting on one machine, by silence from another."""

import fcntl
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from timescales.config import messages
from timescales.runs import lock, record
from timescales.training.interrupt import Interrupt

ROOT = Path(__file__).resolve().parents[2]
QUICK = ["task=copy", "task.T=3", "task.train_size=200", "task.valid_size=10", "task.test_size=10",
         "task.batch_size=10", "model=lstm", "model.hidden_size=4", "engine=eager", "logger=csv"]  # fmt: skip


def of_another_machine(directory, silent, **more):
    """A claim whose owner's lock is not seen here, last touched so many seconds ago."""
    directory.mkdir(exist_ok=True)
    path = directory / "lock"
    said = {"process": 7, "host": "far", "machine": "another kernel", "job": None, "try": 0, **more}
    path.write_text(json.dumps(said))
    then = time.time() - silent
    os.utime(path, (then, then))


def test_one_at_a_time_and_given_back(tmp_path):
    for _ in range(3):  # nothing is left that grows
        with lock.hold(tmp_path):
            assert "is being run" not in (lock.owner(tmp_path) or "")
            with pytest.raises(lock.RunningElsewhere, match=f"is being run by process {os.getpid()} on .* right now"):
                lock.Lock(tmp_path)
        assert lock.owner(tmp_path) is None
        assert len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_locks_nobody_out(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="lock"):
            lock.Lock(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
    held = lock.Lock(tmp_path)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(lock.RELEASED), limits[1]))
        held.release()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert lock.owner(tmp_path) is None
    assert held.path.read_text() == lock.RELEASED


def test_the_dead_of_this_machine_are_followed_at_once(tmp_path):
    code = "import pathlib, sys; from timescales.runs import lock\n"
    code += "held = lock.Lock(pathlib.Path(sys.argv[1])); print(flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    with pytest.raises(lock.RunningElsewhere, match=f"process {process.pid} on"):
        lock.Lock(tmp_path)
    process.kill()
    process.wait()
    process.stdin.close(), process.stdout.close()
    with lock.hold(tmp_path):
        pass


def test_another_machine_is_believed_until_it_was_silent(tmp_path):
    of_another_machine(tmp_path, silent=lock.TIMEOUT - 30)
    with pytest.raises(lock.RunningElsewhere, match=r"process 7 on far, last heard of 2\d\d s ago, right now"):
        lock.Lock(tmp_path)
    of_another_machine(tmp_path, silent=lock.TIMEOUT + 1)
    with lock.hold(tmp_path):
        assert [path.name for path in tmp_path.glob("lock*")] == ["lock.1"]


def test_clocks_of_machines_do_not_matter(tmp_path, monkeypatch):
    of_another_machine(tmp_path, silent=0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert lock.owner(tmp_path)
    monkeypatch.setattr(time, "time", lambda: 1e12)
    assert lock.owner(tmp_path)


def test_a_requeued_job_follows_itself_at_once(tmp_path, monkeypatch):
    of_another_machine(tmp_path, silent=1, job="18")
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    assert lock.owner(tmp_path), "several processes of one job, on its several machines, are no tries of each other"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert lock.owner(tmp_path) is None


def test_without_locks_the_beat_alone_counts(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    monkeypatch.setattr(lock, "HEARTBEAT", 0.05)
    with lock.hold(tmp_path):
        path = tmp_path / "lock"
        os.utime(path, (0, 0))
        while path.stat().st_mtime == 0:  # until it is touched again
            time.sleep(0.01)
        with pytest.raises(lock.RunningElsewhere, match="last heard of 0 s ago"):
            lock.Lock(tmp_path)
        monkeypatch.setattr(lock, "TIMEOUT", -1.0)
        assert lock.owner(tmp_path) is None
    assert lock.owner(tmp_path) is None


def test_of_several_who_find_the_dead_one_gets_it(tmp_path, monkeypatch):
    """Even where nobody sees another's lock."""
    monkeypatch.setattr(lock, "_is_held", lambda file: None)
    of_another_machine(tmp_path, silent=2 * lock.TIMEOUT)
    first = lock.Lock(tmp_path)
    # A slow one, who looked before that.
    monkeypatch.setattr(lock, "owner", lambda directory: None)
    newest = lock._newest
    monkeypatch.setattr(lock, "_newest", lambda directory: 0)
    with pytest.raises(lock.RunningElsewhere, match="has just taken it"):
        lock.Lock(tmp_path)
    monkeypatch.setattr(lock, "_newest", newest)
    first.release()
    # And one who slept for so long that another came, went, and a third is there.
    second = lock.Lock(tmp_path)
    seen = iter([0, 2])
    monkeypatch.setattr(lock, "_newest", lambda directory: next(seen))
    with pytest.raises(lock.RunningElsewhere, match="has just taken it"):
        lock.Lock(tmp_path)
    monkeypatch.setattr(lock, "_newest", newest)
    assert [path.name for path in tmp_path.glob("lock*")] == ["lock.2"]
    second.release()


def test_who_was_taken_for_dead_writes_no_more(train, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT", 0.01)
    directory = tmp_path / "mine"
    from timescales.runs import loggers

    original = loggers.Curve.log

    def log(self, values, step):
        original(self, values, step)
        if step == 20:  # it was away, and another has taken over and saved something
            (directory / "lock.1").write_text(json.dumps({"process": 8, "host": "far"}))
            (directory / "last.pt").write_bytes(b"another's")
            time.sleep(0.5)

    monkeypatch.setattr(loggers.Curve, "log", log)
    outcome = train(*QUICK, f"run_dir={directory}", "loop.max_steps=2000", "loop.log_every=1")
    assert outcome.status == 1
    assert "was taken over by another process" in outcome.err
    assert (directory / "last.pt").read_bytes() == b"another's"
    assert json.loads((directory / "record.json").read_text())["status"] == "interrupted"


def test_who_was_taken_for_dead_while_testing_leaves_no_result(train, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT", 0.01)
    directory = tmp_path / "mine"
    from timescales.training import loop

    original = loop.outcome

    def outcome(*arguments):
        found = original(*arguments)
        (directory / "lock.1").write_text(json.dumps({"process": 8, "host": "far"}))
        time.sleep(0.5)
        return found

    monkeypatch.setattr(loop, "outcome", outcome)
    ended = train(*QUICK, f"run_dir={directory}", "loop.max_steps=2")
    assert ended.status == 1
    assert "was taken over by another process" in ended.err
    assert json.loads((directory / "record.json").read_text())["status"] == "interrupted"


def test_who_slept_looks_before_it_writes(tmp_path, monkeypatch):
    """A machine that wakes up: what trains may be faster than what beats."""
    with lock.hold(tmp_path) as held:
        held.check()
        (tmp_path / "lock.1").write_text("{}")
        held.check()  # the next beat is half a minute away
        held.last_beat -= lock.TIMEOUT
        with pytest.raises(lock.RunningElsewhere, match="was taken over by another process"):
            held.check()


def test_a_file_system_that_is_away_is_no_one_who_took_over(tmp_path, monkeypatch):
    def away(_):
        raise OSError(5, "Input/output error")

    with lock.hold(tmp_path) as held:
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", away)
            held._beat()
        held.check()


def test_a_claim_that_vanishes_while_it_is_read_is_another_s(tmp_path, monkeypatch):
    class Stale:
        def __enter__(self):
            raise OSError(116, "Stale file handle")  # as NFS says

        def __exit__(self, *_):
            pass

    of_another_machine(tmp_path, silent=2 * lock.TIMEOUT)
    monkeypatch.setattr(lock, "open", lambda *_, **__: Stale(), raising=False)
    assert lock.owner(tmp_path) == "another process"


def test_damaged_claims_expire_as_others_do(tmp_path):
    for content in (b"", b"\xff\x00", b"[1]", b"4242", b'{"machine": 3}'):
        (tmp_path / "lock").write_bytes(content)
        assert lock.owner(tmp_path)
        os.utime(tmp_path / "lock", (0, 0))
        assert lock.owner(tmp_path) is None


def test_two_sweeps_share_a_table(train_process, tmp_path):
    """Each run is trained by one of them, and both end well."""
    sweep = ["-m", *QUICK, "seed=0,1,2,3", "loop.max_steps=200", "loop.eval_every=50"]
    processes = [train_process(*sweep) for _ in range(2)]
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    records = list((tmp_path / "runs").glob("*/record.json"))
    assert [json.loads(path.read_text())["status"] for path in records] == 4 * ["finished"]
    trained = [text.count("\n  finished: ") - text.count("finished, skipped:") for text in said]
    assert sum(trained) == 4, said
    for path in records:  # a second training would have begun the curve anew or gone on in it
        steps = [int(line.split(",")[0]) for line in (path.parent / "curve.csv").read_text().splitlines()[1:]]
        assert steps == sorted(steps)
        assert steps.count(50) == 1
    assert "4 runs: 4 finished, skipped; 0 to run" in train_process(*sweep).communicate()[0]


def test_a_sweep_leaves_a_run_to_its_owner_and_comes_back(train, tmp_path, monkeypatch):
    sweep = ["-m", *QUICK, "seed=0,1", "loop.max_steps=20"]
    assert train(*sweep).status == 0
    taken = sorted((tmp_path / "runs").iterdir())[0]
    for path in (taken / "record.json", taken / "last.pt"):
        path.unlink()
    of_another_machine(taken, silent=10)
    outcome = train(*sweep)
    assert outcome.status == 0, outcome
    assert "2 runs: 1 finished, skipped; 0 to run; 1 running elsewhere" in outcome.out
    assert "1 running elsewhere: the same command says how they ended" in outcome.out
    assert not (taken / "record.json").exists()
    # Its owner dies while we train the other one.
    other = sorted((tmp_path / "runs").iterdir())[1]
    (other / "record.json").unlink()
    start = record.start
    monkeypatch.setattr(record, "start", lambda d, *a: (
        d.name == other.name and of_another_machine(taken, 2 * lock.TIMEOUT), start(d, *a)))  # fmt: skip
    outcome = train(*sweep)
    assert "2 runs: 0 finished, skipped; 1 to run; 1 running elsewhere" in outcome.out
    assert "the same command says" not in outcome.out
    assert json.loads((taken / "record.json").read_text())["status"] == "finished"


def test_failing_jobs_leave_no_memory_behind(train):
    """Fifty failures in one sweep, each with 20 MB in the frames that its error remembers."""
    outcome = train("-m", *QUICK, "task._target_=failing.Failing", "loop.max_steps=20", "seed=range(0,50)")
    sizes = [float(size) for size in re.findall(r"^MB ([\d.]+)$", outcome.out, re.M)]
    assert len(sizes) == 50, outcome
    assert "50 of 50 runs failed" in outcome.err
    assert max(sizes[10:]) - sizes[9] < 100, sizes  # what forty left behind would be 800


def test_joblib_trains_in_processes_and_collects_failures(tmp_path, train_process):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    sweep = ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", *QUICK, "loop.max_steps=20"]
    process = train_process(*sweep, "model.hidden_size=4,0")
    said = process.communicate()[0]
    assert process.returncode == 1
    assert "hidden_size must be a whole number of at least 1" in said
    assert "1 of 2 runs failed" in said
    assert "deprecated" not in said
    (path,) = (tmp_path / "runs").glob("*/record.json")
    assert json.loads(path.read_text())["status"] == "finished"


@pytest.mark.parametrize("error", [
    "In 'hydra/launcher/slurm': Could not load 'hydra/launcher/submitit_slurm'.",
    "Unknown plugin class : 'hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher'",
])  # fmt: skip
def test_packages_that_are_not_here_are_named(error):
    assert "pip install -e '.[launchers]'" in messages.one_line(RuntimeError(error), [])


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


def test_slurm_jobs_end_each_for_itself(tmp_path, monkeypatch, capsys):
    """One returned, one raised, one vanishes, one is requeued and returns last; the scheduler is away for a while."""
    from hydra.core.utils import JobReturn, JobStatus

    from hydra_plugins import timescales_slurm as slurm

    monkeypatch.setattr(slurm, "GRACE", 0.0)
    monkeypatch.setattr(slurm.time, "sleep", lambda seconds: None)
    done = JobReturn(status=JobStatus.COMPLETED, _return_value="finished")
    trace = RuntimeError("failed with trace\nsubmitit.core.utils.UncompletedJobError: timed-out too many times.\nsee")
    jobs = [Job(tmp_path, "5_0", done), Job(tmp_path, "5_1", trace), Job(tmp_path, "5_2"), Job(tmp_path, "5_3")]

    def queues():
        yield {"5_2", "5_3"}
        yield None
        yield None
        yield {"5_2"}
        yield {"5_2"}
        jobs[2].paths.result_pickle.touch()
        jobs[2].answer = done
        while True:
            yield set()

    queue = queues()
    monkeypatch.setattr(slurm, "queued", lambda: next(queue))
    found = slurm.answers(jobs)
    words = ["" if one.status == JobStatus.COMPLETED else str(one._return_value) for one in found]
    assert words[0] == words[2] == ""
    assert "timed-out too many times" in words[1]
    assert "job 5_3 was cancelled or killed: the same command continues" in words[3]
    assert "[3/4] job 5_3 failed" in capsys.readouterr().out


def test_slurm_that_refuses_a_second_array_goes_on_with_the_first(tmp_path, monkeypatch):
    import submitit
    from hydra.core.utils import JobReturn, JobStatus

    from hydra_plugins import timescales_slurm as slurm

    given = []

    class Executor:
        def __init__(self, *arguments, **more): ...

        def update_parameters(self, **parameters): ...

        def map_array(self, function, *arguments):
            given.append(len(arguments[0]))
            if len(given) > 1 or "nothing" in arguments[0][0]:
                raise RuntimeError("sbatch: error\nsbatch: error: QOSMaxSubmitJobPerUserLimit\n")
            done = JobReturn(status=JobStatus.COMPLETED, _return_value="finished")
            return [Job(tmp_path, f"5_{k}", done) for k in range(len(arguments[0]))]

    monkeypatch.setattr(submitit, "AutoExecutor", Executor)
    monkeypatch.setattr(slurm, "ARRAY", 2)
    monkeypatch.setattr(slurm, "queued", lambda: set())
    monkeypatch.setattr(slurm.time, "sleep", lambda seconds: None)
    launcher = slurm.TimescalesSlurm(submitit_folder=str(tmp_path), max_num_timeout=1)
    found = launcher.launch([["seed=0"], ["seed=1"], ["seed=2"], ["seed=3"], ["seed=4"]], 0)
    assert given == [2, 2]
    assert [one.status == JobStatus.COMPLETED for one in found] == [True, True, False, False, False]
    line = "SLURM took 2 of 5 jobs (sbatch: error: QOSMaxSubmitJobPerUserLimit): the same command continues"
    assert {str(one._return_value) for one in found[2:]} == {line}
    given.clear()
    with pytest.raises(RuntimeError, match="QOSMax"):
        launcher.launch([["nothing"]], 0)


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
