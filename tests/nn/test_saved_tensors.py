"""Marks on tensors that torch's own operations heed, hooks on saved tensors, and checkpointing."""

from __future__ import annotations

import gc

import pytest
import torch
from engine_cases import MODELS
from rnn_cases import close
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from timescales import LSTM, PLSTM
from timescales.nn import engine as engines
from timescales.nn.engine.cpu.workspace import Workspace


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


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


def alike(found, expected, tolerance=1e-5):
    for a, b in zip(found, expected, strict=True):
        close(a, b, tolerance)


def test_a_gradient_of_a_subclass_is_refused():
    from torch.testing._internal.two_tensor import TwoTensor

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
    alike(found, expected, 1e-6)


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
