"""`seeds=N` is a loop: each seed is its single run, whatever becomes of the others."""

import math
import signal

import pytest
import torch
from quick import SIZES, records

from timescales.tasks import Copy
from timescales.training.run import TrainingRun, resume_step

FOUR_STEPS = ["task=copy", "task.T=2", *SIZES, "model=gru", "loop.max_epochs=2", "loop.log_every=1", "logger=csv"]
SEEDS = [*FOUR_STEPS, "seeds=3"]
ALONE = ("status", "stopped", "steps", "metrics", "last", "best", "curve")


def of_seed_1(monkeypatch, factor):
    """The training losses of seed 1 are multiplied by what `factor` returns."""
    original = Copy.loss

    def loss(self, logits, batch):
        found = original(self, logits, batch)
        return found * factor() if self.seed == 1 and torch.is_grad_enabled() else found

    monkeypatch.setattr(Copy, "loss", loss)


def test_a_seed_that_diverges_leaves_the_others_alone(train, monkeypatch):
    of_seed_1(monkeypatch, lambda: math.nan)
    outcome = train(*SEEDS)
    assert outcome.status == 0, outcome
    assert [saved["status"] for saved in records()] == ["finished", "diverged", "finished"]


def test_a_seed_that_fails_leaves_the_others_alone(train, monkeypatch):
    """Its error comes when they have ended."""
    of_seed_1(monkeypatch, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(*SEEDS)
    assert [saved["status"] for saved in records()] == ["finished", "failed", "finished"]


def test_an_interruption_leaves_the_later_seeds(train, tmp_path, monkeypatch):
    """The seed that it comes in goes on where it stopped, and those before it are skipped."""
    assert train(*SEEDS, "run_dir=whole").status == 0
    original = TrainingRun.record_step

    def record_step(self, *arguments):
        original(self, *arguments)
        if self.task.seed == 1 and self.progress.step == 3:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as stopping:
        stopping.setattr(TrainingRun, "record_step", record_step)
        assert train(*SEEDS, "run_dir=stopped").status == 130
    assert [saved["status"] for saved in records("stopped")] == ["finished", "interrupted"]
    places = sorted(path.parent for path in (tmp_path / "stopped").glob("*/record.json"))
    assert [resume_step(place) for place in places] == [4, 3]
    assert train(*SEEDS, "run_dir=stopped").out.count("finished, skipped") == 1
    for found, whole in zip(records("stopped"), records("whole"), strict=True):
        assert {key: found[key] for key in ALONE} == {key: whole[key] for key in ALONE}
