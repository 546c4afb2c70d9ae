"""Orthogonal recurrent network: nothing is forgotten, nothing explodes."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell, Weights


class ExpRNNCell(Cell):
    """expRNN: the recurrent matrix is the exponential of a skew-symmetric one, so it is orthogonal whatever is learned.

    Source: Lezcano-Casado & Martinez-Rubio 2019 ("Cheap orthogonal constraints in neural networks").

        W  = exp(A)       A[j, k] = -A[k, j] = `skew`, one number for each pair j > k
        z  = gx + W h     gx without a bias
        h' = sign(z) max(0, |z| + bias)

    Init: input weights U(+-1/sqrt H), bias U(+-.01); A of 2 x 2 blocks [[0, -s], [s, 0]] with
    s = sqrt((1 - cos v) / (1 + cos v)), v ~ U(0, pi/2) (skew_init="cayley", Helfrich et al. 2018), or s ~ U(-pi, pi)
    ("henaff", Henaff et al. 2016).
    Differs: the paper gives A a learning rate of its own, a tenth of the others'; here one optimizer has one rate.
    torch.nn.utils.parametrizations.orthogonal gives the same matrices (a test holds it to that), but computes them at
    every reading of the weight and keeps H^2 numbers for them.
    """

    gates = ("cell",)

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        cell: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, skew_init: str = "cayley") -> None:
        super().__init__(input_size, hidden_size)
        if skew_init not in ("cayley", "henaff"):
            raise ValueError(f"skew_init must be cayley or henaff, not {skew_init!r}")
        self.weight_hh = None  # type: ignore[assignment]  # see weights()
        nn.init.uniform_(self.bias, -0.01, 0.01)
        blocks = torch.empty(hidden_size // 2)
        if skew_init == "cayley":
            v = blocks.uniform_(0.0, math.pi / 2)
            # tan(v / 2), in double precision: the last bit of a float32 cosine is not the same on every processor.
            s = ((1.0 - v.double().cos()) / (1.0 + v.double().cos())).sqrt().to(blocks.dtype)
        else:
            s = blocks.uniform_(-math.pi, math.pi)
        lower = torch.zeros(hidden_size, hidden_size)
        even = torch.arange(0, hidden_size - 1, 2)
        lower[even + 1, even] = s
        j, k = torch.tril_indices(hidden_size, hidden_size, -1)
        self.skew = nn.Parameter(lower[j, k])

    def weights(self) -> Weights:
        n = self.hidden_size
        j, k = torch.tril_indices(n, n, -1, device=self.skew.device)
        lower = self.skew.new_zeros(*self.skew.shape[:-1], n, n)
        lower[..., j, k] = self.skew
        A = lower - lower.mT
        wide = A.to(torch.promote_types(A.dtype, torch.float32))  # in half precision torch's matrix_exp overflows
        return Weights(self.weight_ih, torch.linalg.matrix_exp(wide).to(A.dtype), torch.zeros_like(self.bias))

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        z = gx + gh
        return self.Act(z.sign() * (z.abs() + self.per_unit(self.bias, z)).relu())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        return self.State(self.act(gx, gh, state, dt).cell)

    def timescales(self) -> Tensor:
        """Infinite: an orthogonal matrix forgets nothing."""
        return torch.full_like(self.bias, torch.inf)
