"""The LSTM, and the drop-in replacement of torch.nn.LSTM.

The chrono LSTM and the multi-timescale LSTM are this cell with an initializer for the forget bias.
"""

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell, Weights, sigmoid_timescales
from timescales.nn.drop_in import DropIn
from timescales.nn.inits import ForgetInit, Uniform, forget_initializer
from timescales.nn.rnn import CellRNN, per_layer


class LSTMCell(Cell):
    """Long short-term memory, with the equations and parameter names of torch.nn.LSTM.

        i, f, o = sigmoid(gx + gh)      g = tanh(gx + gh)
        c' = f c + i g
        h' = o tanh(c')

    gx = weight_ih x + bias_ih and gh = weight_hh h + bias_hh; each gate has its own rows of them.

    Arguments:
        input_size, hidden_size: sizes I and H.
        forget_init: initializer of the forget bias (see `timescales.nn.inits`). Default: torch's.
        frozen: names of gates whose biases are not trained. `weights` replaces their rows by the initial values, so no
            optimizer changes them, not even by weight decay. Default: none.

    Init: all parameters U(-1/sqrt(H), 1/sqrt(H)). An initializer writes its bias b to the forget rows of bias_hh and,
    if it is tied, -b to the input rows; the same rows of bias_ih are set to zero. `Uniform` instead adds a third,
    trainable vector `gate_bias` (H,), which is added to the forget gate and subtracted from the input gate.
    Source: Hochreiter & Schmidhuber 1997; Gers et al. 2000 (forget gate). Initializers: Tallec & Ollivier 2018
    (chrono); Gu et al. 2020, listing 2 (uniform); Mahto et al. 2021, Eq. 5 (inverse gamma, assigned time scales).
    """

    gates = ("input", "forget", "cell", "output")
    biases = 2
    _torch_layer = "LSTM"
    opposite: ClassVar[str] = "input"  # the gate whose bias is -b if the forget gate's is b
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
        self,
        input_size: int,
        hidden_size: int,
        *,
        forget_init: ForgetInit = None,
        frozen: Sequence[str] = (),
        bias: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        if isinstance(frozen, str) or not isinstance(frozen, Collection):
            raise ValueError(f"frozen is a list of gates: write [{frozen!r}]")
        init, gate_bias = forget_initializer(self.default_init if forget_init is None else forget_init), None
        if isinstance(init, Uniform):
            gate_bias = nn.Parameter(init.bias(hidden_size).to(self.weight_hh.dtype))
        else:
            self._set_forget_bias(init, opposite=self.opposite)
        self.register_parameter("gate_bias", gate_bias)  # None except for `Uniform`
        self.frozen = tuple(frozen)
        if wrong := [gate for gate in self.frozen if gate not in self.gates]:
            raise ValueError(f"frozen names the gates {', '.join(self.gates)}; not {', '.join(map(str, wrong))}")
        if self.frozen and not bias:
            raise ValueError("bias=False leaves no biases to freeze: leave out frozen")
        if self.frozen:
            self._freeze()
        self.changes_biases = bool(self.frozen) or self.gate_bias is not None

    def _freeze(self) -> None:
        """Copy the biases of the frozen gates to buffers, which `weights` reads instead of the parameters."""
        mask = self.weight_hh.new_zeros(len(self.weight_hh))  # 1 or 0, not a bool: averages of models average it too
        for gate in self.frozen:
            mask[self.rows(gate)] = 1.0
        self.register_buffer("frozen_rows", mask)
        for name in self.bias_names():
            bias = getattr(self, name).detach()
            self.register_buffer(f"fixed_{name}", bias.clone())
            bias[mask.bool()] = 0.0  # not read any more
        if self.gate_bias is not None:
            self.register_buffer("fixed_gate_bias", self.gate_bias.detach().clone())
            if {"forget", self.opposite} <= set(self.frozen):
                self.gate_bias.requires_grad_(False)  # not read any more: DDP refuses a parameter without a gradient

    def weights(self) -> Weights:
        ih, hh, bias_ih, bias_hh = super().weights()
        if self.frozen:
            fixed = self.fixed_bias_ih if self.biases == 2 else self.fixed_bias
            frozen = self.frozen_rows.bool()
            assert bias_ih is not None, "refused by the constructor"
            # Replaced here, not masked in the gradient: weight decay would move a bias without a gradient.
            bias_ih = torch.where(frozen, fixed, bias_ih)
            if bias_hh is not None:
                bias_hh = torch.where(frozen, self.fixed_bias_hh, bias_hh)
        if self.gate_bias is not None:
            b, opposite_b = (
                self.fixed_gate_bias if gate in self.frozen else self.gate_bias for gate in ("forget", self.opposite)
            )
            bias_ih = self.add_to_gates(bias_ih, {"forget": b, self.opposite: -opposite_b})
        return Weights(ih, hh, bias_ih, bias_hh)

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Any:
        i, f, g, o = (gx + gh).chunk(4, -1)
        return self.Act(i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        i, f, g, o = self.act(gx, gh, state, dt)
        c = f * state.c + i * g
        return self.State(o * c.tanh(), c)

    timescales = sigmoid_timescales


class InitsPerLayer(CellRNN):
    """Base class of layers whose forget_init and frozen may be lists with one entry per layer."""

    def __init__(
        self,
        *sizes: Any,
        forget_init: ForgetInit | Sequence[ForgetInit] = None,
        frozen: Sequence[Any] = (),
        **arguments: Any,
    ) -> None:
        super().__init__(*sizes, forget_init=forget_init, frozen=frozen, **arguments)

    def of_layer(self, layer: int, num_layers: int, **arguments: Any) -> dict[str, Any]:
        """Return the arguments of a layer's cells, with the layer's forget_init and frozen."""
        forget_init, frozen = arguments.get("forget_init"), arguments.get("frozen", ())
        inits = per_layer("forget_init", forget_init, num_layers, isinstance(forget_init, list | tuple))
        is_list = isinstance(frozen, Collection) and not isinstance(frozen, str)
        nested = is_list and any(not isinstance(entry, str) for entry in frozen)
        gates = per_layer("frozen", frozen, num_layers, nested)
        return arguments | {"forget_init": inits[layer], "frozen": gates[layer]}


class LSTM(InitsPerLayer, DropIn, nn.LSTM):
    """Long short-term memory: torch.nn.LSTM, with initializers for the forget bias. `LSTMCell` has the equations.

    It takes what torch.nn.LSTM takes, in the same order, and has the same parameters and outputs.

    Arguments: as `CellRNN`, and proj_size as torch.nn.LSTM. If forget_init is a list, it has one initializer per layer.
    If frozen is a list of lists, it has one list of names of gates per layer.
    Call: `output, (h_n, c_n) = rnn(x, state=None, dt=None, mask=None)` with x (S, B, input_size), output
    (S, B, hidden_size), and h_n and c_n (num_layers, B, hidden_size), as torch.nn.LSTM; state is (h_0, c_0). If the
    layers differ in size, the state is an `RNNState`: state.h and state.c have one tensor per layer. dt is ignored, so
    that layers can be swapped. See `RNN.forward`.
    Forgets: exponentially, at a rate that it learns.
    Source: Hochreiter & Schmidhuber 1997.
    """

    cell_class = plain_cell = LSTMCell
    torch_class = nn.LSTM
