"""Modules under torch's tools: hooks, pruning, tracing, compiling, copying, saving."""

import copy
import io
import logging

import pytest
import torch
from rnn_cases import KINDS, B, H, I, build, close, layered, random_input
from torch import nn
from torch.nn.utils import prune
from torch.utils._pytree import tree_leaves

import timescales
from timescales.nn.cells import GRUCell, LSTMCell
from timescales.nn.engine import eager
from timescales.nn.rnn import RNN


def test_hooks_on_a_layer_see_its_output():
    rnn, seen = build("LSTM", I, H, 2), []
    rnn.layers[0].register_forward_hook(lambda cell, given, made: seen.append(made[0]))
    x, _ = random_input()
    below = eager.run(rnn.layers[0], x, rnn.layers[0].weights(), rnn.layers[0].initial_state(B))[0]
    rnn(x)
    close(seen[0], below)


SHAPED = {
    "prune": lambda rnn: (prune.l1_unstructured(rnn, "weight_hh_l0", amount=0.5), prune.remove)[1],
    "weight_norm": lambda rnn: (nn.utils.weight_norm(rnn, "weight_hh_l0"), nn.utils.remove_weight_norm)[1],
    "spectral_norm": lambda rnn: (nn.utils.spectral_norm(rnn, "weight_hh_l0"), nn.utils.remove_spectral_norm)[1],
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("how", "engine"), [("prune", "auto"), ("weight_norm", "auto"), ("spectral_norm", "auto"), ("prune", "eager")]
)
def test_weights_shaped_by_hooks_are_those_used(how, engine):
    """Two steps, since each hook computes the weight in every pass; then the shape is made permanent."""
    rnn = timescales.LSTM(I, H, engine=engine)
    x = random_input()[0].float()
    remove = SHAPED[how](rnn)
    before = rnn(x)[0].detach()
    optimizer = torch.optim.SGD(rnn.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        rnn(x)[0].square().sum().backward()
        optimizer.step()
    rnn.eval()  # where spectral_norm leaves its vectors alone
    shaped = rnn(x)[0]
    assert (shaped - before).abs().max() > 1e-3
    remove(rnn, "weight_hh_l0")
    close(rnn(x)[0], shaped, 1e-6)
    if how == "spectral_norm":
        assert torch.linalg.matrix_norm(rnn.layers[0].weight_hh, 2) < 1.2  # one step of the power method at a time
    if how == "prune":
        assert (rnn.layers[0].weight_hh == 0).float().mean() == 0.5


def test_what_follows_torchs_operations_gets_them():
    """A kernel is none: traced, its results would stand in the trace as constants."""
    from torch.func import jacrev, jvp, vmap
    from torch.fx.experimental.proxy_tensor import make_fx

    rnn = timescales.PLSTM(I, H)
    plain = copy.deepcopy(rnn)
    plain.engine = "eager"
    x, y = random_input()[0].float(), random_input(seed=2)[0].float()

    def output(x):
        return rnn(x)[0]

    def expected(x):
        return plain(x)[0]

    close(make_fx(output)(x)(y), expected(y), 1e-6)
    close(vmap(output)(torch.stack([x, y]))[1], expected(y), 1e-6)
    close(torch.export.export(rnn, (x,)).module()(y)[0], expected(y), 1e-6)
    close(jvp(output, (x,), (y,))[1], jvp(expected, (x,), (y,))[1], 1e-6)
    close(jacrev(output)(x), jacrev(expected)(x), 1e-6)
    for engine in ("fused", "compiled"):
        rnn.engine = engine
        with pytest.raises(ValueError, match=r"tracers need torch's own operations; use engine='eager'"):
            make_fx(output)(x)


@pytest.mark.parametrize("engine", ["fused", "compiled"])
def test_torch_compile_leaves_engines_alone(engine, recwarn):
    """As it does torch's own LSTM: what surrounds them is compiled, in silence."""
    rnn = timescales.PLSTM(3, 4, engine=engine)

    def loss(x):
        return rnn(2.0 * x)[0].tanh().sum()

    compiled = torch.compile(loss, backend="eager")
    for S in (5, 7):
        x = torch.randn(S, 2, 3, requires_grad=True)
        found = [torch.autograd.grad(f(x), [x, *rnn.parameters()]) for f in (loss, compiled)]
        for a, b in zip(*found, strict=True):
            assert torch.equal(a, b)
    said = [str(w.message) for w in recwarn]
    assert [text for text in said if "Dynamo" in text] == []  # torch has others to say, of the Python it runs in
    torch.compiler.reset()
    whole = torch.compile(loss, backend="eager", fullgraph=True)
    message = (
        r"Message: torch\.compile leaves kernels as they are, .* use engine='eager'"  # not its source line, quoted
    )
    with pytest.raises(torch._dynamo.exc.Unsupported, match=message):
        whole(x)
    rnn.engine = "eager"
    close(whole(x), loss(x), 1e-6)


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
    for module in (model, model.rnn):
        with pytest.raises(ValueError, match=r"True for timescales\.RNN, or use torch"):
            torch.fx.symbolic_trace(module)


def test_derivatives_that_a_kernel_has_not_raise_with_the_fix():
    import torch.autograd.forward_ad as forward_mode

    rnn = timescales.PLSTM(I, H, engine="fused")
    x = random_input()[0].float().requires_grad_()
    output, _ = rnn(x)
    many = torch.ones(2, *output.shape)
    with pytest.raises(RuntimeError, match=r"no batched gradients: .* use engine='eager'"):
        torch.autograd.grad(output, x, many, is_grads_batched=True)
    with forward_mode.dual_level(), pytest.raises(RuntimeError, match=r"no forward-mode .* use engine='eager'"):
        rnn(forward_mode.make_dual(x.detach(), torch.ones_like(x)))


@pytest.mark.parametrize(
    ("kind", "options"),
    [("LSTM", {}), ("LSTM", {"states": True}), ("GRU", {"reset": True}), ("GRU", {"mask": True}), ("JANET", {})],
    ids=str,
)
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
def test_a_saved_and_a_copied_layer_are_the_layer(kind):
    """Saved, read back with weights_only=True, loaded strictly into a module of another seed; a copy is its own."""
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
    expected, duplicate = rnn(x, dt=dt)[0], copy.deepcopy(rnn)
    assert torch.equal(duplicate(x, dt=dt)[0], expected)
    with torch.no_grad():
        for parameter in duplicate.parameters():
            parameter.zero_()
    assert torch.equal(rnn(x, dt=dt)[0], expected)


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


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ["LSTM", "PLSTM", "GRU"])
def test_a_traced_module_has_torchs_operations(name):
    """Also torch.onnx.export traces. A kernel would be stored as a call of Python, or as constants."""
    torch.manual_seed(0)
    rnn = getattr(timescales, name)(3, 5, 2)
    x, other = torch.randn(6, 2, 3), torch.randn(6, 2, 3)
    traced = torch.jit.trace(rnn, (x,))
    assert "PythonOp" not in str(traced.inlined_graph)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    (output, state), (expected, end) = torch.jit.load(file)(other), rnn(other)
    close(output, expected, 1e-6)
    for value, field in zip(tree_leaves(state), tree_leaves(end), strict=True):
        close(value, field, 1e-6)
    if name != "GRU":
        for rnn.engine in ("fused", "compiled"):
            with pytest.raises(ValueError, match=r"tracers need torch's own operations; use engine='eager'"):
                torch.jit.trace(rnn, (x,))


@pytest.mark.parametrize("name", ["LSTM", "PLSTM"])
def test_an_exported_program_with_a_state_is_saved(name, caplog):
    caplog.set_level(logging.ERROR, "torch._export.serde.serialize")  # one of its warnings cannot be formatted
    torch.manual_seed(0)
    rnn = getattr(timescales, name)(3, 5, 2)
    x, other = torch.randn(6, 2, 3), torch.randn(6, 2, 3)
    _, state = rnn(x)
    file = io.BytesIO()
    torch.export.save(torch.export.export(rnn, (x, state)), file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    output, end = loaded(other, state)
    expected, after = rnn(other, state)
    close(output, expected, 1e-6)
    close(tree_leaves(end), tree_leaves(after), 1e-6)
    close(loaded(other, end)[0], rnn(other, rnn(other, state)[1])[0], 1e-6)


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
