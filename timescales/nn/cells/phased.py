"""The Phased LSTM: an LSTM whose units are updated only in the open phase of an oscillation in time."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell
from timescales.nn.inits import check_bool, interval, is_number
from timescales.nn.rnn import CellRNN


class PhasedLSTMCell(Cell):
    """Phased LSTM: each unit has a clock, and reads its gates only while the clock is in its open phase.

        t'  = t + dt                            the time since the start of the sequence
        phi = ((t' - s) mod tau) / tau          the phase, from 0 to 1; tau = |period|, s = shift
        k   = 2 phi / r         if phi < r / 2          r = |open_ratio|
              2 - 2 phi / r     if r / 2 <= phi < r
              leak phi          otherwise, and 0 in evaluation
        i, f = sigmoid(gx + gh + w c)           w: a vector for each gate, a peephole
        g    = tanh(gx + gh)
        c~   = f c + i g
        o    = sigmoid(gx + gh + w c~)
        c'   = k c~ + (1 - k) c
        h'   = k o tanh(c~) + (1 - k) h

    gx = weight_ih x + bias and gh = weight_hh h; each gate has its own rows of them. period and shift are learned, one
    of each per unit.

    Arguments:
        input_size, hidden_size: sizes I and H.
        period_init: (low, high), the interval of ln tau at the start. Default: (0, 3).
        shift_init: (low, high), the interval of s at the start. None (default): from 0 to tau.
        open_ratio: r at the start, above 0, at most 1. Default: .05.
        train_open_ratio: whether r is learned, one per unit. Default: False.
        leak: the slope of a closed gate in training, from 0 to 1. Default: .001.
        peephole: whether the gates read the cell. Default: True.

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)); w N(0, .1); ln tau and s uniform on their intervals.
    Time scales: a closed unit forgets nothing (in training only by the leak), an open unit keeps 1 - k (1 - f).
    `forget` is this number, so T_1/e, which is computed from it, is exact for c.
    Source: Neil, Pfeiffer & Liu 2016 (arXiv 1610.09513).
    Differs: time counts from 0 at the start of a sequence, as the sum of dt; the authors' is that of the data, in which
    a sequence starts at any moment. Their released code keeps the leak in evaluation, draws all weights from N(0, .1)
    and sets the biases of the gates to constants.
    """

    gates = ("input", "forget", "cell", "output")
    open_ratio: Tensor
    peephole_input: nn.Parameter
    peephole_forget: nn.Parameter
    peephole_output: nn.Parameter

    class State(NamedTuple):
        h: Tensor
        c: Tensor
        time: Tensor

    class Act(NamedTuple):
        input: Tensor
        forget: Tensor
        cell: Tensor
        output: Tensor
        open: Tensor
        proposed: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        period_init: Sequence[float] = (0.0, 3.0),
        shift_init: Sequence[float] | None = None,
        open_ratio: float = 0.05,
        train_open_ratio: bool = False,
        leak: float = 0.001,
        peephole: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size)
        if not is_number(open_ratio) or not 0.0 < open_ratio <= 1.0:
            raise ValueError(f"open_ratio must be a number above 0, at most 1, not {open_ratio!r}")
        if not is_number(leak) or not 0.0 <= leak <= 1.0:
            raise ValueError(f"leak must be a number from 0 to 1, not {leak!r}")
        check_bool(train_open_ratio=train_open_ratio, peephole=peephole)
        self.leak, dtype = float(leak), self.weight_hh.dtype
        drawn = torch.rand(2, hidden_size, dtype=torch.float64)
        low, high = interval("period_init", period_init)
        period = (low + (high - low) * drawn[0]).exp()
        start, end = (0.0, period) if shift_init is None else interval("shift_init", shift_init)
        self.period = nn.Parameter(period.to(dtype))
        self.shift = nn.Parameter((start + (end - start) * drawn[1]).to(dtype))
        ratio = torch.full((hidden_size,), float(open_ratio), dtype=dtype)
        if train_open_ratio:
            self.open_ratio = nn.Parameter(ratio)
        else:
            self.register_buffer("open_ratio", ratio)
        for name in ("input", "forget", "output"):
            weight = nn.Parameter(torch.empty(hidden_size, dtype=dtype).normal_(std=0.1)) if peephole else None
            self.register_parameter(f"peephole_{name}", weight)
        self.peephole = peephole

    def time_gate(self, time: Tensor) -> Tensor:
        """Return the openness k of each unit, (..., H), at a time (..., H)."""
        tau, r = self.period.abs(), self.open_ratio.abs()
        cycles = (time - self.shift) / tau
        phase = cycles - cycles.floor()
        rising = 2.0 * phase / r
        closed = (self.leak if self.training else 0.0) * phase
        return torch.where(phase < 0.5 * r, rising, torch.where(phase < r, 2.0 - rising, closed))

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        """Return what a unit writes and keeps, k i and 1 - k (1 - f), its g, o and k, and the proposed c~; (..., H)."""
        i, f, g, o = (gx + gh).chunk(4, -1)
        if self.peephole:
            i = i + self.peephole_input * state.c
            f = f + self.peephole_forget * state.c
        i, f, g = i.sigmoid(), f.sigmoid(), g.tanh()
        c = f * state.c + i * g
        if self.peephole:
            o = o + self.peephole_output * c
        k = self.time_gate(state.time + dt)
        return self.Act(k * i, 1.0 - k * (1.0 - f), g, o.sigmoid(), k, c)

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        act = self.act(gx, gh, state, dt)
        h = act.open * (act.output * act.proposed.tanh()) + (1.0 - act.open) * state.h
        return self.State(h, act.forget * state.c + act.input * act.cell, state.time + dt)

    def timescales(self) -> Tensor:
        """Return -1 / the mean of ln(1 - k (1 - f)) over a cycle at zero input and state, without the leak, (H,).

        k rises to 1 and falls in the share r of a cycle: the mean is -r (1 + f ln f / (1 - f)).
        """
        b = self.bias_total("forget")
        q = (-b.double()).clamp(max=700.0).exp()  # (1 - f) / f
        mean = torch.where(q < 1e-6, q / 2.0, 1.0 - q.log1p() / q)
        return (1.0 / (self.open_ratio.abs().clamp(max=1.0) * mean)).to(b.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, leak={self.leak:g}, peephole={self.peephole}"


class PhasedLSTM(CellRNN):
    """Phased LSTM: an LSTM whose units are updated only in the open phase of a clock. See `PhasedLSTMCell`.

    Call: as `LSTM`, with dt (S, B), the time since the previous step (default: 1). The state has h, c and `time`, the
    time since the start, which goes on where a state is carried.
    Forgets: exponentially while a unit's clock is open, and hardly at all while it is closed.
    Source: Neil et al. 2016.
    """

    cell_class = PhasedLSTMCell
