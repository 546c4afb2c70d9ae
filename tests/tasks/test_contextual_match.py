"""Contextual delayed match: what is shown and the answers in NumPy, and how often things are alike."""

import math

import numpy as np
import pytest
from scipy import stats

from timescales.tasks import ContextualMatch

SIZES = {"valid_size": 5, "test_size": 5}


def shown(batch, features):
    """Colour, shape (S, B) with -1 for nothing, mark (S, B) and cue (S, B) with -1 for none."""
    x = batch.x.numpy()
    parts = np.split(x, [features, 2 * features, 2 * features + 1], -1)
    colour, shape, cue = (np.where(part.any(-1), part.argmax(-1), -1) for part in (parts[0], parts[1], parts[3]))
    return colour, shape, parts[2][..., 0], cue


@pytest.mark.parametrize("cue", ["first", "last"])
@pytest.mark.parametrize(("delay", "features"), [(0, 2), (7, 5)])
def test_the_answer_compares_the_feature_that_the_cue_names(cue, delay, features):
    task = ContextualMatch(delay=delay, features=features, cue=cue, train_size=300, batch_size=300, **SIZES)
    batch = next(task.batches("train"))
    assert batch.x.shape == (delay + 2, 300, 2 * features + 3)
    colour, shape, marked, named = shown(batch, features)
    at = {"first": 0, "last": -1}[cue]
    alike = np.stack([colour[0] == colour[-1], shape[0] == shape[-1]])
    assert batch.target.tolist() == alike[named[at], np.arange(300)].astype(int).tolist()
    assert ((named >= 0).sum(0) == 1).all()
    assert (marked[[0, -1]] == 1).all()
    assert not marked[1:-1].any()
    assert ((colour >= 0) == (shape >= 0)).all()
    assert (colour[[0, -1]] >= 0).all()


def test_what_is_random_has_its_probability():
    task = ContextualMatch(delay=5, distractors=0.4, features=4, train_size=8_000, batch_size=8_000, **SIZES)
    batch = next(task.batches("train"))
    colour, shape, _, named = shown(batch, 4)
    assert stats.binomtest(int((colour[1:-1] >= 0).sum()), 40_000, 0.4).pvalue > 1e-3
    pairs = np.bincount(2 * (colour[0] == colour[-1]) + (shape[0] == shape[-1]))  # independent, each 1/2
    assert stats.chisquare(pairs).pvalue > 1e-3
    assert stats.binomtest(int(named[0].sum()), 8_000, 0.5).pvalue > 1e-3
    assert stats.chisquare(np.bincount(colour[0])).pvalue > 1e-3
    rule = (colour[0] == colour[-1]).astype(int)  # whatever the cue
    assert abs((rule == batch.target.numpy()).mean() - task.floors()["one feature, whatever the cue"]) < 0.02
    assert abs(batch.target.double().mean().item() - 0.5) < 0.02
    assert task.chance() == pytest.approx(math.log(2))
