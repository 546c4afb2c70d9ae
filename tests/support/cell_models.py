"""Every cell with a kernel as a model of one layer, for tests of the engines.

Also two cells of unusual operations and gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from cell_cases import CELLS
from everyday import only
from torch import Tensor, nn

from timescales import RNN
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
NAMES = [*(name for name, (kind, _) in CELLS.items() if kind.compiled), *MORE]  # the hidden size: a multiple of 4

AGED = ("plstm", "plstm_separate", "plstm_small_epsilon", "plstm_authors", "pgru")

# Other initializers, other frozen gates, or the same equations by another class: the kernels are those of another name.
SAME = ("lstm_bias_1", "lstm_frozen", "lstm_uniform", "chrono", "mts", "gated_lstm_-", "gated_lstm_c", "gated_lstm_u")
SAME += ("refine_only", "ur_chrono", "ur_frozen", "gated_lstm_r", "gated_lstm_ur", "exprnn_henaff")
SAME += ("mingru_chrono", "minlstm_chrono", "lru_ring")
SAME += ("gru_chrono", "gated_gru_-", "gated_gru_c", "gated_gru_u", "gated_gru_r")
KERNELS = [name for name in NAMES if name not in SAME]

# To compile a kernel takes seconds: `make test` leaves out those whose operations others have, too.
COMPILED = only([name for name in KERNELS if not name.startswith("gated_") or name.endswith("_4")], KERNELS)


def model(name: str, input_size: int, hidden_size: int) -> RNN:
    """A model of one layer. Every parameter but the `skew` of a matrix exponential is moved away from its start."""
    kind, arguments = (CELLS | MORE)[name]
    rnn = RNN([kind(input_size, hidden_size, **arguments)]).eval()
    with torch.no_grad():
        for key, parameter in rnn.named_parameters():
            if not key.endswith("skew"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return rnn
