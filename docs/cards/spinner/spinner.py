from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from timescales import Cell


class Spinner(Cell):
    """f = exp(-softplus(rate) dt)   a = 2 sigmoid(turn) angle dt   u = tanh(re)   v = tanh(im)
    h'  = f (cos(a) h - sin(a) im) + (1 - f) u      (h is the real part, and the output)
    im' = f (sin(a) h + cos(a) im) + (1 - f) v
    with rate, turn, re, im = W_ih x + b, and a learned angle per unit."""

    gates = ("rate", "turn", "re", "im")
    recurrent = False

    class State(NamedTuple):
        h: Tensor
        im: Tensor

    class Act(NamedTuple):
        forget: Tensor
        angle: Tensor
        re: Tensor
        im: Tensor

    def __init__(self, input_size, hidden_size, *, T_max=100.0):
        super().__init__(input_size, hidden_size)
        tau = T_max ** torch.rand(hidden_size)  # decay times from 1 to T_max
        period = 2 * (T_max / 2) ** torch.rand(hidden_size)  # steps for a full turn, from 2 to T_max
        self.angle = nn.Parameter(2 * torch.pi / period)
        self.set_bias("rate", torch.expm1(1 / tau).log())  # softplus of it is 1 / tau
        self.set_bias("turn", torch.zeros(hidden_size))  # without input a unit turns by its learned angle

    def act(self, gx, gh, state, dt=1.0):
        rate, turn, re, im = gx.chunk(4, -1)
        forget = (-softplus(rate) * dt).exp()
        angle = 2 * turn.sigmoid() * self.angle * dt
        return self.Act(forget, angle, re.tanh(), im.tanh())

    def step(self, gx, gh, state, dt=1.0):
        f, a, u, v = self.act(gx, gh, state, dt)
        cos, sin = a.cos(), a.sin()
        h = f * (cos * state.h - sin * state.im) + (1 - f) * u
        im = f * (sin * state.h + cos * state.im) + (1 - f) * v
        return self.State(h, im)

    def timescales(self):  # -1 / ln f at zero input and dt = 1
        return 1 / softplus(self.bias_total("rate"))
