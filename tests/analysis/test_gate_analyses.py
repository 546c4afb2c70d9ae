"""Check gates over one window and mean forget gates, against literal steps."""

from types import SimpleNamespace

import pytest
import synthetic
import texts
import torch
from analysed import copy_task, language_model, model_for, run_of_words, words
from torch.nn.functional import linear

from timescales import LSTM, PLSTM, URLSTM
from timescales.analysis import decay_curves, gate_maps, observe, study
from timescales.models.sequence import SequenceModel
from timescales.tasks import IMDB, Adding, Batch, Characters, Copy, Frequency


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
                    gx, gh = linear(x[s, b], ih, bias_ih), linear(before.h, hh, bias_hh)
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
        observe.mean_forget(model, task), literal_mean_forget(model, task.batches("test")), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [LSTM, PLSTM])
@torch.no_grad()
def test_steps_that_do_not_exist_do_not_count(kind):
    task = Frequency(train_size=1, valid_size=1, test_size=4, sampling="async")
    (batch,) = task.batches("test")
    assert not batch.mask.bool().all()
    model = model_for(task, kind, hidden_size=3)
    (found,), (expected,) = observe.mean_forget(model, task), literal_mean_forget(model, [batch])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_carried_state_is_carried():
    task = copy_task(T=5, test_size=2)
    (batch,) = task.batches("test")
    windows = [Batch(x, x) for x in batch.x.split(4)]
    text = SimpleNamespace(
        spec=SimpleNamespace(carried=True),
        device="cpu",
        exists=task.exists,
        batches=lambda split: iter(windows),
        n_batches=lambda split: len(windows),
    )
    model = model_for(task, hidden_size=3)
    (found,), (whole,) = observe.mean_forget(model, text), observe.mean_forget(model, task)
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(found, literal_mean_forget(model, windows, carried=True)[0], rtol=0, atol=1e-12)


def test_many_sequences_are_not_all_read():
    task, read = copy_task(T=0, test_size=2600), []

    def batches(split):
        for batch in Copy.batches(task, split):
            read.append(batch.x.shape)
            yield batch

    task.batches = batches
    observe.mean_forget(model_for(task, LSTM, hidden_size=2), task)
    assert read == [(20, 500)] * 2


def test_watching_leaves_no_trace():
    task = copy_task()
    model = model_for(task, engine="auto")

    def fail(layer, act):
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"), observe.watched(model, fail):
        model(next(iter(task.batches("test"))))
    assert model.rnn.engine == "auto"
    assert "act" not in vars(model.rnn.layers[0])
    model(next(iter(task.batches("test"))))


def test_what_is_watched_runs_on_the_eager_engine():
    model = SequenceModel(LSTM(10, 3, engine="auto"), Copy(train_size=1, valid_size=1, test_size=1).spec)
    with observe.watched(model, lambda layer, act: None):
        assert model.rnn.engine == "eager"


def test_groups_are_of_neighbouring_time_scales():
    times = torch.tensor([3.0, 9.0, 1.0, 7.0, 5.0])
    assert {k: v.tolist() for k, v in observe.by_timescale(times, 2, 5).items()} == {
        "1-2": [1, 3],
        "3-4": [4, 0],
        "5-5": [2],
    }
    paper = observe.by_timescale(torch.arange(1150.0), 100, 1150)
    assert [len(units) for units in paper.values()] == [100] * 11 + [50]
    assert list(paper)[-1] == "1101-1150"


# --- Maps of one window ----------------------------------------------------------------------------------------------


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
    assert [len(left.logs) for left in decay_curves.kept(model, task)] == [1 + max(lengths)]
    seen = []
    with observe.watched(model, lambda layer, act: seen.append(act.forget.detach().double())):
        model(batch)
    expected = torch.stack(seen)[task.exists(batch)].mean(0)
    torch.testing.assert_close(observe.mean_forget(model, task)[0], expected)
