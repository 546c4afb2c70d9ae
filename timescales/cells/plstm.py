"""Power-law LSTM: a unit forgets as a power of the time since it was last reset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.cells.cell import Cell
from timescales.inits import is_number


class PLSTMCell(Cell):
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
        super().__init__(input_size, hidden_size)
        if not is_number(epsilon) or not 0.0 < epsilon < 1.0:
            raise ValueError(f"epsilon must be a number between 0 and 1, not {epsilon!r}")
        if epsilon_form not in ("paper", "authors"):
            raise ValueError(f"epsilon_form must be paper or authors, not {epsilon_form!r}")
        self.coupled, self.epsilon, self.epsilon_form = coupled, float(epsilon), epsilon_form
        self.floor = self.epsilon if epsilon_form == "authors" else 0.0  # the age right after a full reset
        self.fixed_power: float | None = None
        if power == "learned":
            interval = tuple(power_init) if isinstance(power_init, Sequence) else ()
            if len(interval) != 2 or not all(map(is_number, interval)) or not 0 <= interval[0] <= interval[1] <= 1:
                raise ValueError(f"power_init must be two numbers 0 <= low <= high <= 1, not {power_init!r}")
            p = torch.empty(hidden_size, dtype=torch.float64).uniform_(*interval).clamp(1e-4, 1.0 - 1e-4)
            self.power = nn.Parameter(p.logit().to(self.weight_hh.dtype))
        elif is_number(power) and power > 0:  # type: ignore[operator]
            self.fixed_power = float(power)
        else:
            raise ValueError(f"power must be learned or a number above 0, not {power!r}")

    @property
    def p(self) -> Tensor | float:
        """The exponent of each unit: (H,), or one fixed number."""
        return self.power.sigmoid() if self.fixed_power is None else self.fixed_power

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        r, *i, g, o = (gx + gh).chunk(len(self.gates), -1)
        r, g, o = r.sigmoid(), g.tanh(), o.sigmoid()
        keep = 1.0 - r
        age = keep * (state.age + dt) + r * self.floor
        before = keep * (state.age + 1.0) + r * self.floor + self.epsilon
        # (age + 1) / before = 1 + (r + keep dt - epsilon) / before: log1p and expm1 keep 1 - f exact at large ages.
        exponent = -self._p(o) * torch.log1p((r + keep * dt - self.epsilon) / before).clamp(min=0.0)
        return self.Act(r, i[0].sigmoid() if i else -exponent.expm1(), exponent.exp(), g, o, age)

    def _p(self, like: Tensor) -> Tensor | float:
        p = self.p  # (H,), or (R, H) when several seeds are stacked: then it broadcasts over the batch
        return p.unsqueeze(-2) if isinstance(p, Tensor) and p.dim() == 2 and like.dim() == 3 else p

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        _, i, f, g, o, age = self.act(gx, gh, state, dt)
        c = f * state.c + i * g
        return self.State(o * c.tanh(), c, age)

    def timescales(self) -> Tensor:
        """-1 / ln f at zero input and state, at the age where a constant reset gate comes to rest: (1 - r) / r."""
        b = self.bias_total("reset")
        resting = torch.exp(-b) + self.floor
        return 1.0 / (self.p * torch.log1p((1.0 - self.epsilon) / (resting + self.epsilon)))

    def extra_repr(self) -> str:
        power = "learned" if self.fixed_power is None else self.fixed_power
        return f"{super().extra_repr()}, coupled={self.coupled}, epsilon={self.epsilon}, power={power}"
