"""The command line: what it prints, its exit status, and which errors keep their traceback."""

import errno
import os
import shlex
import signal
import subprocess
import sys

import pytest
from quick import QUICK, records

import train as entry
from timescales.paths import ROOT
from timescales.training.run import TrainingRun

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
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Train a recurrent network" in done.stdout
    assert done.stdout.count("_target_: timescales.PLSTM") == 1
    assert "Defaults List" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "without"),
    [("seed=1", ""), ("force=True", " without force=True"), ("resume=false force=stale", " without resume=false")],
)
def test_an_interruption_that_saves_nothing_says_so_and_how_to_continue(train, monkeypatch, words, without):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "main", interrupted)
    stopped = train(*words.split())
    assert stopped.status == 130
    assert stopped.err == f"\nStopped without saving. Run the same command{without} to continue.\n"


def test_ctrl_c_saves_and_says_how_to_go_on(train, monkeypatch):
    """Signals to processes: tests/training/test_interrupt.py."""
    log_step = TrainingRun.log_step
    with monkeypatch.context() as patched:
        patched.setattr(TrainingRun, "log_step", lambda run: log_step(run) or signal.raise_signal(signal.SIGINT))
        stopped = train(*QUICK)
    assert stopped.status == 130
    assert stopped.err.endswith("\nSaved at step 1. Run the same command to continue.\n")
    assert [saved["status"] for saved in records()] == ["interrupted"]
    assert train(*QUICK).status == 0
    assert [saved["steps"] for saved in records()] == [2]


def test_a_bug_keeps_its_traceback_whatever_its_kind(train, monkeypatch):
    """An OSError without a file, and a ValueError that is not Hydra's, are no wrong input."""
    for error in (OSError(errno.EBADF, "of a worker"), ValueError("a bug")):

        def broken(error=error):
            raise error

        monkeypatch.setattr(entry, "main", broken)
        with pytest.raises(type(error)):
            train()


@pytest.mark.slow
def test_a_closed_output_gets_no_traceback(tmp_path):
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'train.py'))} --help | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout == "Train a recurrent network: one run, a sweep, or all runs of a paper's table.\n"
    assert done.stderr == ""


def test_shell_completion_knows_the_models(train, monkeypatch):
    monkeypatch.setenv("COMP_LINE", "python train.py model=p")
    monkeypatch.setenv("COMP_POINT", "23")
    assert "model=plstm" in train("-sc", "query=bash").out


@pytest.mark.parametrize("option", [["--cfg=job"], ["-c", "job"], ["-cn", "base", "-c", "job"]])
def test_settings_may_stand_on_both_sides_of_an_option(train, option):
    outcome = train("task=copy", *option, "task.T=7", "model=gru")
    assert outcome.status == 0, outcome
    assert "_target_: timescales.GRU" in outcome.out
    assert "  T: 7\n" in outcome.out


@pytest.mark.slow
def test_only_1_asks_hydra_for_the_full_error(tmp_path):
    command = [sys.executable, str(ROOT / "train.py"), "device=nope"]
    for value, traceback in (("0", False), ("", False), ("1", True)):
        environment = os.environ | {"HYDRA_FULL_ERROR": value}
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
        assert done.returncode == 1
        assert ("Traceback" in done.stderr) is traceback
        assert traceback or done.stderr.startswith("error: device must be auto")


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["2>&-", "0<&- 1>&- 2>&-", "-m hydra/launcher=joblib 1>&- 2>&-"])
def test_a_run_needs_no_streams(tmp_path, closed):
    """Its files get no number of a stream, into which libraries write."""
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'train.py'))} {shlex.join(QUICK)} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done
    assert [saved["status"] for saved in records(tmp_path / "runs")] == ["finished"]


@pytest.mark.slow
def test_python_without_assertions_is_refused_in_one_line(tmp_path):
    """Hydra's parser works by assertions: seed=range(0,2) would end in a traceback."""
    command = [sys.executable, "-O", str(ROOT / "train.py"), *QUICK]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "PYTHONOPTIMIZE" in done.stderr


def test_settings_of_a_sweep_reach_our_sweeper_as_they_were_typed():
    """Hydra composes a first configuration without them: it would refuse what only the swept files have."""
    made = entry.arguments(["model=lstm,plstm", "-m", "task.noise=${seed}", "hydra.sweeper.minutes=3", "~x"])
    runs = r"hydra.sweeper.runs=['model=lstm,plstm','task.noise=\${seed}','~x']"
    assert made == ["-m", "--multirun", "hydra.sweeper.minutes=3", runs]
    runs = "hydra.sweeper.runs=['table=chien_copy','rung=small']"
    assert entry.arguments(["table=chien_copy", "profile=small"]) == ["--multirun", runs]
    for words in (["a=1", "-m", "hydra/sweeper=optuna"], ["table=x", "--cfg", "job"], ["a=1"]):
        assert sorted(entry.arguments(words)) == sorted(words)
