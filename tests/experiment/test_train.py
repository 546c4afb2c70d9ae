"""What becomes of a run's record, log and loggers, however it ends."""

import contextlib
import ctypes
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from quick import QUICK

from timescales.config import compose
from timescales.config.run import run_of
from timescales.experiment import train as experiment
from timescales.experiment.train import what_it_costs
from timescales.runs import cost, loggers
from timescales.training import memory
from timescales.training.run import TrainingRun

QUICK = [*QUICK, "logger=csv"]


class Logger:
    """Counts what it is told."""

    def __init__(self):
        self.logged, self.finished = [], []

    def log(self, values, step):
        self.logged.append(step)

    def finish(self, record):
        self.finished.append(record and record.status)


def test_a_run_that_fails_before_its_first_step_tells_its_loggers(train, monkeypatch):
    """They are open then, and would show a run that goes on for ever."""
    told, opened = Logger(), loggers.open_all

    def open_all(*arguments):
        made = opened(*arguments)
        made.all.append(told)
        return made

    def named(*arguments):
        raise RuntimeError("no names")

    monkeypatch.setattr(loggers, "open_all", open_all)
    monkeypatch.setattr(memory, "named", named)
    with pytest.raises(RuntimeError, match="no names"):
        train(*QUICK)
    (directory,) = Path("runs").iterdir()
    saved = json.loads((directory / "record.json").read_text())
    assert (saved["status"], saved["error"]) == ("failed", "RuntimeError: no names")
    assert told.finished == ["failed"]
    assert (directory / "train.log").read_text().count("RuntimeError: no names") == 1


def test_a_run_whose_loggers_cannot_be_opened_has_not_failed(train, monkeypatch):
    """Nothing was trained: the same command begins the run, or continues it, when the logger works again."""

    def open_all(*arguments):
        raise RuntimeError("no server")

    with monkeypatch.context() as patched:
        patched.setattr(loggers, "open_all", open_all)
        with pytest.raises(RuntimeError, match="no server"):
            train(*QUICK)
    (directory,) = Path("runs").iterdir()
    assert json.loads((directory / "record.json").read_text())["status"] == "interrupted"
    assert "RuntimeError: no server" in (directory / "train.log").read_text()
    train(*QUICK)
    assert json.loads((directory / "record.json").read_text())["status"] == "finished"


def test_a_long_run_says_before_it_starts_what_it_costs(train, monkeypatch):
    """By what was measured of runs of its kind, if there is something."""
    composer = compose.Composer()
    run = run_of(composer(["task=copy"]))
    monkeypatch.setattr(cost, "known", dict)
    assert list(what_it_costs(run, 782_000, 1000)) == []
    (line,) = what_it_costs(run, 782_000, 1001)
    assert line == "1,001 steps at most; Ctrl-C saves, and the same command continues"
    monkeypatch.setattr(cost, "known", lambda: {run.cost_key: 39_600.0})
    for left, hours in ((782_000, 11), (391_000, 5.5)):
        (line,) = what_it_costs(run, 782_000, left)
        assert f", about {hours} h by what was measured; Ctrl-C saves" in line
        assert line.endswith(". For a quick look: loop.max_steps=3000")


def test_loggers_are_finished_once():
    one, other = Logger(), Logger()
    both = loggers.Loggers([one, other], lambda: None, None)
    both({"x": 1.0}, 3)
    both.finish(None)
    both.finish(None)
    both({"x": 1.0}, 4)  # nothing is logged any more
    assert [(logger.logged, logger.finished) for logger in (one, other)] == 2 * [([3], [None])]


def test_what_libraries_warn_of_is_in_the_runs_log(train, monkeypatch):
    original, other = TrainingRun.log_step, logging.getLogger("a.package")

    def log_step(run):
        other.info("step %d", run.progress.step)
        other.warning("odd at step %d", run.progress.step)
        original(run)

    monkeypatch.setattr(TrainingRun, "log_step", log_step)
    assert train(*QUICK).status == 0
    other.warning("after the run")
    (directory,) = Path("runs").iterdir()
    lines = (directory / "train.log").read_text().splitlines()
    assert [line.partition("][")[2] for line in lines] == [f"a.package][WARNING] odd at step {k}" for k in (1, 2)]


MEMORY = """
import resource
from pathlib import Path
import torch
from timescales.experiment.train import freed_memory_kept

def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(12 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

without, at_start = page_faults(), resident()
with freed_memory_kept():
    page_faults()
    kept = page_faults()
print(without, kept, resident() - at_start)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc's allocator")
def test_a_training_keeps_the_memory_of_freed_tensors_until_it_ends():
    """glibc returns the memory of a tensor of 48 MiB to the system: 12,288 faults when it is new."""
    printed = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout
    without, kept, more = map(int, printed.split())
    assert kept < without / 4
    assert more < 24 << 20


def test_the_settings_of_glibc_end_with_a_training(monkeypatch):
    """Also if it fails. glibc cannot be asked for its settings."""
    settings = {"mmap_max": None, "trim_threshold": None}

    class Libc:
        def mallopt(self, number, value):
            settings[{-1: "trim_threshold", -3: "mmap_threshold", -4: "mmap_max"}[number]] = value

        def malloc_trim(self, pad):
            settings["trimmed"] = True

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Libc())
    with contextlib.suppress(ZeroDivisionError), experiment.freed_memory_kept():
        assert settings == {"mmap_max": 0, "trim_threshold": -1}
        raise ZeroDivisionError
    of_glibc = {"mmap_max": 65536, "mmap_threshold": 32 << 20, "trim_threshold": 64 << 20}
    assert settings == of_glibc | {"trimmed": True}


def test_a_run_is_trained_where_freed_memory_is_kept(train, monkeypatch):
    told = []

    @contextlib.contextmanager
    def kept():
        told.append("begun")
        yield
        told.append("ended")

    monkeypatch.setattr(experiment, "freed_memory_kept", kept)
    for _ in range(2):  # the second time it is skipped
        assert train(*QUICK).status == 0
    assert told == ["begun", "ended"]
