"""`accelerate` changes the class of torch's layers inside a model, and nothing else; `restore` undoes it."""

import copy
import gc
import io
import itertools
import logging
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrize

import timescales
from timescales.nn import accelerate
from timescales.nn.accelerate import Accelerated
from timescales.nn.drop_in import MinimumSizes

S, B, I, H = 6, 3, 4, 5  # noqa: E741


class Tagger(nn.Module):
    """A bidirectional tagger."""

    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(I, H, 2, bidirectional=True), nn.GRU(2 * H, H)
        self.head = nn.Linear(H, 2)

    def forward(self, x):
        return self.head(self.gru(self.lstm(x)[0])[0])


class Theirs(nn.LSTM):
    """A subclass that calls torch's forward."""

    def half_of(self, x):
        return self(x)[0] / 2


class Own(nn.LSTM):
    """A subclass with a forward of its own."""

    def forward(self, x):
        return super().forward(x)[0]


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Tagger()


X = torch.linspace(-1, 1, S * B * I).view(S, B, I)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def is_fast(module):
    return isinstance(module, Accelerated)


def test_parameters_optimizer_hooks_and_state_dict_stay(model):
    before, seen = dict(model.named_parameters()), []
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    model.lstm.register_forward_hook(lambda *_: seen.append("hook"))
    plain = copy.deepcopy(model)
    theirs = torch.optim.Adam(plain.parameters(), 0.01)
    for accelerated in (False, True, True):
        if accelerated:
            assert timescales.accelerate(model) is model
        for one, own in ((model, optimizer), (plain, theirs)):
            own.zero_grad()
            one(X).square().sum().backward()
            own.step()
    assert is_fast(model.lstm)
    assert is_fast(model.gru)
    assert all(before[name] is parameter for name, parameter in model.named_parameters())
    assert list(model.state_dict()) == list(plain.state_dict())
    close(list(model.parameters()), list(plain.parameters()))
    assert len(seen) == 6
    assert isinstance(model.lstm, nn.LSTM)
    assert repr(model) == repr(plain)


def test_restore_gives_back_the_class(model):
    expected = model(X)
    timescales.restore(timescales.accelerate(timescales.accelerate(model)))
    assert type(model.lstm) is nn.LSTM
    assert type(model.gru) is nn.GRU
    assert torch.equal(model(X), expected)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_our_engine_takes_long_sequences(monkeypatch, kind, runs):
    """From a number of steps on, with gradients and without, by whether torch's layer has oneDNN."""
    fewest = ((7, 9), (6, 8), (3, 5), (2, 4))
    named = zip(accelerate.MINIMUM_SIZES, fewest, strict=True)
    monkeypatch.setattr(accelerate, "MINIMUM_SIZES", {name: tuple(map(MinimumSizes, steps)) for name, steps in named})
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    rnn = timescales.accelerate(kind(I, H, batch_first=True))
    training, evaluation = (7, 9) if kind is nn.LSTM else (3, 5)
    for steps in range(2, 11):
        calls = [torch.randn(B, steps, I)]
        calls += [nn.utils.rnn.pack_sequence([torch.randn(steps - k, I), torch.randn(steps, I)], False) for k in (0, 1)]
        of_equal = (6, 8) if kind is nn.LSTM else (2, 4)
        for has_gradients, *least in ((True, training, of_equal[0], 2), (False, evaluation, of_equal[1], 4)):
            with torch.set_grad_enabled(has_gradients):
                for given, first in zip(calls, least, strict=True):
                    runs.clear()
                    rnn(given)
                    assert bool(runs) == (steps >= first), (steps, has_gradients, first)


def test_our_engine_takes_large_batches_and_layers(monkeypatch, runs):
    smallest = {"LSTM": (MinimumSizes(2, 3, 5),) * 2, "GRU": (MinimumSizes(),) * 2}
    monkeypatch.setattr(accelerate, "MINIMUM_SIZES", smallest)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    cases = itertools.product((nn.LSTM, nn.GRU), (True, False), (2, 3, 9), (4, 5, 8))
    for kind, batch_first, sequences, units in cases:
        runs.clear()
        shape = (sequences, 7, I) if batch_first else (7, sequences, I)
        timescales.accelerate(kind(I, units, batch_first=batch_first))(torch.randn(shape))
        assert bool(runs) == (kind is nn.GRU or (sequences >= 3 and units >= 5))
    runs.clear()
    timescales.accelerate(nn.LSTM(I, 5))(torch.randn(7, I))  # one sequence without a batch
    assert not runs


def test_it_says_how_many_layers(model, caplog):
    with caplog.at_level(logging.INFO, "timescales"):
        timescales.accelerate(model)
        timescales.accelerate(nn.Linear(2, 2))
    said = "accelerate: {} LSTM and GRU layers of {} run on our engine"
    assert [record.getMessage() for record in caplog.records] == [said.format(2, "Tagger"), said.format(0, "Linear")]


def test_copies_and_files(model):
    timescales.accelerate(model)
    expected, file = model(X), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        assert is_fast(other.lstm)
        assert torch.equal(other(X), expected)
        with torch.no_grad():
            other.lstm.weight_hh_l0.zero_()
        assert not torch.equal(other(X), expected)
    assert torch.equal(model(X), expected)
    plain = Tagger()
    plain.load_state_dict(model.state_dict())
    close(plain(X), expected)


def test_subclasses():
    torch.manual_seed(0)
    theirs, own = Theirs(I, H), Own(I, H)
    expected = theirs.half_of(X)
    assert is_fast(timescales.accelerate(theirs))
    assert isinstance(theirs, Theirs)
    close(theirs.half_of(X), expected)
    assert type(pickle.loads(pickle.dumps(theirs))) is type(theirs)
    output = own(X)
    assert is_fast(timescales.accelerate(own))  # its own forward calls torch's
    assert isinstance(own, Own)
    close(own(X), output)
    assert type(timescales.restore(own)) is Own
    assert type(timescales.restore(theirs)) is Theirs
    ours = timescales.LSTM(I, H)
    assert type(timescales.accelerate(ours)) is timescales.LSTM


def test_weights_of_a_functional_call():
    """Weights that are computed: tests/nn/test_torch_lstm.py."""
    rnn = timescales.accelerate(nn.LSTM(I, H))
    half = {name: value / 2 for name, value in rnn.named_parameters()}
    found = torch.func.functional_call(rnn, half, (X,))[0]
    close(found, torch.func.functional_call(timescales.restore(rnn), half, (X,))[0])


def test_exporters_and_compilers(model):
    timescales.accelerate(model)
    expected = model(X)
    close(torch.export.export(model, (X,)).module()(X), expected)
    close(torch.compile(model, backend="eager")(X), expected)
    traced = torch.fx.symbolic_trace(model)  # torch's layers are leaves
    close(traced(X), expected)


def test_explain_shows_it(model, capsys):
    timescales.explain(timescales.accelerate(model).lstm)
    told = capsys.readouterr().out
    assert "fused: yes" in told
    assert "torch's own kernel" in told
    assert "    LSTM: 64, 16, 32; 200, 64, 32\n" in told
    assert "    other packed sequences: 16, 1, 1; 64, 4, 1\n" in told
    timescales.explain(timescales.LSTM(I, H))
    assert "smaller calls" not in capsys.readouterr().out


def test_a_first_call_by_the_exporter_leaves_no_tensors_of_its_own():
    """The sizes are of no layer before: what is kept is made by this call."""
    rnn, x = timescales.accelerate(nn.GRU(2, 1021)), torch.zeros(40, 1, 2)
    torch.export.export(rnn, (x,))
    output = rnn(x)[0]
    assert type(output) is torch.Tensor
    close(output, timescales.restore(rnn)(x)[0])


@pytest.mark.parametrize("make", [timescales.LSTM, lambda *sizes: timescales.accelerate(nn.GRU(*sizes))])
def test_the_compiler_leaves_a_layer_as_it_is(make):
    torch._dynamo.reset()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    model = nn.Sequential(nn.Linear(3, 3), make(3, 4))
    compiled = torch.compile(model, backend=backend)
    for steps in (300, 310, 320, 330):
        x = torch.ones(steps, 2, 3)
        close(compiled(x)[0], model(x)[0])
    assert len(graphs) <= 2  # of the linear layer: for one length, and for all


class Doubled(nn.Module):
    def forward(self, value):
        return 2.0 * value


def test_a_layer_whose_class_was_changed_later_is_not_restored():
    model = timescales.accelerate(nn.ModuleList([nn.GRU(3, 4), nn.GRU(3, 4)]))
    before = type(model[1])
    model[1].__class__ = type("Later", (before,), {})
    with pytest.raises(ValueError, match="class of a layer was changed to Later after accelerate: undo this first"):
        timescales.restore(model)
    assert all(map(is_fast, model))
    model[1].__class__ = before
    assert [type(layer) for layer in timescales.restore(model)] == [nn.GRU, nn.GRU]


@pytest.mark.parametrize(("kind", "first", "last"), [
    *((nn.GRU, "accelerate", "restore"), (nn.GRU, "parametrize", "remove")),
    *((Own, "accelerate", "remove"), (Own, "parametrize", "restore")),
])  # fmt: skip
def test_parametrizations_come_and_go(kind, first, last):
    torch.manual_seed(0)
    model, x = nn.ModuleList([kind(I, H), nn.LSTM(I, H)]), X.repeat(40, 1, 1)
    rnn = model[0]

    def parametrized():
        for name in ("weight_hh_l0", "weight_ih_l0"):
            parametrize.register_parametrization(rnn, name, Doubled())

    steps = [lambda: timescales.accelerate(model), parametrized]
    for step in steps if first == "accelerate" else reversed(steps):
        step()
    assert is_fast(rnn)
    assert isinstance(rnn, kind)
    found, plain = rnn(x), kind(I, H)
    for name, p in rnn.named_parameters():
        factor = 2.0 if "weight" in name else 1.0
        plain.get_parameter(name.replace("parametrizations.", "").replace(".original", "")).data.copy_(factor * p)
    close(found, plain(x))
    back = [
        lambda: timescales.restore(model),
        lambda: [parametrize.remove_parametrizations(rnn, name) for name in ("weight_ih_l0", "weight_hh_l0")],
    ]
    for step in back if last == "remove" else reversed(back):
        step()
        close(rnn(x), found)
        if step is back[0]:
            assert not is_fast(rnn)
    assert type(rnn) is kind
    assert sorted(dict(rnn.named_parameters())) == sorted(dict(plain.named_parameters()))


def test_classes_go_with_their_layers():
    class Mine(nn.LSTM):
        pass

    rnn = timescales.accelerate(Mine(I, H))
    rnn(X)
    classes = [weakref.ref(kind) for kind in (type(rnn), Mine)]
    assert type(timescales.accelerate(Mine(I, H))) is type(rnn)
    del rnn, Mine
    for _ in range(2):  # first the class, then that which it was made of
        gc.collect()
    assert [kind() for kind in classes] == [None, None]


def test_derivatives_taken_forward_are_torchs():
    rnn, x = nn.GRU(I, H), X.repeat(10, 1, 1)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        expected = forward_ad.unpack_dual(rnn(dual)[0]).tangent
        found = forward_ad.unpack_dual(timescales.accelerate(rnn)(dual)[0]).tangent
    assert expected.abs().max() > 0
    close(found, expected)
