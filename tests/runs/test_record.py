"""What a run leaves on disk, and what a run that fails leaves as it was."""

import contextlib
import json

import pytest
from quick import QUICK

import timescales
from timescales.errors import ConfigError
from timescales.runs import provenance, record
from timescales.runs.record import Record
from timescales.tasks.copy import Copy

QUICK = [*QUICK, "logger=none"]


def test_a_run_leaves_its_record_and_is_skipped_then(train, tmp_path):
    first = train(*QUICK, "model=plstm")
    assert first.status == 0, first
    (directory,) = (tmp_path / "runs").iterdir()
    assert directory.name.startswith("copy-plstm-s0-")
    record = json.loads((directory / "record.json").read_text())
    assert directory.name.endswith(record["id"])
    assert record["status"] == "finished"
    assert record["config"]["model"]["hidden_size"] == 4
    assert set(record["metrics"]) == {
        f"{s}/{m}" for s in ("valid", "test") for m in ("loss", "accuracy", "sequence_accuracy")
    }
    assert 0 <= record["metrics"]["test/accuracy"] <= 1
    assert len(record["timescales"]["start"][0]) == len(record["timescales"]["end"][0]) == 7
    assert record["parameters"] == 3 * 4 * (10 + 4 + 1) + 4 + 5 * 10
    assert record["chance"] == Copy(T=2).chance()
    for key in ("commit", "versions", "threads", "machine", "seconds", "golden", "seed", "device", "curve", "best"):
        assert record[key] is not None, key
    again = train(*QUICK, "model=plstm")
    assert "finished, skipped" in again.out
    forced = train(*QUICK, "model=plstm", "force=true")
    assert "finished, skipped" not in forced.out
    assert json.loads((directory / "record.json").read_text())["metrics"] == record["metrics"]


def test_identity_ignores_what_changes_no_number(train, tmp_path):
    train(*QUICK)
    for harmless in (
        ["engine=eager", "loop.checkpoint_every=1", "loop.log_one_over_e=2", "logger=csv"],
        ["device=cpu", "resume=false", "optimizer.momentum=0", "loop.clip_norm=1"],
    ):
        assert "finished, skipped" in train(*QUICK, *harmless).out, harmless
    for other in (["seed=1"], ["optimizer.lr=0.1"]):
        assert "finished, skipped" not in train(*QUICK, *other).out, other


def test_a_given_run_dir(train, tmp_path):
    assert train(*QUICK, f"run_dir={tmp_path}/mine").status == 0
    assert (tmp_path / "mine" / "record.json").is_file()
    assert not (tmp_path / "runs").exists()
    other = train(*QUICK, f"run_dir={tmp_path}/mine", "seed=4")
    assert other.status == 1
    assert "choose another run_dir, or force=true" in other.err
    assert train(*QUICK, f"run_dir={tmp_path}/mine", "seed=4", "force=true").status == 0
    assert json.loads((tmp_path / "mine" / "record.json").read_text())["seed"] == 4


def test_a_wrong_value_costs_no_outcome(train, tmp_path):
    """Not even where checkpoints were removed to save room."""
    assert train(*QUICK, f"run_dir={tmp_path}/mine").status == 0
    (tmp_path / "mine" / "last.pt").unlink()
    kept = (tmp_path / "mine" / "record.json").read_bytes()
    assert "device must be" in train(*QUICK, f"run_dir={tmp_path}/mine", "force=true", "device=cdua").err
    assert (tmp_path / "mine" / "record.json").read_bytes() == kept
    assert (tmp_path / "mine" / "best.pt").is_file()


@pytest.mark.parametrize("error", [ConfigError("torch sees no GPU here"), RuntimeError("a bug")])
def test_a_run_that_cannot_be_built_keeps_what_is_there(train, tmp_path, monkeypatch, error):
    """Neither a finished run that is to be run again, nor an interrupted one that is to be restarted."""
    from timescales.training import build

    def broken(config):
        raise error

    finished, interrupted = tmp_path / "finished", tmp_path / "interrupted"
    assert train(*QUICK, f"run_dir={finished}").status == 0
    assert train(*QUICK, f"run_dir={interrupted}").status == 0
    path = interrupted / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "interrupted", "sha256": None}))
    there = (finished / "record.json", finished / "last.pt", interrupted / "last.pt")
    kept = {path: path.read_bytes() for path in there}
    with monkeypatch.context() as patched:
        patched.setattr(build, "build", broken)
        for arguments in ([f"run_dir={finished}", "force=true"], [f"run_dir={interrupted}", "resume=false"]):
            with contextlib.suppress(RuntimeError):
                assert train(*QUICK, *arguments).status == 1
    assert {path: path.read_bytes() for path in kept} == kept
    assert train(*QUICK, f"run_dir={finished}", "force=true").status == 0
    assert (finished / "record.json").read_bytes() != kept[finished / "record.json"]


def test_files_of_other_runs_stay(train, tmp_path, monkeypatch):
    """W&B's folders of other runs, and its settings, where run_dir is a folder with a wandb/ in it."""
    from timescales.runs import wandb_run

    for name in ("offline-run-20260101_000000-mine/run-mine.wandb", "settings"):
        path = tmp_path / "here" / "wandb" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept")
    assert train(*QUICK, f"run_dir={tmp_path}/here", "model.hidden_size=-3").status == 1
    assert train(*QUICK, f"run_dir={tmp_path}/here").status == 0
    kept = (tmp_path / "here" / "record.json").read_bytes()

    def no_such_mode():
        raise ConfigError("W&B: no such mode")

    monkeypatch.setattr(wandb_run, "_mode", no_such_mode)
    assert "W&B: no such mode" in train(*QUICK, f"run_dir={tmp_path}/here", "logger=wandb", "force=true").err
    assert (tmp_path / "here" / "record.json").read_bytes() == kept
    assert len([path for path in (tmp_path / "here" / "wandb").rglob("*") if path.is_file()]) == 2


@pytest.mark.parametrize("wrong", ["model.hidden_size=-1", "loop.max_steps=0"])  # known once it is built, and before
@pytest.mark.parametrize("more", [[], ["force=true"]])
def test_a_run_that_cannot_begin_leaves_files_that_were_there(train, tmp_path, wrong, more):
    """Also those with names of a run's."""
    directory = tmp_path / "mine"
    directory.mkdir()
    for name in ("curve.csv", "best.pt", "blocks.csv", "notes.txt"):
        (directory / name).write_text(name)
    assert train(*QUICK, wrong, f"run_dir={directory}", *more).status == 1
    assert {path.name: path.read_text() for path in directory.iterdir()} == {
        name: name for name in ("curve.csv", "best.pt", "blocks.csv", "notes.txt")
    }


def test_clear_removes_all_files_of_a_run_but_its_log(tmp_path):
    Record(id="a", status="finished").write(tmp_path)
    for name in ("last.pt", "best.pt", "curve.csv", "blocks.csv", "train.log"):
        (tmp_path / name).touch()
    record.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["train.log"]


@pytest.mark.parametrize(("before", "after"), [("finished", "finished"), ("interrupted", "failed")])
def test_a_later_error_keeps_the_outcome(tmp_path, before, after):
    Record(id="a", status=before).write(tmp_path)
    record.failed(tmp_path, RuntimeError("the network is away"))
    assert Record.read(tmp_path).status == after


def test_a_shortened_evaluation_is_part_of_the_record():
    assert record.shortened({"loop": {"max_eval_batches": 2}}) == ["loop.max_eval_batches"]
    assert record.shortened({"loop": {"max_eval_batches": None}}) == []
    assert Record(id="a", status="finished", partial=[record.CUT, "MNIST subset"]).missing_data == ["MNIST subset"]


def test_a_bug_in_building_leaves_nothing_behind(train, tmp_path, monkeypatch):
    from timescales.training import build

    def broken(config):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(build, "build", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        train(*QUICK)
    assert not list(tmp_path.glob("runs/*"))


def test_the_version_is_that_of_the_code_not_that_of_an_older_installation(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda package: "0.0.1")
    versions = provenance.provenance("cpu").versions
    assert versions["timescales"] == timescales.__version__
    assert versions["torch"] == "0.0.1"
