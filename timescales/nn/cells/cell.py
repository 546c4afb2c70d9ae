"""What every cell is: the parameters of one layer and one step of its equations. No time loop, no clock.

To write a cell: name the gates, list the fields of the state, and give `act`, `step` and `timescales`.
Shapes in this package: S steps, B batch, I input, H hidden, G gates; `...` is any leading shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn


class Weights(NamedTuple):
    """The values an engine uses: ih (G*H, I), hh (G*H, H), bias_ih (G*H,), bias_hh (G*H,) or None."""

    ih: Tensor
    hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor | None = None


class Cell(nn.Module):
    """One layer's parameters and one step of mathematics, elementwise over (..., H).

    `gates` names the row blocks of the weights in their order; `State` lists what is carried from step to step, `h`
    (the output) first; `biases` is 2 where torch has two bias vectors, else 1. All parameters start uniform on
    +-1/sqrt(H), drawn in torch's order, so that an LSTM built after the same seed equals torch.nn.LSTM's.
    Where the shapes below say G*H, a cell whose gates have fewer rows (`height`) has the sum of its gates' heights.
    `weight_drop` is the share of the recurrent weights that `forward` drops in training, drawn anew in every pass
    (Merity et al. 2018): a model may set it.
    """

    gates: ClassVar[tuple[str, ...]]
    State: ClassVar[Any]
    biases: ClassVar[int] = 1
    weight_drop: float = 0.0
    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias: nn.Parameter
    bias_ih: nn.Parameter
    bias_hh: nn.Parameter

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        for name, value in (("input_size", input_size), ("hidden_size", hidden_size)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
        self.input_size, self.hidden_size = input_size, hidden_size
        rows = sum(map(self.height, self.gates))
        self.weight_ih = nn.Parameter(torch.empty(rows, input_size))
        self.weight_hh = nn.Parameter(torch.empty(rows, hidden_size))
        for name in ("bias_ih", "bias_hh") if self.biases == 2 else ("bias",):
            self.register_parameter(name, nn.Parameter(torch.empty(rows)))
        bound = 1.0 / math.sqrt(hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def height(self, gate: str) -> int:
        """How many rows of the weights a gate has: H, unless a cell says otherwise."""
        return self.hidden_size

    def rows(self, gate: str) -> slice:
        """The rows of the weights that belong to a gate."""
        k = self.gates.index(gate)
        first = sum(map(self.height, self.gates[:k]))
        return slice(first, first + self.height(gate))

    def by_gate(self, pre: Tensor) -> dict[str, Tensor]:
        """The parts of (..., G*H), by the gates' names."""
        return dict(zip(self.gates, pre.split([self.height(gate) for gate in self.gates], -1), strict=True))

    @torch.no_grad()
    def set_bias(self, gate: str, value: Tensor) -> None:
        """Make a gate's bias `value` (H,): where there are two vectors, in bias_hh, with zeros in bias_ih."""
        holder = self.bias_hh if self.biases == 2 else self.bias
        holder[self.rows(gate)] = value.to(holder.dtype)
        if self.biases == 2:
            self.bias_ih[self.rows(gate)] = 0.0

    def shifted(self, bias: Tensor, by: Mapping[str, Tensor]) -> Tensor:
        """A bias (..., G*H) with `by` added to the rows of the gates that it names."""
        like = next(iter(by.values()))
        zeros = {gate: like.new_zeros(*like.shape[:-1], self.height(gate)) for gate in self.gates if gate not in by}
        return bias + torch.cat([by[gate] if gate in by else zeros[gate] for gate in self.gates], -1)

    def initial_state(self, *batch: int) -> Any:
        """The state before the first step: zeros (*batch, H) in every field, in the parameters' type and place."""
        fields = len(self.State._fields)
        return self.State(*(self.weight_ih.new_zeros(*batch, self.hidden_size) for _ in range(fields)))

    def weights(self) -> Weights:
        """The weight values to use now, none dropped; gradients flow from them to the parameters."""
        if self.biases == 2:
            return Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return Weights(self.weight_ih, self.weight_hh, self.bias)

    def forward(
        self, x: Tensor, state: Any, dt: Tensor | None, mask: Tensor | None, run: Callable[..., tuple[Tensor, Any]]
    ) -> tuple[Tensor, Any]:
        """Run over a sequence with an engine (see `eager.run`): a call, so that hooks on a layer see it."""
        weights = self.weights()
        # Here alone: who else reads weights must neither draw random numbers nor see some of them dropped.
        weights = weights._replace(hh=nn.functional.dropout(weights.hh, self.weight_drop, self.training))
        return run(self, x, weights, state, dt, mask)

    def bias_total(self, gate: str) -> Tensor:
        """A gate's pre-activation at zero input and state, (..., H)."""
        _, _, bias_ih, bias_hh = self.weights()
        bias = bias_ih if bias_hh is None else bias_ih + bias_hh
        return bias[..., self.rows(gate)]

    def act(self, gx: Tensor, gh: Tensor, state: Any, dt: Tensor | float = 1.0) -> Any:
        """Gate activations by name, each (..., H).

        gx, gh: the input's and the recurrent share of the pre-activations, (..., G*H); dt: time since the last step.
        """
        raise NotImplementedError(f"{type(self).__name__} has no act(gx, gh, state, dt), which this needs")

    def step(self, gx: Tensor, gh: Tensor, state: Any, dt: Tensor | float = 1.0) -> Any:
        """The next state: the activations of `act` and the update."""
        raise NotImplementedError(f"{type(self).__name__} needs step(gx, gh, state, dt): its equations")

    def timescales(self) -> Tensor:
        """Characteristic time of each unit in steps, (H,): -1 / ln f at zero input and state."""
        mend = "return torch.full((self.hidden_size,), torch.nan) where it has none"
        raise NotImplementedError(f"{type(self).__name__} needs timescales(), (H,) in steps; {mend}")

    def per_unit(self, value: Tensor, like: Tensor) -> Tensor:
        """A parameter (H,) to use with `like` (..., H); with several seeds stacked, (R, H) made to fit (R, B, H)."""
        return value.unsqueeze(-2) if value.dim() == 2 and like.dim() == 3 else value

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"
