"""The real-gated linear recurrent unit of Griffin: a diagonal linear recurrence whose decay the input sets."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from timescales.nn.cells.cell import Cell
from timescales.nn.inits import check_bool, is_number
from timescales.nn.rnn import CellRNN

SMALLEST = 1e-30  # smallest argument of the square root: at 0 its gradient would be infinite, here it is 0


class RGLRUCell(Cell):
    """RG-LRU: a gate raises each unit's decay to a power, and the input is scaled so that the state keeps its size.

        r, i = sigmoid(gx)          the recurrence gate and the input gate
        u    = gx
        a    = sigmoid(decay)^(c r dt)      2 sigmoid(decay)^(c r dt) - 1 with signed=True
        h'   = a h + sqrt(1 - a^2) (i u)

    gx = weight_ih x + bias; each gate has its own rows of it. A step after dt = 0 forgets nothing and writes nothing.

    Arguments:
        input_size, hidden_size: sizes I and H.
        c: the largest power. Default: 8.
        decay_init: (low, high), the interval of the initial sigmoid(decay)^c, which is a at r = 1, between 0 and 1.
            Default: (0.9, 0.999).
        signed: whether a may be negative, so that a unit can change its sign in a step. Default: False.

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)); sigmoid(decay)^c uniform on `decay_init`. At r = 1/2 the defaults
    are time scales from 19 to 2,000 steps, half of it with signed=True.
    Time scales: a unit keeps |a| of its memory, which is `forget`; `factor` is a.
    Source: De, Smith, Fernando, Botev et al. 2024 (Griffin, arXiv 2402.19427), section 2.4 and appendix A; signed:
    Grazzi et al. 2024 (arXiv 2411.12537), as in `SignedMinGRUCell`.
    Differs: in Griffin a linear map and a convolution over four steps come before the unit; its gates read their output
    by block-diagonal weights, and u is this output. Here the gates and u are linear maps of the layer's input, which
    without the convolution is the same function. The authors' code writes the first input of a text without
    sqrt(1 - a^2). model.block=residual takes the place of the blocks. dt is an addition.
    """

    gates = ("recurrence", "input", "cell")
    recurrent = False
    shown = ("signed",)

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        forget: Tensor
        input: Tensor
        cell: Tensor
        factor: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        c: float = 8.0,
        decay_init: Sequence[float] = (0.9, 0.999),
        signed: bool = False,
    ) -> None:
        super().__init__(input_size, hidden_size)
        if not is_number(c) or c <= 0:
            raise ValueError(f"c must be a number above 0, not {c!r}")
        interval = tuple(decay_init) if isinstance(decay_init, Sequence) else ()
        if len(interval) != 2 or not all(map(is_number, interval)) or not 0.0 < interval[0] <= interval[1] < 1.0:
            raise ValueError(f"decay_init must be two numbers 0 < low <= high < 1, not {decay_init!r}")
        check_bool(signed=signed)
        self.c, self.signed = c, signed
        rate = -torch.empty(hidden_size, dtype=torch.float64).uniform_(*interval).log() / c
        self.decay = nn.Parameter(-torch.log(torch.expm1(rate)).to(self.weight_ih.dtype))

    def act(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> Act:
        """Return |a|, what multiplies u, u, and a; (..., H) each."""
        r, i, u = gx.chunk(3, -1)
        log_a = -self.c * softplus(-self.decay) * r.sigmoid() * dt
        if self.signed:
            s, rest = log_a.exp(), -log_a.expm1()
            a, one_minus_square = s - rest, 4.0 * s * rest
        else:
            a, one_minus_square = log_a.exp(), -(2.0 * log_a).expm1()
        write = one_minus_square.clamp(min=SMALLEST).sqrt()
        return self.Act(a.abs() if self.signed else a, write * i.sigmoid(), u, a)

    def step(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> State:
        _, i, u, a = self.act(gx, gh, state, dt)
        return self.State(a * state.h + i * u)

    def timescales(self) -> Tensor:
        """Return -1 / ln |a| at zero input and dt = 1, (H,)."""
        rate = self.c * softplus(-self.decay) * self.bias_total("recurrence").sigmoid()
        return -1.0 / (1.0 + 2.0 * torch.expm1(-rate)).abs().log() if self.signed else 1.0 / rate


class RGLRU(CellRNN):
    """RG-LRU: a diagonal linear recurrence, whose decay a gate of the input sets. See `RGLRUCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Forgets: exponentially, at a rate that is learned and that the input slows down.
    Source: De et al. 2024.
    """

    cell_class = RGLRUCell
