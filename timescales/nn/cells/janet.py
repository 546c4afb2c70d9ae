"""JANET: an LSTM with only a forget gate."""

from typing import NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell, sigmoid_timescales
from timescales.nn.inits import ForgetInit, forget_initializer, is_number
from timescales.nn.rnn import CellRNN


class JANETCell(Cell):
    """JANET ("just another network"): an LSTM with only a forget gate. The cell is the output.

        s  = gx + gh (forget rows)      u = tanh(gx + gh) (cell rows)
        h' = sigmoid(s) h + sigmoid(beta - s) u

    gx = weight_ih x + bias and gh = weight_hh h; each gate has its own rows of them.

    Arguments:
        input_size, hidden_size: sizes I and H.
        forget_init: initializer of the forget bias (see `timescales.nn.inits`; the paper uses chrono). Default:
            torch's.
        T_max: the longest expected time scale, in steps: short for forget_init={"law": "chrono", "T_max": T_max}. In a
            configuration, "auto" is the task's horizon. Default: None.
        beta: offset of the input. With 1 (default) a unit accepts a little more than it forgets; with 0 the two sum to
            1.
        bias: whether the linear maps have a bias. Default: True.

    Init: weights U(-1/sqrt(H), 1/sqrt(H)). An initializer writes its bias to the forget rows and zeros to the cell
    rows.
    Source: van der Westhuizen & Lasenby 2018 ("The unreasonable effectiveness of the forget gate").
    Differs: the released code draws the weights by Glorot initialisation and the bias from ln U[1, T_max], not
    ln U[1, T_max - 1].
    """

    gates = ("forget", "cell")

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        forget: Tensor
        input: Tensor
        cell: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        forget_init: ForgetInit = None,
        T_max: float | None = None,
        beta: float = 1.0,
        bias: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        if not is_number(beta):
            raise ValueError(f"beta must be a finite number, not {beta!r}")
        self.beta = float(beta)
        init = forget_initializer(forget_init, T_max)
        if init is not None:
            b = init.bias(hidden_size)
            self.set_bias("forget", b)
            self.set_bias("cell", torch.zeros_like(b))

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        s, u = (gx + gh).chunk(2, -1)
        return self.Act(s.sigmoid(), (self.beta - s).sigmoid(), u.tanh())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        f, i, u = self.act(gx, gh, state, dt)
        return self.State(f * state.h + i * u)

    timescales = sigmoid_timescales


class JANET(CellRNN):
    """JANET: an LSTM with only a forget gate. `JANETCell` has the equations and the arguments.

    Call: as `GRU`.
    Forgets: exponentially; the forget gate is the only gate.
    Source: van der Westhuizen & Lasenby 2018.
    """

    cell_class = JANETCell
