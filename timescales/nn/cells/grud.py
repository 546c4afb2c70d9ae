"""The GRU-D: a GRU for series with missing values, which fade with the time since they were last seen."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.rnn import CellRNN


class GRUDCell(Cell):
    """GRU-D: missing inputs and the state fade towards their means with the time since an input was last seen.

        d      = since + dt                             for each input that may be missing
        fade_x = exp(-max(0, w d + v))                  w, v: a number for each of these inputs
        fade_h = exp(-max(0, W d + b))                  W: a matrix, b: a vector
        x^     = x where it is known, else fade_x last
        h^     = fade_h h
        r, z   = sigmoid(gx + U h^)
        n      = tanh(gx + U (r h^))
        h'     = (1 - z) h^ + z n
        last', since' = x, 0 if x is known, else last, d

    gx = weight_ih x^ + bias; U are the rows of weight_hh. Inputs have the mean 0, and a missing one is given as 0; a
    further input, its flag, is 1 where it is known and 0 where not. That is what `task=series` gives.

    Arguments:
        input_size, hidden_size: sizes I and H. The flags count as inputs.
        flags: pairs of an input and its flag, counted from 0 on: `flags=[[0, 3], [2, 4]]` says that inputs 3 and 4 are
            the flags of inputs 0 and 2. Default: none. Then d = dt, and only the state fades.

    Init: all parameters U(-1/sqrt(H), 1/sqrt(H)), but w, v, W and b U(0, 1/sqrt(H)): below 0 they would not be trained.
    Time scales: a unit keeps fade_h (1 - z). T_1/e is exact at zero input and state with everything known.
    Engine: eager. A step has two products, of which the second needs the result of the first.
    Source: Che, Purushotham, Cho, Sontag & Liu 2018 (arXiv 1606.01865).
    Differs: the paper's d is 0 at the first step; here it is dt, as at every other.
    """

    gates = ("reset", "update", "cell")
    compiled = False  # products within the step
    fade_h_weight: nn.Parameter
    fade_h_bias: nn.Parameter
    fade_x_weight: nn.Parameter
    fade_x_bias: nn.Parameter

    class State(NamedTuple):
        h: Tensor
        last: Tensor
        since: Tensor

    class Act(NamedTuple):
        forget: Tensor
        update: Tensor
        cell: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, flags: Sequence[Sequence[int]] = ()) -> None:
        try:
            self.flags = [(k, flag) for k, flag in flags]
        except (TypeError, ValueError):
            self.flags = [(-1, -1)]
        numbers = [k for pair in self.flags for k in pair]
        if any(type(k) is not int or k < 0 for k in numbers) or len(set(numbers)) != len(numbers):
            raise ValueError(f"flags must be pairs of different numbers, [[input, its flag], ...], not {flags!r}")
        super().__init__(input_size, hidden_size)
        if numbers and max(numbers) >= input_size:
            raise ValueError(f"flags={flags!r} needs more than {input_size} inputs: they are counted from 0 on")

    def make_parameters(self) -> None:
        """Create the parameters of `Cell.make_parameters` and those of the fading."""
        super().make_parameters()
        D, bound = len(self.flags), self.hidden_size**-0.5
        shapes = {"fade_h_weight": (self.hidden_size, D or 1), "fade_h_bias": (self.hidden_size,)}
        if D:
            shapes |= {"fade_x_weight": (D,), "fade_x_bias": (D,)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape).uniform_(0.0, bound)))

    def width(self, field: str) -> int:
        """Return H for h. For the other fields return the number of flags, or 1 without flags."""
        return self.hidden_size if field == "h" else len(self.flags) or 1

    def by_gate(self, pre: Tensor) -> dict[str, Tensor]:
        """Split as `Cell.by_gate` does, without the part of gx that belongs to the flags."""
        return super().by_gate(pre[..., : 3 * self.hidden_size])

    def weights(self) -> Weights:
        """Return the weights with rows that select flags and their inputs, and without weight_hh, which `act` reads."""
        ih, hh, bias, _ = super().weights()
        assert hh is not None
        assert bias is not None
        if self.flags:
            inputs, known = zip(*self.flags, strict=True)
            rows = torch.eye(self.input_size, dtype=ih.dtype, device=ih.device)[[*known, *inputs]]
            ih, bias = torch.cat([ih, rows]), torch.cat([bias, bias.new_zeros(len(rows))])
        return Weights(ih, hh[:0], bias)

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        """Return the share of h that is kept, fade_h (1 - z), and z and n, each (..., H)."""
        H, d = self.hidden_size, state.since + dt
        pre, known, _ = self.split(gx)
        if self.flags:
            fade = (self.fade_x_weight * d + self.fade_x_bias).relu()
            missing = (1.0 - known) * (-fade).exp() * state.last
            pre = pre + F.linear(missing, self.weight_ih[:, [k for k, _ in self.flags]])
        gates, cell = pre.split([2 * H, H], -1)
        U, U_cell = self.weight_hh.split([2 * H, H])
        fade = (-F.linear(d, self.fade_h_weight, self.fade_h_bias).relu()).exp()
        h = fade * state.h
        r, z = (gates + F.linear(h, U)).sigmoid().chunk(2, -1)
        return self.Act(fade * (1.0 - z), z, (cell + F.linear(r * h, U_cell)).tanh())

    def split(self, gx: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split gx into the parts of the gates, of the flags, and of the inputs that have flags."""
        D = len(self.flags)
        return gx.split([3 * self.hidden_size, D, D], -1)

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        kept, z, n = self.act(gx, gh, state, dt)
        h = kept * state.h + z * n
        if not self.flags:
            return self.State(h, state.last, state.since)
        _, known, value = self.split(gx)
        return self.State(h, known * value + (1.0 - known) * state.last, (1.0 - known) * (state.since + dt))

    def timescales(self) -> Tensor:
        """Return -1 / ln(fade_h (1 - z)) at zero input and state and dt = 1, with everything known, (H,)."""
        fade = (self.fade_h_weight.sum(-1) + self.fade_h_bias).relu()
        known = self.weight_ih[self.rows("update")][:, [flag for _, flag in self.flags]].sum(-1)
        return 1.0 / (fade + F.softplus(self.bias_total("update") + known))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, flags={[list(pair) for pair in self.flags]}"


class GRUD(CellRNN):
    """GRU for series with missing values, which fade with the time since they were seen. See `GRUDCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1). The state has h and, for each input
    with a flag, `last` and `since`, its last known number and the time since then.
    Forgets: exponentially, at a rate that it learns, and with the time that passes.
    Source: Che et al. 2018.
    """

    cell_class = GRUDCell

    def of_layer(self, layer: int, num_layers: int, **arguments: object) -> dict[str, object]:
        """Give the flags only to the first layer, whose inputs they describe."""
        return arguments if layer == 0 else {**arguments, "flags": ()}
