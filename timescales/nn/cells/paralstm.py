"""ParaLSTM: an LSTM with coupled gates and peepholes whose units read only their own output."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell, sigmoid_timescales
from timescales.nn.inits import ForgetInit
from timescales.nn.rnn import CellRNN


class ParaLSTMCell(Cell):
    """ParaLSTM: an LSTM whose recurrent matrices are diagonal, with peepholes; its input gate is 1 - f.

        f  = sigmoid(gx + a h + p c)
        u  = tanh(gx + a h)
        c' = f c + (1 - f) u
        o  = sigmoid(gx + a h + p c')
        h' = o tanh(c')

    gx = weight_ih x + bias; each gate has its own rows of it, its own a, a block of `diagonal`, and f and o their own
    p, a block of `peephole`. Units meet in the next layer. The paper's Newton iterations, which give the same
    numbers as steps one by one, are not here.

    Arguments:
        input_size, hidden_size: sizes I and H.
        forget_init: initializer of the forget bias (see `timescales.nn.inits`). Default: torch's.

    Init: weight_ih and bias U(-1/sqrt(H), 1/sqrt(H)); a and p normal with the standard deviation 1/sqrt(H), as in the
    paper.
    Time scales: `forget` is f; as in an LSTM, T_1/e leaves out what comes back through the gates.
    Source: Danieli, Rodríguez, Sarabia, Suau & Zappella 2025 (arXiv 2510.21450), Eqs. 3.1b and 3.3.
    Differs: the paper cuts a and p at +-0.5 for its Newton iterations. Its convolution and its gated norm are not here;
    model.block=residual has a norm and a perceptron. dt is ignored.
    """

    gates = ("forget", "cell", "output")
    recurrent = False

    class State(NamedTuple):
        h: Tensor
        c: Tensor

    class Act(NamedTuple):
        forget: Tensor
        cell: Tensor
        output: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, forget_init: ForgetInit = None) -> None:
        super().__init__(input_size, hidden_size)
        self.diagonal = nn.Parameter(torch.randn(3 * hidden_size) * hidden_size**-0.5)
        self.peephole = nn.Parameter(torch.randn(2 * hidden_size) * hidden_size**-0.5)
        self._set_forget_bias(forget_init)

    def act(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> Act:
        forget, u, o = gx.chunk(3, -1)
        a_f, a_u, a_o = self.diagonal.chunk(3, -1)
        p_f, p_o = self.peephole.chunk(2, -1)
        f, u = (forget + a_f * state.h + p_f * state.c).sigmoid(), (u + a_u * state.h).tanh()
        return self.Act(f, u, (o + a_o * state.h + p_o * self.written(f, u, state)).sigmoid())

    @staticmethod
    def written(f: Tensor, u: Tensor, state: State) -> Tensor:
        """Return the new c, which the output gate reads."""
        return f * state.c + (1.0 - f) * u

    def step(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> State:
        f, u, o = self.act(gx, gh, state, dt)
        c = self.written(f, u, state)
        return self.State(o * c.tanh(), c)

    timescales = sigmoid_timescales


class ParaLSTM(CellRNN):
    """ParaLSTM: an LSTM with peepholes whose units read only their own output. See `ParaLSTMCell`.

    Call: as `LSTM`; dt is ignored.
    Forgets: exponentially, at a rate that it learns; the gate reads the unit's own output and cell.
    Source: Danieli et al. 2025.
    """

    cell_class = ParaLSTMCell
