"""Selective copy: layout in plain Python, uniform places and symbols, scores."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from timescales.tasks import SelectiveCopy

SIZES = {"train_size": 400, "valid_size": 5, "test_size": 5, "batch_size": 400}


@pytest.mark.parametrize(("T", "length", "alphabet"), [(0, 1, 4), (6, 4, 6), (100, 16, 16)])
def test_selective_copy_layout(T, length, alphabet):
    task = SelectiveCopy(T=T, length=length, alphabet=alphabet, **SIZES)
    batch = next(task.batches("train"))
    steps = T + 2 * length
    assert batch.x.shape == batch.target.shape == (steps, 400)
    assert batch.mask is None
    for k in range(400):
        read, signals = batch.x[: T + length, k].tolist(), batch.x[T + length :, k].tolist()
        symbols = [value for value in read if value != 0]
        assert len(symbols) == length
        assert set(symbols) <= set(range(1, alphabet - 1))
        assert signals == [alphabet - 1] * length
        assert batch.target[:, k].tolist() == [-100] * (T + length) + symbols
    assert task.spec.horizon == T + length


def test_places_and_symbols_are_uniform():
    task = SelectiveCopy(T=16, length=4, alphabet=6, train_size=5000, batch_size=5000)
    batch = next(task.batches("train"))
    taken = (batch.x[:20] != 0).sum(1)
    assert taken.sum() == 20_000
    assert stats.chisquare(taken.numpy()).pvalue > 1e-3
    symbols = torch.bincount(batch.target[-4:].flatten())[1:]
    assert len(symbols) == 4
    assert stats.chisquare(symbols.numpy()).pvalue > 1e-3
    # every set of places is equally probable: those of 2 symbols in 4 places
    few = next(SelectiveCopy(T=2, length=2, train_size=6000, batch_size=6000).batches("train"))
    sets = ((few.x[:4] != 0).long() * torch.tensor([[1], [2], [4], [8]])).sum(0)
    counts = torch.bincount(sets)
    assert (counts > 0).sum() == 6
    assert stats.chisquare(counts[counts > 0].numpy()).pvalue > 1e-3


def test_irregular_gaps_are_shares_of_the_blanks():
    """Symbols in their order with T blanks among them; gaps differ far more than uniform ones do."""
    sizes = {"T": 200, "length": 5, "alphabet": 6, "train_size": 2_000, "batch_size": 2_000}
    spread = {}
    for gaps in ("uniform", "irregular"):
        batch = next(SelectiveCopy(gaps=gaps, **sizes).batches("train"))
        places = (batch.x[:205] != 0).T.nonzero()[:, 1].view(2_000, 5)
        assert batch.target[-5:].T.tolist() == batch.x.T.gather(1, places).tolist()
        edges = torch.cat([torch.full((2_000, 1), -1), places, torch.full((2_000, 1), 205)], 1)
        lengths = (edges.diff(dim=1) - 1).numpy()
        assert (lengths.sum(1) == 200).all()
        assert lengths.min() >= 0
        spread[gaps] = lengths.mean(0)
        assert abs(lengths.mean(0) - 200 / 6).max() < 3
    # with weights that are log-uniform on [1, 100] the share of a gap is w / sum w: its 10 and 90 % points
    weights = 100 ** np.random.default_rng(0).random((200_000, 6))
    shares = 200 * weights[:, 2] / weights.sum(1)
    drawn = lengths[:, 1:5].flatten()
    assert np.quantile(drawn, [0.1, 0.5, 0.9]) == pytest.approx(np.quantile(shares, [0.1, 0.5, 0.9]), rel=0.1, abs=1.0)


def test_selective_copy_scores_the_answers_alone():
    task = SelectiveCopy(T=5, length=3, alphabet=6, train_size=7, valid_size=5, test_size=5, batch_size=7)
    batch = next(task.batches("train"))
    logits = torch.randn(*batch.target.shape, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = task.loss(logits, batch)
    (g,) = torch.autograd.grad(loss, logits)
    assert torch.equal(g.abs().sum(-1) > 0, batch.target != -100)
    log_p = logits.detach().log_softmax(-1)[-3:].gather(-1, batch.target[-3:].unsqueeze(-1))
    assert loss.item() == pytest.approx(-log_p.mean().item(), rel=1e-6)
    right = torch.nn.functional.one_hot(batch.target.clamp(min=0), 6).double()
    right[-2, 3] = torch.eye(6)[(batch.target[-2, 3] + 1) % 6]
    right[0] = torch.randn(7, 6, dtype=torch.float64)
    sums = task.metrics(right, batch)
    assert (sums["accuracy"][0].item(), sums["accuracy"][1]) == (20, 21)
    assert (sums["sequence_accuracy"][0].item(), sums["sequence_accuracy"][1]) == (6, 7)
    assert task.correct(right, batch).tolist() == [k != 3 for k in range(7)]


def test_selective_copy_defaults():
    task = SelectiveCopy()
    assert (task.T, task.length, task.alphabet, task.n_batches("train")) == (4096, 16, 16, 1000)
    assert task.chance() == pytest.approx(math.log(14))
