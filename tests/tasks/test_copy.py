"""Check the copy tasks, with one delay, with many, and selective: layouts in plain Python, draws, scores, chance."""

import math

import numpy as np
import pytest
import torch
from configs import config
from scipy import stats

from timescales.tasks import Copy, SelectiveCopy, VariableCopy
from timescales.tasks.data.text import SPLITS
from timescales.tasks.task import IGNORED


def test_a_run_may_end_at_an_accuracy_of_the_answers_alone():
    task = Copy(T=5, solved=0.99)
    assert task.stop(1, {"accuracy": 0.99, "sequence_accuracy": 0.9}) == "solved"
    assert task.stop(1, {"accuracy": 0.9899, "sequence_accuracy": 0.9}) is None
    assert task.stop(201, {"accuracy": 0.19, "sequence_accuracy": 0.0}) == "failed"
    assert VariableCopy(low=2, high=5, solved=0.5).stop(1, {"accuracy": 0.5, "sequence_accuracy": 0.0}) == "solved"
    with pytest.raises(ValueError, match="solved must be above 0 and at most 1"):
        Copy(T=5, solved=99)


@pytest.mark.parametrize(
    ("layout", "length", "signals", "first_answer"),
    [("paper", 20, [10], 10), ("authors", 19, [9], 9), ("tallec", 20, [9], 10), ("gu", 20, range(10, 20), 10)],
)
def test_copy_layouts(layout, length, signals, first_answer):
    """Positions as T + offset, counted from 0: the table of the papers' and their codes' layouts."""
    T = 5
    task = Copy(T=T, layout=layout, train_size=20, valid_size=5, test_size=5, batch_size=20)
    batch = next(task.batches("train"))
    assert batch.x.shape == batch.target.shape == (T + length, 20)
    symbols = batch.x[:10]
    assert symbols.max() <= 7
    dummy, signal = 8, 9
    expected = torch.full((T + length,), dummy)
    expected[[T + k for k in signals]] = signal
    assert (batch.x[10:] == expected[10:, None]).all()
    assert (batch.target[: T + first_answer] == dummy).all()
    assert torch.equal(batch.target[T + first_answer :], symbols)
    assert batch.mask is batch.dt is None


def test_copy_symbols_are_uniform_and_independent():
    task = Copy(T=1, train_size=8000, batch_size=8000, valid_size=1, test_size=1)
    symbols = next(task.batches("train")).x[:10]
    for row in symbols:
        assert stats.chisquare(torch.bincount(row, minlength=8).numpy()).pvalue > 1e-4
    pairs = torch.bincount(8 * symbols[0] + symbols[1], minlength=64)
    assert stats.chisquare(pairs.numpy()).pvalue > 1e-4
    assert len({tuple(s) for s in symbols.T.tolist()}) > 7990


@pytest.mark.parametrize(("T", "level"), [(200, 0.0945), (500, 0.0400), (1000, 0.0204)])
def test_copy_chance_as_printed(T, level):
    assert Copy(T=T).chance() == pytest.approx(level, abs=5.1e-5)
    assert Copy(T=T, score="answers").chance() == pytest.approx(2.079, abs=5.1e-4)
    assert Copy(T=50, layout="authors").chance() == pytest.approx(0.3014, abs=5.1e-5)
    assert Copy(T=T).spec.horizon == 3 * T // 2  # chrono's T_max = 3T/2


def test_defaults_are_the_papers():
    task = Copy()
    assert ([task.size(split) for split in SPLITS], task.n_batches("train")) == ([100_000, 10_000, 10_000], 782)
    assert (VariableCopy().spec.horizon, VariableCopy(high=1000).spec.horizon) == (500, 1000)
    assert [VariableCopy().size(split) for split in ("train", "valid")] == [100_000, 10_000]
    assert config("task=variable_copy", "model=chrono", "task.high=1000").model.T_max == 1000  # caption of figure A.1
    task = SelectiveCopy()
    assert (task.T, task.length, task.alphabet, task.n_batches("train")) == (4096, 16, 16, 1000)
    assert task.chance() == pytest.approx(math.log(14))


def test_copy_keeps_its_set_whatever_the_batch_size():
    tasks = [Copy(T=3, train_size=50, valid_size=1, test_size=1, batch_size=size) for size in (7, 50)]
    assert torch.equal(*(torch.cat([batch.x for batch in task.batches("train")], 1) for task in tasks))


# --- Variable copy ---------------------------------------------------------------------------------------------------
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


# --- Selective copy --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("T", "length", "alphabet"), [(0, 1, 4), (6, 4, 6), (100, 16, 16)])
def test_selective_copy_layout(T, length, alphabet):
    task = SelectiveCopy(T=T, length=length, alphabet=alphabet, train_size=400, batch_size=400)
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
    """Symbols in their order with T blanks among them; irregular gaps differ far more than uniform ones do."""
    sizes = {"T": 200, "length": 5, "alphabet": 6, "train_size": 2_000, "batch_size": 2_000}
    for gaps in ("uniform", "irregular"):
        batch = next(SelectiveCopy(gaps=gaps, **sizes).batches("train"))
        places = (batch.x[:205] != 0).T.nonzero()[:, 1].view(2_000, 5)
        assert batch.target[-5:].T.tolist() == batch.x.T.gather(1, places).tolist()
        edges = torch.cat([torch.full((2_000, 1), -1), places, torch.full((2_000, 1), 205)], 1)
        lengths = (edges.diff(dim=1) - 1).numpy()
        assert (lengths.sum(1) == 200).all()
        assert lengths.min() >= 0
        assert abs(lengths.mean(0) - 200 / 6).max() < 3
    # with weights that are log-uniform on [1, 100] the share of a gap is w / sum w: its 10 and 90 % points
    weights = 100 ** np.random.default_rng(0).random((200_000, 6))
    shares = 200 * weights[:, 2] / weights.sum(1)
    drawn = lengths[:, 1:5].flatten()
    assert np.quantile(drawn, [0.1, 0.5, 0.9]) == pytest.approx(np.quantile(shares, [0.1, 0.5, 0.9]), rel=0.1, abs=1.0)
