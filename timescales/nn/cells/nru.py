"""The non-saturating recurrent unit: a memory without gates, which is written and erased only by addition."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from timescales.nn.cells.cell import Cell
from timescales.nn.inits import check_whole
from timescales.nn.rnn import CellRNN


class NRUCell(Cell):
    """NRU: a plain ReLU layer h beside a memory m of M numbers, which K heads write and K heads erase.

        h'     = relu(gx + gh + W_m m)
        a, b   = W_s [h', m] + b_s                  the strength of each head: K numbers each
        p, q   = W_w [h', m] + b_w                  sqrt(M K) numbers each
        v      = p q^T, cut into K rows of M numbers, each divided by its norm: (sum |v|^5)^(1/5)
        w      the same from W_e and b_e
        m'     = m + the mean over the heads of a v - b w

    gx = weight_ih x + bias and gh = weight_hh h. The state has h and `memory`. Nothing saturates: there is no sigmoid
    and no tanh.

    Arguments:
        input_size, hidden_size: sizes I and H.
        memory_size: the number M. Default: 64.
        heads: the number K; M K is a square. Default: 4.

    Init: all weights and biases U(-1/sqrt(n), 1/sqrt(n)), n the numbers that the map reads: I + H + M, or H + M; those
    of the strengths a tenth of it.
    Source: Chandar, Sankar, Vorontsov, Ebrahimi Kahou & Bengio 2019 (arXiv 1902.06704).
    Differs: as in the released code, a, b, v and w have no ReLU, and the heads are averaged. There the strengths start
    ten times as large: a memory that feeds on itself then grows exponentially, in small networks to infinity within the
    784 steps of a digit. Each row is divided by its largest number before its norm is taken, since fifth powers
    overflow. dt is ignored.
    """

    gates = ("cell",)
    compiled = False  # it has matrices besides weight_ih and weight_hh
    shown = ("memory_size", "heads")
    weight_memory: nn.Parameter
    weight_heads: nn.Parameter
    bias_heads: nn.Parameter

    class State(NamedTuple):
        h: Tensor
        memory: Tensor

    class Act(NamedTuple):
        cell: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, memory_size: int = 64, heads: int = 4) -> None:
        check_whole(memory_size=memory_size, heads=heads)
        side = math.isqrt(memory_size * heads)
        if side * side != memory_size * heads:
            raise ValueError(f"memory_size x heads, {memory_size} x {heads}, must be a square number, as 64 x 4 is")
        self.memory_size, self.heads, self.side = memory_size, heads, side
        super().__init__(input_size, hidden_size)

    def make_parameters(self) -> None:
        """Create and draw the parameters."""
        H, M = self.hidden_size, self.memory_size
        rows = 2 * self.heads + 4 * self.side
        shapes = {"ih": (H, self.input_size), "hh": (H, H), "memory": (H, M), "heads": (rows, H + M)}
        for name, shape in shapes.items():
            self.register_parameter(f"weight_{name}", nn.Parameter(torch.empty(shape)))
        self.bias, self.bias_heads = nn.Parameter(torch.empty(H)), nn.Parameter(torch.empty(rows))
        for name, parameter in self.named_parameters():
            n = H + M + (0 if name.endswith("heads") else self.input_size)
            nn.init.uniform_(parameter, -(n**-0.5), n**-0.5)
        with torch.no_grad():
            self.weight_heads[: 2 * self.heads] *= 0.1
            self.bias_heads[: 2 * self.heads] *= 0.1

    def width(self, field: str) -> int:
        """Return how many numbers a field has: M in the memory, H in h."""
        return self.memory_size if field == "memory" else self.hidden_size

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        """Return the new output, (..., H)."""
        return self.Act((gx + gh + F.linear(state.memory, self.weight_memory)).relu())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        h = self.act(gx, gh, state, dt).cell
        read = F.linear(torch.cat([h, state.memory], -1), self.weight_heads, self.bias_heads).to(h.dtype)
        a, b, *factors = read.split([self.heads] * 2 + [self.side] * 4, -1)
        v, w = self._directions(*factors[:2]), self._directions(*factors[2:])
        change = a.unsqueeze(-1) * v - b.unsqueeze(-1) * w
        return self.State(h, state.memory + change.mean(-2))

    def _directions(self, p: Tensor, q: Tensor) -> Tensor:
        """Return each head's direction of change of the memory, (..., K, M), from two vectors (..., sqrt(M K))."""
        rows = (p.unsqueeze(-1) * q.unsqueeze(-2)).flatten(-2).unflatten(-1, (self.heads, self.memory_size))
        rows = rows / rows.detach().abs().amax(-1, keepdim=True).clamp(min=1e-12)
        return F.normalize(rows, p=5.0, dim=-1)

    def timescales(self) -> Tensor:
        """Return infinity for every unit, (H,): the memory does not decay, it is only changed by addition."""
        return torch.full_like(self.bias, torch.inf)


class NRU(CellRNN):
    """Non-saturating recurrent unit: a memory that is written and erased by addition, without gates. See `NRUCell`.

    Call: as `GRU`; the state has h and `memory`, (num_layers, B, memory_size). dt is ignored. Its matrices have no
    kernel, so engine="auto" is the eager engine.
    Forgets: only what it subtracts; nothing decays.
    Source: Chandar et al. 2019.
    """

    cell_class = NRUCell
