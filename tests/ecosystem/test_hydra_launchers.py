"""hydra/launcher=ray and joblib: the runs of a sweep in several processes give the numbers of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from quick import QUICK

ROOT = Path(__file__).resolve().parents[2]
SWEEP = ["-m", *QUICK, "logger=none", "device=cpu"]


def train(folder, *overrides):
    """`python train.py`, and the metrics of its runs by hidden size."""
    folder.mkdir()
    settings = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, str(ROOT / "train.py"), *SWEEP, *overrides]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=os.environ | settings, check=False, timeout=300
    )
    records = [json.loads(path.read_text()) for path in folder.glob("runs/*/record.json")]
    return done, {record["config"]["model"]["hidden_size"]: record["metrics"] for record in records}


LAUNCHERS = {"ray": [], "joblib": ["hydra.launcher.n_jobs=2"]}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_sweep_gives_the_numbers_of_one_process(tmp_path, launcher):
    sizes = "model.hidden_size=4,6"
    done, found = train(tmp_path / launcher, f"hydra/launcher={launcher}", *LAUNCHERS[launcher], sizes)
    assert done.returncode == 0, done.stderr
    plain, expected = train(tmp_path / "plain", sizes)
    assert plain.returncode == 0, plain.stderr
    assert found.keys() == {4, 6}
    assert found == expected


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_failing_run_is_counted_and_the_others_are_trained(tmp_path, launcher):
    sizes = "model.hidden_size=0,4"
    done, found = train(tmp_path / launcher, f"hydra/launcher={launcher}", *LAUNCHERS[launcher], sizes)
    assert done.returncode == 1
    # With a launcher that is not ours Hydra's own sweeper ends with the error of a job.
    line = "hidden_size must be greater than zero" if launcher == "ray" else "1 of 2 runs failed"
    assert line in done.stdout + done.stderr
    assert found.keys() == {4}
