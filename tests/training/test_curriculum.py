"""A task that gets harder in training: N grows after solved validations, through interruptions."""

import json
from dataclasses import replace

import pytest
import torch
from trainings import COPY, begin, same, signal_at, trained

from timescales import analysis
from timescales.tasks import NParity
from timescales.training import loop, outcome
from timescales.training.interrupt import Requested
from timescales.training.run import TrainingRun, load_checkpoint, save_checkpoint

SIZES = ["task.train_size=40", "task.valid_size=32", "task.test_size=32"]  # five steps an epoch
# Small networks guess: with this threshold N grows after most validations, for some seeds after none.
THRESHOLD = 0.42
BASE = ["task.N_max=40", f"task.threshold={THRESHOLD}", *SIZES, "model=gru", "loop.max_epochs=6"]
MATCH = ["task=n_delayed_match", *BASE]
PROGRAM = ["task=program", "task.category=addition", "task.length=3", "task.nesting=2", "task.tries=1", *SIZES]
PARITY = ["task=n_parity", "task.bits=fair", *BASE]
MULTI = [*PARITY, "task.curriculum=multi", "task.N_max=12"]


def grown(curve, first=2):
    """The N of each validation, from the accuracies in the curve."""
    n, found = first, []
    for row in curve:
        found.append(n)
        n += row["valid/accuracy"] > THRESHOLD and row["valid/newest_accuracy"] > THRESHOLD
    return found


def drawn(run):
    """The N of every training batch, read off its length, as a list that fills while the run goes on."""
    original, lengths = run.task.batch, []

    def batch(split, *arguments):
        made = original(split, *arguments)
        if split == "train":
            lengths.append((len(made.x), run.task.N))
        return made

    run.task.batch = batch
    return lengths


@pytest.mark.parametrize(("overrides", "every"), [(PARITY, "null"), (MATCH, "3"), (MULTI, "3")])
def test_N_grows_after_each_solved_validation(tmp_path, overrides, every):
    """At the end of epochs and within them: the step after the validation is the first with the new N."""
    run = begin([*overrides, f"loop.eval_every={every}"], tmp_path, 4)
    lengths = drawn(run)
    loop.fit(run)
    curve = run.progress.curve
    expected = grown(curve)
    assert [row["valid/N"] for row in curve] == expected
    assert expected[-1] > 3  # it has grown more than once
    assert [row["valid/score"] for row in curve] == [row["valid/N"] + row["valid/accuracy"] for row in curve]
    by_step = {row["step"]: n for row, n in zip(curve, expected, strict=True)}
    after = [next(n for step, n in by_step.items() if step >= k) for k in range(1, 31)]
    assert [n for _, n in lengths] == after
    assert all(n + 2 <= steps for steps, n in lengths)


@pytest.mark.parametrize(
    ("overrides", "seed", "every", "stop"),
    [(PARITY, 2, "null", 4), (PARITY, 2, "null", 5), (PARITY, 2, "3", 6), (MULTI, 4, "null", 24), (MULTI, 4, "3", 5)],
)
def test_a_resume_in_the_middle_is_bitwise_equal(tmp_path, overrides, seed, every, stop):
    """Wherever it stops: within an epoch, at its end, after a validation within it."""
    overrides = [*overrides, f"loop.eval_every={every}", "optimizer=adam"]
    whole = trained(overrides, tmp_path / "whole", seed)
    assert whole.progress.curve[-1]["valid/N"] > 5
    with pytest.raises(KeyboardInterrupt):
        trained(overrides, tmp_path / "stopped", seed, log=signal_at(stop))
    resumed = trained(overrides, tmp_path / "stopped", seed)
    same(whole, resumed)
    assert resumed.task.N == whole.task.N


@pytest.mark.parametrize(("strategy", "stop"), [("naive", 6), ("combine", 5)])
def test_the_levels_of_program_go_on_after_a_resume(tmp_path, strategy, stop):
    overrides = [*PROGRAM, f"task.strategy={strategy}", "model=gru", "loop.max_epochs=6", "loop.eval_every=3"]
    whole = trained(overrides, tmp_path / "whole")
    reached = [(row["valid/length"], row["valid/nesting"]) for row in whole.progress.curve]
    assert reached[:5] == [(1, 1), (2, 1), (3, 1), (3, 2), (3, 2)]
    with pytest.raises(KeyboardInterrupt):
        trained(overrides, tmp_path / "stopped", log=signal_at(stop))
    resumed = trained(overrides, tmp_path / "stopped")
    same(whole, resumed)
    assert resumed.task.level == whole.task.level == (3, 2)


def test_a_validation_that_was_interrupted_is_of_the_N_before_it(tmp_path, monkeypatch):
    """The checkpoint is written between a step and its validation."""
    whole = trained(PARITY, tmp_path / "whole", 2)
    original, calls = loop.evaluate, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise Requested("in the evaluation")
        return original(*arguments)

    monkeypatch.setattr(loop, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt, match="before its validation"):
        trained(PARITY, tmp_path / "stopped", 2)
    same(whole, trained(PARITY, tmp_path / "stopped", 2))


@pytest.mark.parametrize("overrides", [PARITY, MULTI], ids=["single", "multi"])
def test_the_record_is_of_the_last_N_however_the_run_ends(tmp_path, overrides):
    """The best weights, the test and a resume of an ended run are all of the N of the last validation."""
    for seed in range(4):  # of some the last validation is solved: N does not grow any more
        run = trained(overrides, tmp_path, seed)
        last = run.progress.curve[-1]
        best = next(row for row in run.progress.curve if row["step"] == run.progress.best.step)
        assert best["valid/N"] == last["valid/N"] == run.task.N
        again = trained(overrides, tmp_path, seed)  # ended, but its outcome was not written
        assert (again.progress.step, again.task.N) == (run.progress.step, run.task.N)
        found = outcome.outcome(again)
        assert found.metrics["test/N"] == found.last["test/N"] == last["valid/N"]
        assert found == replace(outcome.outcome(run), seconds=found.seconds)


def test_a_solved_curriculum_ends_the_run(tmp_path):
    run = trained([*PARITY, "task.N_max=3", "task.threshold=0.2"], tmp_path)
    assert (run.progress.stopped, run.progress.step) == ("solved", 10)
    assert [row["valid/N"] for row in run.progress.curve] == [2, 3]


def test_patience_counts_from_the_last_growth(tmp_path, monkeypatch):
    """Growth is an improvement, however low the accuracy at the new N is."""
    accuracies = iter([0.4, 0.6, 0.1, 0.6, 0.1, 0.1, 0.1])

    def evaluate(model, task, split, most=None):
        accuracy = next(accuracies)
        return task.derived({"loss": 1.0, "accuracy": accuracy, "newest_accuracy": accuracy})

    monkeypatch.setattr(loop, "evaluate", evaluate)
    run = trained([*PARITY, "loop.patience=2", "loop.max_epochs=7"], tmp_path)
    assert [row["valid/N"] for row in run.progress.curve] == [2, 2, 3, 3, 4, 4, 4]
    assert run.progress.stopped == "patience"


def test_other_tasks_are_drawn_as_without_a_curriculum(tmp_path, monkeypatch):
    """A validation within an epoch begins the rest of it again: no batch is left out or drawn twice."""
    run = begin([*COPY, "model=gru", "loop.max_epochs=2", "loop.eval_every=2"], tmp_path, 0)
    original, read = TrainingRun.record_step, []

    def record_step(self, loss, output):
        read.append(self.batch)
        original(self, loss, output)

    monkeypatch.setattr(TrainingRun, "record_step", record_step)
    loop.fit(run)
    expected = [batch for epoch in (0, 1) for batch in run.task.batches("train", epoch)]
    assert len(read) == len(expected) == 10
    assert all(torch.equal(a.x, b.x) for a, b in zip(read, expected, strict=True))


def test_a_loaded_run_has_the_N_of_its_weights(tmp_path, train):
    directory = tmp_path / "run"
    overrides = [*PARITY, "model.hidden_size=6", "task.batch_size=8", "loop.max_epochs=4", "logger=none"]
    assert train(*overrides, f"run_dir={directory}", "seed=1").status == 0
    saved = json.loads((directory / "record.json").read_text())
    assert saved["metrics"]["valid/N"] == saved["curve"][-1]["valid/N"] > 2
    assert saved["curve"][-1]["valid/N"] == analysis.load(directory).task.N
    assert saved["curve"][-1]["valid/N"] == analysis.load(directory, weights="last").task.N
    assert analysis.load(directory, weights=None).task.N == 2
    content = load_checkpoint(directory / "last.pt")  # as if it was interrupted within the third epoch
    content["progress"] |= {"curve": saved["curve"][:2], "step": 12, "stopped": None}
    save_checkpoint(directory / "last.pt", content)
    (directory / "record.json").write_text(json.dumps(saved | {"status": "interrupted", "curve": [], "sha256": None}))
    expected = NParity(N_max=40, threshold=THRESHOLD)
    expected.follow(saved["curve"][:2])
    assert analysis.load(directory, weights="last").task.N == expected.N
