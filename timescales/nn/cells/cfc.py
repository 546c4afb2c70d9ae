"""The closed-form continuous-time network: a gate of time between two candidates."""

from typing import NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell
from timescales.nn.rnn import CellRNN


class CfCCell(Cell):
    """CfC: the new state is a mean of two candidates, weighted by the time since the last step.

        g, k = tanh(.)              with . = gx + gh
        s  = sigmoid(rate dt + phase)           rate and phase are . too
        h' = (1 - s) g + s k

    gx = weight_ih x + bias and gh = weight_hh h. It is the closed form of a liquid time-constant network, in which the
    time enters the step itself; no solver is needed.

    Arguments:
        input_size, hidden_size: sizes I and H.

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)).
    Time scales: none. A step keeps nothing of h by itself: what it remembers went through the recurrent weights.
    Source: Hasani, Lechner, Amini, Liebenwein, Ray, Tschaikowski, Teschl & Rus 2022 (arXiv 2106.13898); rate and phase
    as in the authors' code, whose mode is "default".
    Differs: the paper has the phase 0. In the authors' networks the four maps may read a shared hidden layer of x and
    h, the backbone; here they read x and h, as in their wired networks (backbone_layers=0).
    """

    gates = ("first", "second", "rate", "phase")

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        first: Tensor
        second: Tensor
        share: Tensor

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        g, k, rate, phase = (gx + gh).chunk(4, -1)
        return self.Act(g.tanh(), k.tanh(), (rate * dt + phase).sigmoid())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        g, k, s = self.act(gx, gh, state, dt)
        return self.State((1.0 - s) * g + s * k)

    def timescales(self) -> Tensor:
        """Return NaN, (H,): a unit has no time scale."""
        return torch.full_like(self.weights().bias()[..., : self.hidden_size], torch.nan)


class CfC(CellRNN):
    """Closed-form continuous-time network: a gate of the elapsed time between two candidates. See `CfCCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Forgets: at once, but for what its recurrent weights carry on.
    Source: Hasani et al. 2022.
    """

    cell_class = CfCCell
