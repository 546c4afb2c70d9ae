"""Models with a kernel, cells of unusual operations, and the comparison of an engine with the eager one in float64."""

from typing import NamedTuple

import torch
from cell_cases import ALL
from torch import Tensor, nn

from timescales import LSTM, PLSTM, RNN, URLSTM
from timescales.nn.cells import Cell, GatedGRUCell, GatedLSTMCell


class OddCell(Cell):
    """Three fields, parameters of every shape, a buffer of truth values, and operations that no other cell has."""

    gates = ("one", "two", "three")

    class State(NamedTuple):
        h: Tensor
        a: Tensor
        b: Tensor

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.scale = nn.Parameter(torch.rand(hidden_size) + 0.5)
        self.shift = nn.Parameter(torch.rand(hidden_size))
        self.exponent = nn.Parameter(torch.tensor(1.3))
        self.register_buffer("even", torch.arange(hidden_size) % 2 == 0)

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        (x1, x2, x3), (h1, h2, h3) = gx.chunk(3, -1), gh.chunk(3, -1)
        scale, shift, even = self.scale, self.shift, self.even
        one = torch.maximum(x1, h1) + torch.minimum(x1, 0.5 * h1) + (x1 + h1).relu()
        positive = nn.functional.softplus(x2 + h2) + shift.abs()
        power = positive.pow(scale) + 2.0**-positive + positive.sqrt() * (x3.abs() + 1).rsqrt()
        a = torch.where(even, torch.lerp(state.a, one, 0.3), state.a * (-positive * dt).exp() + one.sign() * 0.1)
        bounded = nn.functional.hardsigmoid(x3 * h3.tanh()) + (positive + 1).log()
        b = state.b.clamp(-1.0, 1.0) + bounded * (positive.log1p() - (-positive).expm1())
        h = (a + b / (1 + power)).tanh() + nn.functional.silu(h3).clamp(min=-0.2) ** 2 * 0.1
        return self.State(h * self.exponent.sigmoid(), a, b.tanh())


class HalfGradient(torch.autograd.Function):
    """The identity within -1 and 1, with half its gradient everywhere."""

    @staticmethod
    def forward(ctx, x):
        return x.clamp(-1.0, 1.0)

    @staticmethod
    def backward(ctx, d):
        return 0.5 * d


class AdversarialCell(Cell):
    """Gradients that are not those of its equations: no_grad, detach and a function with a gradient of its own.

    A gate that is not used, one whose input's share alone is used, and one whose recurrent share alone is used. A field
    that is passed on, an age that grows, a parameter that is frozen, and logic.
    """

    gates = ("unused", "from_input", "from_h", "both")
    biases = 2

    class State(NamedTuple):
        h: Tensor
        kept: Tensor
        age: Tensor
        constant: Tensor

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.rate = nn.Parameter(torch.rand(hidden_size))
        self.frozen = nn.Parameter(torch.rand(hidden_size), requires_grad=False)
        self.by_gate_bias = nn.Parameter(torch.rand(4 * hidden_size))

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        rate, frozen = self.rate.sigmoid(), self.frozen.sigmoid()
        _, x, _, _ = gx.chunk(4, -1)
        _, _, h, _ = gh.chunk(4, -1)
        _, _, _, both = (gx + gh + self.by_gate_bias).chunk(4, -1)
        with torch.no_grad():
            scale = 1.0 / (1.0 + x * x)
        high, low = both > 0.3, (both < -0.3) | (x >= 1.0)
        old = torch.where(high & ~low, state.kept.detach(), torch.where((state.h != 0.0) | low, state.kept, x))
        kept = rate * old + (1.0 - rate) * HalfGradient.apply(3.0 * h + x.detach()) * scale
        age = (state.age + dt) * both.sigmoid() * frozen
        f = (1.0 + age).pow(-rate)
        return self.State(f * kept.tanh() + (1.0 - f) * x.tanh() + 0.1 * state.constant, kept, age, state.constant)


MORE = {
    "gated_lstm_om_4": (GatedLSTMCell, {"gate": "om", "downsize": 4}),
    "gated_lstm_um_4": (GatedLSTMCell, {"gate": "um", "downsize": 4}),
    "gated_gru_om_4": (GatedGRUCell, {"gate": "om", "downsize": 4}),
    "gated_gru_um_4": (GatedGRUCell, {"gate": "um", "downsize": 4, "zoneout_h": 0.1}),
    "odd": (OddCell, {}),
    "adversarial": (AdversarialCell, {}),
}
# Other initializers, or the same equations by another class or by a cell with other numbers: their kernels are those of
# another name. Gates that are rows of a cumax have one of a quarter of the units in `MORE`.
SAME = {"lstm_uniform", "refine_only", "lru_ring", "exprnn_henaff", "rglru_fast", "surnn_fast", "phased_plain"}
SAME |= {"eurnn_5", "eurnn_1", "goru_3", "plscan_fixed_p", "pgru_fixed_p", "janet_tied", "gated_lstm_um_3"}
SAME |= {f"gated_{core}_{gate}" for core in ("lstm", "gru") for gate in ("-", "c", "u", "r", "om", "um", "ur")}
SAME |= {"gated_gru_om_3"}
# Every kernel once.
KERNELS = [name for name, (kind, _) in (ALL | MORE).items() if kind.compiled and name not in SAME]


def model(name: str, input_size: int, hidden_size: int) -> RNN:
    """A model of one layer. Every parameter but the `skew` of a matrix exponential is moved away from its start."""
    kind, arguments = (ALL | MORE)[name]
    rnn = RNN([kind(input_size, hidden_size, **arguments)]).eval()
    with torch.no_grad():
        for key, parameter in rnn.named_parameters():
            if not key.endswith("skew"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return rnn


MODELS = {
    "lstm": LSTM, "ur": URLSTM, "plstm": PLSTM, "plstm_separate": lambda i, h: PLSTM(i, h, coupled=False),
    "plstm_authors": lambda i, h: PLSTM(i, h, epsilon_form="authors"),
    "plstm_fixed": lambda i, h: PLSTM(i, h, power=1.7, epsilon=0.3),
}  # fmt: skip
# (S, B, I, H) with incomplete blocks of every kind: units (1, 3, 17, 110 are no multiple of a vector), rows (6 at a
# time), inputs, and two blocks of k (300).
SHAPES = [(1, 1, 1, 1), (2, 5, 3, 17), (9, 1, 70, 3), (9, 2, 1, 64), (2, 33, 3, 110), (3, 13, 2, 300)]

# float32 against float64, relative to the largest number of a tensor: rounding is 6e-8 per operation, and a sequence of
# dependent steps adds up some tens of roundings.
TOLERANCE = 1e-5
CELL_TOLERANCE = 5e-6  # short sequences of small cells; ExpRNN has 2.3e-6 with either engine, all others below 1e-6
THETA_TOLERANCE = 4e-5  # of LRU's `theta_log`: a phase of 40 is rounded by 2e-6; the eager engine is as far off
SKEW_TOLERANCE = 3e-4  # of ExpRNN's `skew`: torch's gradient of matrix_exp in float32; the eager engine is as far off


def close(a, b, tolerance=TOLERANCE, what=""):
    error = (a.double() - b.double()).abs().max().item()
    scale = b.double().abs().max().item()
    assert error <= tolerance * (scale + 1e-3), f"{what}: error {error:.2e} at scale {scale:.2e}"


def gradient(v):
    """The gradient of a leaf, zeros if it has none."""
    return torch.zeros_like(v) if v.grad is None else v.grad


def evaluate(model, engine, dtype, x, state, dt, mask, last, reset=None, states=False):
    """Results and gradients by name, with every result in the loss (or only the final state).

    states: also the state after every step.
    """
    model.engine = engine
    model.to(dtype).zero_grad()
    x = x.detach().to(dtype).requires_grad_()
    if state is not None:
        state = [type(s)(*(v.detach().to(dtype).requires_grad_() for v in s)) for s in state]
    dt = None if dt is None else dt.detach().to(dtype).requires_grad_()
    y, after, *every = model(x, state, dt, mask, reset=reset, states=states)
    after = model.split_state(after)
    steps = {f"every {name}{k}": v for s in every for name, field in vars(s).items() for k, v in enumerate(field)}
    results = [*after[-1], *([] if last else [y]), *steps.values()]
    factors = [torch.linspace(-1.0, k + 1.5, v.numel(), dtype=dtype).to(v.device) for k, v in enumerate(results)]
    loss = sum((factor.view_as(v) * v).sum() for factor, v in zip(factors, results, strict=True))
    loss.backward()
    out = {"output": y.detach(), "d x": x.grad} | {name: v.detach() for name, v in steps.items()}
    for k, s in enumerate(after):
        out |= {f"{name}{k}": value.detach() for name, value in s._asdict().items()}
    if dt is not None:
        out["d dt"] = gradient(dt)
    for k, s in enumerate(state or ()):
        out |= {f"d {name}{k}": gradient(value) for name, value in s._asdict().items()}
    return out | {f"d {name}": gradient(p) for name, p in model.named_parameters()}


def compare(engine, model, x, state=None, dt=None, mask=None, last=False, tolerance=TOLERANCE, **more):
    """Assert that an engine's results and gradients are those of the eager engine in float64."""
    fast = evaluate(model, engine, torch.float32, x, state, dt, mask, last, **more)
    expected = evaluate(model, "eager", torch.float64, x, state, dt, mask, last, **more)
    model.float()
    assert fast.keys() == expected.keys()
    for name in expected:
        assert fast[name].shape == expected[name].shape
        own = {"skew": SKEW_TOLERANCE, "theta_log": THETA_TOLERANCE}.get(name.rpartition(".")[2], tolerance)
        close(fast[name], expected[name], own, name)


def some_state(model, B):
    """A random state; ages are positive."""
    return [
        type(zero)(*(torch.rand(B, cell.hidden_size) * (5.0 if name == "age" else 1.0) for name in zero._fields))
        for cell in model.layers
        for zero in [cell.initial_state(B)]
    ]


def some_resets(S, B):
    """Some in each row: before the first step, twice in succession, before the last step."""
    reset = torch.rand(S, B) < 0.2
    reset[0, 0] = reset[1:3, -1] = reset[-1, 0] = True
    return reset


def learned_start(kind):
    """A class of cells that begin from a learned vector, the same one in every field but for a factor."""

    class Learned(kind):
        def __init__(self, *sizes, **arguments):
            super().__init__(*sizes, **arguments)
            self.start = torch.nn.Parameter(0.1 + torch.rand(self.hidden_size))

        def initial_state(self, *batch):
            return self.State(*(self.start / (k + 1) for k, _ in enumerate(self.State._fields)))

    return Learned
