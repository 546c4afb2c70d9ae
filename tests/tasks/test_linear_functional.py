"""Linear functionals: targets by a slow sum, the scale of the loss, and what a memory of some steps can reach."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from timescales.tasks import Batch, LinearFunctional

SIZES = {"train_size": 400, "valid_size": 400, "test_size": 5, "batch_size": 400}


def weights(kernel, T, tau, p):
    """The kernel as its docstring says it."""
    unscaled = [math.exp(-s / tau) if kernel == "exponential" else (1 + s / tau) ** -p for s in range(T)]
    return np.array(unscaled) / math.sqrt(sum(w * w for w in unscaled))


def sums(x, w):
    """The target of a sequence without noise, number by number."""
    return [sum(w[s] * x[t - s] for s in range(t + 1)) for t in range(len(x))]


@pytest.mark.parametrize("kernel", ["exponential", "polynomial"])
@pytest.mark.parametrize(("T", "tau", "p"), [(1, 2.0, 1.0), (37, 4.0, 0.7), (200, 10.0, 1.1)])
def test_targets_are_the_weighted_sums(kernel, T, tau, p, float64_default):
    task = LinearFunctional(T=T, kernel=kernel, tau=tau, p=p, noise=0.0, **SIZES)
    w = weights(kernel, T, tau, p)
    np.testing.assert_allclose(task.weights.numpy(), w, rtol=1e-12)
    batch = next(task.batches("train"))
    assert batch.x.shape == (T, 400, 1)
    for k in (0, 7, 399):
        np.testing.assert_allclose(batch.target[:, k], sums(batch.x[:, k, 0].tolist(), w), rtol=0, atol=1e-12)


def test_the_first_numbers_of_the_docstring():
    batch = next(LinearFunctional().batches("train"))
    assert batch.x[:4, 0, 0].tolist() == pytest.approx([0.62, 0.43, -0.09, 0.68], abs=5e-3)
    assert batch.target[:4, 0].tolist() == pytest.approx([0.27, 0.39, 0.36, 0.46], abs=5e-3)


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
    assert losses == sorted(losses, reverse=True)
    assert losses[0] == task.chance()
    assert losses[-1] == pytest.approx(task.optimum(), rel=1e-12) == pytest.approx(0.04)


def test_least_losses_by_hand():
    # Weights 4, 2 and 1 over the root of 21: two steps of the first target, one of the second, none of the third.
    task = LinearFunctional(T=3, kernel="exponential", tau=1 / math.log(2), noise=0.5)
    assert task.chance() == pytest.approx((16 + 20 + 21) / 63 + 0.25)
    assert task.loss_with(1) == pytest.approx((0 + 4 + 5) / 63 + 0.25)
    assert task.loss_with(2) == pytest.approx(1 / 63 + 0.25)
    assert task.loss_with(3) == pytest.approx(0.25)


def test_the_excess_is_0_at_the_optimum_and_1_at_chance():
    task = LinearFunctional(T=50)
    assert task.derived({"loss": task.optimum()})["excess"] == 0.0
    assert task.derived({"loss": task.chance()})["excess"] == pytest.approx(1.0)
    loss = task.optimum() + 0.25 * (task.chance() - task.optimum())
    assert task.derived({"loss": loss}) == {"loss": loss, "excess": pytest.approx(0.25)}


def test_no_linear_predictor_is_better_than_the_optimum(float64_default):
    """Least squares on all 12 inputs, for the last target: what is left on other sequences is the noise."""
    task = LinearFunctional(T=12, tau=3.0, noise=0.5, train_size=500, valid_size=500, test_size=5, batch_size=500)
    fitted, other = next(task.batches("train")), next(task.batches("valid"))
    x, y = fitted.x[..., 0].T.numpy(), fitted.target[-1].numpy()
    solution = np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(solution[::-1], task.weights, atol=5 * 0.5 / math.sqrt(500))
    left = other.target[-1].numpy() - other.x[..., 0].T.numpy() @ solution
    assert np.mean(left**2) == pytest.approx(0.25, rel=5 * math.sqrt(2 / 500))


def test_linear_functional_scores():
    task = LinearFunctional(T=2, train_size=5, valid_size=5, test_size=5)
    batch = Batch(torch.zeros(2, 3, 1), torch.tensor([[1.0, 0.5, 1.5], [0.0, 0.0, 0.0]]))
    logits = torch.tensor([[[1.3], [0.5], [1.5]], [[0.0], [0.6], [0.0]]])
    total, n = task.metrics(logits, batch)["loss"]
    assert (total.item(), n) == (pytest.approx(0.3**2 + 0.6**2, rel=1e-5), 6)
    assert task.spec.select == ("loss", "min")
    assert task.spec.horizon == 2
