"""Kernels that are generated from `Cell.step`: forward and every gradient against the eager engine in float64."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from timescales.nn import cells
from timescales.nn.engine import eager, equations, generated
from timescales.nn.engine.recorder import NotTraceable

S, B, INPUTS, H = 6, 5, 4, 18
GATES = ("-", "c", "o", "u", "r", "om", "um", "or", "ur")


def made() -> Iterator[Any]:
    yield cells.LSTMCell(INPUTS, H)
    yield cells.URLSTMCell(INPUTS, H)
    yield cells.PLSTMCell(INPUTS, H)
    yield cells.PLSTMCell(INPUTS, H, coupled=False, epsilon_form="authors")
    yield cells.GRUCell(INPUTS, H)
    yield cells.PGRUCell(INPUTS, H)
    yield cells.JANETCell(INPUTS, H)
    for gate in GATES:
        yield cells.GatedLSTMCell(INPUTS, H, gate=gate, downsize=3, zoneout_c=0.5, zoneout_h=0.1)
        yield cells.GatedGRUCell(INPUTS, H, gate=gate, downsize=1)


NAMES = [
    "lstm", "ur", "coupled", "separate", "gru", "pgru", "janet",
    *(f"{kind}{gate}" for gate in GATES for kind in ("lstm ", "gru ")),
]  # fmt: skip


def run(cell: Any, engine: Any, dtype: torch.dtype, timed: bool, masked: bool) -> list[Tensor | None]:
    """Output, last state and every gradient."""
    cell = copy.deepcopy(cell).to(dtype)
    random = torch.Generator().manual_seed(1)
    x = torch.randn(S, B, INPUTS, generator=random).to(dtype).requires_grad_()
    fields = cell.State._fields
    state = [torch.rand(B, H, generator=random).to(dtype).requires_grad_() for _ in fields]
    dt = (torch.rand(S, B, generator=random) + 0.5).to(dtype).requires_grad_() if timed else None
    mask = torch.rand(S, B, generator=random) > 0.3 if masked else None
    output, last = engine.run(cell, x, cell.weights(), cell.State(*state), dt, mask)
    results = [output, *last]
    loss = sum((v * torch.randn(v.shape, generator=random).to(dtype)).sum() for v in results)
    wanted = [x, *state, *cell.parameters(), *([dt] if dt is not None else [])]
    return [*results, *torch.autograd.grad(loss, wanted, allow_unused=True)]


@pytest.mark.parametrize("cell", list(made()), ids=NAMES)
@pytest.mark.parametrize(("timed", "masked"), [(False, False), (True, True)], ids=["plain", "dt and mask"])
def test_generated_kernels_equal_the_eager_engine(cell, timed, masked):
    """Outputs, states and all gradients within 5e-6 of float64, relative to the largest number of each."""
    cell.eval()
    expected = run(cell, eager, torch.float64, timed, masked)
    found = run(cell, generated, torch.float32, timed, masked)
    for a, b in zip(expected, found, strict=True):
        if a is None or b is None:
            assert all(v is None or not v.any() for v in (a, b))
            continue
        assert (a - b).abs().max() <= 5e-6 * max(1e-3, float(a.detach().abs().max()))


class Mixed(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        new = super().step(gx, gh, state, dt)
        return self.State(new.h.flip(-1), new.c)


class Mean(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        new = super().step(gx, gh, state, dt)
        return self.State(new.h - new.h.mean(-1, keepdim=True), new.c)


class Branches(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        return state if (gx > 0).any() else super().step(gx, gh, state, dt)


class InPlace(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        return super().step(gx.mul_(2.0), gh, state, dt)


class Random(cells.LSTMCell):
    def step(self, gx, gh, state, dt=1.0):
        return super().step(gx + torch.randn_like(gx), gh, state, dt)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [(Mixed, "mixes units"), (Mean, "mean"), (Branches, "torch.where"), (InPlace, "in place"), (Random, "random")],
)
def test_a_step_that_no_kernel_can_run_is_refused(cell, reason):
    """The message names the class, the line of the step and the reason."""
    with pytest.raises(NotTraceable) as error:
        equations.of_cell(cell(INPUTS, H), False)
    message = str(error.value)
    assert message.startswith(f"{cell.__name__}.step (")
    assert "test_generated.py:" in message
    assert reason in message
    assert "\n" not in message


def test_zoneout_draws_the_numbers_of_the_eager_engine():
    """In training a step draws random numbers: the engines draw the same ones from one seed."""
    cell = cells.GatedLSTMCell(INPUTS, H, gate="ur", zoneout_c=0.5, zoneout_h=0.2)
    x, state = torch.randn(S, B, INPUTS), cell.initial_state(B)
    torch.manual_seed(3)
    expected, _ = eager.run(cell, x, cell.weights(), state)
    torch.manual_seed(3)
    found, _ = generated.run(cell, x, cell.weights(), state)
    assert torch.allclose(expected, found, atol=1e-6)
