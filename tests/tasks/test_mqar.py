"""Multi-query associative recall: layout and answers in NumPy, the law of the places, scores."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from timescales.tasks import MQAR

SIZES = {"train_size": 400, "valid_size": 5, "test_size": 5, "batch_size": 400}


@pytest.mark.parametrize(("T", "pairs", "keys", "values"), [(64, 4, 16, 16), (8, 2, 2, 5), (21, 3, 9, 3)])
def test_every_question_is_answered_by_the_value_that_was_read_with_its_key(T, pairs, keys, values):
    task = MQAR(T=T, pairs=pairs, keys=keys, values=values, **SIZES)
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
    assert task.spec.output_size == values
    assert task.chance() == pytest.approx(math.log(values))
    assert task.floors() == {"a value that was read": 1 / pairs}


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


def test_mqar_scores_the_answers_alone():
    task = MQAR(T=12, pairs=2, keys=4, values=6, train_size=7, valid_size=5, test_size=5, batch_size=7)
    batch = next(task.batches("train"))
    logits = torch.randn(*batch.target.shape, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = task.loss(logits, batch)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.equal(gradient.abs().sum(-1) > 0, batch.target != -100)
    log_p = logits.detach().log_softmax(-1)[batch.target != -100]
    expected = -log_p[range(14), batch.target[batch.target != -100]].mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
