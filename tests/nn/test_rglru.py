"""The RG-LRU against its equations in NumPy; its time scales, its initialisation, and what it refuses."""

import math

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_state
from distributions import same_distribution
from own_reference import against_eager, check_gradients, compare, moved
from scipy import stats

import timescales
from timescales.nn.cells import RGLRUCell


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def reference(own, x, state, dt):
    """De et al. 2024, Eqs. 1-4, unit by unit, with a = sigmoid(decay)."""
    H = len(state["h"])
    new = np.empty(H)
    for unit in range(H):
        r, i, u = (own["weight_ih"][unit + gate * H] @ x + own["bias"][unit + gate * H] for gate in range(3))
        a = sigmoid(own["decay"][unit]) ** (reference.c * sigmoid(r) * dt)
        a = 2.0 * a - 1.0 if reference.signed else a
        new[unit] = a * state["h"][unit] + math.sqrt(1.0 - a**2) * (sigmoid(i) * u)
    return {"h": new}


@pytest.mark.parametrize(("c", "signed"), [(8.0, False), (0.7, False), (0.7, True)])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
def test_equals_the_reference(c, signed, timed, masked):
    """1 - a^2 loses digits in the reference at the dt of 1e-7."""
    reference.c, reference.signed = c, signed
    compare(reference, moved(RGLRUCell(I, H, c=c, signed=signed)), timed, masked, tolerance=1e-10)


@pytest.mark.parametrize("signed", [False, True])
def test_gradients(signed):
    cell = moved(RGLRUCell(2, 3, signed=signed))
    check_gradients(cell, random_state(cell, 2))


def test_the_compiled_kernel():
    against_eager(lambda engine: timescales.RGLRU(I, H, 2, engine=engine))
    against_eager(lambda engine: timescales.RGLRU(I, H, 2, engine=engine), dt=torch.rand(11, B))
    against_eager(lambda engine: timescales.RGLRU(I, H, 2, engine=engine, decay_init=(0.1, 0.9), signed=True))


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_what_is_written_has_the_size_of_the_input(engine):
    """Of an input of variance 1 that the input gate lets through, at any decay: the variance of h is 1."""
    torch.manual_seed(0)
    rnn = timescales.RGLRU(1, 3, engine=engine)
    (cell,) = rnn.layers
    with torch.no_grad():
        cell.weight_ih.zero_()
        cell.weight_ih[cell.rows("cell")] = 1.0
        cell.bias.zero_()
        cell.set_bias("input", torch.full((3,), 50.0))
        cell.decay.copy_(torch.tensor([0.0, 3.0, 5.0]))
        output, _ = rnn(torch.randn(2000, 64, 1))
    assert output[500:].var((0, 1)).tolist() == pytest.approx([1.0, 1.0, 1.0], abs=0.05)


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_no_time_at_all(engine):
    """A step after dt = 0 changes nothing, and has finite gradients, where that of the square root is infinite."""
    rnn = timescales.RGLRU(I, H, engine=engine)
    x, h, dt = torch.randn(3, B, I), torch.randn(1, B, H), torch.zeros(3, B, requires_grad=True)
    output, _ = rnn(x, h, dt)
    close(output, h.expand_as(output), 1e-6)
    output.sum().backward()
    assert all(p.grad.isfinite().all() for p in rnn.parameters())
    assert dt.grad.isfinite().all()


def test_two_short_steps_forget_as_a_long_one():
    cell = moved(RGLRUCell(I, H))
    gx = torch.randn(B, 3 * H, dtype=torch.float64)
    parts = [cell.act(gx, None, cell.initial_state(B), dt).forget for dt in (0.5, 2.5, 3.0)]
    close(parts[0] * parts[1], parts[2])


def test_time_scales():
    cell = RGLRUCell(I, 2).double()
    with torch.no_grad():
        cell.decay.copy_(torch.tensor([0.999, 0.9]).logit())
        cell.set_bias("recurrence", torch.tensor([0.0, 2.0]))
    assert cell.timescales().tolist() == pytest.approx(
        [-1 / (4 * math.log(0.999)), -1 / (8 * math.log(0.9) * sigmoid(2.0))], rel=1e-4
    )
    signed = RGLRUCell(I, 2, signed=True).double()
    signed.load_state_dict(cell.state_dict())
    a = torch.exp(-1.0 / cell.timescales())
    close(signed.timescales(), -1.0 / (2.0 * a - 1.0).abs().log())


def test_initialisation():
    torch.manual_seed(0)
    cell = RGLRUCell(3, 20_000, decay_init=(0.2, 0.7))
    same_distribution(cell.decay.detach().double().sigmoid() ** 8, stats.uniform(0.2, 0.5))
    assert RGLRUCell(3, 1000).decay.sigmoid().pow(8.0).min() >= 0.9


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"c": 0.0}, "c must be a number above 0"),
        ({"decay_init": (0.9, 1.0)}, "0 < low <= high < 1"),
        ({"decay_init": (0.9, 0.5)}, "0 < low <= high < 1"),
        ({"decay_init": 0.5}, "two numbers"),
        ({"signed": 1}, "signed must be True or False"),
    ],
)
def test_wrong_arguments(arguments, fix):
    with pytest.raises(ValueError, match=fix):
        timescales.RGLRU(I, H, **arguments)
