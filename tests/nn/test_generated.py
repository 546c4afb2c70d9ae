"""Kernels that are generated from a `Cell.step` of one's own: what they may read, and what is refused, and why."""

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_cases import CELL_TOLERANCE, close, compare, some_state
from torch import Tensor, nn
from torch.nn import functional

from timescales import RNN, Cell, GRUCell
from timescales.nn import cells
from timescales.nn import engine as engines
from timescales.nn.engine import eager, equations
from timescales.nn.engine.cpu import fused
from timescales.nn.engine.recorder import NotTraceable

S, B, INPUTS, H = 6, 5, 4, 20


def check(cell: Any, timed: bool, masked: bool) -> None:
    """Compare the fused engine with the eager one in float64: results and every gradient."""
    assert engines.pick("auto", cell, torch.zeros(S, B, INPUTS), timed=timed) is fused.run
    rnn, x = RNN([cell]).train(cell.training), torch.randn(S, B, INPUTS)
    dt, mask = torch.rand(S, B) + 0.5 if timed else None, torch.rand(S, B) > 0.3 if masked else None
    compare("fused", rnn, x, some_state(rnn, B), dt, mask, tolerance=CELL_TOLERANCE)


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


class Truths(cells.LSTMCell):
    """Truth values that are chosen by others, and numbers that count as truth values."""

    def step(self, gx, gh, state, dt=1.0):
        i, f, z, o = (gx + gh).chunk(4, -1)
        chosen = torch.where(torch.where(i > 0.0, f > 0.0, z < 0.5), z, -z)
        filled = torch.where((i > 0.2).masked_fill(f > 0.1, True), z.tanh(), z)
        both = torch.where(torch.logical_and(z.relu(), o) & torch.isfinite(i), i, f)
        either = torch.where(z.relu().logical_or(o > 0.3) & ~torch.logical_not(i.relu()), o, z)
        c = f.sigmoid() * state.c + i.sigmoid() * (chosen + filled + both + either)
        return self.State(o.sigmoid() * c.tanh(), c)


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
    def step(self, gx, gh, state, dt=1.0):
        i, f, z, o = (gx + gh).chunk(4, -1)
        c = f.sigmoid() * state.c + i.sigmoid() * z.tanh() * 0.875
        return self.State(o.sigmoid() * c.tanh(), c)


@pytest.mark.parametrize("kind", [WithoutGradient, WithItsOwnGradient, WithAModule, Activations, Truths])
def test_gradients_are_torchs(kind):
    """Those that torch.autograd gives the step, not those of a table."""
    torch.manual_seed(0)
    check(kind(INPUTS, H), False, kind is not Activations)


class WithParts(cells.GRUCell):
    """Its step depends on a module, a function, a buffer, a dict, a tensor attribute, a parameter, and training."""

    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.bent, self.also, self.rates, self.tensor = nn.Tanh(), torch.sigmoid, {"a": 0.5}, torch.ones(hidden)
        self.register_buffer("scale", None)
        self.weight = nn.Parameter(torch.rand(hidden))

    def step(self, gx, gh, state, dt=1.0):
        h = self.also(self.bent(super().step(gx, gh, state, dt).h) * self.rates["a"]) * self.tensor
        h = h * self.weight if self.training else h
        return self.State(h if self.scale is None else h * self.scale)


def test_what_a_step_depends_on_may_change():
    """Another kernel each time."""
    torch.manual_seed(0)
    cell = WithParts(INPUTS, H)
    for change in (
        lambda: None, lambda: setattr(cell, "bent", nn.Sigmoid()), lambda: setattr(cell, "also", torch.tanh),
        lambda: cell.rates.update(a=0.7), lambda: setattr(cell, "tensor", torch.rand(H)),
        lambda: setattr(cell, "scale", torch.rand(H)), lambda: cell.scale.mul_(0.5),
        lambda: cell.weight.requires_grad_(False), cell.eval,
    ):  # fmt: skip
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
    line = "Mine.* runs on the eager engine, which is slower: its compiled Mine is wrong"
    with pytest.warns(UserWarning, match=line):
        assert engines.pick("auto", cell, x) is eager.run


def refused(change):
    """A class of LSTMs whose step changes the arguments, or the state after it."""

    class Refused(cells.LSTMCell):
        def step(self, gx, gh, state, dt=1.0):
            return change(self, gx, gh, state)

    return Refused


def after(change):
    """The step of an LSTM, with another h."""

    def changed(cell, gx, gh, s):
        new = plain(cell, gx, gh, s)
        return cell.State(change(cell, new.h), new.c)

    return refused(changed)


def before(change):
    """The step of an LSTM of another gx."""
    return refused(lambda cell, gx, gh, s: plain(cell, change(gx), gh, s))


plain = cells.LSTMCell.step


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


Maximum = after(lambda cell, h: h - h.amax(-1, keepdim=True))
REFUSED = [
    (ReadsAParameter, "reads numbers with item"),
    (ReadsABuffer, "reads numbers with __bool__"),
    (SetsAnAttribute, "sets the attribute last"),
    (after(lambda cell, h: h.flip(-1)), "mixes units"),
    (Maximum, "mixes units or sequences with amax"),
    (refused(lambda cell, gx, gh, s: s if (gx > 0).any() else plain(cell, gx, gh, s)), "torch.where"),
    (before(lambda gx: gx * gx[0, 0].item()), "torch.where"),
    (before(lambda gx: gx.mul_(2.0)), "in place"),
    (before(lambda gx: gx + torch.randn_like(gx)), "random"),
    (before(lambda gx: gx + torch.rand_like(gx, generator=torch.Generator())), "torch.rand_like(tensor)"),
    (before(lambda gx: gx + torch.rand_like(input=gx)), "torch.rand_like(tensor)"),
    (after(lambda cell, h: torch.cat([h[..., :1], 2.0 * h[..., 1:]], -1)), "treats units differently"),
    (after(lambda c, h: h @ c.weight_hh[:H]), "uses a parameter of shape (20, 20); a step takes one number per unit"),
    (after(lambda cell, h: h.half()), "changes the type"),
    (before(torch.special.bessel_j0), "special_bessel_j0, which this engine does not know"),
    (refused(lambda cell, gx, gh, s: plain(cell, gx, gh, s).h), "returns Tensor, not its State"),
    (after(lambda cell, h: h[..., :1]), "another shape"),
    (after(lambda cell, h: h.softmax(-1)), "_softmax; over the units of a gate: timescales.nn.cells.gates.cumax"),
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
    assert "runs on the eager engine, which is slower: Refused.step (" in str(warning.message)
    assert str(warning.message).endswith("; engine='eager' silences this, as does compiled = False in the cell's class")


def test_a_cell_may_opt_out(recwarn):
    class Mine(Maximum):
        compiled = False

    rnn, x = RNN([Mine(INPUTS, H)]), torch.randn(S, B, INPUTS)
    rnn(x)
    assert not recwarn
    rnn.engine = "fused"
    line = "Mine has no kernel, since its class sets compiled = False; use engine='eager'"
    with pytest.raises(ValueError, match=line):
        rnn(x)


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


N = 6  # units of the cells below


class Own(Cell):
    """A step that adds one number per unit, which `function` computes from parameters of several shapes."""

    gates, State = ("a",), GRUCell.State
    function = staticmethod(lambda cell: cell.v)

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.w, self.v = nn.Parameter(torch.randn(N, N)), nn.Parameter(torch.randn(N))
        self.m, self.row = nn.Parameter(torch.randn(N, 1)), nn.Parameter(torch.randn(1, N))
        self.layer = nn.Linear(N, N)
        self.register_buffer("place", torch.randperm(N))
        self.register_buffer("kept", torch.zeros(N))

    def step(self, gx, gh, state, dt=1.0):
        return self.State((gx + gh + type(self).function(self)).tanh())


# Several of these write in place to a tensor that they have made, or read its numbers.
ANY = {
    "v @ w": lambda c: c.v @ c.w, "w @ m": lambda c: (c.w @ c.m).squeeze(-1),
    "F.linear": lambda c: functional.linear(c.v, c.w), "nn.Linear": lambda c: c.layer(c.v),
    "einsum": lambda c: torch.einsum("ij,j->i", c.w, c.v), "solve": lambda c: torch.linalg.solve(c.w, c.v),
    "rms_norm": lambda c: functional.rms_norm(c.v, (N,)),
    "conv1d": lambda c: functional.conv1d(c.row[None], c.w[:1, None, :3], padding=1)[0, 0],
    "one_hot": lambda c: functional.one_hot(c.place, N).float() @ c.v,
}  # fmt: skip


def rnn(function):
    torch.manual_seed(0)
    return RNN([type("Own", (Own,), {"function": staticmethod(function)})(3, N)])


@pytest.mark.parametrize("name", ANY)
def test_its_numbers_and_gradients_are_those_of_the_function(name):
    """At each call, from the parameters as they are then."""
    cell = rnn(ANY[name]).layers[0]
    found = equations.known(cell, False)
    assert isinstance(found, equations.Equations), found
    for _ in range(2):
        (vector,), expected = found.vector_values(cell, cell.weight_ih), ANY[name](cell).reshape(N)
        close(vector, expected, 1e-6)
        wanted = [p for p in cell.parameters() if p.requires_grad]
        weights = torch.linspace(-1.0, 1.0, N)
        gradients = [torch.autograd.grad((v * weights).sum(), wanted, allow_unused=True) for v in (vector, expected)]
        assert any(g is not None for g in gradients[1])
        for a, b in zip(*gradients, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                close(a, b, 1e-6)
        with torch.no_grad():
            cell.v.mul_(1.5)
            cell.w.mul_(-0.7)


@pytest.mark.parametrize(("function", "reason"), [
    (lambda c: c.v.clone().mul_(2.0), "writes in place with mul_"),
    (lambda c: c.kept.add_(1.0) + c.v, "writes in place with add_"),
    (lambda c: torch.where(c.v > 0, c.v, c.kept.__setitem__(0, 1.0) or c.v), "writes in place with"),
    (lambda c: functional.dropout(c.v, 0.5, training=True), "draws random numbers with bernoulli_"),
    (lambda c: c.v * c.v.sum().item(), "reads numbers with item"),
    (lambda c: c.v if torch.allclose(c.v, c.v) else -c.v, "reads a number from a tensor"),
])  # fmt: skip
def test_what_has_an_effect_or_reads_is_still_refused(function, reason):
    found = equations.known(rnn(function).layers[0], False)
    assert isinstance(found, str)
    assert reason in found
