"""A second loss in training, which reconstructs or predicts a part of the sequence from the state at a random step."""

import copy
import math

import numpy as np
import pytest
import torch
from configs import config
from scipy.special import expit as sigmoid
from synthetic import sizes
from trainings import fit, interrupted_and_resumed, parts, quiet

from timescales import LSTM, PLSTM, SLSTM
from timescales.config import schema
from timescales.config.schema import LoopSettings
from timescales.errors import ConfigError
from timescales.models.auxiliary import AuxiliaryModel
from timescales.models.sequence import SequenceModel
from timescales.tasks.task import Batch, Spec, Task
from timescales.training import build, loop
from timescales.training.run import TrainingRun

S, B, I, H, L = 9, 3, 2, 5, 4  # noqa: E741
REAL = Spec("real", I, 2, "last", horizon=S)
LETTERS = Spec("one_hot", I, 2, "all", horizon=S)
VECTORS = torch.randn(6, I, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
WORDS = Spec("tokens", 6, 2, "all", horizon=S, embedding=VECTORS)


def model_of(kind="reconstruct", spec=REAL, cell=LSTM, layers=1, **more):
    torch.manual_seed(0)
    return AuxiliaryModel(cell(I, H, layers), spec, cell(I, H, layers), kind, L, **more).double()


def batch_of(spec=REAL, masked=False):
    random = torch.Generator().manual_seed(1)
    if spec.input == "real":
        x = torch.randn(S, B, I, generator=random, dtype=torch.float64)
    else:
        x = torch.randint(spec.input_size, (S, B), generator=random)
        x = x.int() if spec is WORDS else x  # as those of task=imdb
    mask = torch.ones(S, B, dtype=torch.bool) if masked else None
    if masked:
        mask[:3, 0] = False  # padded in front
        mask[7:, 1] = False  # padded behind
    return Batch(x, x, mask)


@pytest.fixture
def anchor(monkeypatch):
    """The random step is the one given last; the ranges that were asked for are kept."""
    asked = []

    def at(step):
        monkeypatch.setattr(torch, "randint", lambda *range: asked.append(range[:2]) or torch.tensor(step))
        return asked

    return at


def lstm(cell, x, h, c):
    """The outputs of an LSTM with gates in torch's order, and its state, in NumPy."""
    w_x, w_h, bias = (t.detach().numpy() for t in (cell.weight_ih, cell.weight_hh, cell.bias_ih + cell.bias_hh))
    outputs = []
    for now in x:
        i, f, g, o = np.split(now @ w_x.T + h @ w_h.T + bias, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs), h, c


@pytest.mark.parametrize(("kind", "at", "begin", "spec", "range_"), [
    ("reconstruct", 6, 2, REAL, (L, S)), ("predict", 3, 3, LETTERS, (1, S - L + 1)),
    ("reconstruct", 6, 2, WORDS, (L, S)),
])  # fmt: skip
def test_equals_the_reference(kind, at, begin, spec, range_, anchor):
    """At a random step, drawn from those that leave room for the segment."""
    model, batch = model_of(kind, spec), batch_of(spec)
    asked = anchor(at)
    found = model(batch).auxiliary
    assert asked == [range_]
    told = batch.x.numpy() if spec.input == "real" else np.eye(spec.input_size)[batch.x.numpy()]
    x = VECTORS.numpy()[batch.x.numpy()] if spec is WORDS else told
    zeros = np.zeros((B, H))
    _, h, c = lstm(model.rnn.layers[0], x[:at], zeros, zeros)
    output, _, _ = lstm(model.decoder.layers[0], x[begin : begin + L - 1], h, c)
    readout = model.decoder_readout[0]
    said = output @ readout.weight.detach().numpy().T + readout.bias.detach().numpy()
    told = told[begin + 1 : begin + L]
    if spec.input == "real":
        expected = ((said - told) ** 2).mean()
    else:
        expected = -((said - np.log(np.exp(said).sum(-1, keepdims=True))) * told).sum(-1).mean()
    assert math.isclose(float(found.detach()), expected, rel_tol=1e-12)


@pytest.mark.parametrize(("block", "spec"), [("plain", LETTERS), ("residual", REAL)])
def test_the_task_sees_what_it_would_see_without(block, spec):
    """In training and in evaluation, from a state and from zeros."""
    torch.manual_seed(0)
    width = H if block == "residual" else I
    rnn, decoder = PLSTM(width, H, 2), PLSTM(I, H, 2)
    torch.manual_seed(1)
    plain = SequenceModel(rnn, spec, block=block).double()
    torch.manual_seed(1)
    model = AuxiliaryModel(rnn, spec, decoder, "reconstruct", L, block=block).double()
    model.load_state_dict(plain.state_dict(), strict=False)
    one = batch_of(spec, masked=True)
    state = plain(one).state
    for start in (None, state):
        expected = plain(one, start)
        found = model(one, start)
        exist = slice(None) if spec.readout == "last" else one.mask
        torch.testing.assert_close(found.logits[exist], expected.logits[exist], rtol=1e-12, atol=1e-12)
        assert found.auxiliary > 0
        again = model.eval()(one, start)
        assert (torch.equal(again.logits, expected.logits), again.auxiliary) == (True, 0.0)
        model.train()


@pytest.mark.parametrize("kind", ["reconstruct", "predict"])
def test_padding_does_not_count(kind, anchor):
    """Nothing that stands at padding is read or scored; a batch's mean is over the pairs of steps that exist."""
    model, one, at = model_of(kind), batch_of(masked=True), 5
    anchor(at)
    x = one.x.masked_fill(~one.mask.unsqueeze(-1), torch.nan)
    found = model(one._replace(x=x)).auxiliary
    found.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    begin = at - L if kind == "reconstruct" else at
    total, count = 0.0, 0
    for b in range(B):
        steps = one.mask[:, b].nonzero().flatten()
        state = model.recurrent(one.x[:at, b : b + 1], None, None, one.mask[:at, b : b + 1])[1]
        scored = [int(s) for s in steps if begin <= s < begin + L]
        output, _ = model.decoder(one.x[scored[:-1], b : b + 1], state)
        said = model.decoder_readout(output)
        total += float((said - one.x[scored[1:], b : b + 1]).square().mean(-1).sum())
        count += len(scored) - 1
    assert math.isclose(float(found), total / count, rel_tol=1e-9)


def test_a_short_sequence_has_a_short_segment(anchor):
    """Of three steps the two before the last are reconstructed, of two nothing; of ten at most eight."""
    model, one = model_of(), batch_of()
    assert model(Batch(one.x[:2], one.x[:2])).auxiliary == 0.0
    asked = anchor(2)
    assert model(Batch(one.x[:3], one.x[:3])).auxiliary > 0
    model.auxiliary_steps, x = 600, torch.randn(10, B, I, dtype=torch.float64)
    anchor(8)
    assert model(Batch(x, x)).auxiliary > 0
    assert asked == [(2, 3), (8, 10)]


def test_the_second_loss_reaches_all_that_it_reads():
    model = model_of(cell=SLSTM, layers=2, head_size=[7], head_dropout=0.5)
    model(batch_of()).auxiliary.backward()
    idle = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert {name.split(".")[0] for name in idle} <= {"head", "readout", "decoder"}
    assert all("layers.1" not in name and "layers.0.weight" not in name for name in idle), idle
    assert [type(layer).__name__ for layer in model.decoder_readout] == ["Linear", "ReLU", "Dropout", "Linear"]


@pytest.mark.parametrize("model_name", ["plstm", "gru", "mts", "rmc", "eurnn", "plscan"])  # one for each kind of state
def test_models_take_a_second_loss(model_name):
    more = [f"model.num_layers={3 if model_name == 'mts' else 1}", "model.hidden_size=8", "model.auxiliary=reconstruct"]
    cfg = config("task=frequency", f"model={model_name}", *more, *sizes("frequency", 40, 16, 16))
    network, task, _ = build.build(schema.resolved(cfg))
    assert (type(network), network.auxiliary_steps) == (AuxiliaryModel, 600)
    one = next(task.batches("train"))
    output = network(one)
    (task.loss(output.logits, one) + output.auxiliary).backward()
    own_start = {name for name, _ in network.named_parameters() if name.startswith("decoder.") and ".start" in name}
    trained = [p for name, p in network.named_parameters() if p.requires_grad and name not in own_start]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)
    assert all(p.grad.any() for p in network.decoder_readout.parameters())


ADDING = ("task=adding", "task.T=20", *sizes("adding", 32, 16, 16), "model.auxiliary=predict")  # four steps an epoch


def test_what_was_interrupted_ends_as_what_was_not(tmp_path):
    """And the second loss is logged beside the task's."""

    def run(directory, log):
        network, task, optimizer, _ = parts([*ADDING, "model.auxiliary_steps=5"], seed=0)
        return fit(network, task, optimizer, log, LoopSettings(max_epochs=2, log_every=1), directory)

    *_, seen = interrupted_and_resumed(run, tmp_path, 3)
    logged = [values["train/auxiliary_loss"] for _, values in seen if "train/loss_nats" in values]
    assert len(logged) == 8
    assert all(0 < loss < 5 for loss in logged)


def test_training_takes_the_sum_of_both_losses():
    """After a step of plain gradient descent the weights have moved by the gradient of the sum."""
    descent = ["optimizer=sgd", "optimizer.lr=1", "loop.clip_norm=null"]
    network, task, optimizer, settings = parts([*ADDING, *descent], seed=0)
    expected, one = copy.deepcopy(network), next(task.batches("train"))
    torch.manual_seed(5)
    output = expected(one)
    (task.loss(output.logits, one) + output.auxiliary).backward()
    torch.manual_seed(5)
    loop.fit(TrainingRun(network, task, optimizer, quiet, settings, directory=None), until=1)
    for moved, p in zip(network.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(moved, p - p.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("overrides", "message"), [
    (["task=copy", "model.auxiliary=rebuild"], "auxiliary must be one of reconstruct, predict"),
    (["task=copy", "model.auxiliary=predict", "model.auxiliary_steps=1"], "auxiliary_steps must be at least 2"),
    (["task=copy", "model.auxiliary_steps=50"], r"give model\.auxiliary=reconstruct or predict"),
    (["task=copy", "model=torch_lstm", "model.auxiliary=predict"], r"give model\.auxiliary=none"),
    (["task=copy", "model.auxiliary=predict", "+model.bidirectional=true"], "leave out bidirectional"),
    (["task=ptb_word", "model.auxiliary_steps=9", "task.allow_partial=true"], r"give model\.auxiliary=none"),
])  # fmt: skip
def test_what_cannot_be_built_is_refused(overrides, message, corpora):
    with pytest.raises(ConfigError, match=message):
        build.build(schema.resolved(config("model=lstm", *overrides, f"data_root={corpora}")))


@pytest.mark.parametrize("from_the_start", [True, False])
def test_sequences_that_begin_again_are_refused(from_the_start, monkeypatch):
    """In a batch, and before training where the task says so or its first batch shows it."""
    one = batch_of()._replace(reset=torch.zeros(S, B))
    with pytest.raises(ValueError, match="needs batches without resets"):
        model_of()(one)
    assert model_of().eval()(one).auxiliary == 0.0
    plain = schema.resolved(config("model=lstm", "task=adding", "model.auxiliary=predict"))
    if from_the_start:
        batches = Task.batches
        monkeypatch.setattr(Task, "batches", lambda *a: (b._replace(reset=b.x[..., 0] > 0) for b in batches(*a)))
    else:
        monkeypatch.setattr(Task, "has_resets", True)
    with pytest.raises(ConfigError, match=r"give model\.auxiliary=none"):
        build.build(plain)
