"""The power-law LSTM: a unit forgets as a power of the time since its last reset."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell
from timescales.nn.inits import check_bool, interval, is_number
from timescales.nn.rnn import CellRNN


class PowerLawCell(Cell):
    """Base class of the cells with a power-law forget gate. `PLSTMCell` has the equations and the arguments."""

    # An age, not the paper's absolute time: it can be carried from segment to segment, and float32 holds it precisely.
    class State(NamedTuple):
        h: Tensor
        c: Tensor
        age: Tensor

    class Act(NamedTuple):
        reset: Tensor
        input: Tensor
        forget: Tensor
        cell: Tensor
        output: Tensor
        age: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        epsilon: float = 1e-3,
        power: str | float = "learned",
        power_init: Sequence[float] = (0.0, 1.0),
        epsilon_form: str = "paper",
        bias: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        if not is_number(epsilon) or not 0.0 < epsilon < 1.0:
            raise ValueError(f"epsilon must be a number between 0 and 1, not {epsilon!r}")
        if epsilon_form not in ("paper", "authors"):
            raise ValueError(f"epsilon_form must be paper or authors, not {epsilon_form!r}")
        self.epsilon, self.epsilon_form = float(epsilon), epsilon_form
        self.floor = self.epsilon if epsilon_form == "authors" else 0.0  # the age right after a full reset
        self.fixed_power: float | None = None
        if power == "learned":
            ends = interval("power_init", power_init, 0.0, 1.0)
            p = torch.empty(hidden_size, dtype=torch.float64).uniform_(*ends).clamp(1e-4, 1.0 - 1e-4)
            self.power = nn.Parameter(p.logit().to(self.weight_ih.dtype))
        elif is_number(power) and power > 0:
            self.fixed_power = float(power)
        else:
            raise ValueError(f"power must be learned or a number above 0, not {power!r}")

    @property
    def p(self) -> Tensor | float:
        """Return the exponent: (H,), or one number if it is fixed."""
        return self.power.sigmoid() if self.fixed_power is None else self.fixed_power

    def forgetting(self, z: Tensor, age: Tensor, dt: Tensor | float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute the power-law gate.

        Arguments:
            z: pre-activation of the reset gate, (..., H).
            age: time since the last reset, before this step, (..., H).
            dt: time since the previous step, a number or (..., 1).

        Returns: the reset gate r, f, 1 - f and the new age, each (..., H).
        """
        # 1 - r would round to a multiple of 2^-24 in float32. Multiplied by an age, that is the age after a reset: from
        # an age of epsilon 2^24 (17,000 at 0.001) on, f would be wholly wrong.
        r, keep = z.sigmoid(), (-z).sigmoid()
        before = keep * (age + 1.0) + r * self.floor + self.epsilon
        # new age + 1 = before + (r + keep dt - epsilon). log1p and expm1 keep 1 - f exact at large ages.
        exponent = self.p * -torch.log1p((r + keep * dt - self.epsilon) / before).clamp(min=0.0)
        return r, exponent.exp(), -exponent.expm1(), keep * (age + dt) + r * self.floor

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        _, i, f, g, o, age = self.act(gx, gh, state, dt)
        c = f * state.c + i * g
        return self.State(o * c.tanh(), c, age)

    def timescales(self) -> Tensor:
        """Return -1 / ln f at zero input and state, (H,).

        The age is the one at which a constant reset gate r settles: (1 - r) / r.
        """
        b = self.bias_total("reset")
        settled_age = torch.exp(-b) + self.floor
        return 1.0 / (self.p * torch.log1p((1.0 - self.epsilon) / (settled_age + self.epsilon)))

    def extra_repr(self) -> str:
        power = "learned" if self.fixed_power is None else self.fixed_power
        return f"{super().extra_repr()}, epsilon={self.epsilon}, power={power}"


class PLSTMCell(PowerLawCell):
    """Power-law LSTM. The state has the age d of each unit: the time since its last reset.

        r, o = sigmoid(gx + gh)     g = tanh(gx + gh)     p = sigmoid(power), one exponent per unit
        d' = (1 - r)(d + dt)
        L  = max(0, ln((d' + 1) / ((1 - r)(d + 1) + epsilon)))
        f  = exp(-p L)
        i  = 1 - f (coupled), or a separate sigmoid gate
        c' = f c + i g
        h' = o tanh(c')

    gx and gh are each gate's rows of the input projection and of the recurrent projection, with biases. With dt = 1
    this is f = ((d' + 1) / (d' + epsilon))^-p. A full reset (r = 1) gives f = epsilon^p, not 0.

    Arguments:
        input_size, hidden_size: sizes I and H.
        coupled: whether the input gate is 1 - f. Default: True.
        epsilon: between 0 and 1. Default: 0.001.
        power: "learned" (default), or one number above 0, the fixed exponent p of all units. It may exceed 1.
        power_init: (low, high), the interval of the initial p. Default: (0, 1).
        epsilon_form: "paper" (default) or "authors", see below.

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)); p uniform on `power_init`, clamped to [1e-4, 1 - 1e-4].
    Source: Chien, Turek, Beckage, Vo, Honey & Willke 2021 ("Slower is Better"), Eqs. 4-8; appendix A.1 for variable
    dt. The paper uses the reference time k_t = r t + (1 - r) k_{t-1}; here the state is the age d = t - k. The two
    forms are equivalent, since the absolute time t cancels.
    Precision: in float32 the error that a step adds to f and to the age is below 2^-21 (5e-7) of them, at any age and
    reset gate.
    Differences from the paper: epsilon_form="authors" is the released code, which resets the age to epsilon and also
    adds epsilon to the ratio. L is clamped at 0, because dt < epsilon would give f > 1.
    """

    def __init__(self, input_size: int, hidden_size: int, *, coupled: bool = True, **arguments: Any) -> None:
        check_bool(coupled=coupled)
        gates = ("reset", "cell", "output") if coupled else ("reset", "input", "cell", "output")
        self.gates = gates  # type: ignore[misc]  # they depend on the argument, not on the class
        super().__init__(input_size, hidden_size, **arguments)
        self.coupled = coupled

    def act(self, gx: Tensor, gh: Tensor, state: PowerLawCell.State, dt: Tensor | float = 1.0) -> PowerLawCell.Act:
        z, *i, g, o = (gx + gh).chunk(len(self.gates), -1)
        g, o = g.tanh(), o.sigmoid()
        r, f, one_minus_f, age = self.forgetting(z, state.age, dt)
        return self.Act(r, one_minus_f if self.coupled else i[0].sigmoid(), f, g, o, age)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, coupled={self.coupled}"


class PLSTM(CellRNN):
    """Power-law LSTM: a unit forgets as a power of the time since its last reset. See `PLSTMCell`.

    Call: `output, state = rnn(x, state=None, dt=None, mask=None)` with x (S, B, input_size), output
    (S, B, hidden_size) and dt (S, B), the time since the previous step (default: 1). The state is an `RNNState`:
    state.h, state.c and state.age, each (num_layers, B, hidden_size). See `RNN.forward`.
    Forgets: as a power of the time since the unit was last reset.
    Source: Chien et al. 2021.
    """

    cell_class = PLSTMCell
