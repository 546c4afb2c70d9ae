"""Check reference times and later-reset units against a literal loop and the printed equations and numbers."""

import math
import statistics

import numpy as np
import pytest
import synthetic
import torch
from analysed import copy_task, hold, literal_steps, model_for, run_of, studied, variable, waves
from made_up import made_row
from scipy import stats
from scipy.special import expit as sigmoid

from timescales import PLSTM
from timescales.analysis import reference_times, reset_units, two_delays
from timescales.models.sequence import SequenceModel
from timescales.tasks import IMDB
from timescales.tasks.copy import SIGNAL


def literal_trace(model, batch, k):
    """Time and ages (units) after each step of sequence k that exists."""
    steps = list(literal_steps(model, batch, k))
    time = torch.tensor([dt for _, dt, _, _ in steps], dtype=torch.float64).cumsum(0)
    return time, torch.stack([state.age for *_, state in steps])


@pytest.mark.parametrize("task", [variable(), waves()], ids=["variable copy", "frequency"])
def test_traces_are_the_literal_ones(task):
    model = model_for(task)
    (batch,) = task.batches("test")
    for k in (0, 3):
        time, ages = literal_trace(model, batch, k)
        found = reference_times.trace(model, task, k)
        torch.testing.assert_close((found.time, found.ages), (time, ages), rtol=0, atol=1e-9)
        torch.testing.assert_close(found.reference, time.unsqueeze(1) - ages, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("pad", "readout"), [("end", "true_length"), ("front", "last_step"), ("end", "last_step")])
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
    one = variable(low=8, high=8)
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
    both = dict.fromkeys(("short", "long", "both", "mean_short", "mean_long", "mean_both"), 2.0)
    assert found.values == {f"late/{k}": v for k, v in (both | {"mean_one": 0.0, "mean_neither": 1.0}).items()}
    assert [round(row["long/age"], 6) for row in found.rows] == [21.0, 0.0, 21.0]  # delay 11 and the ten symbols


def test_units_are_late_over_short_and_long_delays_each_by_itself(tmp_path, monkeypatch):
    delays = torch.tensor([40, 10, 30, 20])
    ages = torch.stack([torch.full((4,), 10.0), delays.float(), torch.zeros(4)], 1)
    monkeypatch.setattr(reference_times, "ages_before_signals", lambda model, task: (ages, delays))
    task = variable(low=4, high=11)
    values = studied(reference_times, model_for(task, hidden_size=3), task, tmp_path).values
    counted = [values[f"late/mean_{name}"] for name in ("short", "long", "both", "one", "neither")]
    assert counted == [2.0, 1.0, 1.0, 1.0, 1.0]


def test_one_sequence_has_no_longer_half(tmp_path):
    task = variable(test_size=1)
    values = studied(reference_times, model_for(task), task, tmp_path).values
    assert values["late/short"] == values["late/long"] == values["late/mean_short"]
    assert list(values) == ["late/short", "late/long", "late/both", "late/mean_short"]


def test_waves_have_reference_times_and_units_of_one_kind_or_one_power_are_not_compared(tmp_path):
    task = waves()
    assert list(studied(reference_times, model_for(task), task, tmp_path).values) == ["late/sequence"]
    task = copy_task(T=40)
    model = model_for(task, hidden_size=2)
    hold(model, reset=[50.0, 50.0])
    assert not {"later_p_mean", "others_p_mean"} & set(reset_units.measure(model, task))
    found = reset_units.measure(model_for(task, power=1.5), task)
    assert (found["p_mean"], found["p_sd"], found["units"]) == (1.5, 0.0, 6.0)


def test_reference_times_of_two_layers_stand_side_by_side():
    task = copy_task()
    model = model_for(task, hidden_size=4, num_layers=2)
    hold(model, reset=[-50.0] * 4)
    found = reference_times.trace(model, task, 0).reference
    assert found.shape == (28, 8)
    assert found[:, :4].abs().max() < 1e-9
    assert found[-1, 4:].min() > 1.0


# --- Later-reset units -----------------------------------------------------------------------------------------------
def printed_reference_times(model, task):
    """k_t (S, B, H) by Chien et al. 2021, Eqs. 4-8, as they are printed."""
    cell, x = model.rnn.layers[0], next(iter(task.batches("test"))).x
    one_hot = torch.nn.functional.one_hot(x, 10).double().numpy()
    ih, hh, bias, _ = (None if w is None else w.detach().numpy() for w in cell.weights())
    w = {gate: (ih[cell.rows(gate)], hh[cell.rows(gate)], bias[cell.rows(gate)]) for gate in cell.gates}
    p, epsilon = cell.p.detach().numpy(), cell.epsilon
    h = c = k = np.zeros((x.shape[1], cell.hidden_size))
    times = []
    for t, inputs in enumerate(one_hot, 1):
        r, u, o = (inputs @ w[g][0].T + h @ w[g][1].T + w[g][2] for g in ("reset", "cell", "output"))
        k = sigmoid(r) * t + (1.0 - sigmoid(r)) * k
        f = ((t - k + 1.0) / (t - k + epsilon)) ** (-p)
        c = f * c + (1.0 - f) * np.tanh(u)
        h = sigmoid(o) * np.tanh(c)
        times.append(k)
    return np.stack(times)


@pytest.mark.parametrize("layout", ["paper", "authors", "tallec", "gu"])
def test_ages_are_those_of_the_printed_reference_times(layout):
    task = copy_task(layout=layout)
    model = model_for(task)
    k = printed_reference_times(model, task)
    last_delay = int((task.blank == SIGNAL).nonzero()[0])  # this many steps have gone by
    assert last_delay == {"paper": 18, "authors": 17, "tallec": 17, "gu": 18}[layout]
    expected = (last_delay - k[last_delay - 1]).mean(0)
    ages = reset_units.ages_before_signal(model, task)
    torch.testing.assert_close(ages, torch.from_numpy(expected), rtol=0, atol=1e-10)
    for sequence in (0, 3):
        found = reference_times.trace(model, task, sequence).reference
        torch.testing.assert_close(found, torch.from_numpy(k[:, sequence]), rtol=0, atol=1e-10)


def test_later_reset_units_are_counted_at_three_fractions():
    task = copy_task(T=40)
    model = model_for(task, hidden_size=5)
    # Held at r, the age comes to rest at (1 - r) / r: 12 and 24 steps; the others always reset, or never.
    reset = torch.tensor([1 / 13, 1 - 1e-9, 1e-9, 1 / 25, 0.5], dtype=torch.float64)
    cell = hold(model, reset=reset.logit())
    ages = reset_units.ages_before_signal(model, task)
    expected = (1 - reset) / reset * (1 - (1 - reset) ** 50)
    torch.testing.assert_close(ages, expected, rtol=0, atol=1e-4)
    p = [0.1, 0.5, 0.05, 0.2, 0.9]
    with torch.no_grad():
        cell.power.copy_(torch.tensor(p, dtype=torch.float64).logit())
    found = reset_units.measure(model, task)
    assert [found[k] for k in ("units", "units_25", "units_50", "units_75")] == [5.0, 3.0, 2.0, 1.0]
    assert (found["p_mean"], found["p_sd"]) == pytest.approx((statistics.fmean(p), statistics.stdev(p)))
    assert reset_units.later_reset(model, task).tolist() == [False, False, True, True, False]
    assert (found["units_resetting"], found["units_not_resetting"]) == (2.0, 3.0)  # ages of 0 and 1 step, of 40
    assert found["p_below_half"] == pytest.approx(3 / 5)
    assert (found["later_p_mean"], found["others_p_mean"]) == pytest.approx(((0.05 + 0.2) / 2, (0.1 + 0.5 + 0.9) / 3))
    assert all(type(value) is float for value in found.values())


def units(T, seed, values):
    p = {"p_mean": float(np.mean(values)), "p_sd": float(np.std(values, ddof=1)), "units": float(len(values))}
    values = {f"probe/reset_units/{k}": v for k, v in p.items()}
    return made_row(values, axes={"task.T": T, "seed": seed}, seed=seed)


def test_t_and_d_are_those_of_the_units_of_one_model_a_delay():
    rng = np.random.default_rng(0)
    drawn = {(T, seed): rng.beta(2, 2 + T / 100, 128) for T in (200, 500, 1000) for seed in range(4)}
    wanted = [(200, 3), (200, 2), (500, 0), (500, 2), (500, 3), (1000, 0), (1000, 1)]
    rows = [units(*key, drawn[key]) for key in wanted]
    rows += [made_row(axes={"task.T": 200, "seed": 0})]  # an LSTM's row, or a run that did not finish
    expected = stats.ttest_ind(drawn[200, 2], drawn[500, 2])
    assert expected.df == 254
    assert two_delays.t(rows) == pytest.approx(expected.statistic, rel=1e-12)
    assert two_delays.cohens_d(rows) == pytest.approx(expected.statistic / 8.0, rel=1e-12)  # sqrt(128 / 2)


def test_printed_means_t_and_d_agree():
    rows = [units(T, 0, np.array([-1.0, 1.0])) for T in (200, 500)]
    for row, mean in zip(rows, (0.41, 0.19), strict=True):
        for key, value in (("p_mean", mean), ("p_sd", 0.253), ("units", 128.0)):
            row.values[f"probe/reset_units/{key}"] = value
    assert (round(two_delays.cohens_d(rows), 2), two_delays.t(rows)) == (0.87, pytest.approx(6.96, abs=0.005))


def test_a_small_table_compares_its_shortest_and_longest_delay():
    rng = np.random.default_rng(1)
    drawn = {T: rng.random(32) for T in (20, 50, 80)}
    rows = [units(T, 1, values) for T, values in drawn.items()]
    assert two_delays.t(rows) == pytest.approx(stats.ttest_ind(drawn[20], drawn[80]).statistic)
    for too_few in ([], rows[:1], [rows[0], units(80, 2, drawn[80])]):
        assert two_delays.t(too_few) is None
        assert two_delays.cohens_d(too_few) is None


def test_later_reset_units_and_their_factors(tmp_path):
    task = copy_task(T=40)
    model = model_for(task, hidden_size=6)
    cell = hold(model, reset=[-20.0, 20.0, -20.0, 20.0, 20.0, -20.0])
    p = torch.tensor([0.1, 0.9, 0.2, 0.7, 0.6, 0.4], dtype=torch.float64)
    with torch.no_grad():
        cell.power.copy_(p.logit())
    found = studied(reset_units, model, task, tmp_path)
    assert found.values.items() >= reset_units.measure(model, task).items()
    expected = stats.ttest_ind(p[[0, 2, 5]], p[[1, 3, 4]]).statistic
    assert found.values["later_t"] == pytest.approx(expected)
    assert found.values["later_cohens_d"] == pytest.approx(expected * math.sqrt(2 / 3))
    assert (found.values["later_p_mean"], found.values["others_p_mean"]) == pytest.approx((0.7 / 3, 2.2 / 3))
    ages = [row["of_delay"] for row in found.rows]
    assert ages == sorted(ages, reverse=True)
    assert {row["unit"] for row in found.rows[:3]} == {0, 2, 5}


def test_units_of_two_layers_keep_their_own_factors():
    task = copy_task(T=40)
    model = model_for(task, hidden_size=2, num_layers=2)
    hold(model, reset=[-20.0, -20.0])  # of the first layer, whose units never reset; those of the second do
    with torch.no_grad():
        for cell, p in zip(model.rnn.layers, ([0.1, 0.2], [0.7, 0.9]), strict=True):
            cell.power.copy_(torch.tensor(p, dtype=torch.float64).logit())
    assert reset_units.factors(model).tolist() == pytest.approx([0.1, 0.2, 0.7, 0.9])
    assert reset_units.measure(model, task)["later_p_mean"] == pytest.approx(0.15)
