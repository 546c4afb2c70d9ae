"""What `build` makes of a configuration: sizes, weights, and torch's settings."""

import json
import math
import signal

import pytest
import torch
import trainings
from analysed import copy_task, hold
from analysed import model_for as held_model
from configs import config
from language import parts
from quick import QUICK, curve
from trainings import same_weights, small_parts

from timescales import LSTM, MinGRU
from timescales.analysis import load, one_over_e
from timescales.config import schema
from timescales.config.schema import LoopSettings
from timescales.tasks import Copy
from timescales.training import build, loop, memory

HORIZONS = {"copy task.T=200": 300, "copy task.T=500": 750, "frequency": 125, "pmnist": 784}
HORIZONS |= {"frequency task.sampling=sync_01": 1250}


@pytest.mark.parametrize(("task", "horizon"), HORIZONS.items())
def test_chronos_T_max_is_the_tasks_horizon(task, horizon, corpora):
    small = ["task.train_size=8", "task.valid_size=4", "task.test_size=4", "model.hidden_size=500"]
    plain = schema.resolved(config("model=chrono", *f"task={task}".split(), *small, f"data_root={corpora}"))
    network, *_ = build.build(plain)
    assert plain["model"]["T_max"] == horizon  # the record says what "auto" came to
    longest = float(network.rnn.timescales()[0].max())
    assert 0.95 * (horizon - 0.5) < longest < horizon


def test_auto_is_filled_in_lists_too():
    node = {"forget_init": [{"law": "chrono", "T_max": "auto"}, "default"], "T_max": "auto"}
    build.fill_horizon(node, 7)
    assert node == {"forget_init": [{"law": "chrono", "T_max": 7}, "default"], "T_max": 7}


@pytest.mark.parametrize("model", ["gated", "+lstm"])
def test_a_head_for_any_model(model):
    plus = "+" if model.startswith("+") else ""
    cfg = config(f"model={model.strip('+')}", f"{plus}model.head_size=7", f"{plus}model.head_dropout=0.5", "task.T=3")
    network, *_ = build.build(schema.resolved(cfg))
    assert (network.readout.in_features, network.head[2].p) == (7, 0.5)


def test_same_seed_same_weights_whatever_the_task_drew(corpora):
    weights = []
    for task in ("smnist", "pmnist"):
        small = ["task.train_size=8", "task.valid_size=4", "task.test_size=4"]
        cfg = config(f"task={task}", "model.hidden_size=3", f"data_root={corpora}", *small)
        weights.append(build.build(schema.resolved(cfg))[0].state_dict())
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_precision_and_determinism_are_torchs_settings_too():
    for precision, word in (("tf32", "high"), ("fp32", "highest")):
        for deterministic in (True, False):  # the last ones are what other tests find
            more = [f"precision={precision}", f"deterministic={deterministic}", "model.hidden_size=2", "task.T=1"]
            build.build(schema.resolved(config("task=copy", *more, "task.train_size=1")))
            assert torch.backends.cudnn.allow_tf32 is (precision == "tf32")
            assert torch.get_float32_matmul_precision() == word
            assert torch.are_deterministic_algorithms_enabled() is deterministic
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
            torch.use_deterministic_algorithms(True, warn_only=True)  # by somebody else in this process
    build.set_up_torch("fp32", False)
    assert torch.tensor(1e-30) * torch.tensor(1e-10) == 0.0  # no denormal numbers: they take a hundred times as long


# --- T_1/e while a run trains: what is logged, and that the run is the same without -----------------------------------
def of_t_1e(values):
    return {name: value for name, value in values.items() if name.startswith("one_over_e/")}


def test_the_first_validation_sequences_are_read():
    task = Copy(T=6, train_size=1, valid_size=40, test_size=5)
    model = held_model(task, LSTM)
    kept = [log_f for (log_f,), _ in memory.sequences(model, task, "valid", 25)]
    assert len(kept) == 25
    every = [log_f for (log_f,), _ in memory.sequences(model, task, "valid", 200)]
    assert len(every) == 40
    torch.testing.assert_close(torch.stack(kept), torch.stack(every[:25]), rtol=1e-12, atol=0)
    (test, *_), _ = next(memory.sequences(model, task, "test", 1))
    assert not torch.allclose(test, kept[0])


def fit(name, text_root, place, sequences, logged, stop=None):
    """Train, until a signal after a step; `logged` gets what is logged."""

    def log(values, step):
        logged.append((step, values))
        if step == stop:
            signal.raise_signal(signal.SIGINT)

    settings = LoopSettings(max_epochs=3, log_every=4, eval_every=7, checkpoint_every=1e9, log_one_over_e=sequences)
    copies = {"copy": LSTM, "scan": MinGRU}  # with dropout, which draws random numbers
    made = small_parts(rnn=copies[name]) if name in copies else parts(text_root, name)
    return trainings.fit(*made, log, settings, place)


@pytest.mark.parametrize("name", ["copy", "scan", "characters", "words"])
def test_training_is_bitwise_the_same(text_root, tmp_path, name):
    found = []
    for sequences in (None, 3):
        run = fit(name, text_root, tmp_path / str(sequences), sequences, logged := [])
        found.append((run, logged, torch.rand(3)))
    (plain, plain_log, plain_draws), (run, logged, draws) = found
    assert same_weights(plain.model, run.model)
    assert plain.progress.curve == run.progress.curve
    assert torch.equal(plain_draws, draws)
    assert [(s, {k: v for k, v in values.items() if k not in of_t_1e(values)}) for s, values in logged] == plain_log
    validations = [(step, of_t_1e(values)) for step, values in logged if "valid/loss" in values]
    assert len(validations) >= 3
    assert all("one_over_e/layer2/beyond" in values for _, values in validations)
    assert [step for step, values in logged if of_t_1e(values)] == [step for step, _ in validations]
    with loop.eval_weights(run.optimizer):  # averages, where the optimizer keeps them
        assert validations[-1][1] == memory.one_over_e_values(run.model, run.task, 3)
    if name == "words":
        assert validations[-1][1] != memory.one_over_e_values(run.model, run.task, 3)
    assert validations[0][1] != validations[-1][1]


@pytest.mark.parametrize("name", ["copy", "words"])
def test_a_resumed_run_logs_the_same(text_root, tmp_path, monkeypatch, name):
    """Interrupted after a step, and in a measurement, which is repeated with its validation."""
    fit(name, text_root, tmp_path / "whole", 2, undisturbed := [])
    logged, original = [], memory.segments
    with pytest.raises(KeyboardInterrupt, match="at step 3"):
        fit(name, text_root, tmp_path / "parts", 2, logged, stop=3)

    def segments(*arguments):
        signal.raise_signal(signal.SIGTERM)
        return original(*arguments)

    monkeypatch.setattr(memory, "segments", segments)
    with pytest.raises(KeyboardInterrupt, match="before its validation"):
        fit(name, text_root, tmp_path / "parts", 2, logged)
    monkeypatch.setattr(memory, "segments", original)
    fit(name, text_root, tmp_path / "parts", 2, logged)
    assert logged == undisturbed
    assert sum(bool(of_t_1e(values)) for _, values in logged) >= 3


@pytest.mark.parametrize("model", ["plstm", "rmc"])
def test_a_model_with_a_forget_gate_logs_what_the_analysis_measures(train, tmp_path, model):
    arguments = [*QUICK, f"model={model}", "logger=csv", "loop.eval_every=1", "loop.log_one_over_e=3"]
    assert train(*arguments).status == 0
    (directory,) = (tmp_path / "runs").iterdir()
    logged = curve(directory)
    assert list(logged["one_over_e/layer1/beyond"]) == [0, 1, 2]  # the start, and both validations
    run = load(directory, "last")
    (times,) = memory.one_over_e(run.model, run.task, "valid", 3)
    assert logged["one_over_e/layer1/beyond"][2] == float(times.isinf().double().mean())
    for share in (0, 10, 25, 50, 75, 90, 100):
        time = float(times.quantile(share / 100, interpolation="nearest"))
        assert logged.get(f"one_over_e/layer1/q{share}", {}).get(2, math.inf) == pytest.approx(time, rel=1e-12)
    saved = json.loads((directory / "record.json").read_text())
    assert not any("one_over_e" in name for point in saved["curve"] for name in point)
    assert "finished, skipped" in train(*arguments[:-1]).out, "the id is the same without"


def test_gates_that_are_not_numbers_have_no_time():
    """Of a diverged run: its units would else count as if they kept everything."""
    mean_log = torch.tensor([[-0.4, math.nan, -0.1], [-0.8, math.nan, -0.2], [-1.2, math.nan, -0.3]]).double()
    lag = torch.tensor([[1.0], [2.0], [3.0]]).double()
    expected = torch.tensor([2.5, math.nan, math.inf]).double()
    torch.testing.assert_close(memory.crossing(mean_log, lag), expected, equal_nan=True)
    task = copy_task(T=10)
    model = held_model(task, LSTM, hidden_size=2)
    hold(model, forget=math.nan)
    assert memory.one_over_e_values(model, task, 1) == {}
    values = one_over_e.measure(model, task)
    assert all(math.isnan(values[key]) for key in ("q10", "median", "q90", "beyond")), values
