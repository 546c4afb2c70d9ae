"""The versions of torch that our use of its private interface was written for, and optimizers without its compiler.

Most of what else is used of it, tests of the layers and engines would miss; the rest is looked at here.
"""

import functools
import subprocess
import sys

import pytest
import torch
from torch.optim.optimizer import _use_grad_for_differentiable

from timescales import torch_private as private

WHAT_TO_COMPARE = "compare timescales/torch_private.py with this version of torch"


def test_torch_s_version_is_one_that_it_was_written_for():
    assert ".".join(torch.__version__.split(".")[:2]) in private.WRITTEN_FOR, WHAT_TO_COMPARE
    # The code after a failed capture calls it.
    assert callable(getattr(torch._C, "_cuda_endAllocateToPool", None)) or not torch.cuda.is_available()


def test_neither_a_mode_nor_an_optimizer_imports_torch_s_compiler():
    code = """
import sys, torch
from timescales.torch_private import DispatchMode, without_compiler
class Mode(DispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
with Mode():
    torch.ones(2) + 1
assert "torch._dynamo" not in sys.modules, "a mode"
for name in ("Adam", "AdamW", "RMSprop", "SGD", "NAdam", "Adagrad", "Adadelta", "ASGD", "Rprop"):
    w = torch.ones(3, requires_grad=True)
    optimizer = without_compiler(getattr(torch.optim, name))([w])
    w.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
    assert "torch._dynamo" not in sys.modules, name
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0, WHAT_TO_COMPARE


@pytest.mark.parametrize("used_before", [False, True])  # torch adds hooks to a class when it is first used
def test_an_optimizer_without_the_compiler_is_the_same_optimizer(used_before):
    class Own(torch.optim.Adam):
        pass

    if used_before:
        Own([torch.ones(3)])
    found = []
    for kind in (private.without_compiler(Own), torch.optim.Adam):
        w, calls = torch.ones(3, requires_grad=True), []
        optimizer = kind([w], lr=0.1)
        optimizer.register_step_pre_hook(lambda *given, calls=calls: calls.append("before"))
        optimizer.register_step_post_hook(lambda *given, calls=calls: calls.append("after"))
        for _ in range(3):
            optimizer.zero_grad()
            (w * w.detach()).sum().backward()
            optimizer.step(lambda calls=calls: calls.append(torch.is_grad_enabled()))
        found.append((w.tolist(), calls, optimizer.state_dict()["state"][0]["exp_avg"].tolist(), w.grad.tolist()))
    assert (found[0], found[0][1]) == (found[1], ["before", True, "after"] * 3)
    kind = private.without_compiler(Own)
    assert issubclass(kind, Own)
    assert (kind.__module__, kind.__qualname__) == (Own.__module__, Own.__qualname__)


def test_what_a_user_s_optimizer_does_is_not_left_out():
    calls = []

    class Wrapped(torch.optim.SGD):
        @functools.wraps(torch.optim.SGD.step)
        def step(self, closure=None):
            calls.append("mine")
            return super().step(closure)

    class Named(torch.optim.SGD):
        @_use_grad_for_differentiable
        def step(self, closure=None, *, scale=1.0):
            calls.append(scale)

    class Partial(torch.optim.SGD):
        step = functools.partialmethod(torch.optim.SGD.step)
        zero_grad = functools.partialmethod(torch.optim.SGD.zero_grad, set_to_none=False)

    class OfObject(torch.optim.SGD):
        step = type("Step", (), {"__call__": lambda step, optimizer: calls.append("object")})()

    class Sealed(torch.optim.SGD):
        def __init_subclass__(cls):
            raise TypeError("no subclasses")

    def made(kind):
        w = torch.ones(3, requires_grad=True)
        w.grad = torch.ones(3)
        return private.without_compiler(kind)([w], lr=0.5), w

    made(Wrapped)[0].step()
    made(Named)[0].step(scale=2.0)
    made(OfObject)[0].step()
    assert calls == ["mine", 2.0, "object"]
    for kind in (Partial, Sealed):
        optimizer, w = made(kind)
        optimizer.step()
        assert w.tolist() == [0.5] * 3
        optimizer.zero_grad()
    assert private.without_compiler(Sealed) is Sealed


@pytest.mark.parametrize("name", ["Adafactor", "LBFGS"])
def test_closures_and_settings_reach_optimizers_of_other_forms(name):
    found = []
    for kind in (private.without_compiler(getattr(torch.optim, name)), getattr(torch.optim, name)):
        w = torch.arange(4.0).reshape(2, 2).requires_grad_()
        optimizer = kind([w], lr=0.1)

        def closure(w=w, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (w * w).sum()
            loss.backward()
            return loss

        found.append(([optimizer.step(closure).item() for _ in range(3)], w.tolist()))
    assert found[0] == found[1]


def test_it_sees_zero_gradients_and_the_function_of_a_node():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, d):
            return 2 * d

    assert private.is_zero(torch._efficientzerotensor((2,))), WHAT_TO_COMPARE
    assert not private.is_zero(torch.zeros(2))
    x = torch.ones(2, requires_grad=True)
    node = Double.apply(x).grad_fn
    assert private.function_of(node) is Double, WHAT_TO_COMPARE
    assert private.function_of((x + 1).grad_fn) is None
    ((shape, dtype),) = private.gradients_of(node)
    assert (tuple(shape), dtype) == ((2,), torch.float32), WHAT_TO_COMPARE


def test_the_kernels_of_torch_s_layers():
    """Only calls on a GPU run them otherwise."""
    torch.manual_seed(0)
    x, zeros, options = torch.randn(5, 2, 3), torch.zeros(1, 2, 4), (True, 1, 0.0, True, False, False)
    for rnn, kernel, state in (
        (torch.nn.LSTM(3, 4), private.lstm, (zeros, zeros)),
        (torch.nn.GRU(3, 4), private.gru, zeros),
    ):
        found = kernel(x, state, list(rnn.parameters()), *options)
        for a, b in zip(found, private.tree_leaves(rnn(x)), strict=True):
            assert torch.equal(a, b), WHAT_TO_COMPARE
