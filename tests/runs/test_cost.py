"""What a run costs, from a few steps."""

import itertools
import types
from dataclasses import astuple

from timescales.config import compose, identity
from timescales.runs import cost


def test_the_cost_of_a_run_with_one_batch_an_epoch(monkeypatch):
    """Its few steps are of several epochs; here each step takes a second, and each of three validation batches."""
    words = ["task=copy", "task.T=3", "task.train_size=8", "task.valid_size=1001", "task.batch_size=8"]
    monkeypatch.setattr(cost, "time", types.SimpleNamespace(monotonic=itertools.count().__next__))
    with compose.composing() as composer:
        found = cost.measure(
            "a kind", identity.resolved(composer([*words, "loop.max_epochs=5", "model.hidden_size=4", "device=cpu"]))
        )
    assert astuple(found)[4:] == ("5", "1", "3", "20")
