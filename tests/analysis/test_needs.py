"""Models and tasks that an analysis is not made for are refused."""

import importlib

import pytest
from analysed import copy_task, model_for, run_of, run_of_words

from timescales import LSTM, ExpRNN
from timescales.analysis import decay_factors, forgetting, reference_times, reset_units
from timescales.errors import ConfigError
from timescales.nn.cells import LSTMCell
from timescales.nn.rnn import RNN
from timescales.tasks import Copy, Frequency
from timescales.training.model import SequenceModel


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
