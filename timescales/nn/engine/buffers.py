"""The memory that the graph engine works in."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from timescales.nn.engine.kernel import AGED, GATES, Kernel


class Buffers:
    """Memory of one call of the graph engine, for R seeds, S steps, B sequences, H units and G gates.

    z: (R, S, B, G*H). First the pre-activations, then what backward needs to know, then the gradients of the
        pre-activations.
    h, c, age: (R, S + 1, B, H), the state before each step and after the last.
    dt, mask: (R, S, B) or None.
    hh: recurrent weights, (R, G*H, H). power: exponents, (R, H).
    d_output: gradient of the outputs, (R, S, B, H), or None.
    dh, dc, dage, dpower: (R, B, H), gradients that are passed from step to step in backward.

    age, power, dage and dpower exist only for the power-law LSTM.
    """

    d_output: Tensor | None
    age: Tensor | None
    dage: Tensor | None
    dpower: Tensor | None
    power: Tensor | None

    def __init__(
        self, kernel: Kernel, sizes: tuple[int, int, int], H: int, device: torch.device, timed: bool, masked: bool
    ) -> None:
        R, S, B = sizes
        self.kind, self.epsilon, self.floor, self.H = kernel.kind, kernel.epsilon, kernel.floor, H
        self.gates, self.aged = GATES[self.kind], self.kind in AGED
        empty = functools.partial(torch.empty, device=device, dtype=torch.float32)
        self.z, self.hh = empty(R, S, B, self.gates * H), empty(R, self.gates * H, H)
        self.h, self.c = empty(R, S + 1, B, H), empty(R, S + 1, B, H)
        self.dh, self.dc, self.d_output = empty(R, B, H), empty(R, B, H), None
        self.age = self.dage = self.dpower = self.power = None
        if self.aged:
            self.age, self.dage, self.dpower = empty(R, S + 1, B, H), empty(R, B, H), empty(R, B, H)
            self.power = empty(R, H)
            if kernel.power is not None:
                self.power.copy_(kernel.power.detach())
        self.dt = torch.ones(R, S, B, device=device, dtype=torch.float32) if timed else None
        self.mask = torch.ones(R, S, B, device=device, dtype=torch.uint8) if masked else None

    def zero_gradients(self) -> None:
        """Set the gradients that are passed from step to step to zero."""
        for gradient in (self.dh, self.dc, self.dage, self.dpower):
            if gradient is not None:
                gradient.zero_()

    def bytes(self) -> int:
        """Size of all buffers together."""
        return sum(v.numel() * v.element_size() for v in vars(self).values() if isinstance(v, Tensor))
