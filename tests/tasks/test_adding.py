"""The adding problem."""

import pytest
import torch
from scipy import stats

from timescales.tasks import Adding, Batch


@pytest.mark.parametrize("T", [2, 7, 2000])
def test_adding(T):
    task = Adding(T=T, train_size=200, valid_size=50, test_size=50, batch_size=200)
    batch = next(task.batches("train"))
    numbers, marks = batch.x.unbind(-1)
    assert batch.x.shape == (T, 200, 2)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert marks[: T // 2].sum(0).eq(1).all()
    assert marks[T // 2 :].sum(0).eq(1).all()
    assert set(marks.unique().tolist()) <= {0.0, 1.0}
    torch.testing.assert_close(batch.target, (numbers * marks).sum(0))
    if T == 2000:
        assert stats.kstest(numbers.flatten()[:50_000].numpy(), stats.uniform(0, 1).cdf).pvalue > 1e-3
        where = marks.argmax(0).double() / (T // 2)
        assert stats.kstest(where.numpy(), stats.uniform(0, 1).cdf).pvalue > 1e-3


def test_adding_scores():
    task = Adding(T=4, train_size=5, valid_size=5, test_size=5)
    batch = Batch(torch.zeros(4, 3, 2), torch.tensor([1.0, 0.5, 1.5]))
    logits = torch.tensor([[1.03], [0.55], [1.5]])
    sums = task.metrics(logits, batch)
    assert sums["loss"][0].item() == pytest.approx(0.03**2 + 0.05**2, rel=1e-4)
    assert task.correct(logits, batch).tolist() == [True, False, True]
    assert task.chance() == pytest.approx(0.167, abs=5e-4)  # as printed
    assert task.spec.select == ("loss", "min")
