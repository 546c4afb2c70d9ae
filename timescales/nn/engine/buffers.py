"""What the GPU engine computes in, and the loops over its steps: Triton kernels on a GPU, their twins elsewhere."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from timescales.nn.engine import pointwise
from timescales.nn.engine.kernel import Kernel


class Buffers:
    """What a call works in: R replicas, S steps, B sequences, H units.

    (R, S, B, n): z, the pre-activations, then what backward wants to know, then their gradients; dt, mask; d_output or
    None. (R, S + 1, B, H): h, c, age before each step and after the last. (R, B, H): dh, dc, dage, dpower, carried
    backward. hh: (R, G*H, H); power: (R, H).
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
        self.gates, self.aged = pointwise.GATES[self.kind], self.kind in pointwise.AGED
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

    def clear_carried(self) -> None:
        """No gradient yet."""
        for carried in (self.dh, self.dc, self.dage, self.dpower):
            if carried is not None:
                carried.zero_()

    def bytes(self) -> int:
        """Of all buffers together."""
        return sum(v.numel() * v.element_size() for v in vars(self).values() if isinstance(v, Tensor))


def triton_runs(b: Buffers) -> bool:
    """Whether steps are Triton's, not the twins'."""
    return b.z.is_cuda


def loop_forward(b: Buffers) -> None:
    """All steps, from h[:, 0], c[:, 0], age[:, 0] and the input's share of the pre-activations in z."""
    step = pointwise.launch_forward if triton_runs(b) else pointwise.step_forward
    for t in range(b.z.shape[1]):
        if len(b.z) == 1:
            b.z[0, t].addmm_(b.h[0, t], b.hh[0].t())
        else:
            b.z[:, t].baddbmm_(b.h[:, t], b.hh.mT)
        step(b, t)


def loop_backward(b: Buffers, first: bool = True) -> None:
    """All steps from the last to the first; leaves dz in z. first: also the product that gives the first h its dh."""
    step = pointwise.launch_backward if triton_runs(b) else pointwise.step_backward
    for t in reversed(range(b.z.shape[1])):
        step(b, t)
        if t == 0 and not first:
            return
        if len(b.z) == 1:
            b.dh[0].addmm_(b.z[0, t], b.hh[0])
        else:
            b.dh.baddbmm_(b.z[:, t], b.hh)
