"""The selective-update RNN: a plain RNN whose units each follow a learned schedule of updates and rest in between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell
from timescales.nn.inits import is_number
from timescales.nn.rnn import CellRNN

STEPS = 4096  # that `timescales` counts updates over


class SuRNNCell(Cell):
    """suRNN: a plain RNN in which each unit has a switch. It takes its new value, or keeps the old one exactly.

        t' = t + dt                                         the time since the start of the sequence
        a  = b + alpha_1 sin(w_1 t' + phi_1) + ... + alpha_K sin(w_K t' + phi_K)        w_k = 2 pi / period k
        g  = 1 if a > 0, else 0
        h' = g tanh(gx + gh) + (1 - g) h

    gx = weight_ih x + bias and gh = weight_hh h. b, alpha and phi are learned, K numbers of each of the last two per
    unit; the K periods are fixed and the same for all units. The switch depends on the time alone, not on the input.

    Its derivative is zero almost everywhere. In its place `backward` uses that of sigmoid(a).

    Arguments:
        input_size, hidden_size: sizes I and H.
        periods: K periods of the sines, in steps, above 0. Default: (4, 16, 64, 256).

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)); b 0, so that a switch is on for about half of the time; alpha
    N(0, 1), phi U(0, 2 pi). `amplitude` has the alpha_1 of all units, then alpha_2, (K H,); so has `phase`.
    Time scales: the mean number of steps between two updates of a unit, until which it forgets nothing. `forget` is
    1 - g, and T_1/e, from it, is the time to the next update; what comes back through weight_hh is not in it.
    Source: Yin, Wang, Tan, Bohte, Corradi & Li 2026 (arXiv 2603.02226).
    Differs: of the paper we had the equations, not the experiments. It leaves open what is updated, here a plain RNN.
    The periods, the initial values and the derivative of the switch are ours.
    """

    gates = ("new",)
    gate_bias: nn.Parameter
    amplitude: nn.Parameter
    phase: nn.Parameter

    class State(NamedTuple):
        h: Tensor
        time: Tensor

    class Act(NamedTuple):
        input: Tensor
        forget: Tensor
        new: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, *, periods: Sequence[float] = (4.0, 16.0, 64.0, 256.0)
    ) -> None:
        super().__init__(input_size, hidden_size)
        numbers = [] if isinstance(periods, str) or not isinstance(periods, Sequence) else list(periods)
        if not numbers or not all(is_number(period) and period > 0 for period in numbers):
            raise ValueError(f"periods must be a list of numbers above 0 (times in steps), not {periods!r}")
        self.periods = tuple(map(float, numbers))
        size, dtype = len(numbers) * hidden_size, self.weight_hh.dtype
        self.gate_bias = nn.Parameter(torch.zeros(hidden_size, dtype=dtype))
        self.amplitude = nn.Parameter(torch.empty(size, dtype=dtype).normal_())
        self.phase = nn.Parameter(torch.empty(size, dtype=dtype).uniform_(0.0, 2.0 * math.pi))

    def schedule(self, time: Tensor) -> Tensor:
        """The a of each unit, (..., H), at a time (..., H): its switch is on where a is above 0."""
        a = self.per_unit(self.gate_bias, time)
        amplitudes, phases = (self.per_unit(v, time).chunk(len(self.periods), -1) for v in (self.amplitude, self.phase))
        for period, alpha, phi in zip(self.periods, amplitudes, phases, strict=True):
            cycles = time / period
            a = a + alpha * (2.0 * math.pi * (cycles - cycles.floor()) + phi).sin()  # exact at late times, too
        return a

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        """The switch g, 1 - g, and the new value that it lets in, each (..., H)."""
        a = self.schedule(state.time + dt)
        soft = a.sigmoid()
        g = torch.where(a > 0.0, torch.ones_like(a), 0.0) + (soft - soft.detach())  # which is exactly 0
        return self.Act(g, 1.0 - g, (gx + gh).tanh())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        g, keep, new = self.act(gx, gh, state, dt)
        return self.State(g * new + keep * state.h, state.time + dt)

    @torch.no_grad()
    def timescales(self) -> Tensor:
        """The mean number of steps between two updates, (H,), over 4,096 steps; infinite for a unit without one."""
        like = self.gate_bias
        time = torch.arange(1, STEPS + 1, dtype=torch.float64, device=like.device).unsqueeze(-1)
        on = self.schedule(time.expand(*like.shape[:-1], STEPS, self.hidden_size)) > 0.0
        return STEPS / on.sum(-2).to(like.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, periods={self.periods}"


class SuRNN(CellRNN):
    """suRNN: a plain RNN whose units each follow a learned schedule of updates. See `SuRNNCell`.

    Call: as `LSTM`, with dt (S, B), the time since the previous step (default: 1). The state has h and `time`, the time
    since the start, which goes on where a state is carried.
    Forgets: nothing until a unit's next update, whose times are learned.
    Source: Yin et al. 2026.
    """

    cell_class = SuRNNCell
