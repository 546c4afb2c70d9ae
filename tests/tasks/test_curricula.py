"""N-parity and N-delayed match: answers in plain Python, lengths, chance, and how N grows."""

import math

import pytest
import torch
from scipy import stats

from timescales.tasks import Batch, NDelayedMatch, NParity

SIZES = {"train_size": 300, "valid_size": 300, "test_size": 5, "batch_size": 300}


def row(accuracy, newest=None):
    """A row of a curve."""
    return {"valid/accuracy": accuracy, "valid/newest_accuracy": accuracy if newest is None else newest}


@pytest.mark.parametrize(
    ("kind", "answer"),
    [(NParity, lambda bits, n: bits[-n:].count(1) % 2), (NDelayedMatch, lambda bits, n: bits[-n] == bits[-1])],
)
@pytest.mark.parametrize(("N", "curriculum"), [(2, "single"), (3, "multi"), (8, "single"), (8, "multi")])
def test_answers_are_those_of_plain_python(kind, answer, N, curriculum):
    task = kind(N=N, N_max=12, curriculum=curriculum, **SIZES)
    batch = next(task.batches("train"))
    trained = [N] if curriculum == "single" else list(range(2, N + 1))
    assert task.trained == trained
    assert set(batch.x.unique().tolist()) == {0.0, 1.0}
    for k in range(300):
        bits = batch.x[:, k, 0].int().tolist()
        assert batch.target[k].tolist() == [answer(bits, n) for n in trained]


@pytest.mark.parametrize(("kind", "longest"), [(NParity, {2: 6, 3: 8, 10: 26}), (NDelayedMatch, {2: 9, 3: 13, 10: 41})])
def test_lengths_are_uniform_from_N_plus_2(kind, longest):
    for N, most in longest.items():
        task = kind(N=N, train_size=1000, batch_size=1)
        lengths = torch.tensor([len(batch.x) for batch in task.batches("train")])
        counts = torch.bincount(lengths - (N + 2))
        assert (int(lengths.min()), int(lengths.max())) == (N + 2, most)
        assert stats.chisquare(counts.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("N", [2, 3, 4])
def test_chance_of_mixed_and_fair_bits(N):
    """The share of odd counts, measured: 1/3 for two mixed bits, 2/5 for four."""
    sizes = {"train_size": 40_000, "batch_size": 40_000}
    for bits, expected in (("mixed", N / (2 * N + 2) if N % 2 == 0 else 0.5), ("fair", 0.5)):
        task = NParity(N=N, bits=bits, **sizes)
        batch = next(task.batches("train"))
        odd = batch.target.double().mean().item()
        assert odd == pytest.approx(expected, abs=5 * 0.5 / math.sqrt(40_000))
        assert task.chance() == pytest.approx(-math.log(expected) * expected - math.log(1 - expected) * (1 - expected))
        of_one = batch.x[..., 0].mean(0)
        assert of_one.mean().item() == pytest.approx(0.5, abs=0.01)
        # the shares of ones over S steps vary by (1/12 + 1/(6 S)) for mixed bits, by 1/(4 S) for fair ones
        steps = len(batch.x)
        variance = 1 / 12 + 1 / (6 * steps) if bits == "mixed" else 0.25 / steps
        assert of_one.var().item() == pytest.approx(variance, rel=0.05)


def test_chance_adds_up_over_what_is_trained():
    task = NParity(curriculum="multi", N=4)
    one, two = (-(p * math.log(p) + (1 - p) * math.log(1 - p)) for p in (1 / 3, 2 / 5))
    assert task.chance() == pytest.approx(one + math.log(2) + two)
    assert NDelayedMatch(curriculum="multi", N=4).chance() == pytest.approx(3 * math.log(2))
    task.follow([row(1.0)])
    assert task.chance() == pytest.approx(one + 2 * math.log(2) + two)


@pytest.mark.parametrize("kind", [NParity, NDelayedMatch])
def test_N_grows_by_1_for_each_solved_validation(kind):
    task = kind(N=3, N_max=5)
    curve = [row(0.97), row(0.981), row(0.98), row(0.5), row(0.99), row(0.999)]
    reached = []
    for k in range(len(curve) + 1):
        task.follow(curve[:k])
        reached.append(task.N)
    assert reached == [3, 3, 4, 4, 4, 5, 5]  # the threshold itself is not above it, and 5 is the last one
    task.follow(curve[:2])  # whatever was called before
    assert task.N == 4
    assert len(next(task.batches("train")).x) >= 6


def test_in_multi_the_newest_and_the_mean_must_be_solved():
    task = NParity(curriculum="multi", N=3, N_max=9)
    mean, newest, both = row(0.99, 0.97), row(0.97, 0.99), row(0.99, 0.99)
    for curve, expected in (([mean], 3), ([newest], 3), ([both], 4), ([both, mean, both], 5)):
        task.follow(curve)
        assert expected == task.N
        batch = next(task.batches("valid"))
        assert batch.target.shape == (500, expected - 1)


def test_a_run_is_solved_where_N_cannot_grow():
    task = NParity(N=3, N_max=4)
    solved = {"accuracy": 0.99, "newest_accuracy": 0.99}
    assert task.stop(1, solved) is None
    task.follow([row(0.99)])
    assert task.stop(2, solved) == "solved"
    assert task.stop(2, solved | {"newest_accuracy": 0.98}) is None


@pytest.mark.parametrize("kind", [NParity, NDelayedMatch])
def test_scores_of_several_heads(kind):
    task = kind(curriculum="multi", N=4, N_max=6, **SIZES)
    batch = Batch(torch.zeros(7, 2, 1), torch.tensor([[0, 1, 1], [1, 1, 0]]))
    logits = torch.full((2, 10), 50.0)  # five outputs; those of 5 and 6 do not count yet
    logits[:, :6] = torch.tensor([[2.0, 0.0, 0.0, 1.0, 3.0, 0.0], [0.0, 0.0, 0.0, 2.0, 1.0, 0.0]])
    terms = [math.log1p(math.exp(-margin)) for margin in (2, 1, -3, 0, 2, 1)]
    assert task.loss(logits, batch).item() == pytest.approx(sum(terms) / 2, rel=1e-6)
    sums = {name: (float(total), n) for name, (total, n) in task.metrics(logits, batch).items()}
    right = {"accuracy": (4.0, 6), "newest_accuracy": (1.0, 2)}  # of the tie the first class is answered
    assert sums == {"loss": (pytest.approx(sum(terms), rel=1e-6), 2), **right}
    assert task.correct(logits, batch).tolist() == [False, False]
    assert task.derived({"accuracy": 0.75}) == {"accuracy": 0.75, "N": 4.0, "score": 4.75}
    assert task.spec.select == ("score", "max")


def test_validation_sets_are_fixed_by_seed_and_N():
    one, other = NParity(N=5, **SIZES), NParity(N=4, **SIZES)
    other.follow([row(1.0)])
    a, b = (next(task.batches("valid")) for task in (one, other))
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.target, b.target)
