"""The signed minGRU against its equations in NumPy; it counts ones modulo 2, which the minGRU cannot."""

import math

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_state
from own_reference import against_eager, check_gradients, compare, moved

import timescales
from timescales.nn.cells import SignedMinGRUCell


def reference(own, x, state, dt):
    """Feng et al. 2024, with the factor of the old state taken to 2 f - 1 (Grazzi et al. 2024)."""
    H, new = len(state["h"]), []
    for unit in range(H):
        s, u = (own["weight_ih"][unit + gate * H] @ x + own["bias"][unit + gate * H] for gate in range(2))
        f = (1.0 / (1.0 + math.exp(-s))) ** dt
        new.append((2.0 * f - 1.0) * state["h"][unit] + (1.0 - f) * u)
    return {"h": np.array(new)}


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
def test_equals_the_reference(timed, masked):
    compare(reference, moved(SignedMinGRUCell(I, H)), timed, masked)


def test_gradients():
    cell = moved(SignedMinGRUCell(2, 3))
    check_gradients(cell, random_state(cell, 2))


def test_the_compiled_kernel():
    against_eager(lambda engine: timescales.SignedMinGRU(I, H, 2, engine=engine))
    against_eager(lambda engine: timescales.SignedMinGRU(I, H, 2, engine=engine), dt=torch.rand(11, B))


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_the_parity_of_1000_bits(engine):
    """One unit: a one changes the sign of h, a zero keeps it. A minGRU's factor is never below 0."""
    rnn = timescales.SignedMinGRU(1, 1, engine=engine)
    with torch.no_grad():
        rnn.layers[0].weight_ih.copy_(torch.tensor([[-100.0], [0.0]]))  # f is 0 at a one, and 1 at a zero
        rnn.layers[0].bias.copy_(torch.tensor([50.0, 0.0]))
        bits = (torch.rand(1000, 5, 1) < 0.5).float()
        output, _ = rnn(bits, torch.ones(1, 5, 1))
    assert torch.equal(output, 1.0 - 2.0 * (bits.cumsum(0) % 2))


def test_time_scales():
    cell = SignedMinGRUCell(I, 4).double()
    cell.set_bias("forget", torch.tensor([math.log(3.0), -math.log(3.0), 0.0, 30.0]))  # f = 3/4, 1/4, 1/2
    half = 1.0 / math.log(2.0)
    assert cell.timescales().tolist() == pytest.approx([half, half, 0.0, math.exp(30.0) / 2], rel=1e-6)


def test_forget_is_what_is_kept():
    cell = moved(SignedMinGRUCell(I, H))
    gates = cell.act(torch.randn(B, 2 * H, dtype=torch.float64), None, cell.initial_state(B))
    assert (gates.factor < 0).any()
    close(gates.forget, gates.factor.abs())
