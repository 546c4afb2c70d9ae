"""Gradients of gates, by formula and by autograd."""

import pytest
import torch
from analysed import copy_task, model_for, studied, waves

from timescales import JANET, LRU, LSTM, RMC, URLSTM, GatedRNN, MinGRU, MinLSTM, PLScan
from timescales.analysis import gate_gradients, observe
from timescales.analysis.gate_gradients import refine_gradient_bounds
from timescales.errors import ConfigError


def test_gradients_of_sigmoid_gates_follow_their_activation(tmp_path):
    task = copy_task()
    model = model_for(task, LSTM, num_layers=2)
    layers, units, g, gradient = gate_gradients.observed(model, task)
    torch.testing.assert_close(gradient, g * (1 - g), rtol=0, atol=1e-12)
    assert set(layers.tolist()) == {1, 2}
    assert set(units.tolist()) == set(range(6))
    found = studied(gate_gradients, model, task, tmp_path)
    assert found.values["over_sigmoid_median"] == pytest.approx(1.0)
    assert found.values["formula_error"] < 1e-12
    assert all("act" not in vars(cell) for cell in model.rnn.layers)


def test_gradients_of_the_gates_of_memories():
    """Each unit of each memory has a gate and a pre-activation of its own."""
    task = copy_task()
    _, units, g, gradient = gate_gradients.observed(model_for(task, RMC, memories=3), task)
    torch.testing.assert_close(gradient, g * (1 - g), rtol=0, atol=1e-12)
    assert set(units.tolist()) == set(range(6))
    with pytest.raises(ConfigError, match="with gate_style=memory, one gate is for a memory"):
        gate_gradients.observed(model_for(task, RMC, gate_style="memory"), task)


def test_refined_gates_have_more_gradient_than_sigmoids_between_the_bounds(tmp_path):
    task = copy_task()
    model = model_for(task, URLSTM)
    _, _, g, gradient = gate_gradients.observed(model, task)
    low, high = refine_gradient_bounds(g)
    assert (gradient >= low - 1e-6).all()
    assert (gradient <= high + 1e-6).all()
    assert float((gradient / (g * (1 - g))).min()) >= 1.0
    found = studied(gate_gradients, model, task, tmp_path)
    assert found.values["over_sigmoid_median"] == pytest.approx(float((gradient / (g * (1 - g))).median()))
    assert found.values["over_sigmoid_median"] > 1.0


def test_gradients_of_power_law_gates_are_the_closed_form():
    """df/dz = -p f r (1 - eps) d / ((d + eps)(d + 1)) in the pre-activation z of the reset gate, d the new age."""
    task = copy_task()
    model = model_for(task, epsilon=1e-3)
    cell = model.rnn.layers[0]
    seen = []
    with (
        torch.no_grad(),
        gate_gradients.called(model, lambda layer, step, cell, act, *given: seen.append((given, act(*given)))),
    ):
        model(next(iter(task.batches("test"))))
    _, units, g, gradient = gate_gradients.observed(model, task)
    expected = {}
    for _, act in seen:
        d, p = act.age, cell.p.detach()
        slope = p * act.forget * act.reset * (1 - 1e-3) * d / ((d + 1e-3) * (d + 1))
        for row_f, row_s in zip(act.forget, slope, strict=True):
            for unit, (f, s) in enumerate(zip(row_f.tolist(), row_s.tolist(), strict=True)):
                expected[unit, round(f, 10)] = s
    for unit, f, value in zip(units.tolist(), g.tolist(), gradient.tolist(), strict=True):
        assert value == pytest.approx(expected[unit, round(f, 10)], rel=1e-6, abs=1e-12)


def test_gradients_of_gates_that_read_the_input_alone():
    """A minGRU's gate is a sigmoid. Two pre-activations of a minLSTM's: f (1 - f) times 1 - a and 1 - b."""
    task = copy_task()
    _, _, g, gradient = gate_gradients.observed(model_for(task, MinGRU), task)
    torch.testing.assert_close(gradient, g * (1 - g), rtol=0, atol=1e-12)
    model = model_for(task, MinLSTM)
    with torch.no_grad():  # constant gates, so that a and b follow from the bias
        model.rnn.layers[0].weight_ih[:12] = 0.0
    a, b = model.rnn.layers[0].bias.detach()[:12].sigmoid().chunk(2)
    _, units, g, gradient = gate_gradients.observed(model, task)
    torch.testing.assert_close(g, (a / (a + b))[units], rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient, g * (1 - g) * torch.hypot(1 - a, 1 - b)[units], rtol=0, atol=1e-12)
    assert gate_gradients.observed(model_for(task, PLScan), task).gradient.isfinite().all()
    with pytest.raises(ConfigError, match="the forget gate of LRUCell reads none"):
        gate_gradients.observed(model_for(task, LRU), task)


def test_steps_that_do_not_exist_have_no_gradients():
    task = waves(2)
    (batch,) = task.batches("test")
    assert not batch.mask.bool().all()
    _, _, g, _ = gate_gradients.observed(model_for(task, LSTM, hidden_size=2), task)
    S = len(batch.x)
    every = -(-S // 100)
    assert len(g) == 2 * int(batch.mask[::every].sum())


def test_gates_that_hang_on_other_units_are_refused():
    task = copy_task()
    for gate in ("o", "om", "um", "or"):
        model = model_for(task, GatedRNN, hidden_size=16, gate=gate)
        with pytest.raises(ConfigError, match=f"those of gate={gate} depend on other units"):
            gate_gradients.observed(model, task)


def test_a_cell_may_name_the_arguments_of_act(monkeypatch):
    task = copy_task()
    model = model_for(task, JANET, T_max=9)
    expected, forget = gate_gradients.observed(model, task), observe.mean_forget(model, task)

    def step(self, gx, gh, state, dt=1.0):
        f, i, u = self.act(gx, gh=gh, state=state, dt=dt)
        return self.State(f * state.h + i * u)

    monkeypatch.setattr(type(model.rnn.layers[0]), "step", step)
    torch.testing.assert_close(gate_gradients.observed(model, task), expected)
    torch.testing.assert_close(observe.mean_forget(model, task), forget)
