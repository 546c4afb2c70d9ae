"""The minimal GRU with a factor between -1 and 1: a unit's value may change its sign in a step."""

from typing import NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells.mingru import MinGRUCell, retained
from timescales.nn.rnn import CellRNN


class SignedMinGRUCell(MinGRUCell):
    """Signed minGRU: a minGRU whose old value is multiplied by a number between -1 and 1, which the input sets.

        f  = sigmoid(gx)^dt
        u  = gx                     linear: no tanh
        h' = (2 f - 1) h + (1 - f) u

    gx = weight_ih x + bias; each gate has its own rows of it. With factors only from 0 to 1, no linear recurrence of
    this kind can tell whether it has seen an even or an odd number of ones. With a factor of -1 at each one it can. A
    step after dt = 0 forgets nothing and writes nothing.

    Arguments: those of `MinGRUCell`.

    Init: as `MinGRUCell`. With a forget bias of 0 the factor is 0; with a large one the time scale is about half that
    of the minGRU. Units with f below 1/2 change their sign.
    Time scales: a unit keeps |2 f - 1| of its memory, which is `forget`; `factor` has the sign.
    Source: Grazzi, Siems, Zela, Franke, Hutter & Pontil 2024 (arXiv 2411.12537), who change the eigenvalues of linear
    recurrences from s in [0, 1] to 2 s - 1, and leave what is written unchanged. The minGRU: Feng et al. 2024.
    Differs: the paper changes Mamba and DeltaNet. dt is an addition.
    """

    class Act(NamedTuple):
        input: Tensor
        forget: Tensor
        cell: Tensor
        factor: Tensor

    def act(  # type: ignore[override]  # it returns one field more
        self, gx: Tensor, gh: None, state: MinGRUCell.State, dt: Tensor | float = 1.0
    ) -> Act:
        s, u = gx.chunk(2, -1)
        f, one_minus_f = retained(s, dt)
        factor = f - one_minus_f
        return self.Act(one_minus_f, factor.abs(), u, factor)

    def step(self, gx: Tensor, gh: None, state: MinGRUCell.State, dt: Tensor | float = 1.0) -> MinGRUCell.State:
        i, _, u, factor = self.act(gx, gh, state, dt)
        return self.State(factor * state.h + i * u)

    def timescales(self) -> Tensor:
        """Return -1 / ln |2 f - 1| at zero input and dt = 1, (H,)."""
        return -1.0 / torch.log1p(-2.0 * torch.sigmoid(-self.bias_total("forget").abs()))


class SignedMinGRU(CellRNN):
    """Signed minGRU: a minGRU whose units may change their sign in a step. See `SignedMinGRUCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Forgets: exponentially, as `mingru`; a unit's value may change its sign.
    Source: Grazzi et al. 2024; Feng et al. 2024.
    """

    cell_class = SignedMinGRUCell
