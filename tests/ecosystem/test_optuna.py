"""hydra/sweeper=optuna, with the real plugin: pip install -e '.[optuna]'."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from quick import QUICK

ROOT = Path(__file__).resolve().parents[2]
SEARCH = ["-m", "hydra/sweeper=optuna", "hydra.sweeper.n_jobs=1", "optimizer.lr=interval(0.001,0.1)", *QUICK]
SEARCH += ["logger=none", "hydra.sweep.dir=study"]
MAXIMIZE = "hydra.sweeper.direction=maximize"


def command(*overrides):
    return [sys.executable, str(ROOT / "train.py"), *SEARCH, *overrides]


def train(folder, *overrides):
    return subprocess.run(command(*overrides), cwd=folder, capture_output=True, text=True, check=False)


def records(folder):
    return [json.loads(path.read_text()) for path in folder.glob("runs/*/record.json")]


def test_the_best_trial_is_the_best_run(tmp_path):
    # Of these four learning rates one learns anything.
    done = train(tmp_path, MAXIMIZE, "hydra.sweeper.n_trials=4", "hydra.sweeper.sampler.seed=1")
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load((tmp_path / "study" / "optimization_results.yaml").read_text())
    runs = records(tmp_path)
    assert len(runs) == 4
    best = max(runs, key=lambda run: run["metrics"]["valid/accuracy"])
    assert found["best_value"] == best["metrics"]["valid/accuracy"] > 0
    same = [r for r in runs if r["config"]["optimizer"]["lr"] == found["best_params"]["optimizer.lr"]]
    assert [run["metrics"]["valid/accuracy"] for run in same] == [found["best_value"]]


def test_a_finished_run_tells_its_value_without_training(tmp_path):
    options = [MAXIMIZE, "hydra.sweeper.n_trials=2", "hydra.sweeper.sampler.seed=3"]
    first, second = train(tmp_path, *options), train(tmp_path, *options)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert second.stdout.count("finished, skipped") == 2
    assert len(records(tmp_path)) == 2


def test_a_wrong_direction_is_one_line_before_anything_is_trained(tmp_path):
    done = train(tmp_path, "hydra.sweeper.n_trials=2")  # Optuna's default is minimize
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "valid/accuracy" in line
    assert line.endswith("hydra.sweeper.direction=maximize")
    assert records(tmp_path) == []


def test_seeds_count_with_their_mean(tmp_path):
    done = train(tmp_path, "seeds=3", "engine=eager", "hydra.sweeper.n_trials=1", MAXIMIZE)
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load((tmp_path / "study" / "optimization_results.yaml").read_text())
    values = [run["metrics"]["valid/accuracy"] for run in records(tmp_path)]
    assert len(values) == 3
    assert abs(found["best_value"] - sum(values) / 3) < 1e-12


@pytest.mark.parametrize("launcher", [[], ["hydra/launcher=joblib", "hydra.launcher.n_jobs=1"]], ids=["", "joblib"])
def test_a_suggestion_that_cannot_be_trained_does_not_end_the_study(tmp_path, launcher):
    options = [MAXIMIZE, "hydra.sweeper.n_trials=4", "hydra.sweeper.sampler.seed=1"]
    options += ["hydra.sweeper.max_failure_rate=1", "model.num_layers=choice(1,0)", *launcher]
    done = train(tmp_path, *options)
    assert done.returncode == 0, done.stderr
    assert "Failed experiment: model=lstm: num_layers must be greater than zero" in done.stdout + done.stderr
    found = yaml.safe_load((tmp_path / "study" / "optimization_results.yaml").read_text())
    assert found["best_params"]["model.num_layers"] == 1
    assert {run["config"]["model"]["num_layers"] for run in records(tmp_path)} == {1}


# --- a search that ended early ----------------------------------------------------------------------------------------
STORED = [MAXIMIZE, "hydra.sweeper.storage=sqlite:///study.db", "hydra.sweeper.study_name=mine"]
LONG = ["loop.max_steps=1000000", "loop.checkpoint_every=0"]


def trials(folder):
    """State and learning rate of each trial in study.db."""
    import optuna

    study = optuna.load_study(study_name="mine", storage=f"sqlite:///{folder}/study.db")
    return [(trial.state.name, trial.params["optimizer.lr"]) for trial in study.trials]


def kill_in_a_run(folder, *overrides):
    """Start a search of long runs and kill it as soon as a first checkpoint is there."""
    search = subprocess.Popen(command(*overrides, *LONG), cwd=folder, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not list(folder.glob("runs/*/last.pt")) and search.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    assert search.poll() is None, search.stderr.read()
    os.kill(search.pid, signal.SIGKILL)
    search.communicate()


def test_with_a_storage_n_trials_counts_the_new_ones_and_a_killed_trial_stays_running(tmp_path):
    first = train(tmp_path, *STORED, "hydra.sweeper.n_trials=2")
    assert first.returncode == 0, first.stderr
    assert [state for state, _ in trials(tmp_path)] == ["COMPLETE"] * 2
    (tmp_path / "runs").rename(tmp_path / "first")
    kill_in_a_run(tmp_path, *STORED, "hydra.sweeper.n_trials=1")
    killed = trials(tmp_path)[2]
    assert killed[0] == "RUNNING"
    (run,) = records(tmp_path)
    assert run["config"]["optimizer"]["lr"] == killed[1]
    again = train(tmp_path, *STORED, "hydra.sweeper.n_trials=2")
    assert again.returncode == 0, again.stderr
    after = trials(tmp_path)
    assert [state for state, _ in after] == ["COMPLETE", "COMPLETE", "RUNNING", "COMPLETE", "COMPLETE"]
    assert after[2] == killed
    assert len({rate for _, rate in after}) == 5


def test_with_a_seed_of_the_sampler_the_same_command_continues(tmp_path):
    options = [MAXIMIZE, "hydra.sweeper.n_trials=2", "hydra.sweeper.sampler.seed=1"]
    kill_in_a_run(tmp_path, *options)
    (begun,) = tmp_path.glob("runs/*")
    kill_in_a_run(tmp_path, *options)
    assert list(tmp_path.glob("runs/*")) == [begun]  # the same suggestion
    done = [train(tmp_path, *options) for _ in range(2)]
    assert [each.returncode for each in done] == [0, 0], done[0].stderr
    assert [each.stdout.count("finished, skipped") for each in done] == [0, 2]
