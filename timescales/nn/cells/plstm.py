"""Power-law gates: a unit forgets as a power of the time since it was last reset. LSTM and GRU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell
from timescales.nn.inits import is_number


class PowerLaw(Cell):
    """A cell whose forget gate is a power of its age: see `PLSTMCell`, which has the equations."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        epsilon: float = 1e-3,
        power: str | float = "learned",
        power_init: Sequence[float] = (0.0, 1.0),
        epsilon_form: str = "paper",
    ) -> None:
        super().__init__(input_size, hidden_size)
        if not is_number(epsilon) or not 0.0 < epsilon < 1.0:
            raise ValueError(f"epsilon must be a number between 0 and 1, not {epsilon!r}")
        if epsilon_form not in ("paper", "authors"):
            raise ValueError(f"epsilon_form must be paper or authors, not {epsilon_form!r}")
        self.epsilon, self.epsilon_form = float(epsilon), epsilon_form
        self.floor = self.epsilon if epsilon_form == "authors" else 0.0  # the age right after a full reset
        self.fixed_power: float | None = None
        if power == "learned":
            interval = tuple(power_init) if isinstance(power_init, Sequence) else ()
            if len(interval) != 2 or not all(map(is_number, interval)) or not 0 <= interval[0] <= interval[1] <= 1:
                raise ValueError(f"power_init must be two numbers 0 <= low <= high <= 1, not {power_init!r}")
            p = torch.empty(hidden_size, dtype=torch.float64).uniform_(*interval).clamp(1e-4, 1.0 - 1e-4)
            self.power = nn.Parameter(p.logit().to(self.weight_hh.dtype))
        elif is_number(power) and power > 0:
            self.fixed_power = float(power)
        else:
            raise ValueError(f"power must be learned or a number above 0, not {power!r}")

    @property
    def p(self) -> Tensor | float:
        """The exponent of each unit: (H,), or one fixed number."""
        return self.power.sigmoid() if self.fixed_power is None else self.fixed_power

    def forgetting(self, r: Tensor, age: Tensor, dt: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
        """f, 1 - f and the new age for a reset gate r, the age before and the time since then; each (..., H)."""
        keep = 1.0 - r
        before = keep * (age + 1.0) + r * self.floor + self.epsilon
        p = self.p
        p = self.per_unit(p, r) if isinstance(p, Tensor) else p
        # (age + 1) / before = 1 + (r + keep dt - epsilon) / before: log1p and expm1 keep 1 - f exact at large ages.
        exponent = -p * torch.log1p((r + keep * dt - self.epsilon) / before).clamp(min=0.0)
        return exponent.exp(), -exponent.expm1(), keep * (age + dt) + r * self.floor

    def timescales(self) -> Tensor:
        """-1 / ln f at zero input and state, at the age where a constant reset gate comes to rest: (1 - r) / r."""
        b = self.bias_total("reset")
        resting = torch.exp(-b) + self.floor
        return 1.0 / (self.p * torch.log1p((1.0 - self.epsilon) / (resting + self.epsilon)))

    def extra_repr(self) -> str:
        power = "learned" if self.fixed_power is None else self.fixed_power
        return f"{super().extra_repr()}, epsilon={self.epsilon}, power={power}"


class PLSTMCell(PowerLaw):
    """Power-law LSTM in its age form.

    Source: Chien, Turek, Beckage, Vo, Honey & Willke 2021 ("Slower is Better"), Eqs. 4-8 and, for variable time,
    appendix A.1. The paper keeps the reference time k_t = r t + (1 - r) k_{t-1}; here the state is the age
    d = t - k, the time since the unit was last reset. The absolute time drops out of the equations exactly.

        r, o = sigmoid(gx + gh)     g = tanh(gx + gh)     p = sigmoid(power), one per unit
        d' = (1 - r)(d + dt)
        L  = ln((d' + 1) / ((1 - r)(d + 1) + epsilon)), at least 0
        f  = exp(-p L)              i = 1 - f  (coupled), else a sigmoid gate of its own
        c' = f c + i g
        h' = o tanh c'

    With dt = 1 this is f = ((d' + 1) / (d' + epsilon))^-p. A full reset (r = 1) leaves f = epsilon^p, not 0.

    Init: weights and bias U(+-1/sqrt H); p uniform on `power_init` (low, high), kept inside [1e-4, 1 - 1e-4].
    power: "learned", or one fixed number used as it is (it may exceed 1).
    Differs: epsilon_form="authors" is the released code, which resets to age epsilon as well as adding epsilon to the
    ratio; "paper" (default) is the equations as printed. L is held at 0 where dt < epsilon would make f exceed 1.
    """

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
        coupled: bool = True,
        epsilon: float = 1e-3,
        power: str | float = "learned",
        power_init: Sequence[float] = (0.0, 1.0),
        epsilon_form: str = "paper",
    ) -> None:
        # An instance's gates, not the class's: the separate form has a fourth block of weights.
        self.gates = ("reset", "cell", "output") if coupled else ("reset", "input", "cell", "output")  # type: ignore[misc]
        super().__init__(
            input_size, hidden_size, epsilon=epsilon, power=power, power_init=power_init, epsilon_form=epsilon_form
        )
        self.coupled = coupled

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        r, *i, g, o = (gx + gh).chunk(len(self.gates), -1)
        r, g, o = r.sigmoid(), g.tanh(), o.sigmoid()
        f, lost, age = self.forgetting(r, state.age, dt)
        return self.Act(r, i[0].sigmoid() if i else lost, f, g, o, age)

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        _, i, f, g, o, age = self.act(gx, gh, state, dt)
        c = f * state.c + i * g
        return self.State(o * c.tanh(), c, age)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, coupled={self.coupled}"


class PGRUCell(PowerLaw):
    """Power-law GRU: a GRU whose state is kept by the power-law gate. No paper has it: it is defined here.

    Made of: the gate of Chien et al. 2021, in the age form of `PLSTMCell`, in the place of the update gate of a GRU
    (Cho et al. 2014, in torch's form). What a GRU calls its reset gate is `read` here; `reset` is the age's, as in
    PLSTMCell. With 1 - f as the update gate a unit writes as much as it forgets, so f needs no input gate.

        r, s = sigmoid(gx + gh)     p = sigmoid(power), one per unit
        d' = (1 - r)(d + dt)
        L  = ln((d' + 1) / ((1 - r)(d + 1) + epsilon)), at least 0
        f  = exp(-p L)
        u  = tanh(gx + s gh)        the read gate comes after the recurrent product
        h' = f h + (1 - f) u

    Init, power and epsilon as in PLSTMCell.
    """

    gates = ("reset", "read", "cell")

    class State(NamedTuple):
        h: Tensor
        age: Tensor

    class Act(NamedTuple):
        reset: Tensor
        read: Tensor
        input: Tensor
        forget: Tensor
        cell: Tensor
        age: Tensor

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        (rx, sx, ux), (rh, sh, uh) = gx.chunk(3, -1), gh.chunk(3, -1)
        r, s = (rx + rh).sigmoid(), (sx + sh).sigmoid()
        f, lost, age = self.forgetting(r, state.age, dt)
        return self.Act(r, s, lost, f, (ux + s * uh).tanh(), age)

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        _, _, i, f, u, age = self.act(gx, gh, state, dt)
        return self.State(f * state.h + i * u, age)
