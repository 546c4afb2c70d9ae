"""Long expressive memory: two coupled fields whose time steps the input sets."""

from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.cells.mingru import retained
from timescales.nn.inits import is_number
from timescales.nn.rnn import CellRNN


class LEMCell(Cell):
    """LEM: two fields y = h and z. Each moves towards a new value by its own time step, which a gate sets.

        d_y, d_z = delta sigmoid(.)         with . = gx + W h
        f, f_y   = (1 - d_z)^dt, (1 - d_y)^dt
        z' = f z + (1 - f) tanh(.)
        y' = f_y y + (1 - f_y) tanh(gx + W z')
        h' = y'

    gx = weight_ih x + bias; W are the rows of weight_hh: three blocks multiply h, the fourth multiplies the new z.

    Arguments:
        input_size, hidden_size: sizes I and H.
        delta: the longest time step, above 0, at most 1. Default: 1.

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)), as in the authors' code.
    Time scales: `forget` is that of z, 1 - d_z. z drives y, so that T_1/e, from it, is a lower bound.
    Engine: eager. A step has two products, of which the second needs the result of the first.
    Source: Rusch, Mishra, Erichson & Mahoney 2022 (arXiv 2110.04744), Eq. 3.
    Differs: dt is an addition, and is exact for constant gates: two half steps are a whole one.
    """

    gates = ("step_y", "step_z", "cell", "output")
    compiled = False  # a product within the step
    shown = ("delta",)

    class State(NamedTuple):
        h: Tensor
        z: Tensor

    class Act(NamedTuple):
        forget: Tensor
        input: Tensor
        cell: Tensor
        forget_y: Tensor
        input_y: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, delta: float = 1.0) -> None:
        super().__init__(input_size, hidden_size)
        if not is_number(delta) or not 0.0 < delta <= 1.0:
            raise ValueError(f"delta must be a number above 0, at most 1, not {delta!r}")
        self.delta = delta

    def weights(self) -> Weights:
        """Return the weights without the last block of rows of weight_hh, which does not multiply h."""
        whole = super().weights()
        return whole._replace(hh=self.weight_hh[: 3 * self.hidden_size])

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        """Return the shares of z that are kept and written, the new value, and the same shares of y; (..., H) each."""
        three = 3 * self.hidden_size
        step_y, step_z, u = (gx[..., :three] + gh[..., :three]).chunk(3, -1)
        f_y, i_y = self.forget_and_input(step_y, dt)
        f, i = self.forget_and_input(step_z, dt)
        return self.Act(f, i, u.tanh(), f_y, i_y)

    def forget_and_input(self, s: Tensor, dt: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return f = (1 - delta sigmoid(s))^dt, and 1 - f."""
        # Not retained(-s, dt, delta): on a CPU the sigmoid of a contiguous copy has other last bits than that of s.
        if self.delta == 1.0:
            return retained(-s, dt)
        log_f = (-self.delta * s.sigmoid()).log1p() * dt
        return log_f.exp(), -log_f.expm1()

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        f, i, u, f_y, i_y = self.act(gx, gh, state, dt)
        z = f * state.z + i * u
        new = gx[..., -self.hidden_size :] + F.linear(z, self.weight_hh[-self.hidden_size :]).to(z.dtype)
        return self.State(f_y * state.h + i_y * new.tanh(), z)

    def timescales(self) -> Tensor:
        """Return -1 / ln(1 - d_z) at zero input and state and dt = 1, (H,)."""
        f, _ = self.forget_and_input(self.bias_total("step_z"), 1.0)
        return -1.0 / f.log()


class LEM(CellRNN):
    """Long expressive memory: two coupled fields whose time steps the input sets. See `LEMCell`.

    Call: as `PLSTM`; the state has h and z. A step has two products, for which there is no kernel, so engine="auto" is
    the eager engine.
    Forgets: exponentially, at a rate that it learns, in two fields.
    Source: Rusch et al. 2022.
    """

    cell_class = LEMCell
