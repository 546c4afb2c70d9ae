"""Variable copy: layout, delays, score."""

import pytest
import torch
from configs import config
from scipy import stats

from timescales.tasks import Copy, VariableCopy
from timescales.tasks.task import IGNORED


def test_variable_copy_layout():
    task = VariableCopy(low=1, high=6, train_size=300, valid_size=5, test_size=5, batch_size=300)
    batch, delays = next(task.batches("train")), task.delays("train")
    steps = int(delays.max()) + 20
    assert batch.x.shape == batch.target.shape == batch.mask.shape == (steps, 300)
    for k, T in enumerate(delays.tolist()):
        symbols = batch.x[:10, k]
        assert symbols.max() <= 7
        inputs = [*symbols.tolist(), *[8] * T, 9, *[8] * 9]
        assert batch.x[: T + 20, k].tolist() == inputs
        assert batch.target[:, k].tolist() == [8] * (T + 10) + symbols.tolist() + [IGNORED] * (steps - T - 20)
        assert batch.mask[:, k].tolist() == [True] * (T + 20) + [False] * (steps - T - 20)


def test_variable_copy_delays_are_uniform_both_ends_included():
    task = VariableCopy(low=200, high=210, train_size=11_000, valid_size=5, test_size=5)
    counts = torch.bincount(task.delays("train") - 200, minlength=11)
    assert len(counts) == 11
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    assert VariableCopy().spec.horizon == 500
    assert VariableCopy(high=1000).spec.horizon == 1000
    assert [VariableCopy().size(split) for split in ("train", "valid")] == [100_000, 10_000]


def test_variable_copy_scores_what_exists():
    task = VariableCopy(low=0, high=8, train_size=9, valid_size=5, test_size=5, batch_size=9)
    batch = next(task.batches("train"))
    logits = torch.randn(*batch.target.shape, 10, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = task.loss(logits, batch)
    (g,) = torch.autograd.grad(loss, logits)
    assert torch.equal(g.abs().sum(-1) > 0, batch.mask)
    log_p = logits.detach().log_softmax(-1).gather(-1, batch.target.clamp(min=0).unsqueeze(-1))[batch.mask]
    assert loss.item() == pytest.approx(-log_p.mean().item(), rel=1e-6)
    # one wrong answer in one sequence, and nonsense in the padding
    right = torch.nn.functional.one_hot(batch.target.clamp(min=0), 10).double()
    right[~batch.mask] = torch.randn(int((~batch.mask).sum()), 10, dtype=torch.float64)
    T = int(task.delays("train")[3])
    right[T + 12, 3] = 0
    right[T + 12, 3, (batch.target[T + 12, 3] + 1) % 8] = 1
    sums = task.metrics(right, batch)
    assert (sums["accuracy"][0].item(), sums["accuracy"][1]) == (89, 90)
    assert (sums["sequence_accuracy"][0].item(), sums["sequence_accuracy"][1]) == (8, 9)
    assert task.correct(right, batch).tolist() == [k != 3 for k in range(9)]


def test_variable_copy_with_one_delay_is_copy():
    sizes = {"train_size": 20, "valid_size": 5, "test_size": 5, "batch_size": 20}
    variable, plain = VariableCopy(low=4, high=4, **sizes), Copy(T=4, **sizes)
    a, b = next(variable.batches("train")), next(plain.batches("train"))
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.target, b.target)
    assert a.mask.all()
    logits = torch.randn(24, 20, 10)
    assert variable.loss(logits, a).item() == pytest.approx(plain.loss(logits, b).item(), rel=1e-6)
    assert variable.chance() == pytest.approx(plain.chance(), rel=1e-6)


def test_variable_copy_recipe_for_chrono():
    cfg = config("task=variable_copy", "model=chrono", "task.high=1000")
    assert cfg.model.T_max == 1000  # the longest delay (caption of figure A.1)
