"""The kernels that are generated from `Cell.step`: forward and every gradient against the eager engine in float64."""

from __future__ import annotations

import contextlib
import copy
import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from cell_cases import CELLS
from cell_models import COMPILED, NAMES, SAME, model
from torch import Tensor, nn
from torch.nn import functional

from timescales.nn import cells
from timescales.nn import engine as engines
from timescales.nn.engine import eager, equations
from timescales.nn.engine.cpu import fused
from timescales.nn.engine.recorder import NotTraceable
from timescales.nn.rnn import RNN

S, B, INPUTS, H = 6, 5, 4, 20
BOUND = 5e-6  # of the largest number of each tensor; the eager engine in float32 has 2e-6
BOUNDS = {"odd": 1e-5, "exprnn": 1e-4, "exprnn_henaff": 1e-4}  # the matrix exponential in float32 has 4e-5


def run(cell: Any, engine: Any, dtype: torch.dtype, timed: bool, masked: bool) -> list[Tensor | None]:
    """Output, last state and every gradient."""
    cell = copy.deepcopy(cell).to(dtype)
    random = torch.Generator().manual_seed(1)
    x = torch.randn(S, B, INPUTS, generator=random).to(dtype).requires_grad_()
    state = [torch.rand(B, H, generator=random).to(dtype).requires_grad_() for _ in cell.State._fields]
    dt = (torch.rand(S, B, generator=random) + 0.5).to(dtype).requires_grad_() if timed else None
    mask = torch.rand(S, B, generator=random) > 0.3 if masked else None
    output, last = engine.run(cell, x, cell.weights(), cell.State(*state), dt, mask)
    results = [output, *last]
    loss = sum((v * torch.randn(v.shape, generator=random).to(dtype)).sum() for v in results)
    wanted = [x, *state, *(p for p in cell.parameters() if p.requires_grad), *([dt] if dt is not None else [])]
    return [*results, *torch.autograd.grad(loss, wanted, allow_unused=True)]


def assert_close(found, expected, bound) -> None:
    for a, b in zip(expected, found, strict=True):
        if a is None or b is None:
            assert all(v is None or not v.any() for v in (a, b))
            continue
        assert (a - b).abs().max() <= bound * max(1e-3, float(a.detach().abs().max()))


def check(cell: Any, timed: bool, masked: bool, bound: float = BOUND) -> None:
    """Compare the fused engine with the eager one in float64."""
    assert engines.pick("auto", cell, torch.zeros(S, B, INPUTS), timed=timed) is fused.run
    expected = run(cell, eager, torch.float64, timed, masked)
    assert_close(run(cell, fused, torch.float32, timed, masked), expected, bound)


@pytest.mark.covering
@pytest.mark.parametrize("name", [*COMPILED, *SAME])
@pytest.mark.parametrize(("timed", "masked"), [(False, False), (True, True)], ids=["plain", "dt and mask"])
def test_every_cell(name, timed, masked):
    """Outputs, states and all gradients, also that of dt."""
    torch.manual_seed(0)
    check(model(name, INPUTS, H).layers[0], timed, masked, BOUNDS.get(name, BOUND))


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_that_does_not_change_is_traced_once(name):
    for cell in model(name, 3, 16).layers:
        assert equations.signature(cell, False) == equations.signature(cell, False)


@contextlib.contextmanager
def cell_on_threads(name, threads):
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    try:
        yield model(name, INPUTS, H).layers[0]
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("name", COMPILED)
def test_two_threads(name):
    """They sum in another order than one thread, and each time in the same one."""
    with cell_on_threads(name, 2) as cell:
        check(cell, True, True, BOUNDS.get(name, BOUND))
        first, second = (run(cell, fused, torch.float32, True, True) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)


@pytest.mark.parametrize("name", ["plstm", "gated_lstm_um_4", "gru", "odd"])
def test_three_threads(name):
    with cell_on_threads(name, 3) as cell:
        check(cell, True, True, BOUNDS.get(name, BOUND))


AGES = [name for name, (kind, _) in CELLS.items() if "age" in kind.State._fields and kind.compiled]


@pytest.mark.covering
@pytest.mark.parametrize("name", AGES)
@pytest.mark.parametrize("age", [1e3, 1e4, 1e5, 1e6])
@pytest.mark.parametrize(("largest", "of_state", "of_gradients"), [(1.0, 2e-6, 2e-6), (1e3, 3e-5, 2e-4)])
def test_large_ages(name, age, largest, of_state, of_gradients):
    """Where 1 - sigmoid(x) would lose every digit, the kernels compute sigmoid(-x).

    Reset gates are from far below 1 to nearly 1. Errors are relative to the largest number of each tensor. With h up to
    1,000 the pre-activations, and so the gradients of sigmoids, are rounded by 6e-5; eager has up to 5e-4 in float32.
    """
    torch.manual_seed(0)
    cell = model(name, INPUTS, H).layers[0]
    with torch.no_grad():
        cell.bias[:H] = torch.linspace(-16.0, 8.0, H)
    x, dt = torch.randn(S, B, INPUTS), 0.5 + torch.rand(S, B)
    state = cell.State(*(torch.linspace(-largest, largest, B * H).view(B, H) for _ in cell.State._fields))
    state = state._replace(age=torch.full((B, H), age))

    def results(engine, dtype):
        one = copy.deepcopy(cell).to(dtype)
        given = [v.detach().to(dtype).requires_grad_() for v in (x, dt, *state)]
        output, last = engine.run(one, given[0], one.weights(), cell.State(*given[2:]), given[1])
        loss = sum((v / v.detach().abs().max()).sum() for v in (output, *last))
        wanted = [*given, *(p for p in one.parameters() if p.requires_grad)]
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True)  # a scan cell does not read h
        return [output, *last], [
            torch.zeros_like(v) if d is None else d for d, v in zip(gradients, wanted, strict=True)
        ]

    bounds = (of_state, of_gradients)
    for found, expected, bound in zip(
        results(fused, torch.float32), results(eager, torch.float64), bounds, strict=True
    ):
        for a, b in zip(found, expected, strict=True):
            assert (a - b).abs().max() <= bound * b.abs().max()


@pytest.mark.parametrize("name", AGES)
def test_an_old_cell_writes_little_and_exactly(name):
    """What is written into an empty state of age 1e6 has the factor 1 - f, about 1e-6: it keeps its digits."""
    torch.manual_seed(0)
    cell = model(name, INPUTS, H).layers[0]
    with torch.no_grad():
        cell.bias[:H] = -14.0
    exact = copy.deepcopy(cell).double()
    x, empty = torch.zeros(S, B, INPUTS), cell.initial_state(B)._replace(age=torch.full((B, H), 1e6))
    found = fused.run(cell, x, cell.weights(), empty)[1]
    expected = eager.run(exact, x.double(), exact.weights(), cell.State(*(v.double() for v in empty)))[1]
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a.double(), b, rtol=5e-6, atol=0.0)


def test_the_tutorials_cell(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "docs" / "tutorial"))
    try:
        (cell,) = importlib.import_module("decay").Decay(INPUTS, H).layers
    finally:
        sys.modules.pop("decay", None)
    for timed in (False, True):
        check(cell, timed, timed)


class WithoutGradient(cells.LSTMCell):
    """A share of the step has no gradient, as torch.no_grad() says."""

    def step(self, gx, gh, state, dt=1.0):
        with torch.no_grad():
            scale = (gx + gh)[..., : self.hidden_size].sigmoid()
        new = super().step(gx, gh, state, dt)
        return self.State(new.h * scale, new.c)


class Straight(torch.autograd.Function):
    """Rounds; its gradient is one of its own."""

    @staticmethod
    def forward(ctx, x):
        return torch.where(x > 0, 1.0, 0.0)

    @staticmethod
    def backward(ctx, d):
        return 0.5 * d


class WithItsOwnGradient(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        new = super().step(gx, gh, state, dt)
        return self.State(new.h + 0.1 * Straight.apply(new.c), new.c)


class WithAModule(cells.GRUCell):
    """A parameter of a module inside, and constants as tensors."""

    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.inner = nn.PReLU(hidden)
        self.rates = torch.linspace(0.1, 0.9, hidden)

    def step(self, gx, gh, state, dt=1.0):
        new = super().step(gx, gh, state, dt)
        return self.State((1 - self.rates) * new.h + self.rates * self.inner.weight * state.h)


class Activations(cells.LSTMCell):
    """Functions of torch.nn.functional that no cell of the package uses, in one step."""

    def step(self, gx: Tensor, gh: Tensor, state: Any, dt: Any = None, noise: Any = None) -> Any:
        i, f, z, o = (gx + gh).chunk(4, -1)
        z = 3.0 * torch.where(torch.isfinite(z), z, 0.0)
        total = functional.gelu(z, approximate="tanh") + functional.logsigmoid(z) + functional.hardswish(z)
        total = total + functional.gelu(z) + (0.7 * z).erf() + z.floor() + 0.5 * (z + 0.3).ceil()
        total = total + functional.mish(z) + functional.celu(z, 0.7) + (1.0 + z * z).log2() + (2.0 + z * z).log10()
        c = f.sigmoid() * state.c + i.sigmoid() * total
        return self.State(o.sigmoid() * c.tanh(), c)


def test_activations():
    torch.manual_seed(0)
    check(Activations(INPUTS, H), False, False)


@pytest.mark.parametrize(("kind", "bound"), [("erf", 5e-7), ("floor", 0.0), ("ceil", 0.0)])
def test_functions_of_any_number(kind, bound):
    class Function(cells.GRUCell):
        def step(self, gx: Tensor, gh: Tensor, state: Any, dt: Any = None) -> Any:
            return self.State(gx.chunk(3, -1)[0] * 0.0 + getattr(torch, kind)(state.h))

    cell, numbers = Function(1, 1), torch.cat([torch.linspace(-6, 6, 9601), torch.logspace(-30, 30, 400)])
    values = torch.cat([numbers, -numbers, torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])])
    output, _ = fused.run(cell, torch.zeros(2, len(values), 1), cell.weights(), cell.State(values.unsqueeze(1)))
    expected = getattr(torch, kind)(values.double())
    torch.testing.assert_close(output[0, :, 0].double(), expected, rtol=bound, atol=0.0, equal_nan=True)


def test_the_first_use_may_be_in_several_threads_at_once():
    """They get the same numbers; the cell is traced, compiled and tried once or more often, and none fails."""
    torch.manual_seed(0)
    layers = [RNN([FirstUse(INPUTS, H)], engine="fused") for _ in range(4)]
    for layer in layers[1:]:
        layer.load_state_dict(layers[0].state_dict())
    x = torch.randn(S, B, INPUTS)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda layer: layer(x)[0], layers))
    expected = RNN([FirstUse(INPUTS, H)], engine="eager")
    expected.load_state_dict(layers[0].state_dict())
    for result in results:
        assert torch.equal(result, results[0])
        assert torch.allclose(result, expected(x)[0], atol=1e-5)


class FirstUse(cells.LSTMCell):
    def step(self, gx: Tensor, gh: Tensor, state: Any, dt: Any = None, noise: Any = None) -> Any:
        i, f, z, o = (gx + gh).chunk(4, -1)
        c = f.sigmoid() * state.c + i.sigmoid() * z.tanh() * 0.875
        return self.State(o.sigmoid() * c.tanh(), c)


@pytest.mark.parametrize("kind", [WithoutGradient, WithItsOwnGradient, WithAModule])
def test_gradients_are_torchs(kind):
    """Those that torch.autograd gives the step, not those of a table."""
    torch.manual_seed(0)
    check(kind(INPUTS, H), False, True)


def test_what_a_step_depends_on_may_change():
    """Attributes, what is frozen, and training: another kernel each time."""

    class Scaled(cells.LSTMCell):
        def __init__(self, inputs, hidden):
            super().__init__(inputs, hidden)
            self.rate, self.weight = 1.5, nn.Parameter(torch.ones(hidden))

        def step(self, gx, gh, state, dt=1.0):
            new = super().step(self.rate * gx, gh, state, dt)
            return self.State(new.h * self.weight if self.training else new.h, new.c)

    cell = Scaled(INPUTS, H)
    for change in (lambda: None, lambda: setattr(cell, "rate", 0.5), cell.eval):
        change()
        check(cell, False, False)
    cell.train().weight.requires_grad_(False)
    check(cell, False, False)


class WithParts(cells.GRUCell):
    """Its step depends on a module, a function, a buffer, a dict and a tensor attribute."""

    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.bent, self.also, self.rates, self.tensor = nn.Tanh(), torch.sigmoid, {"a": 0.5}, torch.ones(hidden)
        self.register_buffer("scale", None)

    def step(self, gx, gh, state, dt=1.0):
        h = self.also(self.bent(super().step(gx, gh, state, dt).h) * self.rates["a"]) * self.tensor
        return self.State(h if self.scale is None else h * self.scale)


def test_parts_of_a_step_may_change():
    torch.manual_seed(0)
    cell = WithParts(INPUTS, H)
    for change in (
        lambda: None,
        lambda: setattr(cell, "bent", nn.Sigmoid()),
        lambda: setattr(cell, "also", torch.tanh),
        lambda: cell.rates.update(a=0.7),
        lambda: setattr(cell, "tensor", torch.rand(H)),
        lambda: setattr(cell, "scale", torch.rand(H)),
        lambda: cell.scale.mul_(0.5),
    ):
        change()
        check(cell, False, False)


def test_two_classes_with_one_code_have_a_trial_each():
    """What is computed from parameters alone is not in the code."""

    class Plain(cells.GRUCell):
        def __init__(self, inputs, hidden):
            super().__init__(inputs, hidden)
            self.p = nn.Parameter(torch.rand(hidden))

        def step(self, gx, gh, state, dt=1.0):
            return self.State(super().step(gx, gh, state, dt).h * self.p)

    class WithFunction(Plain):
        def step(self, gx, gh, state, dt=1.0):
            return self.State(cells.GRUCell.step(self, gx, gh, state, dt).h * Straight.apply(self.p))

    class Written(Plain):
        def step(self, gx, gh, state, dt=1.0):
            m = torch.zeros(self.hidden_size)
            m[:3] = 1.0
            return self.State(cells.GRUCell.step(self, gx, gh, state, dt).h * m)

    class Counts(Plain):
        def __init__(self, inputs, hidden):
            super().__init__(inputs, hidden)
            self.register_buffer("n", torch.zeros(()))

        def step(self, gx, gh, state, dt=1.0):
            torch.add(self.n, 1, out=self.n)
            return self.State(cells.GRUCell.step(self, gx, gh, state, dt).h * self.n)

    check(Plain(INPUTS, H), False, False)
    for kind, reason in ((WithFunction, "autograd.Function"), (Written, "in place"), (Counts, "in place")):
        cell = kind(INPUTS, H)
        with pytest.raises(ValueError, match=reason):
            engines.pick("fused", cell, torch.zeros(S, B, INPUTS))
    assert float(cell.n) == 0.0


def test_weights_that_are_attributes():
    """As FSDP1 leaves them: there are no parameters, but views of a flat one."""
    torch.manual_seed(0)
    rnn, x = RNN([cells.PLSTMCell(INPUTS, H)]), torch.randn(S, B, INPUTS)
    expected = rnn(x)[0]
    (cell,) = rnn.layers
    for name, parameter in list(cell.named_parameters()):
        del cell._parameters[name]
        setattr(cell, name, 1.0 * parameter)
    names = ("power", "weight_hh", "bias")
    gradients = []
    for rnn.engine in ("fused", "eager"):
        output = rnn(x)[0]
        assert torch.allclose(output, expected, atol=1e-6)
        found = torch.autograd.grad(output.sum(), [getattr(cell, name) for name in names], retain_graph=True)
        gradients.append(torch.cat([g.flatten() for g in found]))
    assert torch.allclose(*gradients, rtol=1e-5, atol=1e-5)


def test_a_pruned_cell_is_traced_once(monkeypatch):
    """torch's old hooks set a new tensor as weight_hh before each call."""
    from torch.nn.utils import prune

    traced = []
    real = equations.trace
    monkeypatch.setattr(equations, "trace", lambda *arguments: (traced.append(1), real(*arguments))[1])
    rnn, x = RNN([cells.LSTMCell(INPUTS, H)]), torch.randn(S, B, INPUTS)
    prune.l1_unstructured(rnn.layers[0], "weight_hh", amount=0.5)
    for _ in range(3):
        rnn(x)
    assert len(traced) == 1


class Annealed(cells.GRUCell):
    temperature = 1.0

    def step(self, gx, gh, state, dt=1.0):
        return self.State(super().step(gx * self.temperature, gh, state, dt).h)


@pytest.mark.parametrize("timed", [(False,), (True,), (True, False)])
def test_twelve_versions_of_a_cell_are_kept(timed):
    """With dt and without it, which this step does not read."""
    cell = Annealed(INPUTS, H)
    kinds = []
    for k in range(13):
        cell.temperature = 1.0 + k / 8
        kinds += [type(equations.known(cell, way)) for way in timed]
    assert kinds == [equations.Equations] * 12 * len(timed) + [str] * len(timed)
    cell.temperature = 1.0
    assert isinstance(equations.known(cell, timed[0]), equations.Equations)


def test_a_number_that_always_changes_ends_on_the_eager_engine(monkeypatch):
    monkeypatch.setattr(equations, "MAX_VERSIONS", 2)
    cell, x = Annealed(INPUTS, H), torch.zeros(S, B, INPUTS)
    for temperature in (1.0, 1.5):
        cell.temperature = temperature
        assert engines.pick("auto", cell, x) is fused.run
    cell.temperature = 1.7
    with pytest.warns(UserWarning, match="keep a number that changes in a buffer or a parameter"):
        assert engines.pick("auto", cell, x) is eager.run


def test_the_first_use_may_be_in_any_mode():
    for mode in (torch.autograd.detect_anomaly(check_nan=True), torch.inference_mode(), torch.no_grad()):
        with mode:
            cell = cells.JANETCell(INPUTS, H)
            assert engines.pick("auto", cell, torch.zeros(S, B, INPUTS)) is fused.run


def test_a_truncated_gradient_is_not_the_plain_lstm():
    class Truncated(cells.LSTMCell):
        def step(self, gx, gh, state, dt=1.0):
            return super().step(gx, gh, state._replace(c=state.c.detach()), dt)

    x = torch.randn(S, B, INPUTS)
    assert engines.pick("cudnn", cells.LSTMCell(INPUTS, H), x) is engines.gpu.cudnn
    with pytest.raises(ValueError, match="it runs only the plain LSTM and GRU"):
        engines.pick("cudnn", Truncated(INPUTS, H), x)
    check(Truncated(INPUTS, H), False, False)


def test_exponentials_up_to_infinity():
    class Exponential(cells.GRUCell):
        def step(self, gx, gh, state, dt=1.0):
            return self.State(gx.chunk(3, -1)[0] * 0 + state.h.exp())

    cell = Exponential(1, 1)
    values = torch.tensor([-torch.inf, -200.0, -87.5, -50.0, 0.0, 1e-6, 50.0, 87.9, 88.7, 89.0, torch.inf])
    output, _ = fused.run(cell, torch.zeros(2, len(values), 1), cell.weights(), cell.State(values.unsqueeze(1)))
    expected = values.double().exp().float()
    expected[expected < 1.2e-38] = 0.0
    assert torch.allclose(output[0, :, 0], expected, rtol=5e-7, atol=0)


def test_a_wrong_kernel_is_found_by_its_trial(monkeypatch):
    """A kernel that differs from its step is refused by name, and left out by auto."""
    real = fused.emit_cpp.cell_code
    monkeypatch.setattr(fused.emit_cpp, "cell_code", lambda e: real(e).replace("d[0] *", "1.01f * d[0] *", 1))

    class Mine(cells.GRUCell):
        def step(self, gx, gh, state, dt=1.0):
            return self.State(super().step(gx, gh, state, dt).h * 0.987)

    cell, x = Mine(INPUTS, H), torch.zeros(S, B, INPUTS)
    with pytest.raises(ValueError, match=r"the fused engine cannot run here: its compiled Mine is wrong: the gradient"):
        engines.pick("fused", cell, x)
    with pytest.warns(
        UserWarning, match="Mine.* runs on the eager engine, which is slower: its compiled Mine is wrong"
    ):
        assert engines.pick("auto", cell, x) is eager.run


class Mixed(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        new = super().step(gx, gh, state, dt)
        return self.State(new.h.flip(-1), new.c)


class Maximum(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        new = super().step(gx, gh, state, dt)
        return self.State(new.h - new.h.amax(-1, keepdim=True), new.c)


class Branches(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        return state if (gx > 0).any() else super().step(gx, gh, state, dt)


class InPlace(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        return super().step(gx.mul_(2.0), gh, state, dt)


class Random(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        return super().step(gx + torch.randn_like(gx), gh, state, dt)


class Slices(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        new = super().step(gx, gh, state, dt)
        return self.State(torch.cat([new.h[..., :1], 2.0 * new.h[..., 1:]], -1), new.c)


class Product(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        new = super().step(gx, gh, state, dt)
        return self.State(new.h @ self.weight_hh[: self.hidden_size], new.c)


class Half(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        return self.State(*(v.half() for v in super().step(gx, gh, state, dt)))


class Unknown(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        return super().step(torch.special.bessel_j0(gx), gh, state, dt)


class NoState(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        return super().step(gx, gh, state, dt).h


class Shape(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        new = super().step(gx, gh, state, dt)
        return self.State(new.h[..., :1], new.c)


class Item(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        return super().step(gx * gx[0, 0].item(), gh, state, dt)


class ReadsAParameter(cells.LSTMCell):
    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.register_buffer("warm", torch.tensor(True))
        self.tau = nn.Parameter(torch.tensor(0.9))

    def step(self, gx, gh, state, dt=1.0):
        return super().step(gx * self.tau.item(), gh, state, dt)


class ReadsABuffer(ReadsAParameter):
    def step(self, gx, gh, state, dt=1.0):
        return cells.LSTMCell.step(self, 2.0 * gx if self.warm else gx, gh, state, dt)


class SetsAnAttribute(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        new = super().step(gx, gh, state, dt)
        self.last = new.c
        return new


REFUSED = [
    (ReadsAParameter, "reads numbers with item"),
    (ReadsABuffer, "reads numbers with __bool__"),
    (SetsAnAttribute, "sets the attribute last"),
    (Mixed, "mixes units"),
    (Maximum, "mixes units or sequences with amax"),
    (Branches, "torch.where"),
    (Item, "torch.where"),
    (InPlace, "in place"),
    (Random, "random"),
    (Slices, "treats units differently"),
    (Product, "uses a parameter of shape (20, 20); a step takes one number per unit"),
    (Half, "changes the type"),
    (Unknown, "special_bessel_j0, which this engine does not know"),
    (NoState, "returns Tensor, not its State"),
    (Shape, "another shape"),
]


@pytest.mark.parametrize(("cell", "reason"), REFUSED)
def test_a_step_that_no_kernel_can_run_is_refused(cell, reason):
    """The message names the class, the line of the step and the reason."""
    with pytest.raises(NotTraceable) as error:
        equations.of_cell(cell(INPUTS, H), False)
    message = str(error.value)
    assert message.startswith(f"{cell.__name__}.step (")
    assert "test_generated.py:" in message
    assert reason in message
    assert "\n" not in message
    x = torch.randn(S, B, INPUTS)
    with pytest.raises(ValueError, match=r"the fused engine cannot run here: .*; use engine='eager'"):
        RNN([cell(INPUTS, H)], engine="fused")(x)


def test_auto_says_once_why_a_cell_runs_eager(recwarn):
    for _ in range(2):
        RNN([Maximum(INPUTS, H)])(torch.randn(S, B, INPUTS))
    (warning,) = recwarn
    assert "runs on the eager engine, which is slower: Maximum.step (" in str(warning.message)
    assert str(warning.message).endswith("; engine='eager' silences this, as does compiled = False in the cell's class")


def test_a_cell_may_opt_out(recwarn):
    class Mine(Maximum):
        compiled = False

    rnn, x = RNN([Mine(INPUTS, H)]), torch.randn(S, B, INPUTS)
    rnn(x)
    assert not recwarn
    rnn.engine = "fused"
    with pytest.raises(
        ValueError, match="Mine has no kernel, since its class sets compiled = False; use engine='eager'"
    ):
        rnn(x)


ZONEOUTS = [(cells.GatedLSTMCell, {"zoneout_c": 0.5, "zoneout_h": 0.2}), (cells.GatedLSTMCell, {"zoneout_c": 0.5})]
ZONEOUTS += [(cells.GatedLSTMCell, {"zoneout_h": 0.2}), (cells.GatedGRUCell, {"zoneout_h": 0.2})]


@pytest.mark.parametrize(("kind", "zoneout"), ZONEOUTS)
@pytest.mark.parametrize("gate", ["ur", "om"])
def test_zoneout_draws_the_numbers_of_the_eager_engine(kind, zoneout, gate):
    """In training a step draws random numbers: the engines draw the same ones from one seed."""
    torch.manual_seed(0)
    cell = kind(INPUTS, H, gate=gate, downsize=1, T_max=30, **zoneout)
    results = []
    for engine in (fused, eager):
        torch.manual_seed(3)
        results.append(run(cell, engine, torch.float32, False, True))
    assert_close(*results, 2 * BOUND)
    torch.manual_seed(4)
    assert not torch.equal(run(cell, fused, torch.float32, False, True)[0], results[0][0])


class Softmax(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        new = super().step(gx, gh, state, dt)
        return self.State(new.h.softmax(-1), new.c)


def test_softmax_is_refused_with_what_there_is_instead():
    with pytest.raises(NotTraceable, match=r"_softmax; over the units of a gate: timescales\.nn\.cells\.gates\.cumax$"):
        equations.of_cell(Softmax(INPUTS, H), False)


def test_a_step_of_more_gates_than_named_is_one_line():
    class ThreeOfFour(cells.LSTMCell):
        def step(self, gx, gh, state, dt=1.0):
            f, u, o = (gx + gh).chunk(3, -1)
            return self.State(o * state.h, f * state.c + u)

    with pytest.raises(ValueError, match=r"^ThreeOfFour.step unpacks 3 gates, `gates` names 4 \(\w+, \w+, \w+, \w+\)$"):
        RNN([ThreeOfFour(INPUTS, H)])(torch.randn(S, B, INPUTS))


def test_a_step_may_split_its_gates_in_halves():
    class Halves(cells.LSTMCell):
        def step(self, gx, gh, state, dt=1.0):
            a, b = (gx + gh).chunk(2, -1)
            (i, f), (u, o) = a.chunk(2, -1), b.chunk(2, -1)
            c = f.sigmoid() * state.c + i * u
            return self.State(o * c, c)

    assert not isinstance(equations.known(Halves(INPUTS, H), False), str)


def test_a_step_without_dt_is_refused_when_its_class_is_made():
    with pytest.raises(TypeError, match=r"^Untimed.step takes \(self, gx, gh, state\); it needs .*, state, dt=1.0\)$"):

        class Untimed(cells.LSTMCell):
            def step(self, gx, gh, state):
                return state
