"""ParaGRU: a GRU whose units read only their own output."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell, sigmoid_timescales
from timescales.nn.inits import ForgetInit
from timescales.nn.rnn import CellRNN


class ParaGRUCell(Cell):
    """ParaGRU: a GRU whose recurrent matrices are diagonal, one number a for each unit and gate.

        f  = sigmoid(gx + a h)      the paper's update gate is z = 1 - f
        r  = sigmoid(gx + a h)
        u  = tanh(gx + a (r h))
        h' = f h + (1 - f) u

    gx = weight_ih x + bias; each gate has its own rows of it, and its own a, a block of `diagonal`. Units meet in the
    next layer. The paper's Newton iterations, which give the same numbers as steps one by one, are not here.

    Arguments:
        input_size, hidden_size: sizes I and H.
        forget_init: initializer of the forget bias (see `timescales.nn.inits`). Default: torch's.

    Init: weight_ih and bias U(-1/sqrt(H), 1/sqrt(H)); a normal with the standard deviation 1/sqrt(H), as in the paper.
    Time scales: `forget` is f; as in a GRU, T_1/e leaves out what comes back through the gates.
    Source: Danieli, Rodríguez, Sarabia, Suau & Zappella 2025 (arXiv 2510.21450), Eqs. 3.1a and 3.3.
    Differs: the paper's f has the opposite sign; it cuts a at +-0.5 for its Newton iterations. Its convolution and its
    gated norm are not here; model.block=residual has a norm and a perceptron. dt is ignored.
    """

    gates = ("forget", "reset", "cell")
    recurrent = False

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        forget: Tensor
        reset: Tensor
        cell: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, forget_init: ForgetInit = None) -> None:
        super().__init__(input_size, hidden_size)
        self.diagonal = nn.Parameter(torch.randn(3 * hidden_size) * hidden_size**-0.5)
        self._set_forget_bias(forget_init)

    def act(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> Act:
        forget, reset, u = gx.chunk(3, -1)
        a_f, a_r, a_u = self.diagonal.chunk(3, -1)
        r = (reset + a_r * state.h).sigmoid()
        return self.Act((forget + a_f * state.h).sigmoid(), r, (u + a_u * (r * state.h)).tanh())

    def step(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> State:
        f, _, u = self.act(gx, gh, state, dt)
        return self.State(f * state.h + (1.0 - f) * u)

    timescales = sigmoid_timescales


class ParaGRU(CellRNN):
    """ParaGRU: a GRU whose units read only their own output. See `ParaGRUCell`.

    Call: as `GRU`; dt is ignored.
    Forgets: exponentially, at a rate that it learns; the gate reads the unit's own output.
    Source: Danieli et al. 2025.
    """

    cell_class = ParaGRUCell
