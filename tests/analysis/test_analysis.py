"""Probes of trained runs, against literal twins and published numbers."""

import functools
import itertools
import json
import math
import os
import random
import statistics
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import reference
import torch
from scipy import stats

from timescales import LSTM, PLSTM, URLSTM, ExpRNN, analysis
from timescales.analysis import (
    ablation,
    bins,
    common,
    forgetting,
    generalisation,
    reference_times,
    reset_units,
    study,
    timescale_law,
)
from timescales.errors import ConfigError
from timescales.nn import inits
from timescales.nn.cells import LSTMCell
from timescales.nn.engine import eager
from timescales.nn.rnn import RNN
from timescales.papers import verdict
from timescales.runs import record
from timescales.tasks import Batch, Copy, Frequency, Words
from timescales.tasks.copy import LENGTH, SIGNAL
from timescales.training.loop import evaluate
from timescales.training.model import Output, SequenceModel

ROOT = Path(__file__).resolve().parents[2]


def copy_task(T=8, test_size=6, **arguments):
    return Copy(T=T, train_size=1, valid_size=1, test_size=test_size, **arguments)


def model_for(task, kind=PLSTM, hidden_size=6, seed=0, **arguments):
    """A model in float64 with weights large enough that units, sequences and steps differ; it answers with symbols."""
    torch.manual_seed(seed)
    model = SequenceModel(kind(task.spec.input_size, hidden_size, **arguments), task.spec).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
        model.readout.bias[8:] = -50.0  # neither the copy task's dummy nor its signal
    return model


def hold(model, **biases):
    """Make gates of the first layer constant: sigmoid of the given pre-activations."""
    cell = model.rnn.layers[0]
    with torch.no_grad():
        for gate, value in biases.items():
            for weight in (cell.weight_ih, cell.weight_hh, *([cell.bias_ih] if cell.biases == 2 else [])):
                weight[cell.rows(gate)] = 0.0
            (cell.bias_hh if cell.biases == 2 else cell.bias)[cell.rows(gate)] = torch.as_tensor(value).double()
    return cell


# ---------------------------------------------------------------------------------------------- reference times


def by_gate(cell):
    ih, hh, bias, _ = (None if w is None else w.detach().numpy() for w in cell.weights())
    return {gate: (ih[cell.rows(gate)], hh[cell.rows(gate)], bias[cell.rows(gate)]) for gate in cell.gates}


def printed_reference_times(model, task):
    """k_t (S, B, H) by the paper's equations, one step after the other."""
    cell, x = model.rnn.layers[0], next(iter(task.batches("test"))).x
    one_hot = torch.nn.functional.one_hot(x, 10).double().numpy()
    state = [np.zeros((x.shape[1], cell.hidden_size)) for _ in range(3)]
    times, t = [], np.zeros(x.shape[1])
    for s in range(len(x)):
        h, c, k = state
        _, (h, c, lag) = reference.plstm_printed(
            by_gate(cell), cell.p.detach().numpy(), cell.epsilon, one_hot[s : s + 1], h, c, k, t
        )
        t = t + 1.0
        state = [h, c, t[:, None] - lag]
        times.append(state[2])
    return np.stack(times)


@pytest.mark.parametrize("layout", ["paper", "authors", "tallec", "gu"])
def test_ages_are_those_of_the_printed_reference_times(layout):
    task = copy_task(layout=layout)
    model = model_for(task)
    k = printed_reference_times(model, task)
    last_delay = int((task.blank == SIGNAL).nonzero()[0])  # this many steps have gone by
    assert last_delay == {"paper": 18, "authors": 17, "tallec": 17, "gu": 18}[layout]
    expected = (last_delay - k[last_delay - 1]).mean(0)
    torch.testing.assert_close(
        reset_units.ages_before_signal(model, task), torch.from_numpy(expected), rtol=0, atol=1e-10
    )
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
    assert {k: found[k] for k in ("units", "units_25", "units_50", "units_75")} == {
        "units": 5.0, "units_25": 3.0, "units_50": 2.0, "units_75": 1.0,
    }  # fmt: skip
    assert found["p_mean"] == pytest.approx(statistics.fmean(p))
    assert found["p_sd"] == pytest.approx(statistics.stdev(p))
    assert reset_units.later_reset(model, task).tolist() == [False, False, True, True, False]
    assert all(type(value) is float for value in found.values())


def test_fixed_powers_are_the_same_for_all_units():
    task = copy_task()
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


def test_reference_times_are_asked_of_power_laws_and_copy_alone():
    task = copy_task()
    with pytest.raises(ConfigError, match="LSTMCell has no reference time"):
        reset_units.measure(model_for(task, LSTM), task)
    waves = Frequency(train_size=1, valid_size=1, test_size=2)
    with pytest.raises(ConfigError, match="copy task with one delay, not for Frequency"):
        reset_units.measure(model_for(waves), waves)


def units(T, seed, values):
    p = {"p_mean": float(np.mean(values)), "p_sd": float(np.std(values, ddof=1)), "units": float(len(values))}
    return {"axes": {"task.T": T, "seed": seed}, "seed": seed} | {f"probe/reset_units/{k}": v for k, v in p.items()}


def test_t_and_d_are_those_of_the_units_of_one_model_a_delay():
    rng = np.random.default_rng(0)
    drawn = {(T, seed): rng.beta(2, 2 + T / 100, 128) for T in (200, 500, 1000) for seed in range(4)}
    wanted = [(200, 3), (200, 2), (500, 0), (500, 2), (500, 3), (1000, 0), (1000, 1)]
    rows = [units(*key, drawn[key]) for key in wanted]
    rows += [{"axes": {"task.T": 200, "seed": 0}, "seed": 0}]  # an LSTM's row, or a run that did not finish
    expected = stats.ttest_ind(drawn[200, 2], drawn[500, 2])
    assert expected.df == 254
    assert verdict.computed("reset_units.t", rows) == pytest.approx(expected.statistic, rel=1e-12)
    assert reset_units.cohens_d(rows) == pytest.approx(expected.statistic / 8.0, rel=1e-12)  # sqrt(128 / 2)


def test_printed_means_t_and_d_agree():
    rows = [units(T, 0, np.array([-1.0, 1.0])) for T in (200, 500)]
    for row, mean in zip(rows, (0.41, 0.19), strict=True):
        row |= {"probe/reset_units/p_mean": mean, "probe/reset_units/p_sd": 0.253, "probe/reset_units/units": 128.0}
    assert round(reset_units.cohens_d(rows), 2) == 0.87
    assert reset_units.t(rows) == pytest.approx(6.96, abs=0.005)


def test_a_small_table_compares_its_shortest_and_longest_delay():
    rng = np.random.default_rng(1)
    drawn = {T: rng.random(32) for T in (20, 50, 80)}
    rows = [units(T, 1, values) for T, values in drawn.items()]
    assert reset_units.t(rows) == pytest.approx(stats.ttest_ind(drawn[20], drawn[80]).statistic)
    for too_few in ([], rows[:1], [rows[0], units(80, 2, drawn[80])]):
        assert reset_units.t(too_few) is None
        assert reset_units.cohens_d(too_few) is None


# ---------------------------------------------------------------------------------------------- generalisation


@pytest.mark.parametrize("layout", ["paper", "authors", "tallec", "gu"])
def test_accuracy_in_pieces_is_the_tasks_own(layout):
    task = copy_task(T=120, test_size=300, layout=layout)  # two batches, three pieces
    model = model_for(task)
    right = evaluate(model, task, "test")["accuracy"]
    assert generalisation.accuracy(model, task) == pytest.approx(right, abs=1e-12)
    assert 0.08 < right < 0.2
    first = task.batch("test", 0, 0, 0, 40)
    some = (model(first).logits[-LENGTH:].argmax(-1) == first.target[-LENGTH:]).double().mean()
    assert generalisation.accuracy(model, task, 40) == pytest.approx(float(some), abs=1e-12)


class Remembers:
    """Copies as it should after at most `span` steps; after more it says 0."""

    def __init__(self, span):
        self.span = span

    def __call__(self, batch, state=None):
        seen, began, logits = state or ([], None, [])
        logits, seen = [], list(seen)
        for x in batch.x:
            seen.append(x)
            began = len(seen) - 1 if x[0] == SIGNAL and began is None else began
            k = -1 if began is None else len(seen) - 1 - began
            forgotten = began is None or began - 10 > self.span
            answer = torch.zeros_like(x) if k < 0 or k >= LENGTH or forgotten else seen[k]
            logits.append(torch.nn.functional.one_hot(answer, 10))
        return Output(torch.stack(logits), (seen, began, None))


def test_a_model_with_a_limited_span_generalises_up_to_it():
    found = generalisation.measure(Remembers(span=50), copy_task(T=20))
    assert list(found) == ["5", "10", "15", "20", "30", "50", "75", "100", "150", "200"]
    assert [found[T] for T in ("5", "10", "15", "20", "30", "50")] == [1.0] * 6
    for T in ("75", "100", "150", "200"):  # symbol 0 is right one time in eight; 10,000 symbols
        assert found[T] == pytest.approx(1 / 8, abs=0.02)


def test_delays_are_the_papers_or_in_proportion():
    paper = [50, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000]
    assert generalisation.delays(200) == generalisation.delays(500) == paper
    assert generalisation.delays(100) == [T // 2 for T in paper]
    assert generalisation.delays(1) == [1, 2, 4, 5, 8, 10]  # no delay below 1, none twice


def test_other_delays_are_of_the_same_task():
    other = generalisation.at_delay(copy_task(T=20, layout="gu", seed=3), 30)
    assert (other.T, other.layout, other.seed, other.size("test"), other.steps) == (30, "gu", 3, 1000, 50)


# ---------------------------------------------------------------------------------------------- ablation


@pytest.mark.parametrize("kind", [LSTM, URLSTM, PLSTM])
def test_silencing_is_forcing_h_to_zero_at_every_step(kind):
    task = copy_task(T=15)
    model = model_for(task, kind, hidden_size=7)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    gone = torch.tensor([5, 0, 2])
    keep = torch.ones(7, dtype=torch.float64)
    keep[gone] = 0.0

    cell, (batch,) = model.rnn.layers[0], task.batches("test")
    x = torch.nn.functional.one_hot(batch.x, 10).double()
    ih, hh, bias_ih, bias_hh = cell.weights()
    state, expected = cell.initial_state(x.shape[1]), []
    for step in x:
        gx, gh = eager.project(step, ih, bias_ih), eager.project(state.h, hh, bias_hh)
        state = cell.step(gx, gh, state)
        state = state._replace(h=state.h * keep)
        expected.append(model.readout(state.h))

    found = ablation.silenced(model, gone)(batch)
    torch.testing.assert_close(found.logits, torch.stack(expected), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.state[0].c, state.c, rtol=0, atol=1e-12)  # the cells run on
    assert found.state[0].c[:, gone].abs().max() > 0.01
    assert (found.logits - model(batch).logits).abs().max() > 0.1
    assert all((value == before[key]).all() for key, value in model.state_dict().items())


def test_silencing_holds_with_a_head_too():
    task = copy_task(T=15)
    model = SequenceModel(LSTM(10, 7), task.spec, head_size=5).double().eval()
    gone = torch.tensor([5, 0, 2])
    (batch,) = task.batches("test")
    found = ablation.silenced(model, gone)
    assert (found.readout.weight == model.readout.weight).all()
    with torch.no_grad():  # whatever the silenced units give
        h = torch.randn(4, 7, dtype=torch.float64)
        louder = h.index_fill(1, gone, 9.0)
        torch.testing.assert_close(found.head(h), found.head(louder))
        assert (model.head(h) != model.head(louder)).any()
        assert found(batch).logits.shape == model(batch).logits.shape


def test_silenced_units_go_in_the_papers_steps():
    assert ablation.counts(128) == list(range(0, 101, 5))
    assert ablation.counts(32) == [0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 15, 16, 17, 18, 20, 21, 22, 23, 25]
    assert ablation.counts(512)[-1] == 400


def test_curves_are_means_over_orders(monkeypatch):
    task = copy_task(T=40)
    model = model_for(task, hidden_size=16)
    late = [2, 7, 11]
    hold(model, reset=[-30.0 if k in late else 30.0 for k in range(16)])
    seen = []

    def accuracy(changed, asked, sequences):
        assert asked is task
        gone = set((changed.readout.weight == 0.0).all(0).nonzero().flatten().tolist())
        assert gone == set((changed.rnn.layers[0].weight_hh[16:] == 0.0).all(0).nonzero().flatten().tolist())
        seen.append(gone)
        return 1.0 - len(gone & set(late)) / 4

    monkeypatch.setattr(ablation, "accuracy", accuracy)
    found = ablation.measure(model, task)
    counts = ablation.counts(16)
    assert len(seen) == 2 * 10 * len(counts)
    random_orders = [seen[k * len(counts) : (k + 1) * len(counts)] for k in range(10)]
    late_orders = [seen[(10 + k) * len(counts) : (11 + k) * len(counts)] for k in range(10)]
    for order in random_orders + late_orders:
        assert [len(gone) for gone in order] == counts
        assert all(a <= b for a, b in itertools.pairwise(order))  # units stay silent
    assert len({frozenset(order[8]) for order in random_orders}) > 5
    for order in late_orders:
        assert all(gone <= set(late) if len(gone) <= 3 else gone > set(late) for gone in order)
    for j, n in enumerate(counts):
        expected = statistics.fmean(1.0 - len(order[j] & set(late)) / 4 for order in random_orders)
        assert found[f"random/{n}"] == pytest.approx(expected)
        assert found[f"later_first/{n}"] == 1.0 - min(n, 3) / 4
    assert found["random/mean"] == pytest.approx(statistics.fmean(found[f"random/{n}"] for n in counts))
    assert found["later_first/mean"] < found["random/mean"]


def test_ablation_begins_at_the_whole_models_accuracy():
    task = copy_task(test_size=20)
    model = model_for(task, LSTM)
    found = ablation.measure(model, task)
    assert found["random/0"] == pytest.approx(evaluate(model, task, "test")["accuracy"])
    assert [key for key in found if key.startswith("later_first")] == []  # no reference times, no later-reset units
    assert ablation.measure(model, task) == found  # the orders are the task's own
    with pytest.raises(ConfigError, match="one layer of units, not for 2"):
        ablation.measure(model_for(task, LSTM, num_layers=2), task)
    with pytest.raises(ConfigError, match="a column a unit, not for ExpRNNCell"):
        ablation.measure(model_for(task, ExpRNN), task)


# ---------------------------------------------------------------------------------------------- forget gates


def literal_mean_forget(model, batches, carried=False):
    """Step by step and sequence by sequence, layer after layer."""
    sums = [torch.zeros(cell.hidden_size, dtype=torch.float64) for cell in model.rnn.layers]
    n, states = 0, None
    for batch in batches:
        one_hot = model.spec.input == "one_hot"
        x = torch.nn.functional.one_hot(batch.x, model.spec.input_size).double() if one_hot else batch.x.double()
        S, B = x.shape[:2]
        after = []
        for layer, cell in enumerate(model.rnn.layers):
            ih, hh, bias_ih, bias_hh = cell.weights()
            out, last = torch.zeros(S, B, cell.hidden_size, dtype=torch.float64), []
            for b in range(B):
                before = cell.initial_state() if states is None else type(states[layer])(*(v[b] for v in states[layer]))
                for s in range(S):
                    dt = 1.0 if batch.dt is None else batch.dt[s, b].double()
                    gx, gh = eager.project(x[s, b], ih, bias_ih), eager.project(before.h, hh, bias_hh)
                    if batch.mask is None or batch.mask[s, b]:
                        sums[layer] += cell.act(gx, gh, before, dt).forget
                        before = cell.step(gx, gh, before, dt)
                        n += layer == 0
                    out[s, b] = before.h
                last.append(before)
            x = out
            after.append(type(last[0])(*map(torch.stack, zip(*last, strict=True))))
        states = after if carried else None
    return [total / n for total in sums]


@pytest.mark.parametrize(("kind", "layers"), [(LSTM, 2), (URLSTM, 1), (PLSTM, 1)])
@torch.no_grad()
def test_mean_forget_gates_are_the_literal_means(kind, layers):
    task = copy_task(T=3, test_size=3)
    model = model_for(task, kind, hidden_size=4, num_layers=layers)
    for found, expected in zip(
        common.mean_forget(model, task), literal_mean_forget(model, task.batches("test")), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [LSTM, PLSTM])
@torch.no_grad()
def test_steps_that_do_not_exist_do_not_count(kind):
    task = Frequency(train_size=1, valid_size=1, test_size=4, sampling="async")
    (batch,) = task.batches("test")
    assert not batch.mask.bool().all()
    model = model_for(task, kind, hidden_size=3)
    (found,), (expected,) = common.mean_forget(model, task), literal_mean_forget(model, [batch])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_carried_state_is_carried():
    task = copy_task(T=5, test_size=2)
    (batch,) = task.batches("test")
    windows = [Batch(x, x) for x in batch.x.split(4)]
    text = SimpleNamespace(
        spec=SimpleNamespace(carried=True), device="cpu", exists=task.exists,
        batches=lambda split: iter(windows), n_batches=lambda split: len(windows),
    )  # fmt: skip
    model = model_for(task, hidden_size=3)
    (found,), (whole,) = common.mean_forget(model, text), common.mean_forget(model, task)
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(found, literal_mean_forget(model, windows, carried=True)[0], rtol=0, atol=1e-12)


def test_many_sequences_are_not_all_read():
    task, read = copy_task(T=0, test_size=2600), []

    def batches(split):
        for batch in Copy.batches(task, split):
            read.append(batch.x.shape)
            yield batch

    task.batches = batches
    common.mean_forget(model_for(task, LSTM, hidden_size=2), task)
    assert read == [(20, 500)] * 2


def test_watching_leaves_no_trace():
    task = copy_task()
    model = model_for(task, engine="auto")

    def fail(layer, act):
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"), common.watched(model, fail):
        model(next(iter(task.batches("test"))))
    assert model.rnn.engine == "auto"
    assert "act" not in vars(model.rnn.layers[0])
    model(next(iter(task.batches("test"))))


def test_what_is_watched_runs_on_the_eager_engine():
    model = SequenceModel(LSTM(10, 3, engine="auto"), Copy(train_size=1, valid_size=1, test_size=1).spec)
    with common.watched(model, lambda layer, act: None):
        assert model.rnn.engine == "eager"


class NoForgetGate(LSTMCell):
    Act = tuple


def test_cells_without_a_forget_gate_are_refused():
    task = copy_task()
    model = SequenceModel(RNN([NoForgetGate(10, 3)]), task.spec)
    with pytest.raises(ConfigError, match="NoForgetGate has no forget gate"):
        forgetting.measure(model, task)


def test_forgetting_names_the_spread_of_time_scales():
    task = copy_task(T=2, test_size=2)
    model = model_for(task, LSTM, hidden_size=11)
    times = [404.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0, 0.5]
    hold(model, forget=inits.bias_of_timescale(torch.tensor(times, dtype=torch.float64)))
    found = forgetting.measure(model, task)
    expected = {"min": 0.5, "q10": 1.0, "median": 8.0, "q90": 55.0, "max": 404.0}
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-9)
    assert all(type(value) is float for value in found.values())
    shares = {key.removeprefix("share/"): 11 * value for key, value in found.items() if key.startswith("share/")}
    units = {"0.5": 1, "1": 1, "2": 1, "4": 2, "8": 1, "16": 2, "32": 1, "64": 1, "512": 1}  # 3 and 5 are nearest to 4
    assert {key: n for key, n in shares.items() if n} == pytest.approx(units)
    assert len(shares) == 17


def test_ends_of_the_time_scales():
    f = torch.tensor([0.0, math.exp(-1.0), 1.0], dtype=torch.float64)
    assert common.timescale(f).tolist() == [0.0, pytest.approx(1.0), math.inf]


# ---------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("alpha", [0.56, 1.0, 1.5])
def test_inverse_gamma_time_scales_add_up_to_a_power_law(alpha):
    """E[e^(-t/T)] = (t + 1)^(-alpha) where T ~ InvGamma(alpha, 1)."""
    q = (torch.arange(5000, dtype=torch.float64) + 0.5) / 5000
    times = inits.inverse_gamma_isf(q, alpha)
    for t in (0.0, 1.0, 3.0, 10.0, 30.0):
        assert float(torch.exp(-t / times).mean()) == pytest.approx((t + 1.0) ** -alpha, rel=2e-3)


def test_distances_are_scipys():
    times = torch.from_numpy(np.random.default_rng(0).lognormal(0.3, 1.2, 150))
    gamma = timescale_law.kolmogorov_smirnov(times, timescale_law.inverse_gamma_cdf)
    normal = timescale_law.kolmogorov_smirnov(times, timescale_law.normal_cdf)
    for k, value in enumerate(timescale_law.GRID.tolist()):
        assert value == pytest.approx((k + 1) / 10)
        expected = stats.kstest(times.numpy(), stats.invgamma(value).cdf).statistic
        assert float(gamma[k]) == pytest.approx(expected, abs=1e-10)
        assert float(normal[k]) == pytest.approx(stats.kstest(times.numpy(), stats.norm(value, 0.1).cdf).statistic)


def test_the_law_that_made_the_time_scales_is_found():
    n = 2700
    found = timescale_law.fit(inits.inverse_gamma_isf((torch.arange(n, dtype=torch.float64) + 0.5) / n, 1.4))
    assert found["alpha"] == pytest.approx(1.4)
    assert found["ks_inverse_gamma"] == pytest.approx(0.5 / n, rel=0.01)
    assert found["ks_normal"] > 0.3
    one_scale = timescale_law.fit(torch.from_numpy(np.random.default_rng(0).normal(0.5, 0.1, n)))
    assert found["below_10"] == pytest.approx(stats.invgamma(1.4).cdf(10), abs=1 / n)  # .977
    assert found["below_150"] == pytest.approx(stats.invgamma(1.4).cdf(150), abs=1 / n)
    assert one_scale["mu"] == pytest.approx(0.5)
    assert one_scale["ks_normal"] < 0.03 < 0.25 < one_scale["ks_inverse_gamma"]


def test_units_that_never_or_always_forget_are_counted():
    found = timescale_law.fit(torch.tensor([0.0, 1.0, math.inf], dtype=torch.float64))
    assert found["ks_inverse_gamma"] == pytest.approx(1 / 3)
    assert found["below_10"] == found["below_150"] == pytest.approx(2 / 3)
    assert all(math.isfinite(value) for value in found.values())


def test_the_law_of_a_models_own_units():
    task = copy_task(T=2, test_size=2)
    model = model_for(task, LSTM, hidden_size=200)
    times = inits.InverseGamma(1.0).timescales(200)
    hold(model, forget=inits.bias_of_timescale(times))
    found = timescale_law.measure(model, task)
    assert found == pytest.approx(timescale_law.fit(times), abs=1e-6)
    assert found["alpha"] == 1.0


# ---------------------------------------------------------------------------------------------- frequency bins

# Words of the Penn Treebank test text by bin, as counted over all three splits and over the training split.
EVERYWHERE, TRAIN = [27361, 18744, 22311, 14013], [24844, 19790, 22411, 15384]
TABLE = {  # Mahto et al. 2021, tables 1 and 3: perplexity by bin, and of all words
    "table 1, baseline": ([6.82, 27.77, 184.19, 2252.50], 61.40),
    "table 1, multi-timescale": ([6.84, 27.14, 176.11, 2100.89], 59.69),
    "table 3, baseline": ([6.59, 27.04, 178.62, 2069.81], 58.98),
    "table 3, multi-timescale": ([6.79, 26.68, 167.97, 1902.37], 57.58),
}


@pytest.mark.parametrize(("row", "whole"), list(zip(TABLE, [61.39, 59.68, 58.98, 57.57], strict=True)))
def test_printed_perplexities_agree_with_counts_over_all_splits(row, whole):
    printed, of_all = TABLE[row]
    counts = np.array(EVERYWHERE)
    found = bins.perplexities(bins.Blocks((counts * np.log(printed))[None], counts[None]))
    assert found[:4] == pytest.approx(printed)
    assert round(float(found[4]), 2) == whole
    assert float(found[4]) == pytest.approx(of_all, abs=0.02)
    counts = np.array(TRAIN)
    by_train = bins.perplexities(bins.Blocks((counts * np.log(printed))[None], counts[None]))[4]
    assert by_train > of_all + 6  # so the authors did not count in the training split alone


@pytest.mark.skipif("TIMESCALES_DATA" not in os.environ, reason="needs the Penn Treebank under TIMESCALES_DATA/ptb")
def test_the_penn_treebanks_bins_are_the_published_ones():
    folder = Path(os.environ["TIMESCALES_DATA"]) / "ptb"
    text = {split: [word for line in (folder / f"ptb.{split}.txt").read_text().splitlines()
                    for word in (*line.split(), "<eos>")] for split in ("train", "valid", "test")}  # fmt: skip
    assert [len(words) for words in text.values()] == [929_589, 73_760, 82_430]
    targets = text["test"][1:]
    for splits, expected in ((tuple(text), EVERYWHERE), (("train",), TRAIN)):
        count = Counter(word for split in splits for word in text[split])
        which = bins.bins_of([count[word] for word in targets])
        found = bins.block_sums(np.ones(len(targets)), which)
        assert found.counts.sum(0).tolist() == expected
        assert found.counts.shape == (825, 4)
        assert bins.weights(int((found.counts.sum(1) == 100).sum()), resamples=1).shape == (2, 824)
    everywhere = Counter(word for words in text.values() for word in words)
    assert np.bincount(bins.bins_of(list(everywhere.values()))).tolist() == [12, 93, 1118, 8777]


def test_edges_belong_to_the_more_frequent_bin():
    assert bins.bins_of([10_000, 9_999, 1_000, 999, 100, 99, 0]).tolist() == [0, 1, 1, 2, 2, 3, 3]


def corpus(n=1234, seed=0):
    """Bins and two models' losses of n words."""
    rng = np.random.default_rng(seed)
    which = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    baseline = rng.gamma(2.0, 1.0 + which)
    return which, baseline, baseline - rng.normal(0.05 * which, 0.3)


def slow_perplexities(which, losses):
    """By bin, then of all words."""
    lists = [[loss for loss, own in zip(losses, which, strict=True) if own == k] for k in range(4)]
    return [math.exp(math.fsum(values) / len(values)) for values in (*lists, list(losses))]


def test_blocks_hold_the_text_and_a_short_end():
    which, losses, _ = corpus()
    found = bins.block_sums(losses, which)
    assert found.counts.shape == (13, 4)
    assert found.counts.sum(1).tolist() == [100] * 12 + [34]
    for block in (0, 7, 12):
        here = slice(100 * block, 100 * block + 100)
        for k in range(4):
            mine = losses[here][which[here] == k]
            assert found.counts[block, k] == len(mine)
            assert found.sums[block, k] == pytest.approx(math.fsum(mine), abs=1e-10)
    assert bins.perplexities(found) == pytest.approx(slow_perplexities(which, losses), rel=1e-12)


def test_the_bootstrap_is_the_slow_one():
    which, baseline, other = corpus()
    drawn = bins.weights(12, resamples=20, seed=5)
    found = bins.differences(bins.block_sums(baseline, which), bins.block_sums(other, which), resamples=20, seed=5)
    assert found.shape == (21, 5)
    for row in range(21):
        blocks = [block for block, times in enumerate(drawn[row]) for _ in range(times)]
        assert len(blocks) == 12
        if row == 20:
            assert blocks == list(range(12))  # the text as it is
        words = [word for block in blocks for word in range(100 * block, 100 * block + 100)]
        slow = [slow_perplexities(which[words], losses[words]) for losses in (baseline, other)]
        assert found[row] == pytest.approx(np.subtract(*slow), abs=1e-9)


def test_blocks_are_drawn_with_replacement_and_alike():
    drawn = bins.weights(50, resamples=4000)
    assert (drawn.sum(1) == 50).all()
    # A block is drawn Binomial(50, 1/50) times: left out with probability .98^50.
    assert (drawn[:-1] == 0).mean() == pytest.approx(0.98**50, abs=0.005)
    assert drawn[:-1].var() == pytest.approx(0.98, abs=0.02)
    assert (bins.weights(50, 10) == bins.weights(50, 10)).all()
    assert (bins.weights(50, 10) != bins.weights(50, 10, seed=1)).any()


def test_intervals_of_ten_thousand_resamples():
    which, baseline, other = corpus(n=2000)
    blocks = [bins.block_sums(losses, which) for losses in (baseline, other)]
    found = bins.differences(*blocks)
    assert found.shape == (10_001, 5)
    summary = bins.summary(found)
    ordered = [sorted(found[:, k].tolist()) for k in range(5)]
    for k in range(5):
        assert summary["authors_low"][k] == ordered[k][4]
        assert summary["authors_high"][k] == ordered[k][9995]
        assert summary["low"][k] == pytest.approx(ordered[k][250])
        assert summary["high"][k] == pytest.approx(ordered[k][9750])
        assert summary["mean"][k] == pytest.approx(statistics.fmean(ordered[k]))
        assert summary["sd"][k] == pytest.approx(statistics.stdev(ordered[k]))
        assert summary["authors_low"][k] < summary["low"][k] < summary["mean"][k] < summary["high"][k]
    whole = np.subtract(*(bins.perplexities(b) for b in blocks))
    assert found[-1] == pytest.approx(whole)
    assert np.isnan(bins.summary(found[:500])["authors_low"]).all()


def test_the_slow_bootstrap_of_python_says_the_same():
    """Python's own random numbers, block after block as in the authors' description: the same law."""
    which, baseline, other = corpus(n=3000, seed=2)
    blocks = [bins.block_sums(losses, which) for losses in (baseline, other)]
    fast = bins.summary(bins.differences(*blocks))
    rng, slow = random.Random(0), []
    for _ in range(3000):
        drawn = [rng.randrange(30) for _ in range(30)]
        slow.append([b.sums[drawn].sum() / b.counts[drawn].sum() for b in blocks])
    difference = np.exp(np.array(slow))
    difference = difference[:, 0] - difference[:, 1]
    assert fast["mean"][4] == pytest.approx(difference.mean(), abs=4 * fast["sd"][4] / math.sqrt(3000))
    assert fast["sd"][4] == pytest.approx(difference.std(), rel=0.06)
    assert fast["low"][4] == pytest.approx(np.quantile(difference, 0.025), abs=0.2 * fast["sd"][4])


def test_models_on_other_words_are_not_compared():
    a, b = (bins.block_sums(corpus(seed=seed)[1], corpus(seed=seed)[0]) for seed in (0, 1))
    with pytest.raises(ValueError, match="not measured on the same words"):
        bins.differences(a, b)


def test_kept_blocks_come_back_to_the_last_bit():
    which, losses, _ = corpus()
    blocks = bins.block_sums(losses, which)
    again = bins.from_text(bins.to_text(blocks))
    assert (again.sums == blocks.sums).all()
    assert (again.counts == blocks.counts).all()
    assert bins.to_text(blocks).splitlines()[0].split(",")[:2] == ["sums above_10K", "sums 1K_10K"]


def test_perplexities_of_a_language_models_run(monkeypatch):
    which, losses, _ = corpus(n=250)
    everywhere, train = torch.tensor([20_000, 5_000, 500, 50]), torch.tensor([9_999, 5_000, 500, 50])
    task = object.__new__(Words)  # without a corpus
    task.counts = lambda splits: everywhere if set(splits) == {"train", "valid", "test"} else train
    monkeypatch.setattr(bins, "token_losses", lambda model, task: (torch.tensor(losses), torch.tensor(which)))
    found = bins.measure(None, task)
    assert list(found.values())[:5] == pytest.approx(slow_perplexities(which, losses))
    assert list(found)[:5] == ["above_10K", "1K_10K", "100_1K", "below_100", "all"]
    assert math.isnan(found["train/above_10K"])  # no word is so frequent there
    assert found["train/1K_10K"] == pytest.approx(math.exp(losses[which <= 1].mean()))
    assert found["train/all"] == pytest.approx(found["all"])
    assert bins.perplexities(bins.from_text(found.files["blocks.csv"])) == pytest.approx(list(found.values())[:5])
    with pytest.raises(ConfigError, match="language models of words, not for Copy"):
        bins.measure(None, copy_task())


# ---------------------------------------------------------------------------------------------- runs on disk


@pytest.fixture
def probe(script):
    return functools.partial(script, "probe")


def test_questions_to_a_run_on_disk(train, probe, tmp_path, monkeypatch):
    run = tmp_path / "run"
    trained = train(
        "model=plstm", "task=copy", "task.T=5", "model.hidden_size=8", "task.train_size=64", "task.valid_size=16",
        "task.test_size=16", "loop.max_steps=2", "logger=none", f"run_dir={run}",
    )  # fmt: skip
    assert trained.status == 0, trained
    said = probe(run, "reset_units")
    assert "reset_units/units " in said
    answer = json.loads((run / "record.json").read_text())["probes"]
    assert answer["reset_units/units"] == 8.0
    assert 0.0 < answer["reset_units/p_mean"] < 1.0
    probe(run, "forgetting")
    both = record.read(run)["probes"]
    assert set(answer) < set(both)
    assert both["forgetting/min"] <= both["forgetting/median"]

    brought = study.Answer({"x": 1.5}, {"blocks.csv": "a,b\n"})
    monkeypatch.setattr(forgetting, "measure", lambda model, task: brought)
    assert analysis.measure_run(run, "forgetting") == {"x": 1.5}
    assert (run / "blocks.csv").read_text() == "a,b\n"
    last = record.read(run)["probes"]
    assert [key for key in last if key.startswith("forgetting/")] == ["forgetting/x"]  # the older answer is gone

    assert probe(run, "bins") == "error: this probe is for language models of words, not for Copy"
    assert "invalid choice: 'forgetin'" in probe(run, "forgetin")
    assert "has no record.json: give the directory of a finished run" in probe(tmp_path, "forgetting")
    for weights, question in (("best.pt", "reset_units"), ("last.pt", "forgetting")):
        (run / weights).unlink()
        assert f"{weights} is not there: force=true trains the run again" in probe(run, question)


def test_every_probe_can_be_asked_by_name(probe):
    assert all(
        name in probe("run", "?")
        for name in ("ablation", "bins", "forgetting", "generalisation", "reset_units", "timescale_law")
    )
