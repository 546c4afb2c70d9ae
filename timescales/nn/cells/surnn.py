"""The selective-update RNN: a plain RNN whose units each follow a learned schedule of updates and rest in between."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell
from timescales.nn.inits import is_number
from timescales.nn.rnn import CellRNN

STEPS = 4096  # over which `timescales` counts updates


class SuRNNCell(Cell):
    """suRNN: a plain RNN in which each unit has a switch: it takes its new value, or keeps the old one unchanged.

        t' = t + dt                                         the time since the start of the sequence
        a  = b + alpha_1 sin(w_1 t' + phi_1) + ... + alpha_K sin(w_K t' + phi_K)        w_k = 2 pi / period k
        g  = 1 if a > 0, else 0
        h' = g tanh(gx + gh) + (1 - g) h

    gx = weight_ih x + bias and gh = weight_hh h. Each unit learns its b (`switch_bias`), K alphas (`amplitude`) and
    K phis (`phase`); the K periods are fixed, the same for all units. The switch reads only the time, not the input.

    The derivative of g is 0 almost everywhere; `backward` uses that of sigmoid(a) instead, a surrogate gradient.

    Arguments:
        input_size, hidden_size: sizes I and H.
        periods: K periods of the sines, above 0, in the unit of dt. Default: (4, 16, 64, 256).

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)); b 0, so that a switch is on for about half of the time; alpha
    N(0, 1), phi U(0, 2 pi). `amplitude` has the alpha_1 of all units, then alpha_2, (K H,); so has `phase`.
    Time scales: a unit does not decay. `timescales` returns the mean number of steps until its next update. There is no
    `forget` from which T_1/e could be computed.
    Source: Yin, Wang, Tan, Bohte, Corradi & Li 2026 (arXiv 2603.02226).
    Differs: only the equations are known here, as a public issue quotes them, not the text, the experiments or the
    code. They do not say what is updated: here a plain RNN; the authors' code has the name suGRU. The abstract says
    that the switch opens for informative events; in these equations it reads the time. t is the number of the step
    there, the sum of dt here. The periods, the initial values and the surrogate gradient are our choice.
    """

    gates = ("new",)
    shown = ("periods",)

    class State(NamedTuple):
        h: Tensor
        time: Tensor

    class Act(NamedTuple):
        switch: Tensor
        new: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        periods: Sequence[float] = (4.0, 16.0, 64.0, 256.0),
        bias: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        numbers = tuple(periods) if isinstance(periods, Sequence) else ()
        if not numbers or not all(is_number(period) and period > 0 for period in numbers):
            raise ValueError(f"periods must be a list of numbers above 0, in the unit of dt, not {periods!r}")
        self.periods = tuple(map(float, numbers))
        size, dtype = len(numbers) * hidden_size, self.weight_hh.dtype
        self.switch_bias = nn.Parameter(torch.zeros(hidden_size, dtype=dtype))
        self.amplitude = nn.Parameter(torch.empty(size, dtype=dtype).normal_())
        self.phase = nn.Parameter(torch.empty(size, dtype=dtype).uniform_(0.0, 2.0 * math.pi))

    def schedule(self, time: Tensor) -> Tensor:
        """Return the a of each unit, (..., H), at a time (..., H): its switch is on where a is above 0."""
        a: Tensor = self.switch_bias
        K = len(self.periods)
        for period, alpha, phi in zip(self.periods, self.amplitude.chunk(K), self.phase.chunk(K), strict=True):
            since = time - period * (time / period).floor()  # since the cycle began: sines of late times are exact
            a = a + alpha * (2.0 * math.pi / period * since + phi).sin()
        return a

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        """Return the switch g, and the value that it lets in, (..., H) each."""
        a = self.schedule(state.time + dt)
        soft = a.sigmoid()
        g = torch.where(a > 0.0, torch.ones_like(a), 0.0) + (soft - soft.detach())  # which is exactly 0
        return self.Act(g, (gx + gh).tanh())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        g, new = self.act(gx, gh, state, dt)
        return self.State(g * new + (1.0 - g) * state.h, state.time + dt)

    @torch.no_grad()
    def timescales(self) -> Tensor:
        """Return the mean number of steps from a step to the unit's next update, (H,), over 4,096 steps of dt = 1.

        It is infinite for a unit without an update. Steps after a unit's last update do not count.
        """
        b = self.switch_bias
        time = torch.arange(1, STEPS + 1, dtype=torch.float64, device=b.device).unsqueeze(-1)
        on = self.schedule(time.expand(STEPS, self.hidden_size)) > 0.0
        updates = torch.where(on, time, torch.inf).flip(0).cummin(0).values.flip(0)  # the first at a step or later
        wait = updates[1:] - time[:-1]
        known = wait.isfinite()
        mean = torch.where(known, wait, 0.0).sum(0) / known.sum(0)
        return torch.where(known.any(0), mean, torch.inf).to(b.dtype)


class SuRNN(CellRNN):
    """suRNN: a plain RNN whose units each follow a learned schedule of updates. See `SuRNNCell`.

    Call: as `LSTM`, with dt (S, B), the time since the previous step (default: 1). The state has h and `time`, the time
    since the start, which goes on where a state is carried.
    Forgets: a unit keeps its value unchanged until its next update, whose times are learned.
    Source: Yin et al. 2026.
    """

    cell_class = SuRNNCell
