"""Reference times and ages over single sequences, against a literal loop."""

import pytest
import synthetic
import torch
from analysed import copy_task, hold, model_for, run_of, studied, variable, waves
from torch.nn.functional import linear

from timescales import PLSTM
from timescales.analysis import reference_times, reset_units
from timescales.models.sequence import SequenceModel
from timescales.tasks import IMDB


@torch.no_grad()
def literal_trace(model, batch, k):
    """Time and ages (units) after each step of sequence k that exists, one step after the other."""
    cell = model.rnn.layers[0]
    one_hot = model.spec.input == "one_hot"
    x = torch.nn.functional.one_hot(batch.x, 10).double() if one_hot else batch.x.double()
    ih, hh, bias_ih, bias_hh = cell.weights()
    state, time, found = cell.initial_state(), 0.0, []
    for s in range(len(x)):
        if batch.mask is not None and not batch.mask[s, k]:
            continue
        dt = 1.0 if batch.dt is None else float(batch.dt[s, k].double())
        state = cell.step(linear(x[s, k], ih, bias_ih), linear(state.h, hh, bias_hh), state, dt)
        time += dt
        found.append((time, state.age))
    return torch.tensor([t for t, _ in found], dtype=torch.float64), torch.stack([age for _, age in found])


@pytest.mark.parametrize("task", [variable(), waves()], ids=["variable copy", "frequency"])
def test_traces_are_the_literal_ones(task):
    model = model_for(task)
    (batch,) = task.batches("test")
    for k in (0, 3):
        time, ages = literal_trace(model, batch, k)
        found = reference_times.trace(model, task, k)
        torch.testing.assert_close(found.time, time, rtol=0, atol=1e-9)
        torch.testing.assert_close(found.ages, ages, rtol=0, atol=1e-9)
        k_t = reference_times.trace(model, task, k).reference
        torch.testing.assert_close(k_t, time.unsqueeze(1) - ages, rtol=0, atol=1e-9)


@pytest.mark.parametrize("pad", ["end", "front"])
@pytest.mark.parametrize("readout", ["last_step", "true_length"])
def test_padding_has_no_age(tmp_path, monkeypatch, pad, readout):
    """The age of a review's unit counts from its first word to its last, whatever padding the model reads."""
    synthetic.stand_alone(monkeypatch, tmp_path)
    synthetic.write_corpora(tmp_path)
    task = IMDB(data_root=str(tmp_path), allow_partial=True, steps=50, valid_size=40, pad=pad, readout=readout)
    torch.manual_seed(0)
    model = SequenceModel(PLSTM(task.spec.width, 3), task.spec).double().eval()
    hold(model, reset=[-50.0, 0.0, 50.0])
    n = int(task.lengths["test"][0])
    assert 5 < n < 50
    found = reference_times.trace(model, task, 0)
    t = torch.arange(1, n + 1, dtype=torch.float64)
    torch.testing.assert_close(found.time, t, rtol=0, atol=0)
    # d' = (1 - r)(d + 1) from 0: t itself for r = 0, and 1 - 2^-t for r = 1/2.
    torch.testing.assert_close(found.ages, torch.stack([t, 1 - 0.5**t, 0 * t], 1), rtol=0, atol=1e-9)
    run = run_of(model, task)
    run.config["task"]["name"] = "imdb"
    answer = reference_times.study(run)
    assert answer.values == {"late/sequence": 1.0}
    assert [row["sequence/age"] for row in answer.rows] == pytest.approx([n, 1 - 0.5**n, 0.0], abs=1e-9)


def test_ages_before_each_sequences_own_signal():
    task = variable()
    model = model_for(task)
    (batch,) = task.batches("test")
    ages, delays = reference_times.ages_before_signals(model, task)
    assert delays.tolist() == task.delays("test").tolist()
    assert len(set(delays.tolist())) > 2
    for k, delay in enumerate(delays.tolist()):
        expected = literal_trace(model, batch, k)[1][delay + 10 - 1]
        torch.testing.assert_close(ages[k].double(), expected, rtol=1e-6, atol=1e-6)
    one = copy_task(T=8)
    ages, delays = reference_times.ages_before_signals(model, one)
    torch.testing.assert_close(ages.double().mean(0), reset_units.ages_before_signal(model, one), rtol=1e-6, atol=1e-6)
    assert set(delays.tolist()) == {8}


def test_units_that_never_reset_stay_at_their_beginning(tmp_path):
    task = variable(low=4, high=11)
    model = model_for(task, hidden_size=3)
    hold(model, reset=[-50.0, 50.0, -50.0])
    k_t = reference_times.trace(model, task, 0).reference
    t = torch.arange(1, len(k_t) + 1, dtype=torch.float64)
    torch.testing.assert_close(k_t, torch.stack([0 * t, t, 0 * t], 1), rtol=0, atol=1e-9)
    found = studied(reference_times, model, task, tmp_path)
    assert found.values == {
        "late/short": 2.0,
        "late/long": 2.0,
        "late/both": 2.0,
        "late/mean_short": 2.0,
        "late/mean_long": 2.0,
        "late/mean_both": 2.0,
        "late/mean_one": 0.0,
        "late/mean_neither": 1.0,
    }
    assert [round(row["long/age"], 6) for row in found.rows] == [21.0, 0.0, 21.0]  # delay 11 and the ten symbols


def test_units_are_late_over_short_and_long_delays_each_by_itself(tmp_path, monkeypatch):
    delays = torch.tensor([40, 10, 30, 20])
    ages = torch.stack([torch.full((4,), 10.0), delays.float(), torch.zeros(4)], 1)
    monkeypatch.setattr(reference_times, "ages_before_signals", lambda model, task: (ages, delays))
    task = variable(low=4, high=11)
    values = studied(reference_times, model_for(task, hidden_size=3), task, tmp_path).values
    counted = [values[f"late/mean_{name}"] for name in ("short", "long", "both", "one", "neither")]
    assert counted == [2.0, 1.0, 1.0, 1.0, 1.0]


def test_pictures_of_128_units_over_long_delays_are_small(tmp_path):
    task = variable(low=150, high=200, test_size=20)
    torch.manual_seed(0)
    assert "late/both" in studied(reference_times, model_for(task, hidden_size=128), task, tmp_path).values


def test_waves_have_reference_times_too(tmp_path):
    task = waves()
    assert list(studied(reference_times, model_for(task), task, tmp_path).values) == ["late/sequence"]


def test_reference_times_of_two_layers_stand_side_by_side():
    task = copy_task()
    model = model_for(task, hidden_size=4, num_layers=2)
    hold(model, reset=[-50.0] * 4)
    found = reference_times.trace(model, task, 0).reference
    assert found.shape == (28, 8)
    assert found[:, :4].abs().max() < 1e-9
    assert found[-1, 4:].min() > 1.0
