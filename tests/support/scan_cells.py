"""Cells without recurrent product, some of which are no scans over time."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from timescales.nn.cells import Cell


class OneField(Cell):
    gates = ("cell",)
    recurrent = False

    class State(NamedTuple):
        h: Tensor


class Falling(OneField):
    """h falls by 3 where it is above 3."""

    def step(self, gx, gh, state, dt=1.0):
        return self.State(0.9 * state.h + gx - torch.where(state.h > 3.0, 3.0, 0.0))


class Straight(OneField):
    """Its gradient is that of h + gx."""

    def step(self, gx, gh, state, dt=1.0):
        return self.State(state.h + gx - (state.h.detach() - 2.0).relu())


class Squared(OneField):
    """Linear in the first half of a product, and in the second."""

    def step(self, gx, gh, state, dt=1.0):
        return self.State(0.1 * state.h * (state.h.detach() - 1.0) + gx)


class Divided(OneField):
    def step(self, gx, gh, state, dt=1.0):
        return self.State(gx / (2.0 + state.h.detach().abs()))


class TwoFields(Cell):
    gates = ("cell",)
    recurrent = False

    class State(NamedTuple):
        h: Tensor
        n: Tensor


class Clock(TwoFields):
    """n counts the steps up to 10 and restarts."""

    def step(self, gx, gh, state, dt=1.0):
        n = state.n + dt
        n = n - torch.where(n >= 10.0, 10.0, 0.0)
        return self.State(0.9 * state.h + gx * n, n)


class Late(Clock):
    """h falls faster once n, which is known before it, is above 4."""

    def step(self, gx, gh, state, dt=1.0):
        n = state.n + dt
        return self.State(torch.where(n > 4.0, 0.5, 0.9) * state.h + gx, n)


class Growing(OneField):
    """8^64 is more than float32 has."""

    def step(self, gx, gh, state, dt=1.0):
        return self.State(8.0 * state.h + gx)


class Swelling(OneField):
    """As `Growing`, but only the gradients grow."""

    def step(self, gx, gh, state, dt=1.0):
        return self.State(0.5 * state.h.detach() + 8.0 * (state.h - state.h.detach()) + gx)


class Factor(OneField):
    """A factor from a parameter p, by `function`."""

    def __init__(self, *sizes, function):
        super().__init__(*sizes)
        self.p, self.function = nn.Parameter(torch.linspace(-2.0, 2.0, self.hidden_size)), function

    def step(self, gx, gh, state, dt=1.0):
        return self.State(self.function(self.p, dt) * state.h + gx)


NO_SCANS = {
    Falling: "the new h is not affine in h",
    Straight: "the new h is not affine in h",
    Squared: "the new h is not affine in h",
    Divided: "the new h is not affine in h",
    Clock: "the new n is not affine in n",
    Growing: "the factor of h in the new h is not known to lie between -1 and 1",
    Swelling: "the factor of h in the new h is not known to lie between -1 and 1",
}
