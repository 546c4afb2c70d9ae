"""What is left of cell states, against literal products."""

import pytest
import torch
from analysed import copy_task, hold, model_for, run_of, studied, variable, waves
from torch.nn.functional import linear

from timescales import LSTM, PLSTM, URLSTM, ExpRNN
from timescales.analysis import decay_curves, study
from timescales.errors import ConfigError
from timescales.tasks import Frequency, VariableCopy


@torch.no_grad()
def literal_kept(model, batch, first, last):
    """Products of forget gates from each sequence's own first step that counts on: a list of means (H,) by n."""
    cell = model.rnn.layers[0]
    x = torch.nn.functional.one_hot(batch.x, 10).double() if model.spec.input == "one_hot" else batch.x.double()
    ih, hh, bias_ih, bias_hh = cell.weights()
    by_n = {}
    for k in range(x.shape[1]):
        state, left, n = cell.initial_state(), torch.ones(cell.hidden_size, dtype=torch.float64), 0
        for s in range(len(x)):
            if batch.mask is not None and not batch.mask[s, k]:
                continue
            dt = 1.0 if batch.dt is None else batch.dt[s, k].double()
            gx, gh = linear(x[s, k], ih, bias_ih), linear(state.h, hh, bias_hh)
            if first(k) <= s < last(k):
                left, n = left * cell.act(gx, gh, state, dt).forget, n + 1
                by_n.setdefault(n, []).append(left)
            state = cell.step(gx, gh, state, dt)
    return [(torch.stack(by_n[n]).mean(0), torch.stack(by_n[n]).log().mean(0)) for n in sorted(by_n)]


@pytest.mark.parametrize("kind", [LSTM, PLSTM, URLSTM])
@pytest.mark.parametrize(
    "task", [copy_task(T=5, test_size=3), variable(test_size=5), waves()], ids=["copy", "variable", "waves"]
)
def test_what_is_left_is_the_literal_product(kind, task):
    model = model_for(task, kind, hidden_size=4)
    (batch,) = task.batches("test")
    if isinstance(task, Frequency):
        ends = (lambda k: 0), (lambda k: len(batch.x))
    else:
        delays = task.delays("test") if isinstance(task, VariableCopy) else [task.T] * 3
        ends = (lambda k: 10), (lambda k: 10 + int(delays[k]))
    (found,) = decay_curves.remaining(model, task)
    expected = literal_kept(model, batch, *ends)
    for own, values, first in zip(found, zip(*expected, strict=True), (1.0, 0.0), strict=True):
        assert len(own) == 1 + len(values)
        assert (own[0] == first).all()
        torch.testing.assert_close(own[1:], torch.stack(values), rtol=1e-9, atol=1e-9)


def test_a_unit_that_never_resets_decays_as_a_power(tmp_path):
    """Its age is t: the product of ((t + 1) / (t + eps))^-p from t = 11 on is ((n + 11) / 11)^-p for small eps."""
    task = copy_task(T=60, test_size=2)
    model = model_for(task, hidden_size=2, epsilon=1e-9)
    cell = hold(model, reset=[-60.0, 0.0])
    ((curve, _),) = decay_curves.remaining(model, task)
    n, p = torch.arange(61, dtype=torch.float64), cell.p.detach()
    torch.testing.assert_close(curve[:, 0], ((n + 11) / 11) ** -p[0], rtol=1e-6, atol=0)
    # Held at r = 1/2 the age rests at 1, and f = 2^-p: an exponential.
    torch.testing.assert_close(curve[:, 1], 2.0 ** (-p[1] * n), rtol=1e-2, atol=0)
    found = studied(decay_curves, model, task, tmp_path)
    assert found.values["steps"] == 60.0
    assert found.values["share_power_law"] == 0.5
    assert {row["unit"]: row["nearer"] for row in found.rows} == {0: "power law", 1: "exponential"}


def test_a_power_law_keeps_what_an_exponential_has_lost():
    """Chien et al. 2021, Fig. 1: over 200 steps at p = .3 a fifth is left, at f = .97 a four-hundredth."""
    task = copy_task(T=200, test_size=1)
    model = model_for(task, hidden_size=1, epsilon=1e-9)
    cell = hold(model, reset=[-60.0])
    with torch.no_grad():
        cell.power.copy_(torch.tensor([0.3], dtype=torch.float64).logit())
    ((curve, _),) = decay_curves.remaining(model, task)
    power_law = float(curve[200, 0]) * 11**-0.3  # from t = 10, where the delay begins, back to t = 0
    exponential = 0.97**200
    assert power_law == pytest.approx(211**-0.3, rel=1e-4)
    assert (power_law, exponential) == pytest.approx((0.2, 0.00226), rel=1e-2)


def test_the_nearest_law_is_the_one_that_made_the_curve():
    n = torch.arange(201, dtype=torch.float64)
    law = decay_curves.nearest(torch.stack([0.97**n, (n + 1) ** -0.3], 1).log())  # the paper's two
    assert law.power.tolist() == [False, True]
    assert float(law.f[0]) == pytest.approx(0.97)
    assert float(law.p[1]) == pytest.approx(0.3)
    # Exponential in every sequence, but not equally fast: so is the mean logarithm, the logarithm of the mean is not.
    several = (1.0 - torch.logspace(-3, -0.3, 50, dtype=torch.float64)) ** n.unsqueeze(1)
    means = several.log().mean(1, keepdim=True), several.mean(1, keepdim=True).log()
    assert [decay_curves.nearest(mean).power.item() for mean in means] == [False, True]


def test_laws_are_fitted_to_the_mean_logarithm_and_what_is_left_is_the_mean():
    n = torch.arange(21, dtype=torch.float64).unsqueeze(1)
    rows, values = decay_curves.summary([decay_curves.Left(0.9**n, -0.3 * (n + 1.0).log())])
    assert rows[0]["p"] == pytest.approx(0.3, rel=1e-6)
    assert rows[0]["nearer"] == "power law"
    assert [rows[0][f"left_{k}"] for k in (1, 2, 10, 20)] == pytest.approx([0.9, 0.81, 0.9**10, 0.9**20])
    assert values["left_median"] == pytest.approx(0.9**20)


def test_several_models_decay_on_one_axis(tmp_path):
    task = copy_task()
    runs = [run_of(model_for(task, kind), task) for kind in (LSTM, PLSTM)]
    found = decay_curves.compare(runs)
    assert {row["run"] for row in found.rows} == {"lstm", "plstm"}
    assert study.write(found, tmp_path, "decay_curves")[1].is_file()
    empty = copy_task(T=0)
    with pytest.raises(ConfigError, match=r"give a run with a longer task\.T"):
        decay_curves.remaining(model_for(empty), empty)
    model = model_for(task, ExpRNN)
    with pytest.raises(ConfigError, match="ExpRNNCell has no forget gate"):
        decay_curves.remaining(model, task)
