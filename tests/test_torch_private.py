"""What this package uses of torch's private interface is there, in the versions that it was written for."""

import functools
import subprocess
import sys
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.optim.optimizer import _use_grad_for_differentiable

from timescales import torch_private as private

WHAT_TO_COMPARE = "compare timescales/torch_private.py with this version of torch"


def test_torch_s_version_is_one_that_it_was_written_for():
    assert ".".join(torch.__version__.split(".")[:2]) in private.WRITTEN_FOR, WHAT_TO_COMPARE


class Seen(private.DispatchMode):
    """Notes each operation: its name, and which of its arguments it writes to."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        written = [a.name for a in private.schema(func).arguments if a.alias_info and a.alias_info.is_write]
        self.operations.append((private.operation(func), written))
        return func(*args, **(kwargs or {}))


def test_operations_below_autograd():
    x = torch.ones(3)
    with Seen() as seen:
        (x + 1).mul_(2)
    assert seen.operations == [("add", []), ("mul_", ["self"])], WHAT_TO_COMPARE


def test_a_mode_does_not_import_torch_s_compiler():
    code = """
import sys, torch
from timescales.torch_private import DispatchMode
class Mode(DispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
with Mode():
    torch.ones(2) + 1
assert "torch._dynamo" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0, WHAT_TO_COMPARE


def test_optimizers_do_not_import_torch_s_compiler():
    code = """
import sys, torch
from timescales.torch_private import without_compiler
for name in ("Adam", "AdamW", "RMSprop", "SGD", "NAdam", "Adagrad", "Adadelta", "ASGD", "Rprop"):
    w = torch.ones(3, requires_grad=True)
    optimizer = without_compiler(getattr(torch.optim, name))([w])
    w.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
assert "torch._dynamo" not in sys.modules
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
    assert found[0] == found[1]
    assert found[0][1] == ["before", True, "after"] * 3
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


@pytest.mark.filterwarnings("ignore:`torch.jit.trace")
def test_it_sees_that_torch_traces():
    found = []

    def f(x):
        found.append(private.is_recorded() or private.is_transformed())
        return 2 * x

    for how in (
        lambda: torch.func.vmap(f)(torch.ones(2)),
        lambda: torch.func.grad(f)(torch.tensor(1.0)),
        lambda: torch.jit.trace(f, torch.ones(2)),
        lambda: torch.fx.experimental.proxy_tensor.make_fx(f)(torch.ones(2)),
    ):
        found.clear()
        how()
        assert found[0], WHAT_TO_COMPARE  # torch.jit.trace runs f again, to compare
        assert not private.is_recorded()
        assert not private.is_transformed()


def test_it_sees_hooks_on_saved_tensors():
    assert not private.saved_tensors_have_hooks()
    with torch.autograd.graph.saved_tensors_hooks(lambda v: v, lambda v: v):
        assert private.saved_tensors_have_hooks(), WHAT_TO_COMPARE


def test_it_sees_batched_and_zero_gradients():
    found = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, d):
            found.append((private.is_batched(d), private.is_zero(d)))
            return 2 * d

    x = torch.ones(2, requires_grad=True)
    torch.autograd.grad(Double.apply(x), x, torch.eye(2), is_grads_batched=True)
    torch.autograd.grad(Double.apply(x), x, torch.ones(2))
    assert found == [(True, False), (False, False)], WHAT_TO_COMPARE
    assert private.is_zero(torch._efficientzerotensor((2,))), WHAT_TO_COMPARE
    node = Double.apply(x).grad_fn
    assert private.function_of(node) is Double, WHAT_TO_COMPARE
    assert private.function_of((x + 1).grad_fn) is None
    ((shape, dtype),) = private.gradients_of(node)
    assert (tuple(shape), dtype) == ((2,), torch.float32), WHAT_TO_COMPARE


def test_no_grad_calls_the_switch_of_gradients():
    called = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            called.append((func, args))
            return func(*args, **(kwargs or {}))

    with Mode(), torch.no_grad():
        pass
    assert called == [(private.set_gradients, (False,)), (private.set_gradients, (True,))], WHAT_TO_COMPARE


def test_the_kernels_of_torch_s_layers():
    torch.manual_seed(0)
    x, zeros, options = torch.randn(5, 2, 3), torch.zeros(1, 2, 4), (True, 1, 0.0, True, False, False)
    for rnn, kernel, state in (
        (torch.nn.LSTM(3, 4), private.lstm, (zeros, zeros)),
        (torch.nn.GRU(3, 4), private.gru, zeros),
    ):
        found = kernel(x, state, list(rnn.parameters()), *options)
        for a, b in zip(found, private.tree_leaves(rnn(x)), strict=True):
            assert torch.equal(a, b), WHAT_TO_COMPARE


def test_a_backward_pass_is_compiled_before_it_runs():
    """A failure to compile it comes in the forward pass; compiled with it, backward may run twice."""
    from functorch.compile import nop
    from torch._dynamo.backends.common import aot_autograd

    def fails(graph, inputs):
        raise ValueError("no kernel")

    x = torch.ones(3, requires_grad=True)
    function = private.compile_with_backward(lambda v: v.sin().sum(), aot_autograd(fw_compiler=nop, bw_compiler=fails))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no kernel"):
        function(x)
    value = private.compile_with_backward(lambda v: (v.sin() * v).sum(), "aot_eager")(x)
    first, second = (torch.autograd.grad(value, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second), WHAT_TO_COMPARE


def test_trees_and_named_tuples():
    class Pair(NamedTuple):
        a: Tensor
        b: Tensor

    pair = Pair(torch.zeros(1), torch.ones(1))
    assert private.tree_leaves({"x": pair}) == [pair.a, pair.b]
    assert private.tree_map_only(Tensor, float, {"x": pair, "y": "z"}) == {"x": Pair(0.0, 1.0), "y": "z"}
    assert private.tree_flatten([pair])[0] == [pair.a, pair.b]
    assert private.tree_map(float, [pair]) == [Pair(0.0, 1.0)]
    for _ in range(2):
        private.register_named_tuple(Pair, "tests.Pair")
    assert Pair in private.SUPPORTED_NODES, WHAT_TO_COMPARE


def test_torch_compile_leaves_alone_what_follows_a_graph_break():
    def f(x):
        private.graph_break("what follows is not compiled")
        return x + 1

    assert torch.compile(f, backend="eager")(torch.ones(1)).item() == 2.0
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="what follows is not compiled"):
        torch.compile(f, backend="eager", fullgraph=True)(torch.ones(1))
    torch.compiler.reset()


def test_the_end_of_a_failed_capture():
    assert callable(getattr(torch._C, "_cuda_endAllocateToPool", None)) or not torch.cuda.is_available()
