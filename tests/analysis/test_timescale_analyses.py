"""Check the analyses of time scales: spread, histograms, laws, assigned and estimated, before and after training."""

import math

import numpy as np
import pytest
import torch
from analysed import copy_task, hold, language_model, model_for, run_of, run_of_words, studied, words
from matplotlib.figure import Figure
from scipy import stats

from timescales import LSTM, MTSLSTM, ExpRNN, plotting
from timescales.analysis import (
    assigned,
    characteristic_times,
    decay_factors,
    forgetting,
    gate_histograms,
    study,
    timescale_law,
    word_ablation,
)
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.nn import inits
from timescales.nn.inits import InverseGamma
from timescales.tasks import Copy


def test_forgetting_names_the_spread_of_time_scales():
    task = copy_task(T=2, test_size=2)
    model = model_for(task, LSTM, hidden_size=11)
    times = [404.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0, 0.5]
    hold(model, forget=inits.bias_of_timescale(torch.tensor(times, dtype=torch.float64)))
    found = forgetting.measure(model, task)
    expected = {"min": 0.5, "q10": 1.0, "median": 8.0, "q90": 55.0, "max": 404.0}
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-9)
    assert all(type(value) is float for value in found.values())
    shares = {key.removeprefix("share/"): 11 * value for key, value in found.items() if key.startswith("share/")}
    units = {"0.5": 1, "1": 1, "2": 1, "4": 2, "8": 1, "16": 2, "32": 1, "64": 1, "512": 1}  # 3 and 5 are nearest to 4
    assert {key: n for key, n in shares.items() if n} == pytest.approx(units)
    assert len(shares) == 17


def test_histograms_are_of_each_units_mean_gate(tmp_path):
    task = copy_task(test_size=2)
    before, after = (model_for(task, LSTM, hidden_size=4) for _ in range(2))
    gates = ([0.5, 0.95, 0.2, 0.999], [0.05, 0.95, 0.995, 0.9])
    for model, f in zip((before, after), gates, strict=True):
        hold(model, forget=torch.tensor(f, dtype=torch.float64).logit())
    found = studied(gate_histograms, after, task, tmp_path, initial=before)
    assert [row["before"] for row in found.rows] == pytest.approx(gates[0])
    assert [row["after"] for row in found.rows] == pytest.approx(gates[1])
    assert found.values["before/smallest"] == pytest.approx(-1 / math.log(0.2))
    assert found.values["after/smallest"] == pytest.approx(-1 / math.log(0.05))
    assert (found.values["before/share_above_0.9"], found.values["after/share_above_0.99"]) == (0.5, 0.25)
    both = gate_histograms.compare([run_of(before, task), run_of(after, task)])
    assert both.values["smallest_ratio"] == pytest.approx(math.log(0.05) / math.log(0.2))
    assert study.write(both, tmp_path, "both")[1].is_file()


def test_characteristic_times_before_and_after(tmp_path):
    task = Copy(T=4, train_size=1, valid_size=1, test_size=3)
    torch.manual_seed(0)
    initial = SequenceModel(LSTM(10, 4, forget_init=1.0), task.spec)
    model = SequenceModel(LSTM(10, 4, forget_init={"law": "assigned", "timescales": [3.0, 40.0]}), task.spec)
    with torch.no_grad():
        for each in (initial, model):
            each.rnn.layers[0].bias_ih.zero_()
    run = run_of_words(model, task, initial, name="lstm")
    found = characteristic_times.study(run)
    began = -1 / math.log(1 / (1 + math.exp(-1.0)))
    assert [row["initial"] for row in found.rows] == pytest.approx([began] * 4, rel=1e-5)
    assert [row["trained"] for row in found.rows] == pytest.approx([3.0, 3.0, 40.0, 40.0], rel=1e-5)
    assert found.values["trained/q90"] == pytest.approx(40.0, rel=1e-5)
    endless = SequenceModel(ExpRNN(10, 4), task.spec)
    both = characteristic_times.compare([run, run_of_words(endless, task, name="exprnn")])
    assert [row["model"] for row in both.rows] == ["lstm"] * 4 + ["exprnn"] * 4
    assert both.values["2/trained/median"] == math.inf
    assert study.write(both, tmp_path, "characteristic_times")[1].is_file()


def test_the_horizon_counts_for_the_ticks():
    """All units have 1.44 steps; with the horizon there are powers of ten to label."""
    task = copy_task(T=1000)
    model = model_for(task, LSTM)
    hold(model, forget=[0.0] * 6)
    characteristic_times.draw(figure := Figure(), [run_of(model, task)])
    figure.draw_without_rendering()
    axis = figure.axes[0].yaxis
    low, high = figure.axes[0].get_ylim()
    texts = [text.get_text() for text in axis.get_majorticklabels()]
    shown = [text for place, text in zip(axis.get_majorticklocs(), texts, strict=True) if low <= place <= high]
    assert shown == ["10", "100", "1,000"]
    assert {text.get_text() for text in axis.get_minorticklabels()} == {""}


# --- Decay factors of power laws -------------------------------------------------------------------------------------
def test_factors_before_and_after(tmp_path):
    task = copy_task()
    before, after = model_for(task, hidden_size=20, seed=1), model_for(task, hidden_size=20, seed=1)
    with torch.no_grad():
        after.rnn.layers[0].power += torch.linspace(-0.2, 1.0, 20, dtype=torch.float64)
    a, b = (m.rnn.layers[0].p.detach().numpy() for m in (before, after))
    found = studied(decay_factors, after, task, tmp_path, initial=before)
    assert (found.values["t"], found.values["p_value"]) == pytest.approx(tuple(stats.ttest_ind(b, a)))
    assert found.values["t_paired"] == pytest.approx(stats.ttest_rel(b, a).statistic)
    pooled = math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
    assert found.values["cohens_d"] == pytest.approx((b.mean() - a.mean()) / pooled)
    assert [row["after"] - row["before"] for row in found.rows] == pytest.approx((b - a).tolist())
    assert {"later_reset"} == set(found.rows[0]) - {"layer", "unit", "before", "after"}
    fixed = model_for(task, power=0.2)
    with pytest.raises(ConfigError, match=r"here it is fixed at 0\.2"):
        decay_factors.study(run_of(fixed, task))


@pytest.mark.parametrize("T", [8, 200])
def test_the_legend_of_factors_covers_no_bar(T):
    """Before training the bars are nearly equally high. At T = 200 the legend also has the paper's mean."""
    task = copy_task(T=T)
    model = model_for(task, hidden_size=40)
    with torch.no_grad():
        model.rnn.layers[0].power.copy_(torch.linspace(0.01, 0.99, 40).logit())
    p = decay_factors.learned(model)
    late = torch.arange(40) % 2 == 0

    figure = plotting.empty_figure()
    decay_factors.draw(figure, p, p, late, run_of(model, task))
    figure.suptitle("A title\nof two lines")
    figure.draw_without_rendering()
    axes = figure.axes[0]
    legend = axes.get_legend()
    assert len(legend.get_texts()) == (4 if T == 200 else 3)
    assert legend.get_window_extent().y0 > max(patch.get_window_extent().y1 for patch in axes.patches)


def test_factors_of_two_delays_are_compared_as_in_the_paper(tmp_path):
    runs = []
    for k, (T, mean) in enumerate([(200, 0.41), (500, 0.19)]):
        task = copy_task(T=T)
        model = model_for(task, hidden_size=128, seed=k)
        p = np.linspace(-1.0, 1.0, 128) if k else np.sin(np.arange(128.0))
        p = (p - p.mean()) / p.std(ddof=1) * 0.1 + mean
        with torch.no_grad():
            model.rnn.layers[0].power.copy_(torch.from_numpy(p).logit())
        runs.append(run_of(model, task, directory=f"T{T}"))
    found = decay_factors.compare(runs)
    assert found.values["1_2/cohens_d"] == pytest.approx(0.22 / 0.1)
    assert found.values["1_2/t"] == pytest.approx(0.22 / 0.1 * math.sqrt(64))
    assert (found.values["1/mean"], found.values["2/mean"]) == pytest.approx((0.41, 0.19))
    assert len(found.rows) == 256
    assert study.write(found, tmp_path, "decay_factors")[1].is_file()


# --- Laws fitted to time scales --------------------------------------------------------------------------------------
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
    assert (found["alpha"], found["ks_inverse_gamma"]) == (pytest.approx(1.4), pytest.approx(0.5 / n, rel=0.01))
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


def test_each_horizon_of_the_runs_is_drawn():
    runs = [run_of(model_for(task, LSTM), task) for task in (copy_task(T=20), copy_task(T=8), copy_task(T=20))]
    characteristic_times.compare(runs).draw(figure := Figure())
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words == ["horizon of the task, 12 steps", "horizon of the task, 30 steps"]


def test_the_law_of_a_models_own_units():
    task = copy_task(T=2, test_size=2)
    model = model_for(task, LSTM, hidden_size=200)
    times = inits.InverseGamma(1.0).timescales(200)
    hold(model, forget=inits.bias_of_timescale(times))
    found = timescale_law.measure(model, task)
    assert (found, found["alpha"]) == (pytest.approx(timescale_law.fit(times), abs=1e-6), 1.0)


@pytest.mark.parametrize("module", [timescale_law, word_ablation])
def test_four_runs_of_one_model_are_told_apart(root, module):
    task = words(root)
    model = language_model(task, LSTM, (6, 5))
    module.compare([run_of_words(model, task, name="lstm") for _ in range(4)]).draw(figure := Figure())
    for one in figure.axes:
        assert all(line.get_linewidth() > 0 for line in one.get_lines())
        looks = {}  # by what is drawn: the runs have the same words
        for line in one.get_lines():
            if "lstm, seed 0" in line.get_label():
                looks.setdefault(line.get_label(), set()).add((line.get_linewidth(), line.get_marker()))
        assert looks
        assert all(len(found) == 4 for found in looks.values())


# --- Assigned and estimated ------------------------------------------------------------------------------------------
def held(alpha):
    """An LSTM without weights into the forget gate: its mean is the sigmoid of the bias, which is the law's."""
    torch.manual_seed(0)
    model = SequenceModel(LSTM(10, 30, forget_init={"law": "inverse_gamma", "alpha": alpha}), copy_task().spec)
    cell = model.rnn.layers[0]
    with torch.no_grad():
        for weight in (cell.weight_ih, cell.weight_hh):
            weight[cell.rows("forget")] = 0.0
    return model.double().eval()


def test_assigned_and_estimated_are_the_laws_before_and_after_training(tmp_path):
    task, model = copy_task(T=4, test_size=3), held(1.5)
    found = assigned.study(run_of_words(model, task, held(0.5), name="lstm"))
    for name, alpha in (("assigned", 0.5), ("estimated", 1.5)):
        times = InverseGamma(alpha).timescales(30)
        assert [row[name] for row in found.rows] == pytest.approx(times.tolist(), rel=1e-4)
        assert found.values[f"layer1/{name}_median"] == pytest.approx(times.median().item(), rel=1e-4)
    below = (InverseGamma(0.5).timescales(30) < 20).double().mean().item()
    assert found.values["layer1/assigned_below_20"] == pytest.approx(below)
    assert found.values["layer1/assigned_from_1000"] == pytest.approx(1 / 30)  # the longest alone
    assert 0.5 < below < 0.9
    found = assigned.study(run_of_words(model, task, name="lstm"))
    assert (found.values["layer1/spearman"], found.values["layer1/pearson_log"]) == pytest.approx((1.0, 1.0))
    assert study.write(found, tmp_path, "assigned")[1].is_file()


def test_the_runs_own_law_is_the_one_it_was_given(tmp_path):
    """At the layer's own scale and quantiles, of which the authors' end with a unit that never remembers."""
    task = Copy(T=4, train_size=1, valid_size=1, test_size=3)
    torch.manual_seed(0)
    model = SequenceModel(MTSLSTM(10, 9, alpha=0.56, scale=2.0, quantiles="authors"), task.spec).double().eval()
    run = run_of_words(model, task)
    run.config["model"].update(scale=2.0, quantiles="authors")
    assigned.study(run).draw(figure := Figure())
    curves = {line.get_label(): line.get_ydata() for line in figure.axes[-1].get_lines()}
    assert len(curves) == 7
    for alpha in (0.56, 1.0):
        times = stats.invgamma(alpha, scale=2.0).isf([k / 9 for k in range(1, 9)])
        assert curves[f"alpha {alpha}"][:-1] == pytest.approx(times, rel=1e-4)
        assert math.isnan(curves[f"alpha {alpha}"][-1])


@pytest.mark.parametrize(("estimated", "explained"), [([2, 3, 8], 1.0), ([2, 8, 3], 0.25), ([3, 2, 1], 0.0)])
def test_what_assigned_time_scales_explain(estimated, explained):
    """The square of the rank correlation: 1, .5 and -1 here. Ranks that run backwards explain nothing."""
    found = assigned.agreement(torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor(estimated).double())
    assert (found["explained"], found["unexplained"]) == pytest.approx((explained, 1.0 - explained))
    one_scale = assigned.agreement(torch.ones(3).double(), torch.tensor([1.0, 2.0, 3.0]).double())
    assert (one_scale["explained"], one_scale["unexplained"]) == pytest.approx((math.nan, math.nan), nan_ok=True)


def test_correlations_are_scipys():
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(0, 8, (50,), generator=generator).double()
    b = a + torch.randint(0, 5, (50,), generator=generator)
    assert assigned.correlation(assigned.ranks(a), assigned.ranks(b)) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert assigned.correlation(a, b) == pytest.approx(stats.pearsonr(a, b).statistic)
    assert assigned.ranks(torch.tensor([3.0, 1.0, 3.0, math.inf])).tolist() == [2.5, 1.0, 2.5, 4.0]
    assert math.isnan(assigned.correlation(torch.ones(3), b[:3]))
    assert math.isnan(assigned.correlation(b[:1], b[:1]))
