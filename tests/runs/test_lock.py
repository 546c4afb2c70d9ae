"""The lock of a run's directory: one process at a time; a dead owner is seen at once, one elsewhere in time."""

import contextlib
import fcntl
import itertools
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time

import pytest
from quick import QUICK, lock_from_elsewhere

from timescales.paths import ROOT
from timescales.runs import lock

QUICK = [*QUICK, "engine=eager", "logger=csv"]


def test_the_next_owner_removes_what_a_kill_has_left(tmp_path):
    (tmp_path / ".unfinished.last.pt.abc").touch()
    with lock.hold(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_one_owner_at_a_time_until_it_releases(tmp_path):
    for _ in range(3):  # nothing is left that grows
        running = pytest.raises(lock.RunningElsewhere, match=f"is being run by process {os.getpid()} on .* right now")
        with lock.hold(tmp_path), running:
            lock.Lock(tmp_path)
        assert lock.owner(tmp_path) is None
        assert len(list(tmp_path.iterdir())) == 1


@contextlib.contextmanager
def files_of(size):
    """A disk on which no file can be larger."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_locks_nobody_out(tmp_path):
    with files_of(0), pytest.raises(OSError, match="lock"):
        lock.Lock(tmp_path)
    assert list(tmp_path.iterdir()) == []
    held = lock.Lock(tmp_path)
    with files_of(len(lock.RELEASED)):
        held.release()
    assert lock.owner(tmp_path) is None
    assert held.path.read_text() == lock.RELEASED


def test_a_full_disk_that_copies_on_write_locks_nobody_out(tmp_path, monkeypatch):
    """There overwriting fails; on btrfs a time can still be set."""
    held = lock.Lock(tmp_path)
    with files_of(0):
        held.release()
    assert json.loads(held.path.read_text())["process"] == os.getpid()
    assert lock.owner(tmp_path) is None
    real = lock._this_process
    monkeypatch.setattr(lock, "_this_process", lambda: real() | {"machine": "another kernel"})
    assert lock.owner(tmp_path) is None
    with lock.hold(tmp_path):
        pass


def test_a_dead_owner_on_this_machine_is_seen_at_once(tmp_path):
    code = "import pathlib, sys; from timescales.runs import lock\n"
    code += "held = lock.Lock(pathlib.Path(sys.argv[1])); print(flush=True); input()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    with pytest.raises(lock.RunningElsewhere, match=f"process {process.pid} on"):
        lock.Lock(tmp_path)
    process.kill()
    process.wait()
    process.stdin.close(), process.stdout.close()
    with lock.hold(tmp_path):
        pass


def test_a_kill_while_the_lock_is_taken_locks_nobody_out(tmp_path, monkeypatch):
    """Before each of the operations on files in turn. One of the kills leaves an empty lock."""
    operations = ("open", "os.listdir", "os.remove", "fcntl.flock")

    def take_and_die(directory, at):
        count = itertools.count(1)

        def operation(event, _):
            if event in operations and next(count) == at:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(operation)
        lock.Lock(directory)

    monkeypatch.setattr(lock, "PAUSE", 0.01)
    left = []
    for at in itertools.count(1):
        (directory := tmp_path / str(at)).mkdir()
        process = multiprocessing.get_context("fork").Process(target=take_and_die, args=(directory, at))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        left += [path.read_text() for path in directory.iterdir()]
        with lock.hold(directory):
            assert len(list(directory.iterdir())) == 1
    assert at > 6
    assert "" in left


def test_an_empty_lock_that_is_written_in_time_counts(tmp_path, monkeypatch):
    (tmp_path / "lock").touch()
    monkeypatch.setattr(time, "sleep", lambda _: lock_from_elsewhere(tmp_path, silence=0))
    with pytest.raises(lock.RunningElsewhere, match="process 7 on far"):
        lock.Lock(tmp_path)


def test_an_owner_on_another_machine_counts_until_it_is_silent(tmp_path):
    lock_from_elsewhere(tmp_path, silence=lock.TIMEOUT - 30)
    with pytest.raises(lock.RunningElsewhere, match=r"process 7 on far, last heard of 2\d\d s ago, right now"):
        lock.Lock(tmp_path)
    lock_from_elsewhere(tmp_path, silence=lock.TIMEOUT + 1)
    with lock.hold(tmp_path):
        assert [path.name for path in tmp_path.glob("lock*")] == ["lock.1"]


def test_clocks_of_machines_do_not_matter(tmp_path, monkeypatch):
    lock_from_elsewhere(tmp_path, silence=0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert lock.owner(tmp_path)
    monkeypatch.setattr(time, "time", lambda: 1e12)
    assert lock.owner(tmp_path)


def test_a_requeued_job_follows_itself_at_once(tmp_path, monkeypatch):
    lock_from_elsewhere(tmp_path, silence=1, job="18")
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    assert lock.owner(tmp_path), "several processes of one job, on its several machines, are no tries of each other"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert lock.owner(tmp_path) is None


def test_without_file_locks_the_heartbeat_alone_counts(tmp_path, monkeypatch):
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


def test_of_several_that_find_a_dead_owner_one_gets_the_lock(tmp_path, monkeypatch):
    """Even where nobody sees another's lock."""
    monkeypatch.setattr(lock, "_is_held", lambda file: None)
    lock_from_elsewhere(tmp_path, silence=2 * lock.TIMEOUT)
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


def test_a_run_that_another_process_trains_is_named_and_left_alone(train, tmp_path):
    directory = tmp_path / "mine"
    with lock.hold(directory):  # it has only just begun: nothing else lies there yet
        for wrong in ([], ["task.T=-1"], ["force=true"]):
            outcome = train(*QUICK, f"run_dir={directory}", *wrong)
            assert outcome.status == 1
            assert "is being run by process" in outcome.err
        assert (directory / "lock").is_file()
    assert train(*QUICK, f"run_dir={directory}").status == 0


@pytest.mark.parametrize(("place", "steps"), [("a step", 2000), ("the test", 2)])
def test_a_process_that_was_taken_for_dead_writes_no_more(train, tmp_path, monkeypatch, place, steps):
    from timescales.runs import loggers
    from timescales.training import outcome

    monkeypatch.setattr(lock, "HEARTBEAT", 0.01)
    directory, log, tested = tmp_path / "mine", loggers.Curve.log, outcome.outcome

    def away(found=None):
        """Another process takes over meanwhile and saves something."""
        (directory / "lock.1").write_text(json.dumps({"process": 8, "host": "far"}))
        (directory / "last.pt").write_bytes(b"another's")
        time.sleep(0.5)
        return found

    if place == "a step":
        monkeypatch.setattr(loggers.Curve, "log", lambda *given: (log(*given), away() if given[-1] == 20 else None))
    else:
        monkeypatch.setattr(outcome, "outcome", lambda run: away(tested(run)))
    ended = train(*QUICK, f"run_dir={directory}", f"loop.max_steps={steps}", "loop.log_every=1")
    assert ended.status == 1
    assert "was taken over by another process" in ended.err
    assert (directory / "last.pt").read_bytes() == b"another's"
    assert json.loads((directory / "record.json").read_text())["status"] == "interrupted"


def test_a_process_that_slept_looks_before_it_writes(tmp_path, monkeypatch):
    """A machine that wakes up: what trains may be faster than what beats."""
    with lock.hold(tmp_path) as held:
        held.check()
        (tmp_path / "lock.1").write_text("{}")
        held.check()  # the next beat is half a minute away
        held.last_beat -= lock.TIMEOUT
        with pytest.raises(lock.RunningElsewhere, match="was taken over by another process"):
            held.check()


def test_a_file_system_that_is_away_does_not_count_as_taken_over(tmp_path, monkeypatch):
    def away(_):
        raise OSError(5, "Input/output error")

    with lock.hold(tmp_path) as held:
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", away)
            held._beat()
        held.check()


def test_a_lock_that_vanishes_while_it_is_read_is_another_process_s(tmp_path, monkeypatch):
    class Stale:
        def __enter__(self):
            raise OSError(116, "Stale file handle")  # as NFS says

        def __exit__(self, *_):
            pass

    lock_from_elsewhere(tmp_path, silence=2 * lock.TIMEOUT)
    monkeypatch.setattr(lock, "open", lambda *_, **__: Stale(), raising=False)
    assert lock.owner(tmp_path) == "another process"


def test_other_files_whose_names_begin_with_lock_are_no_locks(tmp_path):
    names = {"lockfile", "lock.txt", "lock.bak.7", "lock.0", "lock.01", "locked.3"}
    for name in names:
        (tmp_path / name).touch()
    with lock.hold(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {"lock", *names}
    assert lock.owner(tmp_path) is None


def test_damaged_locks_expire_as_others_do(tmp_path):
    for content in (b"\xff\x00", b"[1]", b"4242", b'{"machine": 3}'):
        (tmp_path / "lock").write_bytes(content)
        assert lock.owner(tmp_path)
        os.utime(tmp_path / "lock", (0, 0))
        assert lock.owner(tmp_path) is None
