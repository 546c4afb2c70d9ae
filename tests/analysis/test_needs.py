"""Models and tasks that an analysis is not made for are refused."""

import importlib
from typing import NamedTuple

import pytest
import torch
from analysed import copy_task, model_for, run_of, run_of_words

from timescales import LSTM, Cell, ExpRNN, LeakyRNN
from timescales.analysis import (
    ablation,
    decay_factors,
    forgetting,
    gate_gradients,
    one_over_e,
    reference_times,
    reset_units,
)
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.nn.cells import LSTMCell
from timescales.nn.rnn import RNN
from timescales.tasks import Copy, Frequency
from timescales.training import memory


def test_reference_times_are_asked_of_power_laws_and_copy_alone():
    task = copy_task()
    with pytest.raises(ConfigError, match="LSTMCell has no reference time"):
        reset_units.measure(model_for(task, LSTM), task)
    waves = Frequency(train_size=1, valid_size=1, test_size=2)
    with pytest.raises(ConfigError, match="copy task with one delay, not for Frequency"):
        reset_units.measure(model_for(waves), waves)


class NoForgetGate(LSTMCell):
    Act = tuple


def test_cells_without_a_forget_gate_are_refused():
    task = copy_task()
    model = SequenceModel(RNN([NoForgetGate(10, 3)]), task.spec)
    with pytest.raises(ConfigError, match="NoForgetGate has no forget gate"):
        forgetting.measure(model, task)


@pytest.mark.parametrize("module", [reference_times, reset_units, decay_factors])
def test_analyses_of_power_laws_refuse_other_models(module):
    task = copy_task()
    model = model_for(task, LSTM)
    with pytest.raises(ConfigError, match="for power-law LSTMs and GRUs: LSTMCell has no reference time"):
        module.study(run_of(model, task))


def test_models_without_forget_gates_are_refused():
    task = Copy(T=4, train_size=1, valid_size=1, test_size=3)
    model = SequenceModel(ExpRNN(10, 4), task.spec)
    run = run_of_words(model, task, name="exprnn")
    for name in ("assigned", "timescale_law", "gate_maps"):
        with pytest.raises(ConfigError, match="has no forget gate"):
            importlib.import_module(f"timescales.analysis.{name}").study(run)


class Averages(Cell):
    """A cell of one's own as analyses need it: f is one constant per unit. It has an age that is no power law's."""

    gates = ("cell",)

    class State(NamedTuple):
        h: torch.Tensor
        age: torch.Tensor

    class Act(NamedTuple):
        forget: torch.Tensor
        cell: torch.Tensor

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.register_buffer("kept", torch.linspace(0.3, 0.9, hidden_size))

    def act(self, gx, gh, state, dt=1.0):
        u = (gx + gh).tanh()
        return self.Act(self.kept.expand_as(u), u)

    def step(self, gx, gh, state, dt=1.0):
        f, u = self.act(gx, gh, state, dt)
        return self.State(f * state.h + (1 - f) * u, state.age + dt)

    def timescales(self):
        return -1 / self.kept.log()


class NoAct(Averages):
    Act = property()  # as if it had none

    def step(self, gx, gh, state, dt=1.0):
        return self.State((gx + gh).tanh(), state.age)


class NotCalled(Averages):
    def step(self, gx, gh, state, dt=1.0):
        return self.State((gx + gh).tanh(), state.age)


class OfUnits(Averages):
    def act(self, gx, gh, state, dt=1.0):
        return super().act(gx, gh, state, dt)._replace(forget=self.kept)


def own_model(kind, task):
    return SequenceModel(RNN([kind(task.spec.input_size, 3)]), task.spec).double().eval()


def test_a_cell_of_ones_own_is_analysed():
    task = copy_task(T=40)
    model = own_model(Averages, task)
    (found,) = memory.one_over_e(model, task)
    torch.testing.assert_close(found, -1 / torch.tensor([0.3, 0.6, 0.9]).double().log(), rtol=1e-6, atol=0)
    forgetting.measure(model, task)
    assert "later_first/0" not in ablation.measure(model, task)
    assert "act" not in vars(model.rnn.layers[0])


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (
            NoAct,
            "NoAct has no class Act: this analysis needs one with a field forget, and a method act that returns it",
        ),
        (NotCalled, r"NotCalled\.step must call self.act, where analyses see its gates"),
        (
            OfUnits,
            r"OfUnits\.act must return forget of shape \(batch, hidden\), here \(2, 3\), not \(3,\): use expand_as",
        ),
    ],
)
@pytest.mark.parametrize("module", [one_over_e, forgetting])
def test_what_is_missing_for_analyses_is_one_line(module, kind, line):
    task = copy_task()
    with pytest.raises(ConfigError, match=rf"^{line}; see docs/gates\.md$"):
        module.measure(own_model(kind, task), task)


def test_a_state_with_an_age_is_no_power_law():
    task = copy_task()
    with pytest.raises(ConfigError, match="for power-law LSTMs and GRUs: Averages has no reference time"):
        decay_factors.learned(own_model(Averages, task))


@pytest.mark.parametrize("make", [lambda task: own_model(Averages, task), lambda task: model_for(task, LeakyRNN)])
def test_gates_without_pre_activations_have_no_gradients(make):
    task = copy_task()
    with pytest.raises(ConfigError, match=r"the forget gate of (Averages|LeakyRNNCell) reads none"):
        gate_gradients.observed(make(task), task)
