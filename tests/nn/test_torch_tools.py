"""Modules under torch's tools: hooks, pruning, tracing, compiling, copying, saving."""

import copy
import io

import pytest
import torch
from rnn_cases import KINDS, H, I, build, close, layered, random_input
from torch import nn

import timescales
from timescales.nn.cells import GRUCell, LSTMCell
from timescales.nn.rnn import RNN


@pytest.mark.parametrize("engine", ["fused", "compiled"])
def test_a_kernel_that_is_named_is_refused_under_tracers(engine):
    """Traced, its results would stand in the trace as constants."""
    from torch.fx.experimental.proxy_tensor import make_fx

    rnn, x = timescales.PLSTM(I, H, engine=engine), random_input()[0].float()
    with pytest.raises(ValueError, match=r"tracers need torch's own operations; use engine='eager'"):
        make_fx(lambda x: rnn(x)[0])(x)


def test_torch_compile_has_what_no_kernel_runs():
    class Mine(GRUCell):
        compiled = False

    rnn, x = RNN([Mine(3, 4)]), torch.randn(5, 2, 3)
    close(torch.compile(rnn, backend="eager", fullgraph=True)(x)[0], rnn(x)[0], 1e-6)
    close(torch.export.export(rnn, (x,), strict=True).module()(x)[0], rnn(x)[0], 1e-6)


def test_torch_fx_takes_a_layer_as_a_leaf():
    """What the message of torch.fx.symbolic_trace says to do."""

    class Leaves(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, timescales.RNN) or super().is_leaf_module(module, name)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = build("PLSTM", I, H), nn.Linear(H, 2).double()

        def forward(self, x):
            return self.head(self.rnn(x)[0])

    model, (x, _) = Model(), random_input()
    traced = torch.fx.GraphModule(model, Leaves().trace(model))
    assert torch.equal(traced(x), model(x))


@pytest.mark.parametrize(("kind", "options"), [
    ("LSTM", {}), ("LSTM", {"states": True}), ("GRU", {"reset": True}), ("GRU", {"mask": True}), ("JANET", {}),
], ids=str)  # fmt: skip
def test_the_fused_engine_has_second_and_batched_derivatives(kind, options):
    """Of cells without parameters in their step."""
    rnn = getattr(timescales, kind)(I, H, 2, engine="fused")
    plain = copy.deepcopy(rnn)
    plain.engine = "eager"
    x = random_input()[0].float()
    steps = torch.rand(x.shape[:2], generator=torch.Generator().manual_seed(3)) < 0.5
    options = {name: steps if name != "states" else True for name in options}
    found = []
    for one in (rnn, plain):
        own = x.clone().requires_grad_()
        results = one(own, **options)
        output = results[0] if "states" not in options else results[0] + results[2].h[0]
        if "states" in options and kind == "LSTM":
            output = output + results[2].c[0]
        (first,) = torch.autograd.grad(output.sin().sum(), own, create_graph=True)
        second = torch.autograd.grad(first.square().sum(), [own, *one.parameters()], retain_graph=True)
        many = torch.stack([torch.ones_like(output), torch.linspace(0, 1, output.numel()).view_as(output)])
        batched = torch.autograd.grad(output, own, many, is_grads_batched=True)
        found.append([first, *second, *batched])
    close(*found, 1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_layer_is_the_layer(kind):
    """Saved, read back with weights_only=True, loaded strictly into a module of another seed."""
    rnn, file = layered(kind), io.BytesIO()
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.add_(torch.randn_like(parameter))
    torch.save(rnn.state_dict(), file)
    file.seek(0)
    other = layered(kind, seed=5)
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    x, dt = random_input()
    assert torch.equal(other(x, dt=dt)[0], rnn(x, dt=dt)[0])
    for a, b in zip(rnn.timescales(), other.timescales(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)  # CfC has no time scales: NaN


def test_frozen_values_travel_with_the_state_dict():
    slow, fast = timescales.MTSLSTM(I, H, alpha=0.3), timescales.MTSLSTM(I, H, alpha=1.5)
    assert not torch.equal(slow.timescales()[0], fast.timescales()[0])
    fast.load_state_dict(slow.state_dict(), strict=True)
    assert torch.equal(slow.timescales()[0], fast.timescales()[0])


def test_names_of_the_parameters_are_torchs():
    def own(rnn):
        return {key.removeprefix("layers.0.").removesuffix("_l0") for key, _ in rnn.named_parameters()}

    assert own(timescales.LSTM(I, H)) == {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}
    assert own(timescales.LSTM(I, H, forget_init="uniform")) - own(timescales.LSTM(I, H)) == {"gate_bias"}
    assert own(timescales.URLSTM(I, H)) == {"weight_ih", "weight_hh", "bias", "gate_bias"}
    assert own(timescales.PLSTM(I, H)) == {"weight_ih", "weight_hh", "bias", "power"}
    assert own(timescales.PLSTM(I, H, power=0.2)) == {"weight_ih", "weight_hh", "bias"}
    assert own(timescales.GRU(I, H)) == own(timescales.LSTM(I, H))
    assert own(timescales.GatedRNN(I, H)) == own(timescales.URLSTM(I, H))
    assert own(timescales.ExpRNN(I, H)) == {"weight_ih", "skew", "bias"}


def test_states_that_are_shared_or_defined_again(recwarn):
    """A cell of one's own may take the state of another, and a notebook runs its cells again."""

    def define():
        class Mine(LSTMCell):
            class State(LSTMCell.State):
                pass

        return Mine

    class Other(LSTMCell):
        State = LSTMCell.State

    first, second = define(), define()
    values = (torch.zeros(1), torch.ones(1))
    for cell in (first, second, Other):
        leaves, form = torch.utils._pytree.tree_flatten(cell.State(*values))
        assert type(torch.utils._pytree.tree_unflatten(leaves, form)) is cell.State
    assert not recwarn.list
