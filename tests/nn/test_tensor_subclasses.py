"""Tensors that are no plain memory, marks on them, hooks on saved ones and on weights, and checkpointing."""

import copy
import gc
import warnings

import pytest
import torch
from engine_cases import MODELS
from rnn_cases import close
from torch import distributed, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.nn.utils import parametrize
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

import timescales
from timescales import LSTM, PLSTM
from timescales.nn import engine as engines
from timescales.nn.engine import caches, eager
from timescales.nn.engine.cpu import fused
from timescales.nn.engine.cpu.workspace import Workspace


@pytest.fixture(autouse=True)
def _said_nothing(monkeypatch):
    monkeypatch.setattr(caches, "WARNED", set())
    torch.manual_seed(0)


@pytest.fixture
def one_process(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield distributed.device_mesh.init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def used(monkeypatch):
    """The names of the engines that run from now on."""
    names = []
    for engine in (eager, fused):
        name, run = engine.__name__.rpartition(".")[2], engine.run
        monkeypatch.setattr(engine, "run", lambda *a, name=name, run=run, **b: (names.append(name), run(*a, **b))[1])
    return names


def twice(value):
    return TwoTensor(value.clone(), value.clone())


@pytest.mark.parametrize("what", ["x", "state", "dt", "mask", "weight_hh", "power"])
def test_a_subclass_goes_to_the_eager_engine(what, monkeypatch):
    rnn = timescales.PLSTM(3, 5)
    (cell,) = rnn.layers
    state = cell.State(*(torch.rand(2, 5) for _ in cell.State._fields))
    given = {"x": torch.randn(6, 2, 3), "dt": torch.rand(6, 2), "mask": torch.ones(6, 2, dtype=torch.bool)}
    expected = rnn(**given, state=[state])[0]
    if what in given:
        given[what] = twice(given[what])
    elif what == "state":
        state = cell.State(*map(twice, state))
    else:
        setattr(cell, what, nn.Parameter(twice(getattr(cell, what).detach())))
    names = used(monkeypatch)
    with pytest.warns(UserWarning, match=r"runs on the eager engine.* not TwoTensor; use engine='eager'"):
        found = rnn(**given, state=[state])[0]
    assert names == ["eager"]
    found = found.a if isinstance(found, TwoTensor) else found
    close(found, expected, 1e-5)
    for engine in ("fused", "compiled"):
        rnn.engine = engine
        with pytest.raises(ValueError, match=rf"the {engine} engine cannot run here: .* use engine='eager'"):
            rnn(**given, state=[state])


@pytest.mark.parametrize("what", ["mask", "dt"])
def test_a_mask_on_another_device_is_not_read_as_memory(what):
    rnn, x = timescales.PLSTM(3, 5, engine="fused"), torch.randn(6, 2, 3)
    with pytest.raises(ValueError, match=f"{what} must be .* on the CPU, not .* on meta; use engine='eager'"):
        rnn(x, **{what: torch.ones(6, 2, device="meta")})


@pytest.mark.parametrize("name", ["PLSTM", "PGRU"])  # torch's class is one module
def test_fsdp2_on_each_layer(name, one_process, monkeypatch):
    """Its pre-hooks gather the weights of a layer, which the initial state is made from."""
    from torch.distributed.fsdp import fully_shard

    rnn, x = getattr(timescales, name)(3, 5, 2), torch.randn(6, 2, 3)
    alone = copy.deepcopy(rnn)
    for cell in rnn.layers:
        fully_shard(cell, mesh=one_process)
    fully_shard(rnn, mesh=one_process)
    alone(x)
    names = used(monkeypatch)
    (output, state), (expected, end) = rnn(x), alone(x)
    assert names == 4 * ["fused"]
    assert torch.equal(output, expected)
    output.sum().backward()
    expected.sum().backward()
    for p, q in zip(rnn.parameters(), alone.parameters(), strict=True):
        assert torch.equal(p.grad.to_local(), q.grad)
    assert torch.equal(rnn(x, state)[0], alone(x, end)[0])


def test_fsdp2_in_half_precision(one_process):
    """The weights are of another type during the call of a layer than before it."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    rnn, x = timescales.LSTM(3, 5), torch.randn(6, 2, 3)
    fully_shard(rnn.layers[0], mesh=one_process, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    output, state = rnn(x)
    assert output.dtype == torch.bfloat16
    output, _ = rnn(x.bfloat16(), state)
    output.sum().backward()
    assert all(p.grad.to_local().any() for p in rnn.parameters())


class Doubled(nn.Module):
    def forward(self, value):
        return 2.0 * value


@pytest.mark.parametrize("name", ["LSTM", "PLSTM"])
def test_a_parametrized_cell_keeps_its_kernel(name, monkeypatch):
    rnn, x = getattr(timescales, name)(3, 5), torch.randn(6, 2, 3)
    plain = copy.deepcopy(rnn)
    # Where the parameter is: in a layer of torch's class itself.
    holder, weight = (rnn, "weight_ih_l0") if isinstance(rnn, nn.RNNBase) else (rnn.layers[0], "weight_ih")
    parametrize.register_parametrization(holder, weight, Doubled())
    with torch.no_grad():
        plain.layers[0].weight_ih.mul_(2.0)
    expected = plain(x)[0]
    names = used(monkeypatch)
    output = rnn(x)[0]
    assert names == ["fused"]
    assert torch.equal(output, expected)
    output.sum().backward()
    expected.sum().backward()
    learned = holder.parametrizations[weight].original
    close(learned.grad, 2.0 * plain.layers[0].weight_ih.grad, 1e-5)


def test_a_parametrization_that_no_kernel_reads_says_so_once():
    class Wrapped(nn.Module):
        def forward(self, value):
            return TwoTensor(value, value)

    rnn, x = timescales.URLSTM(3, 5), torch.randn(6, 2, 3)
    expected = rnn(x)[0]
    parametrize.register_parametrization(rnn.layers[0], "weight_hh", Wrapped())
    with pytest.warns(UserWarning, match=r"the weights must be plain tensors, not TwoTensor; use engine='eager'"):
        output = rnn(x)[0]
    close(output.a, expected, 1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rnn(x)


def negated(value):
    """The same numbers, marked as negated: the memory has the other sign."""
    marked = torch._neg_view(-value.detach())
    assert marked.is_neg()
    assert torch.equal(marked, value)
    return marked


def gradients(model, *arguments):
    """Output and gradients of all parameters and of x."""
    model.zero_grad()
    x = arguments[0].detach().requires_grad_()
    output, _ = model(x, *arguments[1:])
    output.square().sum().backward()
    return [output.detach(), x.grad, *(p.grad for p in model.parameters())]


def test_a_gradient_of_a_subclass_is_refused():
    output, _ = LSTM(3, 5, engine="fused")(torch.randn(6, 2, 3))
    with pytest.raises(RuntimeError, match=r"cannot read a TwoTensor in backward: use engine='eager'"):
        output.backward(TwoTensor(torch.ones(6, 2, 5), torch.ones(6, 2, 5)))


# In other strides and in half precision: tests/dropin.
UNPACKED = {
    "expanded": lambda v: v.unsqueeze(0).expand(3, *v.shape)[1],
    "negated": lambda v: negated(v) if v.is_floating_point() else v,
    "double": torch.Tensor.double,
}


@pytest.mark.parametrize(("how", "masked"), [(how, k % 2 == 0) for k, how in enumerate(UNPACKED)])
def test_unpacked_in_another_form(how, masked):
    rnn, x, dt = PLSTM(3, 5, engine="fused"), torch.randn(6, 4, 3), torch.rand(6, 4)
    mask = torch.rand(6, 4) < 0.7 if masked else None
    expected = gradients(rnn, x, None, dt, mask)
    with saved_tensors_hooks(lambda v: v.clone(), UNPACKED[how]):
        found = gradients(rnn, x, None, dt, mask)
    for a, b in zip(found, expected, strict=True):
        close(a, b, 1e-6)


def test_unpacked_in_another_shape():
    rnn = LSTM(3, 5, engine="fused")
    with saved_tensors_hooks(lambda v: v, lambda v: v[:1]):
        output, _ = rnn(torch.randn(6, 4, 3))
        with pytest.raises(RuntimeError, match=r"hooks returned a saved tensor in another shape: .* engine='eager'"):
            output.sum().backward()


def kept_workspaces():
    """Sizes of the workspaces that a backward pass waits for, in bytes."""
    return [len(v._memory[0]) for v in gc.get_objects() if type(v) is Workspace and v._memory is not None]


@pytest.mark.usefixtures("own_objects")
@pytest.mark.parametrize(("name", "masked"), [("lstm", False), ("plstm", True)])
def test_checkpointing_keeps_no_workspace(name, masked):
    """Non-reentrant, so under hooks: of two of four layers nothing stays, and the gradients are the same numbers."""
    rnns = [MODELS[name](5, 5) for _ in range(4)]
    for rnn in rnns:
        rnn.engine = "fused"
    x, mask = torch.randn(20, 3, 5), torch.rand(20, 3) < 0.7 if masked else None

    def run(checkpointed):
        for rnn in rnns:
            rnn.zero_grad()
        y = x
        for k, rnn in enumerate(rnns):
            arguments = (y, None, None, mask)
            y, _ = checkpoint(rnn, *arguments, use_reentrant=False) if k in checkpointed else rnn(*arguments)
        kept = len(kept_workspaces())
        y.square().sum().backward()
        return kept, [y.detach(), *(p.grad for rnn in rnns for p in rnn.parameters())]

    gc.collect()
    assert kept_workspaces() == []
    kept, expected = run(())
    assert kept == 4
    for checkpointed in ((1, 2), (0, 1, 2, 3)):
        kept, found = run(checkpointed)
        assert kept == 4 - len(checkpointed)
        assert all(map(torch.equal, found, expected))
    assert kept_workspaces() == []


def test_forward_under_hooks_takes_little_memory(monkeypatch):
    """Not the activations of all steps, which only backward needs."""
    taken, create = [], Workspace.__init__
    rnn, x = LSTM(3, 32, engine="fused"), torch.randn(500, 4, 3)
    rnn(x)  # makes the kernel, with a short sequence as its trial
    monkeypatch.setattr(Workspace, "__init__", lambda self, floats: (taken.append(floats), create(self, floats))[1])
    rnn(x)
    with save_on_cpu():
        output, _ = rnn(x)
    whole, under_hooks = taken
    assert under_hooks < whole / 20
    output.sum().backward()
    assert taken[2:] == [whole]


def test_a_negated_input_keeps_its_engine():
    assert engines.pick("auto", LSTM(3, 5).layers[0], negated(torch.randn(6, 2, 3))) is engines.fused.run
