"""The command line: what it prints, its exit status, and which errors keep their traceback."""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from quick import QUICK, records

from timescales import cli
from timescales.config import command_line, messages
from timescales.errors import ConfigError
from timescales.training.run import TrainingRun

ROOT = Path(__file__).resolve().parents[2]
QUICK = [*QUICK, "logger=none"]


def test_no_torch_before_a_run(tmp_path):
    program = f"""
import sys, runpy
from hydra.core.global_hydra import GlobalHydra
for line in ("--help", "--cfg job", "--cfg job --resolve model=plstm", "--info defaults"):
    GlobalHydra.instance().clear()
    sys.argv = ['train.py', *line.split()]
    try:
        runpy.run_path({str(ROOT / "train.py")!r}, run_name='__main__')
    except SystemExit as leaving:
        assert not leaving.code, leaving.code
heavy = {{'torch', 'wandb', 'tensorboard', 'trackio', 'pandas', 'torchvision', 'datasets', 'matplotlib'}}
heavy &= set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "Train a recurrent network" in done.stdout
    assert done.stdout.count("_target_: timescales.PLSTM") == 1
    assert "Defaults List" in done.stdout
    assert not list(tmp_path.iterdir())


def test_an_interruption_that_saves_nothing_says_so(monkeypatch, capsys):
    def interrupted(asked, main):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "do", interrupted)
    monkeypatch.setattr(cli.signal, "signal", lambda number, handler: None)  # the tests still end at Ctrl-C
    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit):
        cli.run(lambda: None)
    line = "interrupted: what was not saved yet is lost; the same command continues"
    assert capsys.readouterr().err == f"\n{line}\n"


def test_an_interruption_says_how_to_continue():
    def said(*arguments):
        return command_line.read(arguments).continuing()

    assert said("task=copy", "seed=1") == "the same command continues"
    needs = "continues; runs that had not begun need it again"
    assert said("task=copy", "force=True") == f"the same command without force=True {needs}"
    assert said("resume=false", "force=stale") == f"the same command without resume=false {needs}"


def test_ctrl_c_saves_and_says_how_to_go_on(train, monkeypatch):
    """Signals to processes: tests/training/test_interrupt.py."""
    log_step = TrainingRun.log_step
    with monkeypatch.context() as patched:
        patched.setattr(TrainingRun, "log_step", lambda run: log_step(run) or signal.raise_signal(signal.SIGINT))
        stopped = train(*QUICK)
    assert stopped.status == 130
    assert stopped.err.endswith("interrupted at step 1: saved; the same command continues\n")
    assert [saved["status"] for saved in records()] == ["interrupted"]
    assert train(*QUICK).status == 0
    assert [saved["steps"] for saved in records()] == [2]


def test_a_bug_keeps_its_traceback_and_goes_to_the_runs_log(train, tmp_path, monkeypatch):
    from timescales.training import run

    with monkeypatch.context() as broken:
        broken.setattr(run, "TrainingRun", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError) as raised:
            train(*QUICK)
    names = [entry.frame.f_globals["__name__"].partition(".")[0] for entry in raised.traceback]
    assert "hydra" not in names  # which has twenty frames between the command line and the run
    (directory,) = (tmp_path / "runs").iterdir()
    assert "ZeroDivisionError" in (directory / "train.log").read_text()
    record = json.loads((directory / "record.json").read_text())
    assert (record["status"], record["error"]) == ("failed", "ZeroDivisionError: division by zero")
    assert train(*QUICK, "seed=1").status == 0
    assert list((tmp_path / "runs").glob("*/train.log")) == [directory / "train.log"]  # the other has nothing to tell


def test_a_bug_keeps_its_traceback_whatever_its_cause(monkeypatch):
    """A ConfigError that our own code handled, and a pipe other than our output, are no wrong input."""
    bug = RuntimeError("a bug")
    bug.__cause__ = ConfigError("something handled")
    assert messages.one_line(bug) is None

    def broken(*_):
        raise BrokenPipeError("of a worker")

    monkeypatch.setattr(cli, "do", broken)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(BrokenPipeError, match="of a worker"):
        cli.run(lambda: None)


def test_a_closed_output_gets_no_traceback(tmp_path):
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'train.py'))} --help | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout == "Train a recurrent network: one run, a sweep, or all runs of a paper's table.\n"
    assert done.stderr == ""


def test_shell_completion_knows_the_models(train, monkeypatch):
    monkeypatch.setenv("COMP_LINE", "python train.py model=p")
    monkeypatch.setenv("COMP_POINT", "23")
    assert "model=plstm" in train("-sc", "query=bash").out


@pytest.mark.parametrize("option", [["--cfg", "job"], ["--cfg=job"], ["-c", "job"]])
def test_settings_may_stand_on_both_sides_of_an_option(train, option):
    outcome = train("task=copy", *option, "task.T=7", "model=gru")
    assert outcome.status == 0, outcome
    assert "_target_: timescales.GRU" in outcome.out
    assert "  T: 7\n" in outcome.out


@pytest.mark.parametrize(("value", "traceback"), [(None, False), ("0", False), ("", False), ("1", True)])
def test_only_1_asks_hydra_for_the_full_error(monkeypatch, capsys, value, traceback):
    def wrong(asked, main):
        raise ConfigError("seed must be at least 0")

    monkeypatch.setattr(cli, "do", wrong)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    if value is None:
        monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    else:
        monkeypatch.setenv("HYDRA_FULL_ERROR", value)
    with pytest.raises(ConfigError if traceback else SystemExit):
        cli.run(lambda: None)
    assert capsys.readouterr().err == ("" if traceback else "error: seed must be at least 0\n")
