"""Trainings of some minutes: `make test-slow`."""

import json

import pytest

from timescales import paths

pytestmark = pytest.mark.slow


def test_the_demos_point(train, tmp_path, monkeypatch):
    """On irregularly sampled waves a pLSTM tells the periods apart and an LSTM does not (93.0 and 70.2 %)."""
    monkeypatch.syspath_prepend(str(paths.ROOT / "scripts"))
    import demo

    assert train("-m", "model=lstm,plstm", *demo.SCALED, *demo.FULL, "logger=none").status == 0
    accuracy = {}
    for path in (tmp_path / "runs").glob("*/record.json"):
        record = json.loads(path.read_text())
        accuracy[record["config"]["model"]["name"]] = record["metrics"]["test/accuracy"]
    assert accuracy["plstm"] > 0.85
    assert accuracy["lstm"] < 0.80


def test_a_plstm_learns_to_copy_over_ten_steps(train, tmp_path):
    """Copy at T = 10 to below a third of the loss of a model without memory: 10 ln 8 / 30 = .693."""
    sizes = ["task.train_size=20000", "task.valid_size=500", "task.test_size=500", "loop.max_epochs=15"]
    overrides = ["task=copy", "task.T=10", "model=plstm", "optimizer.lr=0.005", *sizes, "logger=none"]
    assert train(*overrides).status == 0
    (path,) = (tmp_path / "runs").glob("*/record.json")
    assert json.loads(path.read_text())["metrics"]["test/loss"] < 0.231
