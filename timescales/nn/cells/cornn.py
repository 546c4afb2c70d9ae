"""The coupled oscillatory recurrent network: each unit is a damped oscillator that all others drive."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from timescales.nn.cells.cell import Cell
from timescales.nn.inits import is_number
from timescales.nn.rnn import CellRNN


class CoRNNCell(Cell):
    """coRNN: oscillators y = h with the velocities z, driven by the input and by each other. It has no gates.

        z' = z + delta dt (tanh(gx + gh + weight_zh z) - gamma h - epsilon z)
        h' = h + delta dt z'

    gx = weight_ih x + bias and gh = weight_hh h.

    Arguments:
        input_size, hidden_size: sizes I and H.
        delta: the time step, above 0. Default: 0.042.
        gamma, epsilon: the stiffness and the damping of an oscillator, at least 0. Default: 2.7 and 4.7. The three
            defaults are the authors' for sequential MNIST; they are not trained.

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)).
    Time scales: the time scale of an oscillator that nothing drives, -1 / ln of the largest modulus of the eigenvalues
    of (h, z) -> (h', z'). It is 36 steps for the defaults. There is no forget gate.
    Engine: eager. A step has a second product, with z.
    Source: Rusch & Mishra 2021 (arXiv 2010.00951), Eq. 3 in its explicit form, as in the authors' code.
    Differs: dt is an addition: the length of Euler's step, which is not exact and diverges where delta dt epsilon
    is above 2.
    """

    gates = ("cell",)
    compiled = False  # a product within the step
    shown = ("delta", "gamma", "epsilon")

    class State(NamedTuple):
        h: Tensor
        z: Tensor

    class Act(NamedTuple):
        cell: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, *, delta: float = 0.042, gamma: float = 2.7, epsilon: float = 4.7
    ) -> None:
        super().__init__(input_size, hidden_size)
        if not is_number(delta) or delta <= 0.0:
            raise ValueError(f"delta must be a number above 0, not {delta!r}")
        for name, value in (("gamma", gamma), ("epsilon", epsilon)):
            if not is_number(value) or value < 0.0:
                raise ValueError(f"{name} must be a number of at least 0, not {value!r}")
        self.delta, self.gamma, self.epsilon = delta, gamma, epsilon
        bound = hidden_size**-0.5
        self.weight_zh = nn.Parameter(torch.empty(hidden_size, hidden_size).uniform_(-bound, bound))

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        """Return the force on each oscillator, (..., H)."""
        return self.Act((gx + gh + F.linear(state.z, self.weight_zh).to(gx.dtype)).tanh())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        force, delta = self.act(gx, gh, state, dt).cell, self.delta * dt
        z = state.z + delta * (force - self.gamma * state.h - self.epsilon * state.z)
        return self.State(state.h + delta * z, z)

    def timescales(self) -> Tensor:
        """Return -1 / ln of the largest modulus, (H,), the same for all units; infinite where it is 1 or more."""
        d, kept = self.delta, 1.0 - self.delta * self.epsilon
        step = torch.tensor(
            [[1.0 - d * d * self.gamma, d * kept], [-d * self.gamma, kept]], dtype=torch.float64, device="cpu"
        )
        modulus = torch.linalg.eigvals(step).abs().max()
        # Without damping it is 1, except for rounding.
        time = math.inf if modulus > 1.0 - 1e-12 else -1.0 / math.log(modulus)
        return torch.full_like(self.bias, time)


class CoRNN(CellRNN):
    """coRNN: coupled oscillators that the input drives. See `CoRNNCell`.

    Call: as `PLSTM`; the state has h and z, the velocity. A step has two products, for which there is no kernel, so
    engine="auto" is the eager engine.
    Forgets: as a damped oscillator, all units at one rate, which is not trained.
    Source: Rusch & Mishra 2021.
    """

    cell_class = CoRNNCell
