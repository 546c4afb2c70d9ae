"""Progress bar, curve.csv, W&B offline."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from timescales import loggers

QUICK = ["task=copy", "task.T=2", "task.train_size=16", "task.valid_size=8", "task.test_size=8", "task.batch_size=8",
         "model.hidden_size=4", "loop.max_steps=4", "loop.log_every=2"]  # fmt: skip


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_curve_is_one_row_per_logged_step(tmp_path):
    curve = loggers.Curve(tmp_path / "curve.csv", 0)
    curve.log({"train/loss_nats": 2.0}, 1)
    curve.log({}, 2)
    curve.log({"train/loss_nats": 1.0, "valid/accuracy": 0.5}, 3)
    assert rows(tmp_path / "curve.csv") == [
        {"step": "1", "train/loss_nats": "2.0", "valid/accuracy": ""},
        {"step": "3", "train/loss_nats": "1.0", "valid/accuracy": "0.5"},
    ]


def test_curve_drops_what_a_resume_will_write_again(tmp_path):
    path = tmp_path / "curve.csv"
    path.write_text("step,a\n1,1.0\n2,2.0\n3,3.0\n4,")  # killed while it wrote
    loggers.Curve(path, 2).log({"a": 9.0}, 3)
    assert rows(path) == [{"step": "1", "a": "1.0"}, {"step": "2", "a": "2.0"}, {"step": "3", "a": "9.0"}]


def test_curve_begins_anew_where_the_run_does(tmp_path):
    path = tmp_path / "curve.csv"
    path.write_text("step,a\n0,1.0\n1,2.0\n")  # killed before the first checkpoint: nothing of it counts
    loggers.Curve(path, 0).log({"a": 9.0}, 0)
    assert rows(path) == [{"step": "0", "a": "9.0"}]


@pytest.mark.parametrize("damage", [b"\xff\xfe\x00", b"a,b\n1,2\n", b"step,a\n1,2,3\n"])
def test_a_damaged_curve_is_begun_anew(tmp_path, capsys, damage):
    path = tmp_path / "curve.csv"
    path.write_bytes(damage)
    loggers.Curve(path, 5).log({"a": 9.0}, 6)
    assert rows(path) == [{"step": "6", "a": "9.0"}]
    assert "curve.csv is damaged" in capsys.readouterr().err


def test_bar_shows_what_people_want_to_know(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = loggers.Bar(10, 40, 10, "copy plstm seed 0", "valid/accuracy")
    bar.log({"train/loss_nats": 1.25, "valid/accuracy": 0.5}, 30)
    bar.bar.refresh()
    bar.finish(None)
    shown = capsys.readouterr().err
    for word in ("copy plstm seed 0", "30/40", "epoch=3.0", "loss=1.2500", "valid/accuracy=0.5000", "step/s"):
        assert word in shown


def test_wandb_offline(train_process, tmp_path, monkeypatch):
    """A real offline run: one line says so, and W&B's own tool finds values, configuration and summary in it."""
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    directory = tmp_path / "mine"
    out, _ = train_process(*QUICK, "model=plstm", "logger=wandb", f"run_dir={directory}").communicate()
    assert "W&B: no key, logging offline; later: wandb login && wandb sync" in out
    (run,) = (directory / "wandb").glob("offline-run-*/run-*.wandb")
    inspect = [str(Path(sys.executable).parent / "wandb"), "leet", "inspect", "--json", str(run)]
    shown = subprocess.run(inspect, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    for word in ("global_step", "train/loss_nats", "timescale/layer1/q50", "test/accuracy", "hidden_size", "chien"):
        assert word in shown, word
    assert rows(directory / "curve.csv")[-1]["step"] == "4"


def test_without_wandb_it_says_so_and_writes_csv(train, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    outcome = train(*QUICK, "logger=wandb")
    assert outcome.status == 0, outcome
    assert "wandb is not installed, writing curve.csv alone" in outcome.err
    (directory,) = (tmp_path / "runs").iterdir()
    assert (directory / "curve.csv").is_file()


@pytest.mark.parametrize(("choice", "files"), [("csv", True), ("none", False)])
def test_logger_choice(train, tmp_path, choice, files):
    assert train(*QUICK, f"logger={choice}").status == 0
    (directory,) = (tmp_path / "runs").iterdir()
    assert (directory / "curve.csv").is_file() == files
    assert json.loads((directory / "record.json").read_text())["status"] == "finished"
