"""Forget gates over one window."""

import pytest
import synthetic
import texts
import torch
from analysed import language_model, run_of_words, words

from timescales import LSTM
from timescales.analysis import decay_curves, gate_maps, observe, study
from timescales.models.sequence import SequenceModel
from timescales.tasks import IMDB, Adding, Characters, Frequency


def test_gate_maps_are_of_the_sixth_window(root, tmp_path):
    task = words(root)
    model = language_model(task, LSTM, (46, 5))
    gates, read = gate_maps.window(model, task)
    text = task.streams["test"][:, 0]
    assert read.tolist() == text[45:54].tolist()
    assert [g.shape for g in gates] == [(9, 46), (9, 5)]
    cell, state = model.rnn.layers[0], model.rnn.layers[0].initial_state()
    with torch.no_grad():
        for t, word in enumerate(text[:54]):
            ih, hh, bias_ih, bias_hh = cell.weights()
            gx, gh = ih @ model.vectors[word] + bias_ih, hh @ state.h + bias_hh
            if t >= 45:
                expected = (gx + gh)[46:92].sigmoid()
                torch.testing.assert_close(gates[0][t - 45], expected, rtol=0, atol=1e-12)
            state = cell.step(gx, gh, state)
    found = gate_maps.study(run_of_words(model, task))
    assert [row["layer"] for row in found.rows] == [1] * 46 + [2] * 5
    means = [row["mean"] for row in found.rows if row["layer"] == 1]
    assert means == sorted(means)
    torch.testing.assert_close(torch.tensor(means).double(), gates[0].mean(0).sort().values, rtol=0, atol=1e-6)
    assert found.values["layer1/above_0.9"] == float((gates[0].mean(0) > 0.9).double().mean())
    assert study.write(found, tmp_path, "gate_maps")[1].stat().st_size < 200_000


def test_layers_without_long_units_are_not_compared():
    none = torch.zeros(4, dtype=torch.bool)
    assert gate_maps.over_layers([none, none]) == {"above_0.9": 0.0}
    some = torch.tensor([True, True, True, False])
    assert gate_maps.over_layers([some, some.roll(1) & some]) == {"above_0.9": 5 / 8, "in_one_layer": 3 / 5}


def test_gate_maps_average_ten_of_the_papers_units(root):
    task = words(root)
    model = language_model(task, LSTM, (230, 5))
    rows = gate_maps.study(run_of_words(model, task)).rows
    times = model.rnn.layers[0].timescales().detach().double()
    assert [row["units"] for row in rows] == [2] * 115 + [2, 2, 1]  # as many in each layer, whatever its own size
    gates, _ = gate_maps.window(model, task)
    order = gates[0].mean(0).argsort(stable=True)
    assert rows[3]["step 4"] == pytest.approx(float(gates[0][3, order[6:8]].mean()))
    assert rows[3]["median_timescale"] == pytest.approx(float(times[order[6:8]].median()))


def test_gates_above_nine_tenths_are_counted_by_their_means(root):
    task = words(root)
    model = language_model(task, LSTM, (46, 5))
    with torch.no_grad():
        for cell in model.rnn.layers:
            cell.weight_ih *= 10.0
            cell.set_bias("forget", torch.full((cell.hidden_size,), 2.2))  # a gate of .9
    gates, _ = gate_maps.window(model, task)
    found = gate_maps.study(run_of_words(model, task))
    share = float((gates[0].mean(0) > 0.9).double().mean())
    assert found.values["layer1/above_0.9"] == share
    long = [int((layer.mean(0) > 0.9).sum()) for layer in gates]
    assert found.values["above_0.9"] == sum(long) / 51
    assert found.values["in_one_layer"] == max(long) / sum(long)
    assert 0.0 < share < float((gates[0] > 0.9).double().mean())


@pytest.mark.parametrize("name", ["characters", "frequency", "adding"])
def test_gate_maps_read_the_first_test_sequence(tmp_path, name):
    """The first segment of a text without a carried state; the first sequence of the evaluation's batch."""
    texts.write_words(tmp_path / "ptb", texts.PTB)
    sizes = {"train_size": 1, "valid_size": 1, "test_size": 3}
    task = {
        "characters": lambda: Characters(
            data_root=str(tmp_path), length=20, state="reset", allow_partial=True, batch_size=4
        ),
        "frequency": lambda: Frequency(**sizes, sampling="async"),
        "adding": lambda: Adding(T=20, **sizes),
    }[name]()
    torch.manual_seed(0)
    model = SequenceModel(LSTM(task.spec.width, 5), task.spec).eval()
    batch = next(iter(task.batches("test")))
    gates, read = gate_maps.window(model, task)
    exists = task.exists(batch)[:, 0]
    torch.testing.assert_close(read, batch.x[exists, 0], rtol=0, atol=0)
    seen = []
    with observe.watched(model, lambda layer, act: seen.append(act.forget[0].detach().double())):
        model(batch)
    torch.testing.assert_close(gates[0], torch.stack(seen)[exists], rtol=0, atol=1e-6)


@pytest.mark.parametrize("pad", ["end", "front"])
def test_padding_of_reviews_is_no_text(tmp_path, monkeypatch, pad):
    """The model reads it, up to the last step; analyses of the text leave it out."""
    synthetic.stand_alone(monkeypatch, tmp_path)
    synthetic.write_corpora(tmp_path)
    task = IMDB(data_root=str(tmp_path), allow_partial=True, steps=50, valid_size=40, pad=pad)
    torch.manual_seed(0)
    model = SequenceModel(LSTM(task.spec.width, 5), task.spec).eval()
    lengths = task.lengths["test"].tolist()
    (batch,) = task.batches("test")
    assert batch.mask is None
    assert task.exists(batch).sum(0).tolist() == lengths
    read = task.words(batch.x[task.exists(batch)[:, 0], 0])
    assert len(read) == lengths[0]
    assert not {"<pad>"} & set(read)
    whole = [text.split() for label in (0, 1) for text in synthetic.reviews("test", label, 25)]
    assert read in [[word if word in task.vocabulary else "<unk>" for word in text] for text in whole]
    gates, tokens = gate_maps.window(model, task)
    assert len(gates[0]) == len(tokens) == lengths[0]
    assert len(gate_maps.study(run_of_words(model, task)).rows) == 5
    assert [len(left.logs) for left in decay_curves.remaining(model, task)] == [1 + max(lengths)]
    seen = []
    with observe.watched(model, lambda layer, act: seen.append(act.forget.detach().double())):
        model(batch)
    expected = torch.stack(seen)[task.exists(batch)].mean(0)
    torch.testing.assert_close(observe.mean_forget(model, task)[0], expected)
