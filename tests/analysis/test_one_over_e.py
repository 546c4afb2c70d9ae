"""T_1/e: closed forms, and a reference implementation with loops over writes and lags."""

import math

import pytest
import torch
from analysed import copy_task, hold, language_model, model_for, run_of, studied, variable, waves, words
from matplotlib.figure import Figure

from timescales import ELSTM, GRU, LRU, LSTM, PLSTM, ExpRNN, LeakyRNN, MinGRU, MinLSTM, PLScan
from timescales.analysis import one_over_e
from timescales.errors import ConfigError
from timescales.training import memory
from timescales.training.gates import watched


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


@pytest.mark.parametrize("kind", [LSTM, PLSTM, GRU, ELSTM, LeakyRNN, MinGRU, MinLSTM, PLScan, LRU])
@pytest.mark.parametrize("make", [copy_task, variable, waves])
def test_equals_the_loops(make, kind):
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


@pytest.mark.parametrize("kind", [LSTM, ELSTM, MinGRU])
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
    assert values["beyond"] == 0.25
    assert values["q10"] == pytest.approx(0.3)
    assert values["q90"] == math.inf
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


def test_time_is_that_of_dt():
    """On irregular steps a leaky unit has its time constant: ln f is -dt / tau."""
    task = waves(30)
    model = model_for(task, LeakyRNN, hidden_size=3)
    tau = torch.tensor([0.7, 3.0, 9.0], dtype=torch.float64)
    model.rnn.layers[0].log_tau.data = tau.log()
    (found,) = memory.one_over_e(model, task)
    torch.testing.assert_close(found, tau, rtol=1e-9, atol=0)


def test_a_constant_gate_that_does_not_read_dt_forgets_by_steps():
    """On irregular steps T_1/e is its time at zero input, in steps, times the mean time of a step."""
    task = waves(30)
    model = model_for(task, LSTM, hidden_size=3)
    steps = torch.tensor([1.5, 3.0, 5.0], dtype=torch.float64)
    hold(model, forget=-torch.log(torch.expm1(1 / steps)))
    gaps = torch.cat([dt[1:] for _, dt in memory.sequences(model, task, "test", 30)])
    assert not 0.9 < float(gaps.mean()) < 1.1
    zero_input, found = one_over_e.both(model, task)
    torch.testing.assert_close(zero_input, steps, rtol=1e-6, atol=0)
    torch.testing.assert_close(found, steps * gaps.mean(), rtol=0.1, atol=0)


@pytest.mark.parametrize("make", [lambda: copy_task(T=60), lambda: waves(30)])
def test_an_lru_has_its_characteristic_time(make):
    """|lambda| does not depend on the input: 1 / nu, at any steps."""
    task = make()
    model = model_for(task, LRU, hidden_size=3)
    nu = torch.tensor([2.0, 0.5, 0.1], dtype=torch.float64)
    model.rnn.layers[0].nu_log.data = nu.log()
    (found,) = memory.one_over_e(model, task)
    torch.testing.assert_close(found, 1 / nu, rtol=1e-9, atol=0)
    torch.testing.assert_close(model.rnn.timescales()[0], 1 / nu, rtol=1e-9, atol=0)


def test_windows_of_a_text_are_joined(root):
    task = words(root, batch_size=2)
    model = language_model(task, hidden=(6, 5))
    hold(model, forget=torch.full((6,), math.log(1 / math.expm1(1 / 25.0))))  # T = 25 is longer than a window of 9
    first, second = memory.one_over_e(model, task)
    torch.testing.assert_close(first, torch.full((6,), 25.0, dtype=torch.float64), rtol=1e-6, atol=0)
    assert len(second) == 5


def test_as_many_sequences_as_said(monkeypatch):
    monkeypatch.setattr(memory, "IN_PARALLEL", 2)
    task = copy_task(test_size=9)
    assert [batch.x.shape[1] for (batch,) in memory.segments(task, "test", 5)] == [2, 2, 1]
    assert len(list(memory.sequences(model_for(task), task, "test", 5))) == 5


def test_the_model_stays_as_it_is():
    task = copy_task()
    model = model_for(task).float()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    one_over_e.measure(model, task)
    after = model.state_dict()
    assert all(torch.equal(after[key], value) and after[key].dtype == torch.float32 for key, value in before.items())


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
    figure = Figure()
    both.draw(figure)
    assert figure.axes[0].get_ylabel() == "$T_{1/e}$ (steps)"
    task = waves(4)
    figure = Figure()
    one_over_e.study(run_of(model_for(task, LSTM), task)).draw(figure)
    assert figure.axes[0].get_ylabel() == "$T_{1/e}$ (units of dt)"
    assert "thin: at zero input, in steps" in {line.get_label() for line in figure.axes[0].lines}


def test_an_rnn_without_a_forget_gate_is_refused():
    task = copy_task()
    with pytest.raises(ConfigError, match="ExpRNNCell has no forget gate"):
        one_over_e.measure(model_for(task, ExpRNN), task)
