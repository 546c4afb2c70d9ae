"""Check delayed match, contextual match and multi-query recall: layouts in plain Python, draws, scores, chance."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from timescales.tasks import MQAR, Batch, ContextualMatch, DelayedMatch

SIZES = {"train_size": 300, "valid_size": 5, "test_size": 5, "batch_size": 300}


def seen(task, batch, k):
    """What sequence k shows at each step: at each place a colour, "apple" or None."""
    things = batch.x[:, k].reshape(-1, task.choices, task.colours + 1).tolist()
    names = [*range(task.colours), "apple"]
    assert all(sum(place) <= 1 for step in things for place in step), "one thing at a place"
    return [[names[place.index(1)] if any(place) else None for place in step] for step in things]


@pytest.mark.parametrize(
    ("delay", "distractors", "choices", "colours"), [(0, 0.5, 2, 2), (6, 0.5, 4, 16), (9, 0.0, 3, 5), (5, 1.0, 2, 7)]
)
def test_layout(delay, distractors, choices, colours):
    task = DelayedMatch(delay=delay, distractors=distractors, choices=choices, colours=colours, **SIZES)
    batch = next(task.batches("train"))
    assert batch.x.shape == (delay + 2, 300, choices * (colours + 1))
    assert set(batch.x.unique().tolist()) == {0.0, 1.0}
    assert batch.mask is None
    apples = 0
    for k in range(300):
        first, *between, last = seen(task, batch, k)
        target = batch.target[:, k].tolist()
        cue = first[0]
        assert first[1:] == [None] * (choices - 1)
        assert len(set(last)) == choices
        assert set(last) <= set(range(colours))
        assert (target[0], target[-1]) == (-100, last.index(cue))
        for step, place in zip(between, target[1:-1], strict=True):
            assert step == ["apple" if p == place else None for p in range(choices)]  # place is -100 without an apple
            apples += place != -100
    expected = distractors * delay * 300
    assert apples == pytest.approx(expected, abs=5 * math.sqrt(expected * (1 - distractors)))
    assert task.spec.horizon == delay + 1


def test_draws_are_uniform():
    task = DelayedMatch(delay=3, choices=3, colours=4, train_size=12_000, batch_size=12_000)
    batch = next(task.batches("train"))
    things = batch.x.reshape(5, 12_000, 3, 5)
    cue, last = things[0, :, 0].argmax(-1), things[-1].argmax(-1)
    apples = batch.target[1:-1][batch.target[1:-1] != -100]
    assert stats.chisquare(torch.bincount(apples, minlength=3).numpy()).pvalue > 1e-3
    # the colours at the end, in their order, with the place of the first one: 4 * 3 * 2 * 3 equally probable cases
    cases = Counter(tuple(row) for row in torch.cat([last, batch.target[-1:].T], 1).tolist())
    assert len(cases) == 72
    assert stats.chisquare(list(cases.values())).pvalue > 1e-3
    assert stats.chisquare(torch.bincount(cue).numpy()).pvalue > 1e-3


def test_scores():
    task = DelayedMatch(delay=2, choices=2, colours=2, **SIZES)
    target = torch.tensor([[-100] * 3, [0, -100, 1], [-100, 1, 1], [1, 0, 0]])
    batch = Batch(torch.zeros(4, 3, 6), target)
    answered = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 0]])  # one apple and one choice are wrong
    logits = torch.nn.functional.one_hot(answered, 2).double()
    right, wrong = math.log1p(math.exp(-1)), math.log1p(math.exp(1))
    assert task.loss(logits, batch).item() == pytest.approx((5 * right + 2 * wrong) / 7)
    sums = {name: (float(total), n) for name, (total, n) in task.metrics(logits, batch).items()}
    loss = (pytest.approx(5 * right + 2 * wrong), 7)
    assert sums == {"loss": loss, "accuracy": (2, 3), "distractor_accuracy": (3, 4)}
    assert task.correct(logits, batch).tolist() == [True, False, True]
    without = batch._replace(target=target.where(torch.tensor([[1], [0], [0], [1]]) == 1, -100))
    assert set(task.metrics(logits, without)) == {"loss", "accuracy"}


# --- Contextual match ------------------------------------------------------------------------------------------------
FEW = {"valid_size": 5, "test_size": 5}


def features_shown(batch, features):
    """Colour, shape (S, B) with -1 for nothing, mark (S, B) and cue (S, B) with -1 for none."""
    x = batch.x.numpy()
    parts = np.split(x, [features, 2 * features, 2 * features + 1], -1)
    colour, shape, cue = (np.where(part.any(-1), part.argmax(-1), -1) for part in (parts[0], parts[1], parts[3]))
    return colour, shape, parts[2][..., 0], cue


@pytest.mark.parametrize("cue", ["first", "last"])
@pytest.mark.parametrize(("delay", "features"), [(0, 2), (7, 5)])
def test_the_answer_compares_the_feature_that_the_cue_names(cue, delay, features):
    task = ContextualMatch(delay=delay, features=features, cue=cue, train_size=300, batch_size=300, **FEW)
    batch = next(task.batches("train"))
    assert batch.x.shape == (delay + 2, 300, 2 * features + 3)
    colour, shape, marked, named = features_shown(batch, features)
    at = {"first": 0, "last": -1}[cue]
    alike = np.stack([colour[0] == colour[-1], shape[0] == shape[-1]])
    assert batch.target.tolist() == alike[named[at], np.arange(300)].astype(int).tolist()
    assert ((named >= 0).sum(0) == 1).all()
    assert (marked[[0, -1]] == 1).all()
    assert not marked[1:-1].any()
    assert ((colour >= 0) == (shape >= 0)).all()
    assert (colour[[0, -1]] >= 0).all()


def test_what_is_random_has_its_probability():
    task = ContextualMatch(delay=5, distractors=0.4, features=4, train_size=8_000, batch_size=8_000, **FEW)
    batch = next(task.batches("train"))
    colour, shape, _, named = features_shown(batch, 4)
    assert stats.binomtest(int((colour[1:-1] >= 0).sum()), 40_000, 0.4).pvalue > 1e-3
    pairs = np.bincount(2 * (colour[0] == colour[-1]) + (shape[0] == shape[-1]))  # independent, each 1/2
    assert stats.chisquare(pairs).pvalue > 1e-3
    assert stats.binomtest(int(named[0].sum()), 8_000, 0.5).pvalue > 1e-3
    assert stats.chisquare(np.bincount(colour[0])).pvalue > 1e-3
    rule = (colour[0] == colour[-1]).astype(int)  # whatever the cue
    assert abs((rule == batch.target.numpy()).mean() - task.trivial_baselines()["one feature, whatever the cue"]) < 0.02
    assert abs(batch.target.double().mean().item() - 0.5) < 0.02
    assert task.chance() == pytest.approx(math.log(2))


# --- Multi-query associative recall ----------------------------------------------------------------------------------
@pytest.mark.parametrize(("T", "pairs", "keys", "values"), [(64, 4, 16, 16), (8, 2, 2, 5), (21, 3, 9, 3)])
def test_every_question_is_answered_by_the_value_that_was_read_with_its_key(T, pairs, keys, values):
    task = MQAR(T=T, pairs=pairs, keys=keys, values=values, train_size=400, batch_size=400, **FEW)
    batch = next(task.batches("train"))
    assert batch.x.shape == batch.target.shape == (T, 400)
    for x, target in zip(batch.x.T.numpy(), batch.target.T.numpy(), strict=True):
        read, rest = x[: 2 * pairs], x[2 * pairs :]
        memory = dict(zip(read[::2], read[1::2] - 1 - keys, strict=True))
        assert len(memory) == len(set(memory.values())) == pairs
        assert all(1 <= key <= keys for key in memory)
        assert all(0 <= value < values for value in memory.values())
        assert sorted(rest[rest != 0]) == sorted(memory)
        assert not rest[1::2].any()
        assert [memory.get(key, -100) for key in rest] == target[2 * pairs :].tolist()
        assert (target[: 2 * pairs] == -100).all()
    assert (task.spec.output_size, task.chance()) == (values, pytest.approx(math.log(values)))
    assert task.trivial_baselines() == {"a value that was read": 1 / pairs}


@pytest.mark.parametrize("power", [0.01, 1.0])
def test_places_follow_the_power_law(power):
    """Of a single pair: the place g has the probability g^(power - 1), normalised."""
    task = MQAR(T=22, pairs=1, keys=3, values=3, power=power, train_size=20_000, batch_size=20_000)
    asked = (next(task.batches("train")).target != -100).sum(1).numpy()[2::2]
    law = np.arange(1.0, 11.0) ** (power - 1)
    assert asked.sum() == 20_000
    assert stats.chisquare(asked, 20_000 * law / law.sum()).pvalue > 1e-3


def test_keys_and_values_are_uniform():
    task = MQAR(T=20, pairs=3, keys=6, values=5, train_size=6_000, batch_size=6_000)
    read = next(task.batches("train")).x[:6]
    assert stats.chisquare(np.bincount(read[::2].flatten().numpy())[1:]).pvalue > 1e-3
    assert stats.chisquare(np.bincount(read[1::2].flatten().numpy())[7:]).pvalue > 1e-3
