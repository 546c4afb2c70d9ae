"""Distributions fitted to time scales."""

import math

import numpy as np
import pytest
import torch
from analysed import copy_task, hold, language_model, model_for, run_of_words, words
from matplotlib.figure import Figure
from scipy import stats

from timescales import LSTM
from timescales.analysis import timescale_law, word_ablation
from timescales.nn import inits


@pytest.mark.parametrize("alpha", [0.56, 1.0, 1.5])
def test_inverse_gamma_time_scales_add_up_to_a_power_law(alpha):
    """E[e^(-t/T)] = (t + 1)^(-alpha) where T ~ InvGamma(alpha, 1)."""
    q = (torch.arange(5000, dtype=torch.float64) + 0.5) / 5000
    times = inits.inverse_gamma_isf(q, alpha)
    for t in (0.0, 1.0, 3.0, 10.0, 30.0):
        assert float(torch.exp(-t / times).mean()) == pytest.approx((t + 1.0) ** -alpha, rel=2e-3)


def test_distances_are_scipys():
    times = torch.from_numpy(np.random.default_rng(0).lognormal(0.3, 1.2, 150))
    gamma = timescale_law.kolmogorov_smirnov(times, timescale_law.inverse_gamma_cdf)
    normal = timescale_law.kolmogorov_smirnov(times, timescale_law.normal_cdf)
    for k, value in enumerate(timescale_law.GRID.tolist()):
        assert value == pytest.approx((k + 1) / 10)
        expected = stats.kstest(times.numpy(), stats.invgamma(value).cdf).statistic
        assert float(gamma[k]) == pytest.approx(expected, abs=1e-10)
        assert float(normal[k]) == pytest.approx(stats.kstest(times.numpy(), stats.norm(value, 0.1).cdf).statistic)


def test_the_law_that_made_the_time_scales_is_found():
    n = 2700
    found = timescale_law.fit(inits.inverse_gamma_isf((torch.arange(n, dtype=torch.float64) + 0.5) / n, 1.4))
    assert found["alpha"] == pytest.approx(1.4)
    assert found["ks_inverse_gamma"] == pytest.approx(0.5 / n, rel=0.01)
    assert found["ks_normal"] > 0.3
    one_scale = timescale_law.fit(torch.from_numpy(np.random.default_rng(0).normal(0.5, 0.1, n)))
    assert found["below_10"] == pytest.approx(stats.invgamma(1.4).cdf(10), abs=1 / n)  # .977
    assert found["below_150"] == pytest.approx(stats.invgamma(1.4).cdf(150), abs=1 / n)
    assert one_scale["mu"] == pytest.approx(0.5)
    assert one_scale["ks_normal"] < 0.03 < 0.25 < one_scale["ks_inverse_gamma"]


def test_units_that_never_or_always_forget_are_counted():
    found = timescale_law.fit(torch.tensor([0.0, 1.0, math.inf], dtype=torch.float64))
    assert found["ks_inverse_gamma"] == pytest.approx(1 / 3)
    assert found["below_10"] == found["below_150"] == pytest.approx(2 / 3)
    assert found["from_10"] == pytest.approx(1 / 3)
    assert all(math.isfinite(value) for value in found.values())


def test_the_law_of_a_models_own_units():
    task = copy_task(T=2, test_size=2)
    model = model_for(task, LSTM, hidden_size=200)
    times = inits.InverseGamma(1.0).timescales(200)
    hold(model, forget=inits.bias_of_timescale(times))
    found = timescale_law.measure(model, task)
    assert found == pytest.approx(timescale_law.fit(times), abs=1e-6)
    assert found["alpha"] == 1.0


@pytest.mark.parametrize("module", [timescale_law, word_ablation])
def test_four_runs_of_one_model_are_told_apart(root, module):
    task = words(root)
    model = language_model(task, LSTM, (6, 5))
    figure = Figure()
    module.compare([run_of_words(model, task, name="lstm") for _ in range(4)]).draw(figure)
    for one in figure.axes:
        assert all(line.get_linewidth() > 0 for line in one.get_lines())
        looks = {}  # by what is drawn: the runs have the same words
        for line in one.get_lines():
            if "lstm, seed 0" in line.get_label():
                looks.setdefault(line.get_label(), set()).add((line.get_linewidth(), line.get_marker()))
        assert looks
        assert all(len(found) == 4 for found in looks.values())
