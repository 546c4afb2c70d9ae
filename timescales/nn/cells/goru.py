"""The gated orthogonal recurrent unit: a GRU whose candidate turns the state by an orthogonal matrix."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell, Weights, sigmoid_timescales
from timescales.nn.cells.eurnn import chain, checked_chain, rotated
from timescales.nn.cells.urnn import uniform
from timescales.nn.rnn import CellRNN


class GORUCell(Cell):
    """GORU: the gates of a GRU, and an orthogonal matrix O for the candidate.

        f, r = sigmoid(gx + gh)             f: the update gate, which keeps the state
        a    = gx + r (O h)
        u    = sign(a) max(0, |a| + bias_cell)      modReLU
        h'   = f h + (1 - f) u

    gx = weight_ih x + bias, without a bias for a, and gh = weight_hh h; each gate has its own rows of them. O is built
    of `capacity` layers of rotations of pairs of units, as W of `EURNNCell` with phi = 0 and D = 1.

    Arguments:
        input_size, hidden_size: sizes I and H.
        capacity: the number of layers of rotations, at least 1. Default: 2. Not for "fft".
        style: "tunable" (default) or "fft", for which H is a power of two.

    Init: theta U(-pi, pi); weights U(-.01, .01); biases of r 2, of f 0, and bias_cell .01.
    The engines see O as rows of weight_hh: see `weights`.
    Source: Jing, Gulcehre, Peurifoy, Shen, Tegmark, Soljacic & Bengio 2019 (arXiv 1706.02761).
    Differs: the start is that of their released code, except that of f's bias, which is uniform there. dt is ignored.
    """

    gates = ("forget", "reset", "cell")

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        forget: Tensor
        reset: Tensor
        cell: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, capacity: int = 2, style: str = "tunable") -> None:
        self.capacity, self.style, self.shown = checked_chain(capacity, style)
        super().__init__(input_size, hidden_size)

    def make_parameters(self) -> None:
        """Create and draw the parameters."""
        H = self.hidden_size
        self.weight_ih = uniform(0.01, 3 * H, self.input_size)
        self.weight_hh = uniform(0.01, 2 * H, H)  # only the two gates: `weights` adds O
        self.pairs = chain(H, self.capacity, self.style)
        self.theta = uniform(math.pi, sum(map(len, self.pairs)))
        self.bias = nn.Parameter(torch.zeros(3 * H))
        with torch.no_grad():
            self.bias[self.rows("reset")] = 2.0
            self.bias[self.rows("cell")] = 0.01

    def weights(self) -> Weights:
        """Return weight_ih; weight_hh with O below; and the bias with zeros for the candidate's, which `step` adds."""
        gates, cell = self.bias.split([2 * self.hidden_size, self.hidden_size])
        matrix = rotated(torch.diag(torch.ones_like(cell)), self.pairs, self.theta, None)
        hh = torch.cat([self.weight_hh, matrix])
        return Weights(self.weight_ih, hh, torch.cat([gates, torch.zeros_like(cell)]))

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        (xf, xr, xu), (hf, hr, hu) = gx.chunk(3, -1), gh.chunk(3, -1)
        r = (xr + hr).sigmoid()
        a = xu + r * hu
        return self.Act((xf + hf).sigmoid(), r, a.sign() * (a.abs() + self.bias[self.rows("cell")]).relu())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        f, _, u = self.act(gx, gh, state, dt)
        return self.State(f * state.h + (1.0 - f) * u)

    timescales = sigmoid_timescales


class GORU(CellRNN):
    """Gated orthogonal recurrent unit: a GRU whose candidate turns the state by an orthogonal matrix. See `GORUCell`.

    Call: as `GRU`; dt is ignored.
    Forgets: exponentially, at a rate that it learns; its orthogonal matrix keeps the length of the state.
    Source: Jing et al. 2019.
    """

    cell_class = GORUCell
