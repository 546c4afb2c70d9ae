"""The leaky RNN: a plain RNN whose units are low-pass filters, each with a time constant that is learned."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell
from timescales.nn.inits import is_number
from timescales.nn.rnn import CellRNN


class LeakyRNNCell(Cell):
    """Leaky RNN: leaky integrators, each with one learned time constant. No gate depends on the input.

        tau = exp(log_tau), one time constant per unit
        f  = exp(-dt / tau)
        u  = tanh(gx + gh)
        h' = f h + (1 - f) u

    gx = weight_ih x + bias and gh = weight_hh h. This is the exact solution of tau dh/dt = -h + u for a u that stays
    constant during a step, so that any dt is stable.

    Arguments:
        input_size, hidden_size: sizes I and H.
        T_max: the longest initial time constant, in steps, at least 1. Default: 10. In a configuration, "auto" is the
            task's horizon.

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)); ln tau uniform on [0, ln T_max].
    Source: the rate networks of neuroscience; with learned time constants Khajehabdollahi, Zeraati, Giannakakis,
    Schäfer, Martius & Levina 2024 (arXiv 2309.12927).
    Differs: that paper takes Euler's 1 - dt / tau for f, and a leaky ReLU of the whole new state instead of the tanh
    of u. It trains tau itself and keeps it above 1. In its released code all time constants begin between 1 and 2, no
    unit reads its own output through weight_hh, and the state begins with small random numbers.
    """

    gates = ("cell",)

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        forget: Tensor
        input: Tensor
        cell: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, T_max: float = 10.0, bias: bool = True) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        if not is_number(T_max) or T_max < 1:
            raise ValueError(f"T_max must be a number of at least 1 (a time in steps), not {T_max!r}")
        log_tau = torch.empty(hidden_size, dtype=torch.float64).uniform_(0.0, 1.0) * math.log(T_max)
        self.log_tau = nn.Parameter(log_tau.to(self.weight_hh.dtype))

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        u = (gx + gh).tanh()
        log_f = (-torch.exp(-self.log_tau) * dt).expand_as(u)
        return self.Act(log_f.exp(), -log_f.expm1(), u)

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        f, i, u = self.act(gx, gh, state, dt)
        return self.State(f * state.h + i * u)

    def timescales(self) -> Tensor:
        """Return the time constants tau, (H,), which are -1 / ln f at dt = 1."""
        return self.log_tau.exp()


class LeakyRNN(CellRNN):
    """Leaky RNN: leaky integrators, each with a learned time constant. See `LeakyRNNCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Forgets: exponentially; each unit has one time constant, which is learned.
    Source: Khajehabdollahi et al. 2024.
    """

    cell_class = LeakyRNNCell
