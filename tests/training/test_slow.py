"""Real trainings, minutes long: `make test-slow`."""

import json

import pytest

pytestmark = pytest.mark.slow


def test_the_demos_point(train, tmp_path):
    """On irregularly sampled waves a power-law gate tells the periods apart and an LSTM does not (93.0 and 70.2 %)."""
    import sys

    from conftest import ROOT

    sys.path.insert(0, str(ROOT / "scripts"))
    import demo

    assert train("-m", "model=lstm,plstm", *demo.SCALED, *demo.FULL, "logger=none").status == 0
    found = {}
    for path in (tmp_path / "runs").glob("*/record.json"):
        record = json.loads(path.read_text())
        found[record["config"]["model"]["name"]] = record["metrics"]["test/accuracy"]
    assert found["plstm"] > 0.85
    assert found["lstm"] < 0.80


def test_an_lstm_learns_to_copy_over_ten_steps(train, tmp_path):
    """Copy at T = 10 to below a third of the memoryless loss: 10 ln 8 / 30 = .693."""
    overrides = ["task=copy", "task.T=10", "model=plstm", "optimizer.lr=0.005", "task.train_size=20000"]
    assert (
        train(*overrides, "task.valid_size=500", "task.test_size=500", "loop.max_epochs=15", "logger=none").status == 0
    )
    (path,) = (tmp_path / "runs").glob("*/record.json")
    assert json.loads(path.read_text())["metrics"]["test/loss"] < 0.231
