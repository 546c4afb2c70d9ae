"""What a run leaves on disk, and what a run that fails leaves as it was."""

import contextlib
import itertools
import json
import types
from dataclasses import astuple, replace

import pytest
from configs import config
from made_up import made_row
from quick import QUICK, change_record

import timescales
from timescales import paths
from timescales.config import schema
from timescales.config.run import run_of
from timescales.errors import ConfigError
from timescales.reports import wording
from timescales.runs import cost, metrics, provenance, record, store
from timescales.runs.record import Record
from timescales.tasks.copy import Copy

QUICK = [*QUICK, "logger=none"]


def test_a_run_leaves_its_record_and_is_skipped_then(train, tmp_path):
    assert train(*QUICK, "model=plstm").status == 0
    (directory,) = (tmp_path / "runs").iterdir()
    assert directory.name.startswith("copy-plstm-s0-")
    assert not (directory / "train.log").exists()  # there is nothing to tell
    record = json.loads((directory / "record.json").read_text())
    assert directory.name.endswith(record["id"])
    assert (record["status"], record["config"]["model"]["hidden_size"]) == ("finished", 4)
    scores = ("loss", "accuracy", "sequence_accuracy")
    assert set(record["metrics"]) == {f"{split}/{score}" for split in ("valid", "test") for score in scores}
    assert 0 <= record["metrics"]["test/accuracy"] <= 1
    assert len(record["timescales"]["start"][0]) == len(record["timescales"]["end"][0]) == 7
    assert (record["parameters"], record["chance"]) == (3 * 4 * (10 + 4 + 1) + 4 + 5 * 10, Copy(T=2).chance())
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
    assert "choose another run_dir, or replace the run with force=true" in other.err
    assert train(*QUICK, f"run_dir={tmp_path}/mine", "seed=4", "force=true").status == 0
    assert json.loads((tmp_path / "mine" / "record.json").read_text())["seed"] == 4


@pytest.mark.parametrize("error", [ConfigError("torch sees no GPU here"), RuntimeError("a bug")])
def test_a_run_that_cannot_be_built_keeps_what_is_there(train, tmp_path, monkeypatch, error):
    """Neither a finished run that is to be run again, nor an interrupted one that is to be restarted."""
    from timescales.training import build

    def broken(config):
        raise error

    finished, interrupted = tmp_path / "finished", tmp_path / "interrupted"
    assert train(*QUICK, f"run_dir={finished}").status == 0
    assert train(*QUICK, f"run_dir={interrupted}").status == 0
    change_record(interrupted, status="interrupted")
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
    names = {name: name for name in ("curve.csv", "best.pt", "blocks.csv", "notes.txt")}
    for name in names:
        (directory / name).write_text(name)
    assert train(*QUICK, wrong, f"run_dir={directory}", *more).status == 1
    assert {path.name: path.read_text() for path in directory.iterdir()} == names


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


def test_a_shortened_evaluation_is_part_of_the_record(tmp_path):
    for batches, found in (("2", ["loop.max_eval_batches"]), ("null", [])):
        run = run_of(config("model=lstm", "task=copy", f"loop.max_eval_batches={batches}"))
        assert record.start(tmp_path, run).partial == found
    partial = [record.SHORTENED_EVALUATION, "MNIST subset"]
    assert Record(id="a", status="finished", partial=partial).missing_data == ["MNIST subset"]


def test_the_version_is_that_of_the_code_not_that_of_an_older_installation(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda package: "0.0.1")
    versions = provenance.provenance("cpu").versions
    assert (versions["timescales"], versions["torch"]) == (timescales.__version__, "0.0.1")


# --- Rows of runs.csv: what a record gives, and what is committed; what runs of a kind cost ---------------------------
def test_values_of_two_trainings_of_a_run_are_never_mixed(tmp_path):
    for name, seconds, metric in (("a", 1.0, "last x"), ("b", 2.0, "last y"), ("c", 1.0, "last z")):
        (tmp_path / name).mkdir()
        line = made_row({metric: 0.5}, id="1", seconds=seconds, commit="c")
        (tmp_path / name / "runs.csv").write_text(store.rows_text([line]))
    found = store.committed(tmp_path)["1"]
    assert (found.value("last x"), found.value("last z"), found.value("last y")) == (0.5, 0.5, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("best test/accuracy", 0.9),
        ("last test/accuracy", 0.8),
        ("last test/loss", None),
        ("probe/a/b", 3.0),
        ("steps to valid/accuracy >= 0.5", 20),
        ("steps to valid/loss <= 0.1", 30),
        # never: the 40 after which it ended, not the 90 that it might have taken
        ("steps to valid/accuracy >= 0.99", metrics.Censored(40)),
    ],
)
def test_what_a_table_reads_from_a_record(name, value):
    curve = [
        {"step": 10, "valid/accuracy": 0.1, "valid/loss": 1.0},
        {"step": 20, "valid/accuracy": 0.6, "valid/loss": 0.2},
        {"step": 30, "epoch": 1.0, "valid/accuracy": 0.7, "valid/loss": 0.05},
    ]
    record = Record(id="a", status="finished", curve=curve, steps=40, probes={"a/b": 3.0})
    record.change(metrics={"test/accuracy": 0.9}, last={"test/accuracy": 0.8})
    found = metrics.metric(record, name)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ([100, 140, ">900"], 140),
        ([100, ">120", 900], ">120"),
        ([">100", 140, 150], ">140"),  # the first may be the last
        ([90, 150, ">200", 300], ">175"),
        ([90, 150, 200, ">300"], 175),
        ([">9", ">9"], ">9"),
    ],
)
def test_a_median_of_times_says_where_it_may_be_larger(values, median):
    numbers = [metrics.Censored(v[1:]) if isinstance(v, str) else v for v in values]
    found = metrics.median(numbers)
    assert (isinstance(found, metrics.Censored), wording.number(found)) == (isinstance(median, str), str(median))


def test_no_committed_run_is_censored_later_than_it_stopped():
    for found in store.committed().values():
        never = {key: value for key, value in found.values.items() if isinstance(value, metrics.Censored)}
        assert set(never.values()) <= {found.steps}, found.id


def test_a_threshold_never_reached_stays_so_in_a_file(tmp_path):
    """A number for what computes, ">90" for what reads."""
    name = "steps to valid/accuracy >= 0.99"
    written = [made_row({name: metrics.Censored(90)}, id="a"), made_row({name: 90}, id="b")]
    (tmp_path / "runs.csv").write_text(store.rows_text(written))
    assert f"{name}\na," in (tmp_path / "runs.csv").read_text().replace(",".join(store.COLUMNS) + ",", "")
    first, second = (found.value(name) for found in store.read_rows(tmp_path / "runs.csv"))
    assert (first, type(first), wording.number(first)) == (90, metrics.Censored, ">90")
    assert (second, type(second), wording.number(second)) == (90, int, "90")


def test_a_kind_is_timed_once_on_each_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    timed = cost.Timing("u", "copy/lstm", "abacus", "1", "9", "1", "1", "90")
    cost.write([timed])
    cost.write([replace(timed, machine="loom"), replace(timed, seconds="80")])
    assert [(row.machine, row.seconds) for row in cost.rows()] == [("abacus", "80"), ("loom", "90")]
    for here, seconds in (("abacus", 80.0), ("loom", 90.0)):
        monkeypatch.setattr(provenance, "processor", lambda here=here: here)
        assert cost.known() == {"u": seconds}


def test_the_longest_whole_run_of_a_kind_is_its_price(monkeypatch):
    monkeypatch.setattr(cost, "rows", lambda *_: [])
    others = [("b", made_row(seconds=30.0, partial="MNIST subset")), ("c", made_row(seconds=30.0, status="diverged"))]
    assert cost.prices([("a", made_row(seconds=30.0)), ("a", made_row(seconds=20.0)), *others]) == {"a": 30.0}


def test_what_no_run_has_a_value_of_makes_no_column():
    rows = [made_row({"best test/loss": 1.0, "probe/x": None}), made_row({"probe/x": None}, id="b")]
    head = store.rows_text(rows).splitlines()[0].split(",")
    assert head == [*store.COLUMNS, "best test/loss"]


def test_the_cost_of_a_run_with_one_batch_an_epoch(monkeypatch):
    """Its few steps are of several epochs; here each step takes a second, and each of three validation batches."""
    words = ["task=copy", "task.T=3", "task.train_size=8", "task.valid_size=1001", "task.batch_size=8"]
    monkeypatch.setattr(cost, "time", types.SimpleNamespace(monotonic=itertools.count().__next__))
    words += ["loop.max_epochs=5", "model.hidden_size=4", "device=cpu"]
    assert astuple(cost.measure("a kind", schema.resolved(config(*words))))[4:] == ("5", "1", "3", "20")
