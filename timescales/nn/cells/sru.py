"""The statistical recurrent unit: moving averages of learned statistics, at several rates at once."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.cells.urnn import uniform
from timescales.nn.inits import check_whole, is_number
from timescales.nn.rnn import CellRNN


class SRUCell(Cell):
    """Statistical recurrent unit (SRU): statistics of the input, averaged over the past at rates that are fixed.

        r   = relu(W_r m + b_r)                     R numbers that say what was there; m: all averages
        phi = relu(gx + W_phi r)                    P statistics
        m_k' = alpha_k^dt m_k + (1 - alpha_k^dt) phi        for each rate alpha_k
        h'  = relu(W_h m' + b_h)

    gx = weight_ih x + bias, P numbers. The state has h and `averages`, all m_k side by side.

    Arguments:
        input_size, hidden_size: sizes I and H.
        statistics: their number P. None (default): H.
        summary: the number R. None (default): a quarter of P.
        alphas: the rates, each from 0 to below 1. Default: (0, .25, .5, .9, .99).

    Init: weights and biases U(-1/sqrt(n), 1/sqrt(n)), n the numbers that the map reads.
    Time scales: an average with the rate alpha keeps alpha^dt of itself. Each unit reads all averages, so units do not
    differ in their time scale.
    Source: Oliva, Poczos & Schneider 2017 (arXiv 1703.00381). Not the simple recurrent unit of Lei et al. 2018.
    Differs: dt is an addition; with dt = 1 the equations are those of the paper. Their released code draws weights from
    U(-.1, .1).
    """

    gates = ("statistics",)
    compiled = False  # it has matrices besides weight_ih and weight_hh
    shown = ("statistics", "alphas")
    weight_summary: nn.Parameter
    weight_statistics: nn.Parameter
    weight_output: nn.Parameter

    class State(NamedTuple):
        h: Tensor
        averages: Tensor

    class Act(NamedTuple):
        cell: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        statistics: int | None = None,
        summary: int | None = None,
        alphas: Sequence[float] = (0.0, 0.25, 0.5, 0.9, 0.99),
    ) -> None:
        sizes = {"statistics": statistics, "summary": summary}
        check_whole(**{name: n for name, n in sizes.items() if n is not None})
        given = tuple(alphas) if isinstance(alphas, Sequence) else ()
        if not given or not all(is_number(alpha) and 0.0 <= alpha < 1.0 for alpha in given):
            raise ValueError(f"alphas must be numbers from 0 to below 1, not {alphas!r}")
        self._statistics, self._summary, self.alphas = statistics, summary, given
        super().__init__(input_size, hidden_size)

    def make_parameters(self) -> None:
        """Create and draw the parameters."""
        H, P = self.hidden_size, self._statistics or self.hidden_size
        R, averages = self._summary or max(1, P // 4), len(self.alphas) * P
        self.statistics = P
        self.register_parameter("weight_hh", None)  # nothing reads h
        shapes = {"ih": (P, self.input_size), "summary": (R, averages), "statistics": (P, R), "output": (H, averages)}
        for name, shape in shapes.items():
            self.register_parameter(f"weight_{name}", uniform(shape[1] ** -0.5, *shape))
        self.bias = uniform((self.input_size + R) ** -0.5, P)
        self.bias_summary, self.bias_output = uniform(averages**-0.5, R), uniform(averages**-0.5, H)

    def height(self, gate: str) -> int:
        """Return the number of rows of gx: the statistics."""
        return self.statistics

    def width(self, field: str) -> int:
        """Return how many numbers a field has: all averages, or H."""
        return len(self.alphas) * self.statistics if field == "averages" else self.hidden_size

    def weights(self) -> Weights:
        """Return weight_ih and bias. hh has no rows, since nothing reads h."""
        return Weights(self.weight_ih, self.weight_ih.new_empty(0, self.hidden_size), self.bias)

    def _averages(self, gx: Tensor, state: State, dt: Tensor | float) -> Tensor:
        r = F.linear(state.averages, self.weight_summary, self.bias_summary).relu()
        phi = (gx + F.linear(r, self.weight_statistics)).relu().unsqueeze(-2)
        m = state.averages.unflatten(-1, (len(self.alphas), self.statistics))
        kept = (gx.new_tensor(self.alphas) ** dt).unsqueeze(-1)
        return (kept * m + (1.0 - kept) * phi).flatten(-2)

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        """Return the new output, (..., H). gh is not read."""
        return self.Act(self.step(gx, gh, state, dt).h)

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        averages = self._averages(gx, state, dt)
        return self.State(F.linear(averages, self.weight_output, self.bias_output).relu().to(gx.dtype), averages)

    def timescales(self) -> Tensor:
        """Return -1 / ln alpha of the slowest average, (H,), which every unit can read."""
        slowest = max(self.alphas)
        return torch.full_like(self.bias_output, -1.0 / math.log(slowest) if slowest else 0.0)


class SRU(CellRNN):
    """Statistical recurrent unit: moving averages of learned statistics, at several fixed rates. See `SRUCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1). The state has h and `averages`. Its
    matrices have no kernel, so engine="auto" is the eager engine.
    Forgets: exponentially, at several fixed rates at once.
    Source: Oliva et al. 2017.
    """

    cell_class = SRUCell
