"""The power-law GRU: a GRU with the power-law gate instead of its update gate."""

from typing import NamedTuple

from torch import Tensor

from timescales.nn.cells.plstm import PowerLawCell
from timescales.nn.rnn import CellRNN


class PGRUCell(PowerLawCell):
    """Power-law GRU: a GRU with the power-law gate instead of its update gate. It is defined here, not in a paper.

        r, s = sigmoid(gx + gh)     p = sigmoid(power), one exponent per unit
        d' = (1 - r)(d + dt)
        L  = max(0, ln((d' + 1) / ((1 - r)(d + 1) + epsilon)))
        f  = exp(-p L)
        u  = tanh(gx + s gh)        the read gate s after the recurrent product
        h' = f h + (1 - f) u

    gx and gh are as in `PLSTMCell`. r resets the age, as there; what is called the reset gate in a GRU is the read gate
    s here. A unit writes as much as it forgets, so there is no input gate.

    Arguments and initialisation: as `PLSTMCell`, without `coupled`.
    Source: the gate of Chien et al. 2021 in the GRU of Cho et al. 2014 (in torch's form).
    """

    gates = ("reset", "read", "cell")

    class State(NamedTuple):
        h: Tensor
        age: Tensor

    class Act(NamedTuple):
        reset: Tensor
        read: Tensor
        input: Tensor
        forget: Tensor
        cell: Tensor
        age: Tensor

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        (rx, sx, ux), (rh, sh, uh) = gx.chunk(3, -1), gh.chunk(3, -1)
        s = (sx + sh).sigmoid()
        r, f, one_minus_f, age = self.forgetting(rx + rh, state.age, dt)
        return self.Act(r, s, one_minus_f, f, (ux + s * uh).tanh(), age)

    def step(  # type: ignore[override]  # the state has no c
        self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0
    ) -> State:
        _, _, i, f, u, age = self.act(gx, gh, state, dt)
        return self.State(f * state.h + i * u, age)


class PGRU(CellRNN):
    """Power-law GRU: a GRU with the power-law gate of `PLSTM`. See `PGRUCell`.

    Call: as `PLSTM`; the state has h and age.
    Forgets: as in `plstm`, in a GRU.
    Source: none; defined here.
    """

    cell_class = PGRUCell
