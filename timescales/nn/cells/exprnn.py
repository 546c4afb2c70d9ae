"""Orthogonal recurrent network: the recurrent matrix keeps the norm of the state."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.rnn import CellRNN


class ExpRNNCell(Cell):
    """expRNN: the recurrent matrix is the exponential of a skew-symmetric matrix, so it is always orthogonal.

        A  skew-symmetric: A[j, k] = -A[k, j], one parameter `skew` for each pair j > k
        W  = exp(A)
        z  = gx + W h               gx has no bias
        h' = sign(z) max(0, |z| + bias)

    Arguments:
        input_size, hidden_size: sizes I and H.
        skew_init: initialiser of A, which starts with 2 x 2 blocks [[0, -s], [s, 0]]. "cayley" (default):
            s = sqrt((1 - cos v) / (1 + cos v)), v ~ U(0, pi/2) (Helfrich et al. 2018). "henaff": s ~ U(-pi, pi)
            (Henaff et al. 2016).

    Init: input weights U(-1/sqrt(H), 1/sqrt(H)); bias U(-0.01, 0.01).
    Source: Lezcano-Casado & Martinez-Rubio 2019 ("Cheap orthogonal constraints in neural networks").
    Differs: the paper trains A with a tenth of the learning rate; here one optimizer has one learning rate. The
    authors' code draws the input weights from N(0, 2/I) (Kaiming); here they are torch's uniform ones. It takes
    "henaff" for the copy task, where it also draws the readout from N(0, 2/H) and sets its bias to 0, and "cayley" for
    MNIST.
    Note: torch.nn.utils.parametrizations.orthogonal gives the same matrices, but computes them each time the weight is
    read and stores H^2 numbers.
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
        self.register_parameter("weight_hh", None)  # `weights` computes it from `skew`
        nn.init.uniform_(self.bias, -0.01, 0.01)
        lower = torch.zeros(hidden_size, hidden_size)
        even = torch.arange(0, hidden_size - 1, 2)
        s = torch.empty(hidden_size // 2)  # of each block
        if skew_init == "henaff":
            s.uniform_(-math.pi, math.pi)
        else:
            v = s.uniform_(0.0, math.pi / 2).double()  # in double: a float32 cosine's last bit differs by processor
            s = ((1.0 - v.cos()) / (1.0 + v.cos())).sqrt().to(s.dtype)
        lower[even + 1, even] = s
        j, k = torch.tril_indices(hidden_size, hidden_size, -1)
        self.skew = nn.Parameter(lower[j, k])

    def weights(self) -> Weights:
        n = self.hidden_size
        j, k = torch.tril_indices(n, n, -1, device=self.skew.device)
        lower = self.skew.new_zeros(n, n)
        lower[j, k] = self.skew
        A = lower - lower.mT
        wide = A.to(torch.promote_types(A.dtype, torch.float32))  # torch's matrix_exp overflows in half precision
        return Weights(self.weight_ih, torch.linalg.matrix_exp(wide).to(A.dtype), torch.zeros_like(self.bias))

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        z = gx + gh
        return self.Act(z.sign() * (z.abs() + self.bias).relu())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        return self.State(self.act(gx, gh, state, dt).cell)

    def timescales(self) -> Tensor:
        """Return infinity for every unit: an orthogonal matrix does not decay."""
        return torch.full_like(self.bias, torch.inf)


class ExpRNN(CellRNN):
    """Orthogonal recurrent network: the recurrent matrix is orthogonal. See `ExpRNNCell`.

    Call: as `GRU`.
    Forgets: not at all: the recurrent matrix is orthogonal.
    Source: Lezcano-Casado & Martínez-Rubio 2019.
    """

    cell_class = ExpRNNCell
