"""Models that are not made of cells: their equations, masks, states, causality, tasks, and what they refuse."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from configs import config
from scipy.special import expit as sigmoid
from synthetic import SMALL, sizes
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize
from trainings import two_steps

import timescales
from timescales.config import folders, schema
from timescales.errors import ConfigError
from timescales.models import TCN, DilatedRNN, TorchGRU, TorchLSTM, Transformer, TrellisNet
from timescales.models.baselines import sinusoids
from timescales.models.sequence import SequenceModel
from timescales.nn import registry
from timescales.tasks import Batch, Spec
from timescales.training import build, memory

S, B, I, H = 9, 4, 3, 6  # noqa: E741
TASKS, NAMES = folders.choices("task"), [model.name for model in registry.BASELINES]
DEEP = [model.name for model in registry.BASELINES if model.family == registry.DEEP]
WORDS = ("ptb_word", "wt2", "wt103")
KINDS = [TorchLSTM, TorchGRU, Transformer, DilatedRNN, TCN, TrellisNet]


def make(kind, *arguments, **named):
    torch.manual_seed(0)
    return kind(*(arguments or (I, H, 2)), **named).double().eval()


def data(seed=1):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(S, B, I, generator=g, dtype=torch.float64)
    mask = torch.rand(S, B, generator=g) < 0.6
    mask[:, 2], mask[:, 3] = True, False  # one sequence whole, one without a step
    return x, mask


@pytest.mark.parametrize(("kind", "ours"), [(TorchLSTM, timescales.LSTM), (TorchGRU, timescales.GRU)])
def test_masks_and_states_are_those_of_our_layers(kind, ours):
    model = make(kind)
    layer = ours.from_torch(model.module)
    x, mask = data()
    output, state = model(x, None, None, mask)
    expected, expected_state = layer(x, mask=mask)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    again, after = model(x.flip(0), state, None, mask.flip(0))
    expected, expected_after = layer(x.flip(0), expected_state, mask=mask.flip(0))
    torch.testing.assert_close(again, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(after[0], expected_after[0] if kind is TorchLSTM else expected_after)


@pytest.mark.parametrize("kind", KINDS)
def test_time_scales_are_absent_and_a_batch_that_begins_again_is_refused(kind):
    assert not hasattr(kind, "timescales")
    with pytest.raises(ConfigError, match=f"^{kind.__name__} is not made of cells: it has no gates[^\n]*$"):
        make(kind).layers  # noqa: B018
    model = SequenceModel(make(kind), Spec("real", I, 2, "all", horizon=S)).double()
    x, reset = data()[0], torch.zeros(S, B)
    with pytest.raises(ValueError, match=f"^{kind.__name__} cannot reset the state within a sequence, .*model=lstm"):
        model(Batch(x, x, reset=reset))


def attention(x, weight, bias, heads):
    """Causal attention of one sequence (S, H), written out."""
    q, k, v = (x @ weight.T + bias).chunk(3, -1)
    parts = []
    for head in range(heads):
        width = x.shape[1] // heads
        own = slice(head * width, (head + 1) * width)
        for t in range(len(x)):
            score = (k[: t + 1, own] @ q[t, own] / math.sqrt(width)).softmax(0)
            parts.append(score @ v[: t + 1, own])
    return torch.stack(parts).view(heads, len(x), -1).transpose(0, 1).flatten(1)


def test_the_transformer_is_what_its_docstring_says():
    model = make(Transformer)
    x, _ = data()
    t = torch.arange(S, dtype=torch.float64).unsqueeze(1)
    rate = torch.tensor([1e4 ** (-2 * k / H) for k in range(H // 2)], dtype=torch.float64)
    position = torch.empty(S, H, dtype=torch.float64)
    position[:, 0::2], position[:, 1::2] = (t * rate).sin(), (t * rate).cos()
    torch.testing.assert_close(sinusoids(S, H).double(), position, rtol=1e-6, atol=1e-6)
    y = model.encoder(x[:, 0]) + sinusoids(S, H).double()
    for layer in model.blocks.layers:
        own = layer.self_attn
        y = y + own.out_proj(attention(layer.norm1(y), own.in_proj_weight, own.in_proj_bias, 2))
        y = y + layer.linear2(nn.functional.gelu(layer.linear1(layer.norm2(y))))
    torch.testing.assert_close(model(x)[0][:, 0], model.blocks.norm(y), rtol=1e-10, atol=1e-10)
    assert model(x)[1] is None
    assert not torch.equal(*(layer.linear1.weight for layer in model.blocks.layers))


def arrays(module):
    """The weights of a module as arrays, by name."""
    return {name: value.detach().numpy() for name, value in module.named_parameters()}


def dilated_step(core, w, x, h):
    """A step of a layer of torch (h, or h and c), written out."""
    gx, gh = x @ w["weight_ih_l0"].T + w["bias_ih_l0"], h[0] @ w["weight_hh_l0"].T + w["bias_hh_l0"]
    if core == "rnn":
        return (np.tanh(gx + gh),)
    if core == "lstm":
        i, f, u, o = np.split(gx + gh, 4, -1)
        c = sigmoid(f) * h[1] + sigmoid(i) * np.tanh(u)
        return sigmoid(o) * np.tanh(c), c
    (rx, zx, nx), (rh, zh, nh) = np.split(gx, 3, -1), np.split(gh, 3, -1)
    z = sigmoid(zx + zh)
    return ((1 - z) * np.tanh(nx + sigmoid(rx + rh) * nh) + z * h[0],)


@pytest.mark.parametrize("core", ["gru", "lstm", "rnn"])
def test_dilated_layers_are_what_the_docstring_says(core):
    model = make(DilatedRNN, I, H, 4, core=core)
    x = data()[0]
    below = x.numpy()
    for k, layer in enumerate(model.cores):
        steps, zero = [], (np.zeros((B, H)),) * 2
        for t in range(S):
            before = steps[t - 2**k] if t >= 2**k else zero
            steps.append(dilated_step(core, arrays(layer), below[t], before))
        below = np.stack([h[0] for h in steps])
    np.testing.assert_allclose(model(x)[0].detach().numpy(), below, rtol=1e-10, atol=1e-12)
    assert model(x)[1] is None


def at(x, t):
    """A step of a sequence, zeros before the first."""
    return x[t] if t >= 0 else np.zeros_like(x[0])


@pytest.mark.parametrize("size", [I, H])
def test_the_convolutions_are_what_the_docstring_says(size):
    model = make(TCN, size, H, 3, kernel_size=3)
    x = torch.randn(S, B, size, dtype=torch.float64)
    below = x.numpy()
    for k in range(3):
        y = below
        for conv in model.convolutions[2 * k : 2 * k + 2]:
            w, bias = conv.weight.detach().numpy(), conv.bias.detach().numpy()
            taps = [[at(y, t - (2 - j) * 2**k) @ w[:, :, j].T for j in range(3)] for t in range(S)]
            y = np.maximum(np.stack([sum(of_step) for of_step in taps]) + bias, 0)
        if k == 0 and size != H:
            below = below @ model.added.weight.detach().numpy()[..., 0].T + model.added.bias.detach().numpy()
        below = np.maximum(y + below, 0)
    np.testing.assert_allclose(model(x)[0].detach().numpy(), below, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("kind", "reach"), [(TCN, 2 * 2 * 7), (TrellisNet, 4)])
def test_the_output_reaches_as_far_back_as_the_docstring_says(kind, reach, monkeypatch):
    monkeypatch.setattr(Tensor, "relu", lambda x: x)  # so that no unit is off
    model = make(kind, I, H, 3, **({"kernel_size": 3} if kind is TCN else {}))
    x = torch.randn(reach + 4, 1, I, dtype=torch.float64, requires_grad=True)
    model(x)[0][-1].sum().backward()
    assert not x.grad[: -reach - 1].any()
    assert x.grad[-reach - 1].any()


def test_the_trellis_is_what_the_docstring_says():
    model = make(TrellisNet, I, H, 4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    x = data()[0].numpy()
    wx, wz = model.of_x.weight.detach().numpy(), model.of_z.weight.detach().numpy()
    z = c = np.zeros((S, B, H))
    for d in (1, 1, 2, 4):
        steps = []
        for t in range(S):
            total = at(x, t - d) @ wx[..., 0].T + x[t] @ wx[..., 1].T + model.of_z.bias.detach().numpy()
            i, o, f, u = np.split(total + at(z, t - d) @ wz[..., 0].T + z[t] @ wz[..., 1].T, 4, -1)
            new = sigmoid(f) * at(c, t - d) + sigmoid(i) * np.tanh(u)
            steps.append((sigmoid(o) * np.tanh(new), new))
        z, c = (np.stack(parts) for parts in zip(*steps, strict=True))
    np.testing.assert_allclose(model(data()[0])[0].detach().numpy(), z, rtol=1e-10, atol=1e-12)


def test_the_trellis_drops_the_same_units_in_all_steps_and_layers(monkeypatch):
    model, x = make(TrellisNet, I, H, 4).train(), data()[0]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    plain, model.dropout, asked = model(x)[0], 0.5, []
    kept = torch.tensor([2.0, 0, 2, 2, 0, 2], dtype=torch.float64).view(1, H, 1)

    def drop(like, share, training):
        asked.append((like.shape, share, training))
        return kept.expand_as(like)

    monkeypatch.setattr(functional, "dropout", drop)
    dropped = model(x)[0]
    assert asked == [((B, H, 1), 0.5, True)]
    with torch.no_grad():  # a unit that is dropped everywhere is one without weights, of the others they double
        shown = parametrize.remove_parametrizations(model.of_z, "weight").weight
        shown *= kept
    monkeypatch.undo()
    model.dropout = 0.0
    torch.testing.assert_close(model(x)[0], dropped, rtol=1e-10, atol=1e-12)
    assert not torch.allclose(plain, dropped)


@pytest.mark.parametrize(("kind", "times"), [(DilatedRNN, 2), (TCN, 6)])
def test_dropout_is_where_the_docstring_says(kind, times, monkeypatch):
    """Between three dilated layers; after each of six convolutions."""
    asked = []
    monkeypatch.setattr(functional, "dropout", lambda x, *how: asked.append(how) or x)
    model = make(kind, I, H, 3, dropout=0.25)
    plain = model(data()[0])[0]
    assert torch.equal(model.train()(data()[0])[0], plain)
    assert asked == [(0.25, False)] * times + [(0.25, True)] * times


def test_weights_are_normalised_and_those_of_the_trellis_begin_small():
    trellis, tcn = make(TrellisNet, 3, 200, 2), make(TCN, 3, 5, 2)
    assert trellis.of_z.parametrizations.weight.original1.std().item() == pytest.approx(0.01, rel=0.01)
    for conv in (trellis.of_x, trellis.of_z, *tcn.convolutions):
        size, direction = conv.parametrizations.weight.original0, conv.parametrizations.weight.original1
        normed = size * direction / direction.square().sum((1, 2), keepdim=True).sqrt()
        torch.testing.assert_close(conv.weight, normed, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_knows_no_later_one_and_no_missing_one(kind):
    model, (x, mask) = make(kind), data()
    x.requires_grad_()
    output, _ = model(x, None, None, mask)
    output[4].sum().backward()
    assert not x.grad[5:].any()
    assert not x.grad[~mask].any()
    broken = torch.where(mask.unsqueeze(-1), x.detach(), torch.nan)
    assert torch.equal(model(broken, None, None, mask)[0], output)
    for b in range(3):  # what exists alone, without a mask
        alone, _ = model(x[mask[:, b], b : b + 1])
        torch.testing.assert_close(output[mask[:, b], b], alone[:, 0], rtol=1e-10, atol=1e-10)
    assert torch.equal(output[1:, 0][~mask[1:, 0]], output[:-1, 0][~mask[1:, 0]])  # the last output that there was
    assert not output[:, 3].any()
    assert model(torch.zeros(S, 0, I, dtype=torch.float64))[0].shape == (S, 0, H)
    assert model(x.detach()[:1])[0].shape == (1, B, H)


def test_learned_positions_have_an_end():
    model = make(Transformer, I, H, positions="learned", longest=S)
    assert model.positions.shape == (S, H)
    with pytest.raises(ValueError, match=f"a sequence of {S + 1} steps is longer than {S}: give longest={S + 1}"):
        model(torch.zeros(S + 1, B, I, dtype=torch.float64))


@pytest.mark.parametrize(("call", "fix"), [
    (lambda: TorchLSTM(I, [3, 4], 2), "hidden_size must be a whole number"),
    (lambda: Transformer(I, 7, heads=2), "hidden_size 7 must be a multiple of heads 2"),
    (lambda: Transformer(I, 7, heads=1), "need an even hidden_size"),
    (lambda: Transformer(I, H, feedforward=0), "feedforward must be a whole number of at least 1, not 0"),
    (lambda: Transformer(I, H, positions="learned", longest=-1), "longest must be a whole number of at least 1"),
    (lambda: Transformer(I, H, positions="rotary"), "sinusoidal or learned"),
    (lambda: TorchGRU(I, H, dropout=1.0), "below 1"),
    (lambda: DilatedRNN(I, H, core="qrnn"), "core must be one of gru, lstm, rnn, not 'qrnn'"),
    (lambda: TCN(I, H, kernel_size=1), "kernel_size must be a whole number of at least 2, not 1"),
])  # fmt: skip
def test_wrong_arguments(call, fix):
    with pytest.raises(ValueError, match=fix):
        call()


@pytest.mark.parametrize(("task", "setting", "fix"), [
    *((task, "seed=0", "are for layers of cells, not for torch_lstm: take another model") for task in WORDS),
    ("copy", "engine=fused", "engine=fused is for layers of cells, not for model=torch_lstm: give engine=auto"),
    ("copy", "model.block=residual", "residual is for layers of cells, not for model=torch_lstm: give block=plain"),
])  # fmt: skip
def test_what_is_for_cells_is_refused_in_one_line(task, setting, fix, corpora):
    more = ["task.allow_partial=true", "task.embedding=8"] if task in WORDS else []
    plain = schema.resolved(config(f"task={task}", "model=torch_lstm", setting, *more, f"data_root={corpora}"))
    with pytest.raises(ConfigError, match=fix) as error:
        build.build(plain)
    assert "\n" not in str(error.value)


PAIRS = [*zip([task for task in TASKS if task not in WORDS], itertools.cycle(NAMES), strict=False)]


@pytest.mark.parametrize(("task", "model"), PAIRS)
def test_every_task_takes_two_steps(task, model, corpora):
    small = ["model.hidden_size=8", "task.batch_size=2", *sizes(task, 8), *SMALL.get(task, [])]
    # By default networks of layers that double their reach are for 784 steps, far more than there are here.
    small += ["model.num_layers=3"] * (model in DEEP)
    plain = schema.resolved(config(f"task={task}", f"model={model}", f"data_root={corpora}", *small))
    network, job, optimizer = build.build(plain)
    still = two_steps(network, job, optimizer, plain)
    assert all("in_proj" in name or "self_attn" in name for name in still), still
    assert memory.timescale_quantiles(network) == []


@pytest.mark.parametrize("model", ["torch_lstm", "transformer"])  # of torch's layers the state; of none
def test_a_run_resumes_with_its_state(train, tmp_path, corpora, model):
    """On a text in segments, whose state is carried: interrupted and continued, the curve is the same."""
    small = ["task=ptb_char", "task.length=20", "task.batch_size=4", "task.allow_partial=true", "model.hidden_size=8"]
    arguments = [*small, f"model={model}", f"data_root={corpora}", "logger=csv", "loop.eval_every=2", "device=cpu"]
    assert train(*arguments, "loop.max_steps=6", f"run_dir={tmp_path}/whole").status == 0
    assert train(*arguments, "loop.max_steps=4", f"run_dir={tmp_path}/part").status == 0
    done = train(f"extend={tmp_path}/part", f"data_root={corpora}", "loop.max_steps=6", f"run_dir={tmp_path}/more")
    assert done.status == 0, done
    whole, more = (json.loads((tmp_path / name / "record.json").read_text()) for name in ("whole", "more"))
    assert whole["timescales"] == {"start": [], "end": []}
    assert more["curve"][-1]["valid/loss"] == whole["curve"][-1]["valid/loss"]
