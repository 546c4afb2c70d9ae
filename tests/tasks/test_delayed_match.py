"""Delayed match: layout and targets in plain Python, uniform draws, what memory is needed for, scores."""

import math
from collections import Counter

import pytest
import torch
from scipy import stats

from timescales.tasks import Batch, DelayedMatch

SIZES = {"train_size": 300, "valid_size": 5, "test_size": 5, "batch_size": 300}


def seen(task, batch, k):
    """What sequence k shows at each step: at each place a colour, "apple" or None."""
    things = batch.x[:, k].reshape(-1, task.choices, task.colours + 1).tolist()
    names = [*range(task.colours), "apple"]
    steps = [
        [[name for name, is_there in zip(names, place, strict=True) if is_there] for place in step] for step in things
    ]
    assert all(len(place) <= 1 for step in steps for place in step), "one thing at a place"
    return [[place[0] if place else None for place in step] for step in steps]


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
            assert (
                step == [None] * choices
                if place == -100
                else step == ["apple" if p == place else None for p in range(choices)]
            )
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


def test_the_first_colour_alone_decides():
    """What is shown at the end tells nothing about the answer; with the first colour it tells all."""
    task = DelayedMatch(delay=0, choices=2, colours=3, train_size=9000, batch_size=9000)
    batch = next(task.batches("train"))
    things = batch.x.reshape(2, 9000, 2, 4)
    cue, last = things[0, :, 0].argmax(-1), things[1].argmax(-1)
    for pair in last.unique(dim=0):
        answers = batch.target[1][(last == pair).all(-1)].double()
        assert answers.mean().item() == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(len(answers)))
    assert torch.equal((last == cue.unsqueeze(1)).int().argmax(-1), batch.target[1])


def test_scores():
    task = DelayedMatch(delay=2, choices=2, colours=2, **SIZES)
    target = torch.tensor([[-100] * 3, [0, -100, 1], [-100, 1, 1], [1, 0, 0]])
    batch = Batch(torch.zeros(4, 3, 6), target)
    answered = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 0]])  # one apple and one choice are wrong
    logits = torch.nn.functional.one_hot(answered, 2).double()
    right, wrong = math.log1p(math.exp(-1)), math.log1p(math.exp(1))
    assert task.loss(logits, batch).item() == pytest.approx((5 * right + 2 * wrong) / 7)
    sums = task.metrics(logits, batch)
    assert {name: (pytest.approx(float(total)), n) for name, (total, n) in sums.items()} == {
        "loss": (5 * right + 2 * wrong, 7),
        "accuracy": (2, 3),
        "distractor_accuracy": (3, 4),
    }
    assert task.correct(logits, batch).tolist() == [True, False, True]
    without = batch._replace(target=target.where(torch.tensor([[1], [0], [0], [1]]) == 1, -100))
    assert set(task.metrics(logits, without)) == {"loss", "accuracy"}


def test_defaults():
    task = DelayedMatch()
    assert (task.delay, task.choices, task.colours, task.n_batches("train")) == (90, 4, 16, 1000)
    assert (task.spec.input_size, task.spec.output_size, task.spec.horizon) == (68, 4, 91)
    assert task.chance() == pytest.approx(math.log(4))
    assert task.floors() == {"a choice at random": 0.25}
