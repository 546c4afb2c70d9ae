"""The minimal GRU: a GRU whose gates read only the input."""

from typing import ClassVar, NamedTuple

from torch import Tensor
from torch.nn.functional import softplus

from timescales.nn.cells.cell import Cell, sigmoid_timescales
from timescales.nn.inits import ForgetInit
from timescales.nn.rnn import CellRNN


class MinGRUCell(Cell):
    """minGRU: a GRU without recurrent weights. Its gates and its candidate read only the input.

        f  = sigmoid(gx)^dt
        u  = gx                     linear: no tanh
        h' = f h + (1 - f) u

    gx = weight_ih x + bias; each gate has its own rows of it. A step after dt = 0 forgets nothing and writes nothing.

    Arguments:
        input_size, hidden_size: sizes I and H.
        forget_init: initializer of the forget bias (see `timescales.nn.inits`). Default: torch's.
        T_max: the longest expected time scale, in steps: short for forget_init={"law": "chrono", "T_max": T_max}. In a
            configuration, "auto" is the task's horizon. Default: None.

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)), so that a unit begins with a time scale of about 1.4. An
    initializer writes its bias b to the forget rows.
    Source: Feng, Tung, Ahmed, Bengio & Hajimirsadeghi 2024 (arXiv 2410.01201): the minGRU with a linear candidate.
    Differs: the paper's gate z is 1 - f, so the forget rows have the opposite sign of its rows. Its version in log
    space, which takes a positive function g of the candidate, is not offered: only a parallel scan needs it. dt is an
    addition.
    """

    gates: ClassVar[tuple[str, ...]] = ("forget", "cell")
    recurrent = False
    opposite: ClassVar[str | None] = None  # a gate whose bias is -b if the forget gate's is b

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        input: Tensor
        forget: Tensor
        cell: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        forget_init: ForgetInit = None,
        T_max: float | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        self._set_forget_bias(forget_init, T_max, self.opposite)

    def act(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> Act:
        s, u = gx.chunk(2, -1)
        f, one_minus_f = retained(s, dt)
        return self.Act(one_minus_f, f, u)

    def step(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> State:
        i, f, u = self.act(gx, gh, state, dt)
        return self.State(f * state.h + i * u)

    timescales = sigmoid_timescales


class MinGRU(CellRNN):
    """minGRU: a GRU whose gates read only the input. See `MinGRUCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Forgets: exponentially; the gate reads only the input, as all gates of the next three do.
    Source: Feng et al. 2024.
    """

    cell_class = MinGRUCell


def retained(s: Tensor, dt: Tensor | float, most: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the share f = (1 - most sigmoid(-s))^dt that a gate with the pre-activation s keeps during dt, and 1 - f.

    s: (..., H). dt: (..., 1) or a number, at least 0. most: what dt = 1 forgets at most, (H,), above 0, at most 1; None
    for 1, where f = sigmoid(s)^dt. Returns: f and 1 - f, (..., H) each. Both keep their digits where f is near 0 or 1.
    """
    if most is not None:
        log_f = (-most * (-s).sigmoid()).log1p() * dt
    elif not isinstance(dt, Tensor) and dt == 1.0:
        return s.sigmoid(), (-s).sigmoid()
    else:
        log_f = -softplus(-s) * dt
    return log_f.exp(), -log_f.expm1()
