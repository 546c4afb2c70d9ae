"""The linear recurrent unit: a diagonal linear recurrence with complex eigenvalues."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell
from timescales.nn.inits import is_number
from timescales.nn.rnn import CellRNN


class LRUCell(Cell):
    """Linear recurrent unit: each unit is a damped oscillator, which the input drives. No gate depends on the input.

        nu, theta, gamma = exp(nu_log), exp(theta_log), exp(gamma_log), one of each per unit
        lambda = exp(-nu + i theta)
        x'     = lambda^dt x + gamma (gx_real + i gx_imaginary)     a complex state
        h'     = Re x'

    gx = weight_ih u + bias for the input u, in two blocks of rows: the real and the imaginary part of B u. The state
    holds x as two real fields: h, its real part, and `imaginary`.

    Arguments:
        input_size, hidden_size: the input size I, and the number H of complex units, which is the output's size.
        r_min, r_max: the ring of the initial |lambda|, 0 <= r_min <= r_max <= 1. Default: 0 and 1.
        max_phase: the largest initial theta, above 0, at most 2 pi. Default: 2 pi.

    Init: lambda is uniform on the ring between the radii r_min and r_max with phases from 0 to max_phase;
    gamma = sqrt(1 - |lambda|^2); weights N(0, 1 / (2 I)); bias 0.
    Source: Orvieto, Smith, Gu, Fernando, Gulcehre, Pascanu & De 2023 (arXiv 2303.06349), section 3 and appendix A.
    Differs: the paper's output is Re(C x) + D u. C is a matrix over the units and has no place in a step: here the
    output is Re x, and what reads it (the next layer, the perceptron of a residual block, or the readout) is a real C.
    A complex C that is diagonal would add nothing, since B can turn each unit's phase. The residual stream of
    model.block=residual takes the place of D. B has a bias. dt is an addition: lambda^dt, with gamma unchanged.
    A plain layer is linear in its input; only the residual blocks are nonlinear.
    Note: lambda may be anywhere in the unit disk, also near -1, but no input moves it. `SignedMinGRUCell`, and
    `RGLRUCell` with signed=True, have a real factor between -1 and 1 that the input sets.
    """

    gates = ("real", "imaginary")
    recurrent = False
    nu_log: nn.Parameter
    theta_log: nn.Parameter
    gamma_log: nn.Parameter

    class State(NamedTuple):
        h: Tensor
        imaginary: Tensor

    class Act(NamedTuple):
        forget: Tensor
        lambda_real: Tensor
        lambda_imaginary: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 2.0 * math.pi,
        bias: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        if not is_number(r_min) or not is_number(r_max) or not 0.0 <= r_min <= r_max <= 1.0:
            raise ValueError(f"r_min and r_max must be numbers 0 <= r_min <= r_max <= 1, not {r_min!r} and {r_max!r}")
        if not is_number(max_phase) or not 0.0 < max_phase <= 2.0 * math.pi:
            raise ValueError(f"max_phase must be a number above 0 and at most 2 pi, not {max_phase!r}")
        nn.init.normal_(self.weight_ih, std=(2.0 * input_size) ** -0.5)
        if bias:
            nn.init.zeros_(self.bias)
        u = torch.rand(2, hidden_size, dtype=torch.float64)
        # A radius of exactly 0 or 1 has no logarithm of nu.
        squared = (u[0] * (r_max**2 - r_min**2) + r_min**2).clamp(1e-12, 1.0 - 1e-12)
        nu = -0.5 * squared.log()
        values = {"nu_log": nu.log(), "theta_log": (max_phase * (1.0 - u[1])).log()}
        values["gamma_log"] = 0.5 * torch.log1p(-squared)
        for name, value in values.items():
            self.register_parameter(name, nn.Parameter(value.to(self.weight_ih.dtype)))

    def act(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> Act:
        """Return |lambda|^dt, and the real and the imaginary part of lambda^dt, each (..., H)."""
        modulus, phase = (-self.nu_log.exp() * dt).exp(), self.theta_log.exp() * dt
        return self.Act(*(v.expand_as(state.h) for v in (modulus, modulus * phase.cos(), modulus * phase.sin())))

    def step(self, gx: Tensor, gh: None, state: State, dt: Tensor | float = 1.0) -> State:
        real, imaginary = gx.chunk(2, -1)
        _, a, b = self.act(gx, gh, state, dt)
        gamma = self.gamma_log.exp()
        return self.State(
            a * state.h - b * state.imaginary + gamma * real, a * state.imaginary + b * state.h + gamma * imaginary
        )

    def timescales(self) -> Tensor:
        """Return -1 / ln |lambda| = 1 / nu, (H,): the time in which a unit's amplitude falls to 1/e."""
        return torch.exp(-self.nu_log)

    def periods(self) -> Tensor:
        """Return 2 pi / theta, (H,): the time of one oscillation of each unit, in steps."""
        return 2.0 * math.pi * torch.exp(-self.theta_log)


class LRU(CellRNN):
    """Linear recurrent unit: damped oscillators that the input drives, without gates. See `LRUCell`.

    Call: as `PLSTM`; the state has h, the real part, and `imaginary`.
    Forgets: exponentially, at a rate that is learned and does not depend on the input; units oscillate.
    Source: Orvieto et al. 2023.
    """

    cell_class = LRUCell
