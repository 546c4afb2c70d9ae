"""Gated recurrent unit, and JANET, which is one without the reset gate."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell
from timescales.nn.inits import forget_law, is_number, timescale_of_bias


class GRUCell(Cell):
    """Gated recurrent unit, in torch.nn.GRU's form and parameter names.

    Source: Cho et al. 2014; the reset gate after the recurrent product as in torch and cuDNN.

        r, f = sigmoid(gx + gh)
        u    = tanh(gx + r gh)
        h'   = f h + (1 - f) u

    f is what torch calls the update gate z: with this sign it keeps, so it is named "forget" as in every cell here.
    Init: everything U(+-1/sqrt H). A law for the forget bias writes it into bias_hh's forget rows, and zeros into the
    same rows of bias_ih (chrono in a GRU: Tallec & Ollivier 2018, section 2). The uniform law is written there too;
    as a vector of its own beside the bias it is model=gated model.core=gru model.gate=u.
    """

    gates = ("reset", "forget", "cell")
    biases = 2

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        reset: Tensor
        forget: Tensor
        cell: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, forget_init: object = None) -> None:
        super().__init__(input_size, hidden_size)
        law = forget_law(forget_init)  # type: ignore[arg-type]
        if law is not None:
            self.set_bias("forget", law.bias(hidden_size))

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        (rx, fx, ux), (rh, fh, uh) = gx.chunk(3, -1), gh.chunk(3, -1)
        r = (rx + rh).sigmoid()
        return self.Act(r, (fx + fh).sigmoid(), (ux + r * uh).tanh())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        _, f, u = self.act(gx, gh, state, dt)
        return self.State(f * state.h + (1.0 - f) * u)

    def timescales(self) -> Tensor:
        return timescale_of_bias(self.bias_total("forget"))


class JANETCell(Cell):
    """JANET, "just another network": an LSTM with a forget gate only, whose cell is its output.

    Source: van der Westhuizen & Lasenby 2018 ("The unreasonable effectiveness of the forget gate").

        s  = gx + gh (forget)       u = tanh(gx + gh) (cell)
        h' = sigmoid(s) h + (1 - sigmoid(s - beta)) u

    beta = 1 lets a little more in than is forgotten; beta = 0 ties the two.
    Init: weights U(+-1/sqrt H); with a law for the forget bias, that in the forget rows and 0 in the cell's (the
    paper: chrono).
    Differs: the released code draws its weights by Glorot's law and log U[1, T_max], not T_max - 1, for the bias.
    """

    gates = ("forget", "cell")

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        forget: Tensor
        input: Tensor
        cell: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, forget_init: object = None, beta: float = 1.0) -> None:
        super().__init__(input_size, hidden_size)
        if not is_number(beta):
            raise ValueError(f"beta must be a finite number, not {beta!r}")
        self.beta = float(beta)
        law = forget_law(forget_init)  # type: ignore[arg-type]
        if law is not None:
            b = law.bias(hidden_size)
            self.set_bias("forget", b)
            self.set_bias("cell", torch.zeros_like(b))

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        s, u = (gx + gh).chunk(2, -1)
        return self.Act(s.sigmoid(), (self.beta - s).sigmoid(), u.tanh())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        f, i, u = self.act(gx, gh, state, dt)
        return self.State(f * state.h + i * u)

    def timescales(self) -> Tensor:
        return timescale_of_bias(self.bias_total("forget"))
