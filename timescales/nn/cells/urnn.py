"""The unitary evolution RNN: complex units, and a recurrent matrix that keeps the length of the state."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.rnn import CellRNN

SMALL = 1e-5  # added in quadrature to the modulus, whose gradient at 0 is not finite


class URNNCell(Cell):
    """uRNN: complex units z, whose recurrent matrix is a product of unitary ones.

        W  = D_3 R_2 F^-1 D_2 P R_1 F D_1
        a  = gx + W z                       gx has no bias
        z' = a max(0, |a| + bias) / |a|     modReLU
        h' = the real parts of z', then the imaginary ones

    D_k = diag(exp(i phase_k)); R_k = 1 - 2 v v* / |v|^2 is the reflection along a complex v; F is the unitary Fourier
    transform and P a fixed permutation. gx = weight_ih x. N = H / 2 units: `hidden_size` counts numbers, as the readout
    does.

    Arguments:
        input_size, hidden_size: sizes I and H; H is even.

    Init: phases U(-pi, pi); v uniform on +-sqrt(3 / (N + 1)); weight_ih uniform on +-sqrt(6 / (I + H)); bias
    U(-.01, .01); the state before the first step, which is learned, uniform on +-sqrt(3 / H). P is the same in all
    models of a size.
    The engines see W as a real matrix (H, H): see `weights`.
    Source: Arjovsky, Shah & Bengio 2016 (arXiv 1511.06464).
    Differs: |a| is sqrt(|a|^2 + 1e-10), which has a gradient at 0. W is computed once for a sequence and multiplies the
    state as any matrix does, in H^2 products a step instead of some H log H. dt is ignored.
    """

    gates = ("cell",)
    compiled = False  # the real and the imaginary part of a unit are read together
    start: nn.Parameter | None
    permutation: Tensor

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        cell: Tensor

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)  # without bias: the modReLU needs one

    def make_parameters(self) -> None:
        """Create and draw the parameters. Raises ValueError for an odd size."""
        N, H = self.hidden_size // 2, self.hidden_size
        if H % 2:
            near = f"{H - 1} or {H + 1}" if N else "2"
            raise ValueError(f"hidden_size {H} counts real and imaginary parts, so it must be even: give {near}")
        self.weight_ih = uniform(math.sqrt(6.0 / (self.input_size + H)), H, self.input_size)
        self.register_parameter("weight_hh", None)  # `weights` computes it
        self.bias = uniform(0.01, N)
        self.make_matrix(N)
        self.start = uniform(math.sqrt(3.0 / H), H)

    def make_matrix(self, N: int) -> None:
        """Create the parameters of W for N units."""
        self.phases = uniform(math.pi, 3, N)
        self.reflections = uniform(math.sqrt(3.0 / (N + 1)), 2, 2 * N)
        order = torch.randperm(N, generator=torch.Generator("cpu").manual_seed(N), device="cpu")
        self.register_buffer("permutation", order)

    def matrix(self) -> Tensor:
        """Return W, a complex matrix (N, N)."""
        real, imaginary = wide(self.reflections).chunk(2, -1)
        v1, v2 = torch.complex(real, imaginary)
        d1, d2, d3 = turn(wide(self.phases))
        W = torch.diag(d1)
        W = reflected(torch.fft.fft(W, dim=-2, norm="ortho"), v1)
        W = d2.unsqueeze(-1) * W[self.permutation]
        return d3.unsqueeze(-1) * reflected(torch.fft.ifft(W, dim=-2, norm="ortho"), v2)

    def initial_state(self, *batch: int) -> State:
        """Return the learned state before the first step, (*batch, H); zeros for a cell without one."""
        if self.start is None:
            return super().initial_state(*batch)
        return self.State(self.start.expand(*batch, self.hidden_size))

    def weights(self) -> Weights:
        """Return weight_ih; W as a real matrix [[Re W, -Im W], [Im W, Re W]]; and no bias: the modReLU has one."""
        W = self.matrix()
        hh = torch.cat([torch.cat([W.real, -W.imag], -1), torch.cat([W.imag, W.real], -1)])
        return Weights(self.weight_ih, hh.to(self.weight_ih.dtype), torch.zeros_like(self.weight_ih[:, 0]))

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        real, imaginary = (gx + gh).chunk(2, -1)
        modulus = (real * real + imaginary * imaginary + SMALL**2).sqrt()
        scale = (modulus + self.bias).relu() / modulus
        return self.Act(torch.cat([real * scale, imaginary * scale], -1))

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        return self.State(self.act(gx, gh, state, dt).cell)

    def timescales(self) -> Tensor:
        """Return infinity for every number, (H,): a unitary matrix does not decay."""
        return torch.cat([torch.full_like(self.bias, torch.inf)] * 2)


class URNN(CellRNN):
    """Unitary evolution RNN: complex units that a unitary matrix turns, and never shrinks. See `URNNCell`.

    Call: as `GRU`; hidden_size is even, and the output has the real parts, then the imaginary ones. Without a state it
    starts from a learned state. It has no kernel, so engine="auto" is the eager engine.
    Forgets: not at all: the recurrent matrix is unitary.
    Source: Arjovsky et al. 2016.
    """

    cell_class = URNNCell


def uniform(bound: float, *shape: int) -> nn.Parameter:
    """Return a parameter that is uniform on +-bound."""
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))


def wide(value: Tensor) -> Tensor:
    """Return the value in float32 or wider: torch has no smaller complex numbers that it can compute with."""
    return value.to(torch.promote_types(value.dtype, torch.float32))


def turn(angle: Tensor) -> Tensor:
    """Return exp(i angle)."""
    return torch.polar(torch.ones_like(angle), angle)


def reflected(M: Tensor, v: Tensor) -> Tensor:
    """Return (1 - 2 v v* / |v|^2) M for a complex vector v (N,) and a matrix M (N, N)."""
    column = v.unsqueeze(-1)
    length = (v.real.square() + v.imag.square()).sum()
    return M - 2.0 / length * (column @ (column.mH @ M))
