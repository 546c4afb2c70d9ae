"""Assigned and estimated time scales."""

import math

import pytest
import torch
from analysed import run_of_words
from matplotlib.figure import Figure
from scipy import stats

from timescales import LSTM, MTSLSTM
from timescales.analysis import assigned, study
from timescales.models.sequence import SequenceModel
from timescales.nn.inits import InverseGamma
from timescales.tasks import Copy


def test_assigned_and_estimated_agree_where_gates_are_held(tmp_path):
    """No weights into the forget gate: its mean is the sigmoid of the bias, which is the law's."""
    task = Copy(T=4, train_size=1, valid_size=1, test_size=3)
    torch.manual_seed(0)
    model = SequenceModel(LSTM(10, 30, forget_init={"law": "inverse_gamma", "alpha": 1.0}), task.spec).double().eval()
    cell = model.rnn.layers[0]
    with torch.no_grad():
        for weight in (cell.weight_ih, cell.weight_hh):
            weight[cell.rows("forget")] = 0.0
    run = run_of_words(model, task, name="lstm")
    found = assigned.study(run)
    times = InverseGamma(1.0).timescales(30).tolist()
    assert [row["assigned"] for row in found.rows] == pytest.approx(times, rel=1e-4)
    assert [row["estimated"] for row in found.rows] == pytest.approx(times, rel=1e-4)
    assert found.values["layer1/spearman"] == pytest.approx(1.0)
    assert found.values["layer1/pearson_log"] == pytest.approx(1.0)
    assert found.values["layer1/assigned_below_20"] == pytest.approx(29 / 30)  # the longest is 30.5 steps
    assert study.write(found, tmp_path, "assigned")[1].is_file()


def test_assigned_is_what_the_biases_said_before_training():
    task = Copy(T=4, train_size=1, valid_size=1, test_size=3)

    def held(alpha):
        torch.manual_seed(0)
        law = {"law": "inverse_gamma", "alpha": alpha}
        model = SequenceModel(LSTM(10, 30, forget_init=law), task.spec).double().eval()
        cell = model.rnn.layers[0]
        with torch.no_grad():
            for weight in (cell.weight_ih, cell.weight_hh):
                weight[cell.rows("forget")] = 0.0
        return model

    model = held(1.5)
    found = assigned.study(run_of_words(model, task, held(0.5), name="lstm"))
    for name, alpha in (("assigned", 0.5), ("estimated", 1.5)):
        times = InverseGamma(alpha).timescales(30)
        assert [row[name] for row in found.rows] == pytest.approx(times.tolist(), rel=1e-4)
        assert found.values[f"layer1/{name}_median"] == pytest.approx(times.median().item(), rel=1e-4)
    below = (InverseGamma(0.5).timescales(30) < 20).double().mean().item()
    assert found.values["layer1/assigned_below_20"] == pytest.approx(below)
    assert found.values["layer1/assigned_from_1000"] == pytest.approx(1 / 30)  # the longest alone
    assert 0.5 < below < 0.9


def test_the_runs_own_law_is_the_one_it_was_given(tmp_path):
    """At the layer's own scale and quantiles, of which the authors' end with a unit that never remembers."""
    task = Copy(T=4, train_size=1, valid_size=1, test_size=3)
    torch.manual_seed(0)
    model = SequenceModel(MTSLSTM(10, 9, alpha=0.56, scale=2.0, quantiles="authors"), task.spec).double().eval()
    run = run_of_words(model, task)
    run.config["model"].update(scale=2.0, quantiles="authors")
    figure = Figure()
    assigned.study(run).draw(figure)
    curves = {line.get_label(): line.get_ydata() for line in figure.axes[-1].get_lines()}
    assert len(curves) == len(assigned.ALPHAS)
    for alpha in (0.56, 1.0):
        times = stats.invgamma(alpha, scale=2.0).isf([k / 9 for k in range(1, 9)])
        assert curves[f"alpha {alpha}"][:-1] == pytest.approx(times, rel=1e-4)
        assert math.isnan(curves[f"alpha {alpha}"][-1])


@pytest.mark.parametrize(
    ("estimated", "explained"), [([2.0, 3.0, 8.0], 1.0), ([2.0, 8.0, 3.0], 0.25), ([3.0, 2.0, 1.0], 0.0)]
)
def test_what_assigned_time_scales_explain(estimated, explained):
    """The square of the rank correlation: 1, .5 and -1 here. Ranks that run backwards explain nothing."""
    found = assigned.agreement(torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor(estimated).double())
    assert (found["explained"], found["unexplained"]) == pytest.approx((explained, 1.0 - explained))


def test_layers_of_one_time_scale_explain_nothing_that_is_known():
    found = assigned.agreement(torch.ones(3).double(), torch.tensor([1.0, 2.0, 3.0]).double())
    assert math.isnan(found["explained"])
    assert math.isnan(found["unexplained"])


def test_correlations_are_scipys():
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(0, 8, (50,), generator=generator).double()
    b = a + torch.randint(0, 5, (50,), generator=generator)
    assert assigned.correlation(assigned.ranks(a), assigned.ranks(b)) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert assigned.correlation(a, b) == pytest.approx(stats.pearsonr(a, b).statistic)
    assert assigned.ranks(torch.tensor([3.0, 1.0, 3.0, math.inf])).tolist() == [2.5, 1.0, 2.5, 4.0]
    assert math.isnan(assigned.correlation(torch.ones(3), b[:3]))
    assert math.isnan(assigned.correlation(b[:1], b[:1]))
