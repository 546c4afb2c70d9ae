"""Check what is left of states, and T_1/e, against literal products, loops over lags and closed forms."""

import math

import pytest
import torch
from analysed import copy_task, hold, language_model, literal_steps, model_for, run_of, studied, variable, waves, words
from matplotlib.figure import Figure

from timescales import ELSTM, GRU, LRU, LSTM, PLSTM, URLSTM, LeakyRNN, MinGRU, MinLSTM, PLScan
from timescales.analysis import decay_curves, one_over_e, study
from timescales.errors import ConfigError
from timescales.tasks import Frequency, VariableCopy
from timescales.training import memory
from timescales.training.gates import watched


def literal_kept(model, batch, first, last):
    """Products of forget gates from each sequence's own first step that counts on: a list of means (H,) by n."""
    by_n = {}
    for k in range(batch.x.shape[1]):
        left, n = 1.0, 0
        for s, _, act, _ in literal_steps(model, batch, k):
            if first(k) <= s < last(k):
                left, n = left * act.forget, n + 1
                by_n.setdefault(n, []).append(left)
    return [(torch.stack(by_n[n]).mean(0), torch.stack(by_n[n]).log().mean(0)) for n in sorted(by_n)]


@pytest.mark.parametrize(
    ("kind", "task"),
    [(LSTM, copy_task(T=5, test_size=3)), (URLSTM, variable(test_size=5)), (LSTM, waves()), (PLSTM, waves())],
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
    assert (found.values["steps"], found.values["share_power_law"]) == (60.0, 0.5)
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
    assert (law.power.tolist(), float(law.f[0])) == ([False, True], pytest.approx(0.97))
    assert float(law.p[1]) == pytest.approx(0.3)
    # Exponential in every sequence, but not equally fast: so is the mean logarithm, the logarithm of the mean is not.
    several = (1.0 - torch.logspace(-3, -0.3, 50, dtype=torch.float64)) ** n.unsqueeze(1)
    means = several.log().mean(1, keepdim=True), several.mean(1, keepdim=True).log()
    assert [decay_curves.nearest(mean).power.item() for mean in means] == [False, True]


@pytest.mark.parametrize("f", [0.05, 0.01, 1e-20, 0.0])
def test_a_unit_that_forgets_at_once_decays_exponentially(f):
    """Its product of 500 gates is smaller than any float, its logarithm is not."""
    curves = decay_curves.products(torch.full((500, 2, 1), f), torch.ones(500, 2, dtype=torch.bool))
    law = decay_curves.nearest(curves.logs)
    assert law.power.tolist() == [False]
    assert float(law.f) == pytest.approx(f, rel=1e-6, abs=1e-39)
    assert curves.product[:2, 0].tolist() == pytest.approx([1.0, f], rel=1e-6, abs=1e-39)


def test_laws_are_fitted_to_the_mean_logarithm_and_what_is_left_is_the_mean():
    n = torch.arange(21, dtype=torch.float64).unsqueeze(1)
    rows, values = decay_curves.summary([decay_curves.Retention(0.9**n, -0.3 * (n + 1.0).log())])
    assert (rows[0]["p"], rows[0]["nearer"]) == (pytest.approx(0.3, rel=1e-6), "power law")
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


def test_only_the_title_of_a_copy_task_names_the_delay():
    titles = []
    for task in (copy_task(), variable(), waves()):
        run = run_of(model_for(task), task)
        assert decay_curves.compare([run]).title == decay_curves.study(run).title
        titles.append(decay_curves.study(run).title)
    plain = "What the forget gates leave of a cell state, step after step"
    assert titles == [f"{plain}, over the delay", f"{plain}, over the delay", plain]


def test_more_models_than_units_to_draw_have_a_unit_each():
    task = copy_task()
    model = model_for(task, LSTM)
    runs = [run_of(model, task, size=k) for k in range(26)]
    decay_curves.compare(runs).draw(figure := Figure())
    assert sum(line.get_label().endswith(": 1 unit") for line in figure.axes[0].lines) == 26


# --- T_1/e -----------------------------------------------------------------------------------------------------------
def looped(sequences):
    """T_1/e of one unit from lists of (ln f, dt): the mean over all writes, lag by lag."""
    before = (0.0, 0.0)
    for lag in range(1, max(len(log_f) for log_f, _ in sequences)):
        sums = [
            (sum(log_f[t + 1 : t + 1 + lag]), sum(dt[t + 1 : t + 1 + lag]))
            for log_f, dt in sequences
            for t in range(len(log_f) - lag)
        ]
        log_f, time = (sum(values) / len(sums) for values in zip(*sums, strict=True))
        if log_f <= -1:
            return before[1] + (time - before[1]) * (before[0] + 1) / (before[0] - log_f)
        before = log_f, time
    return math.inf


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        *((LSTM, copy_task), (GRU, variable), (ELSTM, waves), (PLSTM, variable), (PLSTM, waves), (LeakyRNN, waves)),
        *((MinGRU, copy_task), (MinLSTM, variable), (PLScan, waves), (LRU, waves)),
    ],
)
def test_equals_the_loops(kind, make):
    """Also with padding, sequences of several lengths and irregular steps."""
    task = make()
    model = model_for(task, kind)
    gates = []
    batch = next(task.batches("test"))
    with watched(model, lambda layer, act: gates.append(act.forget)), torch.no_grad():
        model(batch)
    exists = task.exists(batch)
    dt = torch.ones(batch.x.shape[:2]) if batch.dt is None else batch.dt
    (found,) = memory.one_over_e(model, task)
    for unit in range(len(found)):
        log_f = torch.stack(gates)[..., unit].log()
        lists = [(log_f[exists[:, b], b].tolist(), dt[exists[:, b], b].tolist()) for b in range(batch.x.shape[1])]
        assert float(found[unit]) == pytest.approx(looped(lists), rel=1e-9)


@pytest.mark.parametrize("kind", [LSTM, MinGRU])
def test_a_constant_gate_has_its_characteristic_time(kind):
    """Also where 1/e lies between two steps; a time longer than the sequence is infinite."""
    task = copy_task(T=40, test_size=3)
    model = model_for(task, kind, hidden_size=4)
    times = torch.tensor([0.3, 2.5, 30.0, 1e6], dtype=torch.float64)
    hold(model, forget=-torch.log(torch.expm1(1 / times)))
    (found,) = memory.one_over_e(model, task)
    torch.testing.assert_close(found[:3], times[:3], rtol=1e-9, atol=0)
    assert found[3] == math.inf
    torch.testing.assert_close(model.rnn.timescales()[0], times, rtol=1e-6, atol=0)
    values = one_over_e.measure(model, task)
    assert (values["beyond"], values["q10"], values["q90"]) == (0.25, pytest.approx(0.3), math.inf)
    assert values["zero_input/median"] == pytest.approx(30.0)


@pytest.mark.parametrize("kind", [PLSTM, PLScan])
def test_a_power_law_without_resets(kind):
    """What is written at age a keeps ((a + 1) / (a + L + 1))^p after L steps, if there is no reset and epsilon is 0."""
    task = copy_task(T=180, test_size=2)
    model = model_for(task, kind, hidden_size=2, power=1.3, epsilon=1e-9)
    hold(model, reset=-40.0)
    (found,) = memory.one_over_e(model, task)
    n = 200

    def left(lag):
        return sum(1.3 * math.log((a + 1) / (a + 1 + lag)) for a in range(1, n + 1 - lag)) / (n - lag)

    lag = next(lag for lag in range(1, n) if left(lag) <= -1)
    expected = lag - 1 + (left(lag - 1) + 1) / (left(lag - 1) - left(lag))
    assert found.tolist() == pytest.approx([expected] * 2, rel=1e-6)


def test_windows_of_a_text_are_joined(root):
    task = words(root, batch_size=2)
    model = language_model(task, hidden=(6, 5))
    hold(model, forget=torch.full((6,), math.log(1 / math.expm1(1 / 25.0))))  # T = 25 is longer than a window of 9
    first, second = memory.one_over_e(model, task)
    torch.testing.assert_close(first, torch.full((6,), 25.0, dtype=torch.float64), rtol=1e-6, atol=0)
    assert len(second) == 5


def test_study_and_comparison(tmp_path):
    task = copy_task(T=30)
    model = model_for(task, ELSTM)
    found = studied(one_over_e, model, task, tmp_path)
    assert [row["t_1e"] for row in found.rows] == memory.one_over_e(model, task)[0].tolist()
    assert [row["zero_input"] for row in found.rows] == pytest.approx(model.rnn.timescales()[0].tolist())
    assert found.values == one_over_e.measure(model, task)
    runs = [run_of(model_for(task, kind), task) for kind in (LSTM, PLSTM)]
    both = one_over_e.compare(runs)
    assert [row["model"] for row in both.rows] == ["lstm"] * 6 + ["plstm"] * 6
    assert both.values["2/median"] == one_over_e.measure(runs[1].model, task)["median"]
    both.draw(figure := Figure())
    assert figure.axes[0].get_ylabel() == "$T_{1/e}$ (steps)"
    task = waves(4)
    one_over_e.study(run_of(model_for(task, LSTM), task)).draw(figure := Figure())
    assert figure.axes[0].get_ylabel() == "$T_{1/e}$ (units of dt)"
    regular = Frequency(train_size=1, valid_size=1, test_size=4, dt=False)
    one_over_e.compare([run_of(model_for(each, LSTM), each) for each in (regular, task)]).draw(mixed := Figure())
    assert mixed.axes[0].get_ylabel() == "$T_{1/e}$ (steps or units of dt)"
    assert "thin: at zero input, in steps" in {line.get_label() for line in figure.axes[0].lines}
