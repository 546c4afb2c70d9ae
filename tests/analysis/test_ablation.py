"""Silenced units."""

import itertools
import math
import statistics

import pytest
import torch
from analysed import copy_task, hold, model_for, run_of, studied
from torch.nn.functional import linear

from timescales import LSTM, PLSTM, URLSTM, ExpRNN
from timescales.analysis import ablation, study
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.training.loop import evaluate


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
        gx, gh = linear(step, ih, bias_ih), linear(state.h, hh, bias_hh)
        state = cell.step(gx, gh, state)
        state = state._replace(h=state.h * keep)
        expected.append(model.readout(state.h))

    found = ablation.silenced(model, gone)(batch)
    torch.testing.assert_close(found.logits, torch.stack(expected), rtol=0, atol=1e-12)
    torch.testing.assert_close(model.rnn.split_state(found.state)[0].c, state.c, rtol=0, atol=1e-12)  # the cells run on
    assert model.rnn.split_state(found.state)[0].c[:, gone].abs().max() > 0.01
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


def test_what_is_kept_counts_from_chance_to_the_whole_model():
    means = [0.925, 0.525, 0.125, 0.025]  # chance is 0.125: below it nothing is kept
    values = ablation.named({"random": torch.tensor([means, means])}, hidden_size=4)
    assert values["random/kept"] == pytest.approx((1.0 + 0.5 + 0.0 + 0.0) / 4)


def test_ablation_begins_at_the_whole_models_accuracy(monkeypatch):
    monkeypatch.setattr(ablation, "ORDERS", 2)
    task = copy_task(test_size=20)
    model = model_for(task, LSTM)
    found = ablation.measure(model, task)
    assert found["random/0"] == pytest.approx(evaluate(model, task, "test")["accuracy"])
    assert [key for key in found if key.startswith("later_first")] == []  # no reference times, no later-reset units
    assert ablation.measure(model, task) == found  # the orders are the task's own
    with pytest.raises(ConfigError, match="one layer of units, not for 2"):
        ablation.measure(model_for(task, LSTM, num_layers=2), task)
    residual = SequenceModel(LSTM(7, 7), task.spec, block="residual").double().eval()
    with pytest.raises(ConfigError, match="in residual blocks the readout does not read h"):
        ablation.measure(residual, task)
    with pytest.raises(ConfigError, match="a column per unit, not for ExpRNNCell"):
        ablation.measure(model_for(task, ExpRNN), task)


def test_the_ablation_study_is_the_probe_with_its_spread(tmp_path, monkeypatch):
    """Over orders of one run, over the means of several; the mean of several seeds is that of their values."""
    monkeypatch.setattr(ablation, "ORDERS", 3)
    task = copy_task(test_size=20)
    model = model_for(task)
    found = studied(ablation, model, task, tmp_path)
    assert found.values == ablation.measure(model, task)
    for row in found.rows:
        each = [row[f"order {k}"] for k in range(1, 4)]
        assert row["accuracy"] == pytest.approx(statistics.fmean(each))
        assert row["accuracy"] == pytest.approx(found.values[f"{row['silenced']}/{row['units']}"])
        assert row["standard_error"] == pytest.approx(statistics.stdev(each) / math.sqrt(3))
    runs = [run_of(model_for(task, LSTM, seed=k), task, seed=k) for k in range(3)]
    each = [ablation.measure(run.model, task) for run in runs]
    found = ablation.compare([*runs, run_of(model, task)])
    assert found.values["lstm/random/mean"] == pytest.approx(statistics.fmean(one["random/mean"] for one in each))
    row = next(row for row in found.rows if row["run"] == "lstm" and row["units"] == 4)
    accuracies = [one["random/4"] for one in each]
    spread = (statistics.fmean(accuracies), statistics.stdev(accuracies) / math.sqrt(3))
    assert (row["accuracy"], row["standard_error"]) == pytest.approx(spread)
    assert {"plstm/random/mean", "plstm/later_first/mean"} < set(found.values)
    assert study.write(found, tmp_path, "several")[1].is_file()
