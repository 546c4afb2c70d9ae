from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from timescales import Cell


class TwoTraces(Cell):
    """A fast and a slow trace of the same input; the output is a learned, input-dependent mixture of both.

    a = exp(-dt softplus(.))   b = exp(-dt softplus(.))   u = tanh(.)   m = sigmoid(.)      with . = gx + gh
    fast' = a fast + (1 - a) u      slow' = b slow + (1 - b) u      h' = m slow' + (1 - m) fast'
    """

    gates = ("fast", "slow", "cell", "mix")

    class State(NamedTuple):
        h: Tensor
        fast: Tensor
        slow: Tensor

    class Act(NamedTuple):
        forget: Tensor  # of the slow trace
        fast: Tensor
        cell: Tensor
        mix: Tensor

    def __init__(self, input_size, hidden_size, *, T_min=10.0, T_max=1000.0):
        super().__init__(input_size, hidden_size)
        T = T_min * (T_max / T_min) ** torch.rand(hidden_size)  # log-uniform from T_min to T_max steps
        self.set_bias("slow", torch.log(torch.expm1(1 / T)))  # softplus(bias) = 1 / T

    def act(self, gx, gh, state, dt=1.0):
        fast, slow, u, m = (gx + gh).chunk(4, -1)
        return self.Act((-softplus(slow) * dt).exp(), (-softplus(fast) * dt).exp(), u.tanh(), m.sigmoid())

    def step(self, gx, gh, state, dt=1.0):
        b, a, u, m = self.act(gx, gh, state, dt)
        fast = a * state.fast + (1 - a) * u
        slow = b * state.slow + (1 - b) * u
        return self.State(m * slow + (1 - m) * fast, fast, slow)

    def timescales(self):  # of the slow trace: -1 / ln b at zero input and dt = 1
        return 1 / softplus(self.bias_total("slow"))
