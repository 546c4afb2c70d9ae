"""The copy task: the layouts of the papers, scored positions, chance."""

import pytest
import torch
from scipy import stats
from small_tasks import answer

from timescales.tasks import Copy, VariableCopy
from timescales.tasks.data.text import SPLITS


def test_copy_as_gu_et_al_have_it_ends_by_steps_alone():
    solved = {"accuracy": 1.0, "sequence_accuracy": 1.0, "loss": 0.0}
    assert Copy(T=5, layout="gu").stop(1, solved) is None
    assert Copy(T=5, layout="paper").stop(1, solved) == "solved"


def test_a_run_may_end_at_an_accuracy_of_the_answers_alone():
    task = Copy(T=5, solved=0.99)
    assert task.stop(1, {"accuracy": 0.99, "sequence_accuracy": 0.9}) == "solved"
    assert task.stop(1, {"accuracy": 0.9899, "sequence_accuracy": 0.9}) is None
    assert task.stop(201, {"accuracy": 0.19, "sequence_accuracy": 0.0}) == "failed"
    assert VariableCopy(low=2, high=5, solved=0.5).stop(1, {"accuracy": 0.5, "sequence_accuracy": 0.0}) == "solved"
    with pytest.raises(ValueError, match="solved must be above 0 and at most 1"):
        Copy(T=5, solved=99)


@pytest.mark.parametrize("T", [1, 5, 200])
@pytest.mark.parametrize(
    ("layout", "length", "signals", "first_answer"),
    [("paper", 20, [10], 10), ("authors", 19, [9], 9), ("tallec", 20, [9], 10), ("gu", 20, range(10, 20), 10)],
)
def test_copy_layouts(layout, length, signals, first_answer, T):
    """Positions as T + offset, counted from 0: the table of the papers' and their codes' layouts."""
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
    assert batch.mask is None
    assert batch.dt is None


def test_copy_symbols_are_uniform_and_independent():
    task = Copy(T=1, train_size=8000, batch_size=8000, valid_size=1, test_size=1)
    symbols = next(task.batches("train")).x[:10]
    for row in symbols:
        assert stats.chisquare(torch.bincount(row, minlength=8).numpy()).pvalue > 1e-4
    pairs = torch.bincount(8 * symbols[0] + symbols[1], minlength=64)
    assert stats.chisquare(pairs.numpy()).pvalue > 1e-4
    assert len({tuple(s) for s in symbols.T.tolist()}) > 7990


@pytest.mark.parametrize("score", ["all", "answers"])
@pytest.mark.parametrize("layout", ["paper", "authors", "tallec", "gu"])
def test_copy_scored_positions(layout, score):
    task = Copy(T=4, layout=layout, score=score, train_size=6, valid_size=5, test_size=5, batch_size=6)
    batch = next(task.batches("train"))
    logits = torch.randn(*batch.target.shape, 10, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (g,) = torch.autograd.grad(task.loss(logits, batch), logits)
    touched = g.abs().sum((1, 2)) > 0
    assert touched.tolist() == [score == "all" or t >= task.steps - 10 for t in range(task.steps)]
    log_p = logits.detach().log_softmax(-1).gather(-1, batch.target.unsqueeze(-1)).squeeze(-1)
    log_p = log_p[-10:] if score == "answers" else log_p
    assert task.loss(logits, batch).item() == pytest.approx(-log_p.mean().item(), rel=1e-6)
    # accuracy reads the ten answers only, and a sequence counts when all ten are right
    logits = answer(task, batch)
    logits[:-10] = 0
    logits[-3, 0] = 0
    logits[-3, 0, (batch.target[-3, 0] + 1) % 8] = 1
    sums = task.metrics(logits, batch)
    assert (sums["accuracy"][0].item(), sums["accuracy"][1]) == (59, 60)
    assert (sums["sequence_accuracy"][0].item(), sums["sequence_accuracy"][1]) == (5, 6)


@pytest.mark.parametrize(("T", "level"), [(200, 0.0945), (500, 0.0400), (1000, 0.0204)])
def test_copy_chance_as_printed(T, level):
    assert Copy(T=T).chance() == pytest.approx(level, abs=5.1e-5)
    assert Copy(T=T, score="answers").chance() == pytest.approx(2.079, abs=5.1e-4)
    assert Copy(T=50, layout="authors").chance() == pytest.approx(0.3014, abs=5.1e-5)
    assert Copy(T=T).spec.horizon == 3 * T // 2  # chrono's T_max = 3T/2


def test_copy_is_the_papers_size_by_default():
    task = Copy()
    assert [task.size(split) for split in SPLITS] == [100_000, 10_000, 10_000]
    assert task.n_batches("train") == 782
    assert task.batch_size == 128


def test_copy_keeps_its_set_whatever_the_batch_size():
    def sequences(batch_size):
        task = Copy(T=3, train_size=50, valid_size=1, test_size=1, batch_size=batch_size)
        return torch.cat([b.x for b in task.batches("train")], 1)

    assert torch.equal(sequences(7), sequences(50))
