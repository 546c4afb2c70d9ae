"""The hierarchically gated recurrent network: a linear recurrence whose forget gate has a learned lower bound."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from timescales.nn.cells.cell import Cell
from timescales.nn.cells.mingru import retained
from timescales.nn.inits import is_number, timescale_of_gate
from timescales.nn.rnn import CellRNN


class HGRNCell(Cell):
    """HGRN: each unit's forget gate has a learned lower bound, which is larger in higher layers.

        f  = (gamma + (1 - gamma) sigmoid(gx))^dt
        u  = silu(gx)     o = sigmoid(gx)
        c' = f c + (1 - f) u
        h' = o c'

    gx = weight_ih x + bias; each gate has its own rows of it. gamma = sigmoid(bound), one number for each unit. A step
    after dt = 0 forgets nothing and writes nothing.

    Arguments:
        input_size, hidden_size: sizes I and H.
        lower_bound: the initial gamma, at least 0 and below 1. At 0 (default) there is no bound and no parameter.

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)); gamma = lower_bound for all units. The layer k of L, counted from
    0, has k / L.
    Source: Qin, Yang & Zhong 2023 (arXiv 2311.04823), section 3.
    Differs: the paper's c is complex and turns by a learned angle in each step; here it is real. Its lower bounds are
    one softmax over the layers, added up from below, so that they stay in order; here each layer has its own, which
    start in order. Its norm and its products around the recurrence are not here; model.block=residual has a norm and a
    perceptron. dt is an addition.
    """

    gates = ("forget", "cell", "output")
    recurrent = False
    bound: nn.Parameter | None

    class State(NamedTuple):
        h: Tensor
        c: Tensor

    class Act(NamedTuple):
        forget: Tensor
        input: Tensor
        cell: Tensor
        output: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, lower_bound: float = 0.0) -> None:
        super().__init__(input_size, hidden_size)
        if not is_number(lower_bound) or not 0.0 <= lower_bound < 1.0:
            raise ValueError(f"lower_bound must be a number of at least 0 and below 1, not {lower_bound!r}")
        logit = math.log(lower_bound / (1.0 - lower_bound)) if lower_bound else None
        self.register_parameter("bound", None if logit is None else nn.Parameter(torch.full((hidden_size,), logit)))

    def act(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> Act:
        s, u, o = gx.chunk(3, -1)
        f, one_minus_f = retained(s, dt, self.most)
        return self.Act(f, one_minus_f, silu(u), o.sigmoid())

    @property
    def most(self) -> Tensor | None:
        """Return 1 - gamma, (H,); None without a bound."""
        return None if self.bound is None else (-self.bound).sigmoid()

    def step(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> State:
        f, i, u, o = self.act(gx, gh, state, dt)
        c = f * state.c + i * u
        return self.State(o * c, c)

    def timescales(self) -> Tensor:
        """Return -1 / ln f at zero input and dt = 1, (H,)."""
        return timescale_of_gate(retained(self.bias_total("forget"), 1.0, self.most)[0])


class HGRN(CellRNN):
    """HGRN: a linear recurrence whose forget gate has a lower bound, larger in higher layers. See `HGRNCell`.

    Call: as `PLSTM`; the state has h and c.
    Forgets: exponentially, at a rate that the input sets, but no faster than a bound that is learned.
    Source: Qin et al. 2023.
    """

    cell_class = HGRNCell
    chooses = ("lower_bound",)

    def __init__(self, *sizes: Any, **arguments: Any) -> None:
        self.refuse_chosen(arguments)
        super().__init__(*sizes, **arguments)

    def of_layer(self, layer: int, num_layers: int, **arguments: Any) -> dict[str, Any]:
        """Return the arguments of a layer's cells, with the layer's bound."""
        return {"lower_bound": layer / num_layers, **arguments}
