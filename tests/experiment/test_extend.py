"""extend=RUN_DIR: a finished run continued with more steps, as a run of its own."""

import json
import shutil
import signal

import pytest
import torch
from quick import SIZES

from timescales.config import schema
from timescales.tasks import Copy
from timescales.training.run import TrainingRun, load_checkpoint

COPY = ["task=copy", "task.T=2", *SIZES, "model=plstm", "model.dropout=0.2", "model.num_layers=2", "logger=csv"]
COPY += ["loop.log_every=1", "seed=3", "optimizer=adam"]  # two steps an epoch; dropout draws from torch's generator


def record(directory):
    return json.loads((directory / "record.json").read_text())


def trained(train, tmp_path, *overrides):
    """The directory of the run that a command trains."""
    done = train(*overrides)
    assert done.status == 0, done
    (line,) = [line for line in done.out.splitlines() if line.startswith("runs/")]
    return tmp_path / line


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def of_epochs(train, tmp_path, kept):
    """Call of_epochs(N): the directory of a finished run of N epochs, a copy of one that is trained once."""

    def call(epochs):
        if not (kept / str(epochs)).exists():
            made = trained(train, tmp_path, *COPY, f"loop.max_epochs={epochs}")
            shutil.copytree(made, kept / str(epochs) / made.name)
            return made
        (made,) = (kept / str(epochs)).iterdir()
        return shutil.copytree(made, tmp_path / "runs" / made.name)

    return call


@pytest.fixture
def origin(of_epochs):
    """A finished run of two epochs."""
    return of_epochs(2)


def rows(directory):
    """The rows of a curve.csv that are no time scales."""
    return [line for line in (directory / "curve.csv").read_text().splitlines() if line.split(",")[1] == ""]


def same(one, other):
    """Assert that two runs ended with the same numbers: weights, optimizer, curve, tests."""
    for file in ("last.pt", "best.pt"):
        weights = [load_checkpoint(path / file)["model"] for path in (one, other)]
        assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    for key in ("curve", "metrics", "last", "best", "steps", "stopped", "timescales", "status", "chance"):
        assert record(one)[key] == record(other)[key], key
    assert rows(one) == rows(other)


def test_two_epochs_extended_to_four_are_four(train, tmp_path, origin, of_epochs):
    before = {path.name: path.read_bytes() for path in origin.iterdir()}
    whole = of_epochs(4)
    longer = trained(train, tmp_path, f"extend=runs/{origin.name}", "loop.max_epochs=4")
    same(longer, whole)
    assert [row["step"] for row in record(longer)["curve"]] == [2, 4, 6, 8]
    assert {path.name: path.read_bytes() for path in origin.iterdir()} == before
    saved = record(longer)
    assert saved["config"]["extend"] == record(origin)["id"]
    assert saved["config"]["run_dir"] == f"runs/{longer.name}"
    assert saved["id"] == schema.identity(saved["config"]) == longer.name[-12:]
    assert len({record(path)["id"] for path in (origin, whole, longer)}) == 3
    assert saved["seconds"] >= record(origin)["seconds"]
    again = train(f"extend={origin.name}", "loop.max_epochs=4", "engine=eager")
    assert "finished, skipped" in again.out
    further = trained(train, tmp_path, f"extend={saved['id']}", "loop.max_epochs=5")
    same(further, trained(train, tmp_path, *COPY, "loop.max_epochs=5"))
    assert record(further)["config"]["extend"] == saved["id"]


def test_an_interrupted_continuation_resumes_bitwise(train, tmp_path, monkeypatch, origin, of_epochs):
    whole = of_epochs(4)
    command = [f"extend={origin}", "loop.max_epochs=4", "device=cpu"]
    original = TrainingRun.log_step

    def log_step(run):
        original(run)
        if run.progress.step == 5:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(TrainingRun, "log_step", log_step)
        assert train(*command).status == 130
    longer = trained(train, tmp_path, *command)
    same(longer, whole)
    assert [row["step"] for row in record(longer)["curve"]] == [2, 4, 6, 8]
    restarted = trained(train, tmp_path, *command, "force=true")
    assert restarted == longer
    same(longer, whole)


def test_a_schedule_goes_on_as_that_of_the_longer_run(train, tmp_path):
    schedule = ["loop.schedule=linear", "optimizer.lr=0.01"]
    origin = trained(train, tmp_path, *COPY, *schedule, "loop.max_epochs=2")
    longer = trained(train, tmp_path, f"extend={origin}", "loop.max_epochs=4")
    assert [row["train/lr"] for row in record(origin)["curve"]] == pytest.approx([0.0075, 0.0025])
    rates = [row["train/lr"] for row in record(longer)["curve"]]
    assert rates == pytest.approx([0.0075, 0.0025, 0.01 * 3 / 8, 0.01 * 1 / 8])


def test_patience_that_ended_a_run_is_given_more(train, tmp_path, monkeypatch):
    original = Copy.metrics

    def metrics(self, logits, batch):  # never better
        return original(self, logits, batch) | {"accuracy": (0.0, 1)}

    monkeypatch.setattr(Copy, "metrics", metrics)
    origin = trained(train, tmp_path, *COPY, "loop.max_epochs=9", "loop.patience=2")
    assert (record(origin)["stopped"], record(origin)["steps"]) == ("patience", 6)
    refused = train(f"extend={origin}", "loop.max_epochs=20")
    assert "loop.patience=2 ended it: give more, or null" in refused.err
    longer = trained(train, tmp_path, f"extend={origin}", "loop.patience=4")
    assert (record(longer)["stopped"], record(longer)["steps"]) == ("patience", 10)
    by_steps = trained(train, tmp_path, f"extend={origin}", "loop.patience=null", "loop.max_steps=9")
    assert (record(by_steps)["stopped"], record(by_steps)["steps"]) == ("max_steps", 9)


def test_what_cannot_be_continued_is_one_line(train, tmp_path, origin):
    name = f"runs/{origin.name}"
    keeps = "a run that is continued keeps its settings: leave it out"
    cases = [
        (["extend=runs/nope"], "extend=runs/nope: no such run: give the directory of one that has finished"),
        ([f"extend={name}"], "give loop.max_epochs above 2, which it has trained already"),
        ([f"extend={name}", "loop.max_epochs=9", "loop.max_steps=4"], "give loop.max_steps above 4"),
        ([f"extend={name}", "loop.max_epochs=4", "model=lstm"], f"model=lstm: {keeps}"),
        ([f"extend={name}", "loop.max_epochs=4", "optimizer.lr=1"], f"optimizer.lr=1: {keeps}"),
        ([f"extend={name}", "loop.max_epochs=4", f"run_dir={name}"], "holds the run that is continued"),
        (["-m", f"extend={name}", "loop.max_epochs=4,5"], f"extend={name} continues one run: give it without -m"),
        ([f"extend={name}", "table=chien_table3"], f"extend={name} continues one run: give it without -m, table="),
    ]
    for command, line in cases:
        done = train(*command)
        assert done.status == 1, command
        assert len(done.err.strip().splitlines()) == 1, done
        assert line in done.err
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [origin.name]


def test_an_origin_that_is_not_whole_is_one_line(train, tmp_path, origin):
    def refused(line):
        done = train(f"extend={origin}", "loop.max_epochs=4")
        assert (done.status, len(done.err.strip().splitlines())) == (1, 1), done
        assert line in done.err
        assert [path.name for path in (tmp_path / "runs").iterdir()] == [origin.name]

    data = (origin / "last.pt").read_bytes()
    (origin / "last.pt").write_bytes(data[: len(data) // 2])
    refused("last.pt is damaged or not there: its own command with force=true trains it again")
    (origin / "last.pt").unlink()
    refused("last.pt is damaged or not there: its own command with force=true trains it again")
    (origin / "last.pt").write_bytes(data)
    saved = {key: value for key, value in record(origin).items() if key != "sha256"}
    for changes, line in (
        ({"status": "interrupted"}, "it has not finished: its own command continues it"),
        ({"status": "diverged"}, "it has diverged, and cannot be continued: give another run"),
        ({"stopped": "solved"}, "its task ended it (solved)"),
        (
            {"golden": "0" * 12},
            "the code that decides its numbers has changed since: its own command with force=stale first",
        ),
    ):
        (origin / "record.json").write_text(json.dumps(saved | changes))
        refused(line)
    (origin / "record.json").write_text("{")
    refused("record.json is damaged")


def test_a_continuation_stays_where_its_origin_is_damaged(train, tmp_path, origin):
    """force=true would begin it again from the origin's checkpoint: what lies there is removed only after a look."""
    command = [f"extend={origin}", "loop.max_epochs=4"]
    longer = trained(train, tmp_path, *command)
    before = {path.name: path.read_bytes() for path in longer.iterdir() if path.name != "lock"}
    data = (origin / "last.pt").read_bytes()
    for damaged in (data[: len(data) // 2], b""):
        (origin / "last.pt").write_bytes(damaged)
        refused = train(*command, "force=true")
        assert (refused.status, len(refused.err.strip().splitlines())) == (1, 1), refused
        assert "last.pt is damaged or not there" in refused.err
        assert before.items() <= {path.name: path.read_bytes() for path in longer.iterdir()}.items()
    assert "finished, skipped" in train(*command).out
