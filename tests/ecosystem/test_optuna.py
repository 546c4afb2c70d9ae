"""hydra/sweeper=optuna, with the real plugin: pip install -e '.[optuna]'."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from quick import QUICK

ROOT = Path(__file__).resolve().parents[2]
SEARCH = ["-m", "hydra/sweeper=optuna", "hydra.sweeper.n_jobs=1", "optimizer.lr=interval(0.001,0.1)", *QUICK]
SEARCH += ["logger=none", "hydra.sweep.dir=study"]


def train(folder, *overrides):
    return subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *SEARCH, *overrides],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def records(folder):
    return [json.loads(path.read_text()) for path in folder.glob("runs/*/record.json")]


def test_the_best_trial_is_the_best_run(tmp_path):
    options = ["hydra.sweeper.n_trials=4", "hydra.sweeper.direction=maximize", "hydra.sweeper.sampler.seed=1"]
    done = train(tmp_path, *options)  # of these four learning rates one learns anything
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load((tmp_path / "study" / "optimization_results.yaml").read_text())
    runs = records(tmp_path)
    assert len(runs) == 4
    best = max(runs, key=lambda run: run["metrics"]["valid/accuracy"])
    assert found["best_value"] == best["metrics"]["valid/accuracy"] > 0
    same = [r for r in runs if r["config"]["optimizer"]["lr"] == found["best_params"]["optimizer.lr"]]
    assert [run["metrics"]["valid/accuracy"] for run in same] == [found["best_value"]]


def test_a_finished_run_tells_its_value_without_training(tmp_path):
    options = ["hydra.sweeper.n_trials=2", "hydra.sweeper.direction=maximize", "hydra.sweeper.sampler.seed=3"]
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
    done = train(tmp_path, "seeds=3", "engine=eager", "hydra.sweeper.n_trials=1", "hydra.sweeper.direction=maximize")
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load((tmp_path / "study" / "optimization_results.yaml").read_text())
    values = [run["metrics"]["valid/accuracy"] for run in records(tmp_path)]
    assert len(values) == 3
    assert abs(found["best_value"] - sum(values) / 3) < 1e-12


@pytest.mark.parametrize("launcher", [[], ["hydra/launcher=joblib", "hydra.launcher.n_jobs=1"]], ids=["", "joblib"])
def test_a_suggestion_that_cannot_be_trained_does_not_end_the_study(tmp_path, launcher):
    options = ["hydra.sweeper.n_trials=4", "hydra.sweeper.direction=maximize", "hydra.sweeper.sampler.seed=1"]
    options += ["hydra.sweeper.max_failure_rate=1", "model.num_layers=choice(1,0)", *launcher]
    done = train(tmp_path, *options)
    assert done.returncode == 0, done.stderr
    assert "Failed experiment: model=lstm: num_layers must be greater than zero" in done.stdout + done.stderr
    found = yaml.safe_load((tmp_path / "study" / "optimization_results.yaml").read_text())
    assert found["best_params"]["model.num_layers"] == 1
    assert {run["config"]["model"]["num_layers"] for run in records(tmp_path)} == {1}
