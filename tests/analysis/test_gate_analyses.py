"""Check gates over one window and mean forget gates, against literal steps."""

from types import SimpleNamespace

import pytest
import synthetic
import texts
import torch
from analysed import copy_task, language_model, model_for, run_of_words, studied, waves, words
from torch.nn.functional import linear

from timescales import JANET, LRU, LSTM, PLSTM, RMC, URLSTM, GatedRNN, MinGRU, MinLSTM, PLScan
from timescales.analysis import decay_curves, gate_gradients, gate_maps, observe, study
from timescales.analysis.gate_gradients import refine_gradient_bounds
from timescales.errors import ConfigError
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
    expected = literal_mean_forget(model, task.batches("test"))
    torch.testing.assert_close(observe.mean_forget(model, task), expected, rtol=0, atol=1e-12)


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


@torch.no_grad()
def test_all_short_batches_of_a_text_are_read_up_to_a_thousand_sequences(tmp_path):
    """Where each segment begins with zeros, a batch has 128 sequences, so that eight of them are needed."""
    texts.write_words(tmp_path / "ptb", texts.PTB, lengths=(600, 90, 700))
    task = Characters(data_root=str(tmp_path), length=2, state="reset", allow_partial=True, batch_size=4)
    batches = list(task.batches("test"))
    assert [batch.x.shape[1] for batch in batches] == [128] * 11
    torch.manual_seed(0)
    model = SequenceModel(LSTM(task.spec.width, 3), task.spec).double().eval()
    gates = []
    with observe.watched(model, lambda layer, act: gates.append(act.forget)):
        for batch in batches:
            model(batch)
    first = torch.cat([torch.stack(gates[k : k + 2]) for k in range(0, 16, 2)], 1)[:, :1000]
    torch.testing.assert_close(observe.mean_forget(model, task), [first.mean((0, 1))], rtol=0, atol=1e-12)


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


def test_groups_are_of_neighbouring_time_scales():
    times = torch.tensor([3.0, 9.0, 1.0, 7.0, 5.0])
    found = {name: units.tolist() for name, units in observe.by_timescale(times, 2, 5).items()}
    assert found == {"1-2": [1, 3], "3-4": [4, 0], "5-5": [2]}
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


def test_words_of_a_text_are_no_formula(root, tmp_path, monkeypatch):
    task = words(root)
    monkeypatch.setattr(task, "words", lambda x: ["$_a_$", *map(str, x.tolist())][: len(x)])
    found = gate_maps.study(run_of_words(language_model(task), task))
    assert study.write(found, tmp_path, "gate_maps")[1].is_file()


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
    text = {"data_root": str(tmp_path), "length": 20, "state": "reset", "allow_partial": True, "batch_size": 4}
    sizes = {"train_size": 1, "valid_size": 1, "test_size": 3}
    kinds = {"characters": (Characters, text), "frequency": (Frequency, sizes), "adding": (Adding, sizes | {"T": 20})}
    kind, arguments = kinds[name]
    task = kind(**arguments)
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


# --- Gradients of gates, by formula and by autograd -------------------------------------------------------------------
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
    pieces = [refine_gradient_bounds(piece) for piece in g.split(100)]  # of all at once they take half a GB
    low, high = (torch.cat(bounds) for bounds in zip(*pieces, strict=True))
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
    with torch.no_grad(), observe.watched(model, lambda layer, act: seen.append(act)):
        model(next(iter(task.batches("test"))))
    _, units, g, gradient = gate_gradients.observed(model, task)
    expected = {}
    for act in seen:
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
        model = model_for(task, GatedRNN, hidden_size=32, gate=gate)
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
