from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from timescales import RNN, Cell, one_cell_per_layer


class DecayCell(Cell):
    """rate = softplus(.)   f = exp(-rate dt)   u = tanh(.)   h' = f h + (1 - f) u      with . = gx + gh"""

    gates = ("rate", "cell")  # the blocks of rows in the weights

    class State(NamedTuple):  # carried from step to step; the first field, h, is the output
        h: Tensor

    class Act(NamedTuple):  # the activations of the gates, for analyses
        forget: Tensor
        cell: Tensor

    def __init__(self, input_size, hidden_size, *, rate):
        super().__init__(input_size, hidden_size)
        self.set_bias("rate", torch.full((hidden_size,), rate).expm1().log())

    def act(self, gx, gh, state, dt=1.0):  # gx comes from the input, gh from h; both (batch, 2 * hidden)
        rate, u = (gx + gh).chunk(2, -1)
        return self.Act((-softplus(rate) * dt).exp(), u.tanh())

    def step(self, gx, gh, state, dt=1.0):
        f, u = self.act(gx, gh, state, dt)
        return self.State(f * state.h + (1 - f) * u)

    def timescales(self):
        return 1 / softplus(self.bias_total("rate"))  # -1 / ln f at zero input


class Decay(RNN):
    def __init__(self, input_size, hidden_size, num_layers=1, dropout=0.0, *, rate: float = 1.0, engine="auto"):
        cells = one_cell_per_layer(DecayCell, input_size, hidden_size, num_layers, rate=rate)
        super().__init__(cells, dropout=dropout, engine=engine)
