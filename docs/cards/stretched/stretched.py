from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales import Cell


class Stretched(Cell):
    """i, o = sigmoid(.)   u = tanh(.)   with . = gx + gh
    f = exp((age / tau)^beta - ((age + dt) / tau)^beta)
    c' = f c + i u   age' = (1 - i) (age + dt)   h' = o tanh(c')
    Unwritten, c decays as exp(-(age / tau)^beta); writing (i near 1) makes the memory young again."""

    gates = ("input", "output", "cell")

    class State(NamedTuple):
        h: Tensor
        c: Tensor
        age: Tensor

    class Act(NamedTuple):
        forget: Tensor
        input: Tensor
        output: Tensor
        cell: Tensor

    def __init__(self, input_size, hidden_size, *, T_max=100.0, beta=0.5):
        super().__init__(input_size, hidden_size)
        self.log_tau = nn.Parameter(torch.rand(hidden_size) * torch.tensor(T_max).log())  # tau from 1 to T_max
        self.log_beta = nn.Parameter(torch.full((hidden_size,), float(beta)).log())
        self.set_bias("input", torch.full((hidden_size,), -1.0))

    def act(self, gx, gh, state, dt=1.0):
        i, o, u = (gx + gh).chunk(3, -1)
        rate = torch.exp(-self.log_tau)
        beta = self.log_beta.exp()
        old = (state.age * rate).clamp(min=1e-4)  # above 0, where the slope of x^beta is infinite
        new = ((state.age + dt) * rate).clamp(min=1e-4)
        f = (old**beta - new**beta).exp()
        return self.Act(f, i.sigmoid(), o.sigmoid(), u.tanh())

    def step(self, gx, gh, state, dt=1.0):
        f, i, o, u = self.act(gx, gh, state, dt)
        c = f * state.c + i * u
        return self.State(o * c.tanh(), c, (1 - i) * (state.age + dt))

    def timescales(self):  # where exp(-(age / tau)^beta) is 1 / e: tau, whatever beta is
        return self.log_tau.exp()
