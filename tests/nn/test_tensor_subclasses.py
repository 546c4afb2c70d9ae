"""Tensors that are no plain memory, and weights that hooks bring: the engines read what the cell really uses."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from rnn_cases import close
from torch import distributed, nn
from torch.nn.utils import parametrize
from torch.testing._internal.two_tensor import TwoTensor

import timescales
from timescales.nn.engine import caches, eager
from timescales.nn.engine.cpu import fused


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


def with_a_wrapped(what, rnn):
    """A call of `rnn` in which one tensor is a subclass: the arguments of forward."""
    x, dt, mask = torch.randn(6, 2, 3), torch.rand(6, 2), torch.ones(6, 2, dtype=torch.bool)
    (cell,) = rnn.layers
    state = cell.State(*(torch.rand(2, 5) for _ in cell.State._fields))
    plain = (x, [state], dt, mask)
    if what == "x":
        return plain, (twice(x), *plain[1:])
    if what == "state":
        return plain, (x, [cell.State(*map(twice, state))], dt, mask)
    if what == "dt":
        return plain, (x, [state], twice(dt), mask)
    if what == "mask":
        return plain, (x, [state], dt, twice(mask))
    return plain, plain


@pytest.mark.parametrize("what", ["x", "state", "dt", "mask", "weight_hh", "power"])
def test_a_subclass_goes_to_the_eager_engine(what, monkeypatch):
    rnn = timescales.PLSTM(3, 5)
    plain, wrapped = with_a_wrapped(what, rnn)
    expected = rnn(*plain)[0]
    if plain is wrapped:
        setattr(rnn.layers[0], what, nn.Parameter(twice(getattr(rnn.layers[0], what).detach())))
    names = used(monkeypatch)
    with pytest.warns(UserWarning, match=r"runs on the eager engine.* not TwoTensor; use engine='eager'"):
        found = rnn(*wrapped)[0]
    assert names == ["eager"]
    found = found.a if isinstance(found, TwoTensor) else found
    close(found, expected, 1e-5)
    for engine in ("fused", "compiled"):
        rnn.engine = engine
        with pytest.raises(ValueError, match=rf"the {engine} engine cannot run here: .* use engine='eager'"):
            rnn(*wrapped)


@pytest.mark.parametrize("what", ["mask", "dt"])
def test_a_mask_on_another_device_is_not_read_as_memory(what):
    rnn, x = timescales.PLSTM(3, 5, engine="fused"), torch.randn(6, 2, 3)
    with pytest.raises(ValueError, match=f"{what} must be .* on the CPU, not .* on meta; use engine='eager'"):
        rnn(x, **{what: torch.ones(6, 2, device="meta")})


def test_distributed_weights(one_process):
    """DTensors, by distribute_module: replicated, and the input too, as tensor parallel training has them."""
    from torch.distributed import tensor

    rnn, x = timescales.LSTM(3, 5), torch.randn(6, 2, 3)
    expected = rnn(x)[0].detach()
    tensor.distribute_module(rnn, one_process)
    with pytest.warns(UserWarning, match=r"runs on the eager engine.* not DTensor"):
        output, _ = rnn(tensor.distribute_tensor(x, one_process, [tensor.Replicate()]))
    close(output.to_local().detach(), expected, 1e-5)


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
