"""The exponential LSTM: a forget gate that knows the time since the previous step, without a power law."""

from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import softplus

from timescales.nn.cells.cell import Cell, sigmoid_timescales
from timescales.nn.inits import ForgetInit, check_bool
from timescales.nn.rnn import CellRNN


class ELSTMCell(Cell):
    """Exponential LSTM: an LSTM whose units decay exponentially in the time dt since the previous step.

        s, o = gx + gh (forget rows), sigmoid(gx + gh)     g = tanh(gx + gh)
        f  = exp(-softplus(-s) dt), which is sigmoid(s)^dt
        i  = 1 - f (coupled), or a separate sigmoid gate
        c' = f c + i g
        h' = o tanh(c')

    gx = weight_ih x + bias and gh = weight_hh h; each gate has its own rows of them. With dt = 1 the gate is the LSTM's
    sigmoid. A step after dt = 0 forgets nothing and, if coupled, writes nothing.

    Arguments:
        input_size, hidden_size: sizes I and H.
        coupled: whether the input gate is 1 - f. Default: True.
        forget_init: initializer of the forget bias (see `timescales.nn.inits`). Default: torch's.
        T_max: the longest expected time scale, in steps: short for forget_init={"law": "chrono", "T_max": T_max}. In a
            configuration, "auto" is the task's horizon. Default: None.

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)), so that a unit begins with a time scale of about 1.4. An
    initializer writes its bias b to the forget rows and, if it is tied and the input gate separate, -b to the input
    rows.
    Source: defined here, as a control for the power-law LSTM of Chien et al. 2021: the same access to dt, the same
    coupled gates, and an exponential decay instead of the power law.
    Differs: from `PLSTMCell`, no age and no exponent. From `LSTMCell`, dt, coupled gates and one bias vector.
    """

    shown = ("coupled",)

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
        coupled: bool = True,
        forget_init: ForgetInit = None,
        T_max: float | None = None,
        bias: bool = True,
    ) -> None:
        check_bool(coupled=coupled)
        gates = ("forget", "cell", "output") if coupled else ("forget", "input", "cell", "output")
        self.gates = gates  # type: ignore[misc]  # they depend on the argument, not on the class
        super().__init__(input_size, hidden_size, bias=bias)
        self.coupled = coupled
        self._set_forget_bias(forget_init, T_max, opposite=None if coupled else "input")

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        s, *i, g, o = (gx + gh).chunk(len(self.gates), -1)
        log_f = -softplus(-s) * dt
        return self.Act(-log_f.expm1() if self.coupled else i[0].sigmoid(), log_f.exp(), g.tanh(), o.sigmoid())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        i, f, g, o = self.act(gx, gh, state, dt)
        c = f * state.c + i * g
        return self.State(o * c.tanh(), c)

    timescales = sigmoid_timescales


class ELSTM(CellRNN):
    """Exponential LSTM: units decay exponentially in the time since the previous step. See `ELSTMCell`.

    Call: as `LSTM`, with dt (S, B), the time since the previous step (default: 1). See `RNN.forward`.
    Forgets: exponentially in the time since the previous step; `plstm` without its power law.
    Source: none; defined here.
    """

    cell_class = ELSTMCell
