"""The independently recurrent network: each unit reads only its own output, by one weight."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell
from timescales.nn.inits import interval, timescale_of_gate
from timescales.nn.rnn import CellRNN


class IndRNNCell(Cell):
    """IndRNN: a plain RNN whose recurrent matrix is diagonal: one weight u for each unit, and no gates.

        h' = relu(gx + u h)         or tanh

    gx = weight_ih x + bias. Units meet in the next layer.

    Arguments:
        input_size, hidden_size: sizes I and H.
        activation: "relu" (default) or "tanh".
        u_init: (low, high), the interval of the initial u. Default: (0, 1).

    Init: weight_ih and bias U(-1/sqrt(H), 1/sqrt(H)); u uniform on `u_init`.
    Time scales: in one step a unit keeps |u| of its output, times the slope of the activation: 1 or 0 for ReLU, so that
    a unit that is off forgets at once. `forget` is this product, and T_1/e, from it, is exact.
    Source: Li, Li, Cook, Zhu & Gao 2018 (arXiv 1803.04831).
    Differs: the paper keeps |u| below a bound near 1 that depends on the length of the sequences, and for long memory
    draws u near this bound; here u is free, and u_init gives the interval. Its batch norm between the layers is not
    here; model.block=residual has a layer norm there. dt is ignored.
    """

    gates = ("new",)
    recurrent = False
    shown = ("activation",)

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        forget: Tensor
        new: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        activation: str = "relu",
        u_init: Sequence[float] = (0.0, 1.0),
        bias: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        if activation not in ("relu", "tanh"):
            raise ValueError(f"activation must be relu or tanh, not {activation!r}")
        self.activation = activation
        drawn = torch.empty(hidden_size, dtype=self.weight_ih.dtype).uniform_(*interval("u_init", u_init))
        self.u = nn.Parameter(drawn)

    def act(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> Act:
        """Return what a unit keeps of its output, |u| times the activation's slope, and the new output; (..., H)."""
        z = gx + self.u * state.h
        if self.activation == "relu":
            return self.Act(torch.where(z > 0.0, self.u.abs(), 0.0), z.relu())
        new = z.tanh()
        return self.Act(self.u.abs() * (1.0 - new * new), new)

    def step(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> State:
        return self.State(self.act(gx, gh, state, dt).new)

    def timescales(self) -> Tensor:
        """Return -1 / ln |u|, (H,), of a unit whose activation has the slope 1; infinite where |u| is 1 or more."""
        return timescale_of_gate(self.u.abs().clamp(max=1.0))


class IndRNN(CellRNN):
    """IndRNN: each unit reads only its own output, by one weight. See `IndRNNCell`.

    Call: as `GRU`; dt is ignored.
    Forgets: exponentially, at a rate that is learned and does not depend on the input; at once where a ReLU is off.
    Source: Li et al. 2018.
    """

    cell_class = IndRNNCell
