"""Mean forget gates against literal means; watching a model; groups of time scales."""

from types import SimpleNamespace

import pytest
import torch
from analysed import copy_task, model_for
from torch.nn.functional import linear

from timescales import LSTM, PLSTM, URLSTM
from timescales.analysis import observe
from timescales.models.sequence import SequenceModel
from timescales.tasks import Batch, Copy, Frequency


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
