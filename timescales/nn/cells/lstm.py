"""LSTM; chrono and multi-timescale LSTMs are this cell with a law for the forget bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.inits import Uniform, forget_law, timescale_of_bias


class LSTMCell(Cell):
    """Long short-term memory, in torch.nn.LSTM's form and parameter names.

    Source: Hochreiter & Schmidhuber 1997; Gers et al. 2000 (forget gate); chrono: Tallec & Ollivier 2018;
    uniform: Gu et al. 2020, listing 2; inverse gamma and assigned time scales: Mahto et al. 2021, Eq. 5.

        i, f, o = sigmoid(gx + gh)      g = tanh(gx + gh)
        c' = f c + i g
        h' = o tanh c'

    Init: everything U(+-1/sqrt H). A law for the forget bias b writes b into bias_hh's forget rows and, if the law is
    tied, -b into its input rows, and zeros into the same rows of bias_ih. The uniform law is instead a third,
    trainable vector `gate_bias`, added to the forget gate and subtracted from the input gate.
    frozen: gates whose biases stay as they are initialised. Their rows are replaced where the weights are read, so no
    optimizer can move them, not even by weight decay.
    """

    gates = ("input", "forget", "cell", "output")
    biases = 2
    counter: ClassVar[str] = "input"  # the gate that gets -b under a tied law
    default_init: ClassVar[str] = "default"
    gate_bias: nn.Parameter | None
    frozen_rows: Tensor
    fixed_bias: Tensor
    fixed_gate_bias: Tensor
    fixed_bias_ih: Tensor
    fixed_bias_hh: Tensor

    class State(NamedTuple):
        h: Tensor
        c: Tensor

    class Act(NamedTuple):
        input: Tensor
        forget: Tensor
        cell: Tensor
        output: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, *, forget_init: object = None, frozen: Sequence[str] = ()
    ) -> None:
        super().__init__(input_size, hidden_size)
        law = forget_law(self.default_init if forget_init is None else forget_init)  # type: ignore[arg-type]
        gate_bias = None
        if isinstance(law, Uniform):
            gate_bias = nn.Parameter(law.bias(hidden_size).to(self.weight_hh.dtype))
        elif law is not None:
            b = law.bias(hidden_size)
            self.set_bias("forget", b)
            if law.tied:
                self.set_bias(self.counter, -b)
        self.register_parameter("gate_bias", gate_bias)
        if isinstance(frozen, str):
            raise ValueError(f"frozen is a list of gates: write [{frozen!r}]")
        self._freeze(tuple(frozen))

    def _freeze(self, frozen: tuple[str, ...]) -> None:
        if wrong := [gate for gate in frozen if gate not in self.gates]:
            raise ValueError(f"frozen names the gates {', '.join(self.gates)}; not {', '.join(map(str, wrong))}")
        self.frozen = frozen
        if not frozen:
            return
        mask = torch.zeros(len(self.gates) * self.hidden_size, dtype=torch.bool)
        for gate in frozen:
            mask[self.rows(gate)] = True
        self.register_buffer("frozen_rows", mask)
        for name in ("bias_ih", "bias_hh") if self.biases == 2 else ("bias",):
            bias = getattr(self, name).detach()
            self.register_buffer(f"fixed_{name}", bias.clone())
            bias[mask] = 0.0  # no longer read; an infinite bias here would turn to NaN under weight decay
        if self.gate_bias is not None:
            self.register_buffer("fixed_gate_bias", self.gate_bias.detach().clone())

    def weights(self) -> Weights:
        ih, hh, bias_ih, bias_hh = super().weights()
        if self.frozen:
            fixed = self.fixed_bias_ih if self.biases == 2 else self.fixed_bias
            bias_ih = torch.where(self.frozen_rows, fixed, bias_ih)
            if bias_hh is not None:
                bias_hh = torch.where(self.frozen_rows, self.fixed_bias_hh, bias_hh)
        if self.gate_bias is not None:
            used = {g: self.fixed_gate_bias if g in self.frozen else self.gate_bias for g in ("forget", self.counter)}
            bias_ih = self.shifted(bias_ih, {"forget": used["forget"], self.counter: -used[self.counter]})
        return Weights(ih, hh, bias_ih, bias_hh)

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        i, f, g, o = (gx + gh).chunk(4, -1)
        return self.Act(i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        i, f, g, o = self.act(gx, gh, state, dt)
        c = f * state.c + i * g
        return self.State(o * c.tanh(), c)

    def timescales(self) -> Tensor:
        return timescale_of_bias(self.bias_total("forget"))
