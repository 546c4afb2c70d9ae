"""Check adding, linear functionals and Dyck-2, whose losses are squared differences, against sums in plain Python."""

import math

import numpy as np
import pytest
import torch
from configs import config
from scipy import stats
from small_tasks import pairs, string_of

from timescales.config import schema
from timescales.tasks import Adding, Batch, Dyck2, LinearFunctional
from timescales.tasks.dyck2 import LONGEST, strings
from timescales.training import build


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


# --- Linear functionals ----------------------------------------------------------------------------------------------
SIZES = {"train_size": 400, "valid_size": 400, "test_size": 5, "batch_size": 400}


def weights(kernel, T, tau, p):
    """The kernel as its docstring says it."""
    unscaled = [math.exp(-s / tau) if kernel == "exponential" else (1 + s / tau) ** -p for s in range(T)]
    return np.array(unscaled) / math.sqrt(sum(w * w for w in unscaled))


def sums(x, w):
    """The target of a sequence without noise, number by number."""
    return [sum(w[s] * x[t - s] for s in range(t + 1)) for t in range(len(x))]


@pytest.mark.parametrize(
    ("kernel", "T", "tau", "p"),
    [("exponential", 37, 4.0, 0.7), ("polynomial", 1, 2.0, 1.0), ("polynomial", 200, 10.0, 1.1)],
)
def test_targets_are_the_weighted_sums(kernel, T, tau, p, float64_default):
    task = LinearFunctional(T=T, kernel=kernel, tau=tau, p=p, noise=0.0, **SIZES)
    w = weights(kernel, T, tau, p)
    np.testing.assert_allclose(task.weights.numpy(), w, rtol=1e-12)
    batch = next(task.batches("train"))
    assert batch.x.shape == (T, 400, 1)
    for k in (0, 7, 399):
        np.testing.assert_allclose(batch.target[:, k], sums(batch.x[:, k, 0].tolist(), w), rtol=0, atol=1e-12)


def test_inputs_are_white_and_the_noise_is_of_the_stated_size(float64_default):
    task, bare = (LinearFunctional(T=100, noise=noise, **SIZES) for noise in (0.3, 0.0))
    noisy, clean = (next(each.batches("train")) for each in (task, bare))
    assert torch.equal(noisy.x, clean.x)
    noise = (noisy.target - clean.target) / 0.3
    for drawn in (noisy.x, noise):  # 40,000 numbers
        assert stats.kstest(drawn.flatten().numpy(), stats.norm.cdf).pvalue > 1e-3
    assert torch.corrcoef(torch.stack([noisy.x.flatten(), noise.flatten()]))[0, 1].abs() < 0.025
    x = noisy.x[..., 0]
    assert (x[1:] * x[:-1]).mean().abs() < 0.025


@pytest.mark.parametrize(("kernel", "tau"), [("exponential", 20.0), ("polynomial", 5.0)])
def test_the_least_loss_with_a_memory_is_that_of_the_truncated_sum(kernel, tau, float64_default):
    """Measured on 400 sequences of 100 steps; the standard error of a mean is below 2 %."""
    task = LinearFunctional(T=100, kernel=kernel, tau=tau, p=0.8, noise=0.2, **SIZES)
    batch = next(task.batches("valid"))
    w = weights(kernel, 100, tau, 0.8)
    for memory in (0, 1, 5, 30, 99, 100):
        known = np.where(np.arange(100) < memory, w, 0.0)
        logits = torch.stack([torch.from_numpy(np.convolve(x, known)[:100]) for x in batch.x[..., 0].T.numpy()], 1)
        loss = task.loss(logits.unsqueeze(-1), batch).item()
        assert loss == pytest.approx(task.loss_with(memory), rel=0.06)
    losses = [task.loss_with(memory) for memory in range(101)]
    assert (losses, losses[0]) == (sorted(losses, reverse=True), task.chance())
    assert losses[-1] == pytest.approx(task.optimum(), rel=1e-12) == pytest.approx(0.04)


def test_least_losses_by_hand():
    # Weights 4, 2 and 1 over the root of 21: two steps of the first target, one of the second, none of the third.
    task = LinearFunctional(T=3, kernel="exponential", tau=1 / math.log(2), noise=0.5)
    assert task.chance() == pytest.approx((16 + 20 + 21) / 63 + 0.25)
    assert task.loss_with(1) == pytest.approx((0 + 4 + 5) / 63 + 0.25)
    assert (task.loss_with(2), task.loss_with(3)) == (pytest.approx(1 / 63 + 0.25), pytest.approx(0.25))


def test_the_excess_is_0_at_the_optimum_and_1_at_chance():
    task = LinearFunctional(T=50)
    assert task.derived({"loss": task.optimum()})["excess"] == 0.0
    assert task.derived({"loss": task.chance()})["excess"] == pytest.approx(1.0)
    loss = task.optimum() + 0.25 * (task.chance() - task.optimum())
    assert task.derived({"loss": loss}) == {"loss": loss, "excess": pytest.approx(0.25)}


def test_linear_functional_scores():
    task = LinearFunctional(T=2, train_size=5, valid_size=5, test_size=5)
    batch = Batch(torch.zeros(2, 3, 1), torch.tensor([[1.0, 0.5, 1.5], [0.0, 0.0, 0.0]]))
    logits = torch.tensor([[[1.3], [0.5], [1.5]], [[0.0], [0.6], [0.0]]])
    total, n = task.metrics(logits, batch)["loss"]
    assert (total.item(), n) == (pytest.approx(0.3**2 + 0.6**2, rel=1e-5), 6)
    assert task.spec.select == ("loss", "min")
    assert task.spec.horizon == 2


# --- Dyck-2 ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def dyck():
    return Dyck2()


def test_dyck_strings_are_well_formed_unique_and_disjoint(dyck):
    every = [string_of(dyck, split, k) for split, n in dyck.sizes.items() for k in range(n)]
    assert [dyck.size(split) for split in ("train", "valid", "test")] == [10_000, 2_000, 5_000]
    assert len(every) == len(set(every)) == 17_000
    scales = torch.cat(list(dyck.timescales.values())).tolist()
    for string, scale in zip(every, scales, strict=True):
        assert scale == max(pairs(string))
    assert all(2 <= len(s) <= LONGEST and len(s) % 2 == 0 for s in every)


def test_dyck_statistics_as_published(dyck):
    """Length mean 48, median 30, 13 % above 100; nesting 10.4; longest pair mean 44, median 26, 18.2 % above 75."""
    lengths = torch.cat(list(dyck.lengths.values())).double()
    scales = torch.cat(list(dyck.timescales.values())).double()
    n = len(lengths)

    def near(value, expected, error):
        assert value == pytest.approx(expected, abs=error)

    near(lengths.mean().item(), 48, 5 * 45 / math.sqrt(n) + 0.5)
    near(lengths.median().item(), 30, 2)
    near((lengths > 100).double().mean().item(), 0.13, 0.013)
    near(scales.mean().item(), 44, 5 * 44 / math.sqrt(n) + 0.5)
    near(scales.median().item(), 26, 2)
    near((scales > 75).double().mean().item(), 0.182, 0.018)
    train = [string_of(dyck, "train", k) for k in range(3000)]
    distances = torch.tensor([length for string in train for length in pairs(string)])
    for distance, share in ((2, 0.279), (4, 0.163), (6, 0.103), (8, 0.071), (10, 0.052), (20, 0.018)):
        near((distances == distance).double().mean().item(), share, 0.1 * share)
    depth = [max(sum(1 if c in "([" else -1 for c in s[: k + 1]) for k in range(len(s))) for s in train[:500]]
    near(sum(depth) / len(depth), 10.4, 1.5)
    short = [sum(1 for k in lengths.tolist() if k == length) for length in (2, 4, 6, 8)]
    assert short[:3] == [2, 8, 40]  # all that there are
    near(short[3], 177, 15)


def test_dyck_targets_and_score(dyck):
    batch = next(dyck.batches("test"))
    assert batch.x.shape[0] == dyck.lengths["test"][:500].max()
    for k in range(100):
        string, opened = string_of(dyck, "test", k), []
        for t, character in enumerate(string):
            opened = [*opened, character] if character in "([" else opened[:-1]
            expected = {"[": [1.0, 0.0], "(": [0.0, 1.0]}[opened[-1]] if opened else [0.0, 0.0]
            assert batch.target[t, k].tolist() == expected
        assert batch.mask[:, k].sum() == len(string)
    logits = torch.randn(*batch.target.shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = dyck.loss(logits, batch)
    errors = (logits.detach().sigmoid() - batch.target).square()[batch.mask]
    assert loss.item() == pytest.approx(errors.sum().item() / (2 * len(errors)), rel=1e-5)
    (g,) = torch.autograd.grad(loss, logits)
    assert torch.equal(g.abs().sum(-1) > 0, batch.mask)
    oracle = 20 * (2 * batch.target - 1)
    oracle[0, 7, 0] *= -1
    oracle[~batch.mask] *= -1
    assert (~dyck.correct(oracle, batch)).nonzero().tolist() == [[7]]


def test_dyck_is_one_data_set_for_every_seed(dyck):
    other = Dyck2(seed=5)
    assert torch.equal(other.symbols["train"], dyck.symbols["train"])
    a, b = (next(task.batches("train")) for task in (dyck, other))
    assert a.x.shape != b.x.shape or not torch.equal(a.x, b.x)  # in another order
    assert strings(50, 0) != strings(50, 1)
    assert strings(50, 0) == strings(50, 0)


def test_dyck_stops_and_sizes(dyck):
    assert dyck.stop(1, {"loss": 0.99e-4, "accuracy": 0.0}) == "solved"
    assert dyck.stop(2000, {"loss": 1.01e-4, "accuracy": 1.0}) is None
    for model in ("lstm", "mts"):
        cfg = schema.resolved(config("paper=mahto", "task=dyck2", f"model={model}"))
        assert (cfg["optimizer"]["lr"], cfg["loop"]["max_epochs"], cfg["loop"]["clip_norm"]) == (1e-4, 2000, 1.0)
        network, *_ = build.build(cfg)
        assert sum(p.numel() for p in network.parameters()) == 268_802
        if model == "mts":
            assert network.rnn.timescales()[0].max().item() == pytest.approx(33.0, abs=0.1)
            assert (network.rnn.timescales()[0] > 20).sum() == 2
