"""Numbers and functions from outside a cell: a change counts in the next call, forward and in every gradient."""

import functools
import gc
import inspect
import itertools
import random
import threading
import time
import types
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from timescales.nn import cells, registry
from timescales.nn import engine as engines
from timescales.nn.cells import Cell
from timescales.nn.engine import eager, equations, watch
from timescales.nn.engine.caches import WARNED
from timescales.nn.engine.cpu import fused
from timescales.nn.rnn import RNN

S, B, INPUTS, H = 5, 3, 2, 4
FIRST, SECOND = 1.5, 0.625
slope_of_this_module = FIRST


class Gate(Cell):
    """A gate with a slope, which `slope` reads from anywhere. All slopes of one value have one kernel."""

    gates, State = ("rate", "cell"), cells.GRUCell.State

    def slope(self) -> Any:
        return FIRST

    def step(self, gx, gh, state, dt=1.0):
        rate, u = (gx + gh).chunk(2, -1)
        f = (self.slope() * rate).sigmoid()
        return self.State(f * state.h + (1 - f) * u.tanh())


def reading(read: Any) -> Any:
    """A gate whose slope is `read(cell)`."""
    torch.manual_seed(0)
    return type("Reading", (Gate,), {"slope": read})(INPUTS, H)


def results(rnn: RNN, engine: str) -> list[Tensor]:
    """The output and every gradient."""
    rnn.engine = engine
    x = torch.linspace(-2.0, 2.0, S * B * INPUTS).view(S, B, INPUTS).requires_grad_()
    output, _ = rnn(x)
    return [output, *torch.autograd.grad(output.square().sum(), [x, *rnn.parameters()])]


def close(found: list[Tensor], expected: list[Tensor]) -> bool:
    return all(torch.allclose(a, b, rtol=1e-5, atol=1e-5) for a, b in zip(found, expected, strict=True))


def check(cell: Cell, change: Any, engine: str) -> None:
    """The engine has the eager engine's results before and after a change that the results depend on."""
    rnn = RNN([cell])
    before = results(rnn, "eager")
    assert close(results(rnn, engine), before)
    change()
    after = results(rnn, "eager")
    assert not close(before, after)
    assert close(results(rnn, engine), after)


class Namespace(types.SimpleNamespace):
    """One that allows weak references, as most objects do."""


def other_step(self: Any, gx: Tensor, gh: Tensor, state: Any, dt: Any = 1.0, slope: float = SECOND) -> Any:
    rate, u = (gx + gh).chunk(2, -1)
    f = (slope * rate).sigmoid()
    return self.State(f * state.h + (1 - f) * u.tanh())


CONFIG, VALUES = Namespace(value=FIRST), np.full(H, FIRST, dtype=np.float32)


def without_gradients(cell: Any) -> Tensor:
    with torch.no_grad():
        return torch.full((H,), 2.0) * CONFIG.value


# How a slope is read, and changed. A step is replayed and its calls compared, so it does not matter where a number is
# read: a global stands for all. As IPython's autoreload does it, a function stays and gets other code.
CHANGES = {
    "global": (lambda cell: slope_of_this_module, lambda cell: globals().update(slope_of_this_module=SECOND)),
    "branch": (lambda cell: FIRST if cell.config.value > 1 else SECOND, lambda cell: setattr(CONFIG, "value", SECOND)),
    "array": (lambda cell: torch.tensor(VALUES), lambda cell: VALUES.fill(SECOND)),
    "without gradients": (without_gradients, lambda cell: setattr(CONFIG, "value", SECOND)),
    "code": (lambda cell: FIRST, lambda cell: setattr(type(cell).slope, "__code__", (lambda cell: SECOND).__code__)),
    "class's step": (lambda cell: FIRST, lambda cell: setattr(type(cell), "step", other_step)),
    "own step": (lambda cell: FIRST, lambda cell: setattr(cell, "step", types.MethodType(other_step, cell))),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_counts_in_the_next_call(kind, monkeypatch):
    monkeypatch.setitem(globals(), "slope_of_this_module", FIRST)
    monkeypatch.setattr(CONFIG, "value", FIRST)
    read, change = CHANGES[kind]
    cell = reading(read)
    cell.config = CONFIG
    check(cell, lambda: change(cell), "fused")


class Spike(torch.autograd.Function):
    """Its gradient has a slope from outside, which forward or backward reads."""

    @staticmethod
    def forward(ctx, x, config, early):
        ctx.config, ctx.slope = config, config.value if early else None
        ctx.save_for_backward(x)
        return torch.where(x > 0, 1.0, 0.0)

    @staticmethod
    def backward(ctx, d):
        (x,) = ctx.saved_tensors
        slope = ctx.config.value if ctx.slope is None else ctx.slope
        return d * slope * (1 - x.tanh() * x.tanh()), None, None


class SpikingBy(Gate):
    """Its gradient has a tensor that is not the cell's."""

    def step(self, gx, gh, state, dt=1.0):
        new = super().step(gx, gh, state, dt)
        return self.State(0.9 * state.h + 0.1 * Spike.apply(new.h, Namespace(value=outside), True))


class Spiking(Gate):
    early = False

    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.config = Namespace(value=FIRST)

    def step(self, gx, gh, state, dt=1.0):
        new = super().step(gx, gh, state, dt)
        return self.State(0.9 * state.h + 0.1 * Spike.apply(new.h, self.config, self.early))


class Reversed(torch.autograd.Function):
    """The same numbers with another gradient."""

    @staticmethod
    def forward(ctx, x, config):
        ctx.config = config
        return x.view_as(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d):
        return -ctx.config.value * d, None


class Reversing(Spiking):
    def step(self, gx, gh, state, dt=1.0):
        new = Gate.step(self, gx, gh, state, dt)
        return self.State(0.5 * new.h + 0.5 * Reversed.apply(state.h, self.config))


class Hooked(Spiking):
    def step(self, gx, gh, state, dt=1.0):
        new = Gate.step(self, gx, gh, state, dt)
        if new.h.requires_grad:
            new.h.register_hook(lambda d: self.config.value * d)
        return new


@pytest.mark.parametrize(("kind", "early"), [(Spiking, False), (Spiking, True), (Reversing, False), (Hooked, False)])
def test_a_change_of_the_gradient_alone(kind, early):
    """As a surrogate gradient, whose slope is annealed, has it. A call without gradients does not hide the change."""
    torch.manual_seed(0)
    cell = kind(INPUTS, H)
    cell.early = early

    def change():
        cell.config.value = SECOND
        with torch.no_grad():
            RNN([cell], engine="fused")(torch.randn(S, B, INPUTS))

    check(cell, change, "fused")


def test_the_form_of_a_call_counts():
    """The same numbers in another place, of another sign or of another type; one that is not a number is equal."""
    config, traced = Namespace(), []
    cell = reading(lambda cell: config.value(torch.ones(H)))
    values = [lambda v: v.clamp(min=0.25), lambda v: v.clamp(max=0.25), lambda v: v.clamp(0.25)]
    values += [lambda v: v + 0.0, lambda v: v + -0.0, lambda v: v + 0, lambda v: v * float("nan")]
    for config.value in values:
        traced += [equations.known(cell, False) for _ in range(2)]
    assert not any(isinstance(found, str) for found in traced)
    assert len({id(found) for found in traced}) == len(values)
    assert all(a is b for a, b in zip(traced[::2], traced[1::2], strict=True))


def test_a_step_that_is_another_one_without_gradients():
    class Modes(Gate):
        def slope(self):
            return FIRST if torch.is_grad_enabled() else SECOND

    rnn, x = RNN([Modes(INPUTS, H)], engine="fused"), torch.randn(S, B, INPUTS)
    rnn(x)
    with torch.no_grad(), pytest.raises(ValueError, match=r"mul gets 1\.5, then 0\.625"):
        rnn(x)


def test_hooks_on_saved_tensors_see_nothing_of_it():
    """torch.utils.checkpoint counts what is saved, and computes a sequence again where something is read."""
    cell, saved = Spiking(INPUTS, H), []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, saved.append):
        found = [equations.known(cell, False) for _ in range(2)]
    assert found[0] is found[1]
    assert not isinstance(found[0], str)
    assert not saved


def test_a_value_that_comes_again_is_not_traced_again(monkeypatch):
    traced, real = [], equations.trace
    monkeypatch.setattr(equations, "trace", lambda *arguments: (traced.append(1), real(*arguments))[1])
    config = Namespace()
    cell = reading(lambda cell: config.value)
    found = []
    for config.value in (FIRST, SECOND, FIRST, SECOND):
        for mode in (torch.enable_grad(), torch.no_grad(), torch.inference_mode()):
            with mode:
                found.append(equations.known(cell, False))
    assert len(traced) == 2
    assert len({id(v) for v in found}) == 2


def test_a_step_that_is_no_plain_function_is_traced_once():
    def scaled(self, gx, gh, state, dt=1.0, *, scale):
        return Gate.step(self, scale * gx, gh, state, dt)

    cell = type("Partial", (Gate,), {"step": functools.partialmethod(scaled, scale=FIRST)})(INPUTS, H)
    found = equations.known(cell, False)
    assert not isinstance(found, str)
    assert equations.known(cell, False) is found


def test_looking_for_changes_draws_and_computes_nothing():
    class Zoneout(Gate):
        def step(self, gx, gh, state, dt=1.0):
            with torch.no_grad():
                keep = torch.rand_like(state.h) < 0.5
            return self.State(torch.where(keep, state.h, super().step(gx, gh, state, dt).h))

    cell = Zoneout(INPUTS, H)
    equations.known(cell, False)
    before = torch.get_rng_state()
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            assert not isinstance(equations.known(cell, False), str)
            assert torch.is_grad_enabled() == gradients
    assert torch.equal(torch.get_rng_state(), before)


def test_a_step_that_fails_in_the_middle_leaves_no_mode_behind():
    config = Namespace()

    class Middle(Gate):
        def step(self, gx, gh, state, dt=1.0):
            with torch.no_grad():
                scaled = config.value * gx.detach()
            return super().step(gx + scaled, gh, state, dt)

    cell = Middle(INPUTS, H)
    for config.value in (FIRST, SECOND, "wrong"):
        equations.known(cell, False)
        assert torch.is_grad_enabled()
        assert torch.overrides._get_current_function_mode() is None
    with pytest.raises(TypeError):  # as the step itself does
        RNN([cell], engine="eager")(torch.randn(S, B, INPUTS))


def test_a_cell_is_freed():
    cell = reading(lambda cell: FIRST)
    cell.config = Namespace(value=cell)
    cell.step = types.MethodType(other_step, cell)
    assert not isinstance(equations.known(cell, False), str)
    alive = weakref.ref(cell)
    del cell
    gc.collect()
    assert alive() is None


kept: list[Tensor] = []
counter = itertools.count()
local = threading.local()
local.slope = FIRST


def keeping(cell: Any) -> float:
    kept.append(cell.bias + 1.0)
    return FIRST


DRAWS = "draws random numbers outside of torch"
REFUSED = {
    "random": (lambda: reading(lambda cell: random.random()), "for random ones use torch.rand_like"),
    "a random number that rarely counts": (lambda: reading(lambda cell: FIRST if random.random() < 2 else 0), DRAWS),
    "a number of numpy's": (lambda: reading(lambda cell: FIRST if np.random.rand() < 2 else 0), DRAWS),  # noqa: NPY002
    "the time": (lambda: reading(lambda cell: time.perf_counter()), "numbers that change by themselves"),
    "a counter": (lambda: reading(lambda cell: next(counter)), "numbers that change by themselves"),
    "a thread's number": (lambda: reading(lambda cell: local.slope), "no attribute 'slope'"),
    "a tensor of the module": (lambda: reading(lambda cell: outside), "neither an argument, nor a parameter"),
    "a tensor of the module in backward": (lambda: SpikingBy(INPUTS, H), "computes something else"),
    "a tensor that is kept": (lambda: reading(keeping), "keeps a tensor outside of its state"),
}
outside = torch.tensor(FIRST)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_watched_is_refused_with_its_line(kind):
    make, reason = REFUSED[kind]
    cell, x = make(), torch.randn(S, B, INPUTS)
    with pytest.raises(ValueError, match=r"the fused engine cannot run here: \w+\.step \(.*\.py:\d+\) ") as error:
        RNN([cell], engine="fused")(x)
    assert reason in str(error.value)
    assert "test_watch.py:" in str(error.value)
    assert "\n" not in str(error.value)
    WARNED.clear()
    with pytest.warns(UserWarning, match="runs on the eager engine, which is slower"):
        assert engines.pick("auto", cell, x) is eager.run


def test_the_warning_is_one_line_also_for_a_cell_with_modules():
    class Inner(Gate):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            self.lin = torch.nn.Sequential(torch.nn.Linear(H, H))

        def step(self, gx, gh, state, dt=1.0):
            return self.State(self.lin(state.h))

    WARNED.clear()
    with pytest.warns(UserWarning, match=rf"^Inner\({INPUTS}, {H}\) runs on the eager engine") as warned:
        RNN([Inner(INPUTS, H)])(torch.randn(S, B, INPUTS))
    assert "\n" not in str(warned[0].message)


def test_a_refused_step_is_not_run_to_watch_it():
    calls = []

    class Refused(Gate):
        def step(self, gx, gh, state, dt=1.0):
            calls.append(1)
            return super().step(gx, gh.mul_(2.0), state, dt)

    cell = Refused(INPUTS, H)
    reason = equations.known(cell, False)
    assert isinstance(reason, str)
    before = len(calls)
    assert equations.known(cell, False) == reason
    assert len(calls) == before
    Refused.step = other_step  # the line was corrected
    assert engines.pick("auto", cell, torch.randn(S, B, INPUTS)) is fused.run


def read_by_a_step(kind: type[Cell]) -> list[tuple[str, Any]]:
    """The global names that the step of a cell of this package reads, also in its other methods and in functions."""
    found, seen, todo = [], set(), [kind.step]
    while todo:
        function = inspect.unwrap(todo.pop())
        if function in seen or not function.__module__.startswith("timescales.nn."):
            continue
        seen.add(function)
        codes = [function.__code__]
        while codes:
            code = codes.pop()
            codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
            for name in code.co_names:
                if name in function.__globals__:
                    found.append((name, function.__globals__[name]))
                    todo += [v for v in [function.__globals__[name]] if isinstance(v, types.FunctionType)]
                method = inspect.getattr_static(kind, name, None)
                method = method.fget if isinstance(method, property) else getattr(method, "__func__", method)
                todo += [method] if isinstance(method, types.FunctionType) else []
    return found


KINDS_HERE = [getattr(cells, name) for model in registry.MODELS for name in model.cells]


@pytest.mark.parametrize("kind", dict.fromkeys(KINDS_HERE), ids=lambda kind: kind.__name__)
def test_a_step_of_this_package_reads_only_attributes_and_constants(kind):
    """So the signature of a cell tells whether its equations still hold, and its step need not be watched."""
    constant = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type, int, float, str, tuple)
    for name, value in read_by_a_step(kind):
        assert isinstance(value, constant), (name, value)
        assert not isinstance(value, tuple) or all(isinstance(v, (int, float, str)) for v in value), (name, value)


def test_a_cell_of_this_package_is_watched_only_with_attributes_that_have_no_value(monkeypatch):
    runs = []
    real = watch.Watch.change
    monkeypatch.setattr(watch.Watch, "change", lambda self, cell: (runs.append(cell), real(self, cell))[1])
    cell = cells.PLSTMCell(INPUTS, H)
    first = equations.known(cell, False)
    runs.clear()
    assert equations.known(cell, False) is first
    assert not runs
    cell.epsilon = 0.25
    changed = equations.known(cell, False)
    assert changed is not first
    cell.something = object()
    equations.known(cell, False)
    runs.clear()
    equations.known(cell, False)
    assert runs == [cell]
    assert not equations.is_fixed(type("Mine", (cells.PLSTMCell,), {})(INPUTS, H))
