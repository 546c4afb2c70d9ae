"""HGRN against its equations in NumPy; its lower bounds."""

import math

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, random_state
from own_reference import against_eager, check_gradients, compare, moved

import timescales
from timescales.nn.cells import HGRNCell


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def reference(own, x, state, dt):
    """Qin et al. 2023, section 3, with a real state: lambda = gamma + (1 - gamma) mu."""
    W, b = (np.split(own[name], 3) for name in ("weight_ih", "bias"))
    mu, c, g = (W[k] @ x + b[k] for k in range(3))
    gamma = sigmoid(own["bound"]) if "bound" in own else 0.0
    kept = (gamma + (1.0 - gamma) * sigmoid(mu)) ** dt
    c = kept * state["c"] + (1.0 - kept) * c * sigmoid(c)
    return {"h": sigmoid(g) * c, "c": c}


@pytest.mark.parametrize("lower_bound", [0.0, 0.4])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
def test_equals_the_reference(lower_bound, timed, masked):
    compare(reference, moved(HGRNCell(I, H, lower_bound=lower_bound)), timed, masked, tolerance=1e-11)


@pytest.mark.parametrize("lower_bound", [0.0, 0.4])
def test_gradients(lower_bound):
    cell = moved(HGRNCell(2, 3, lower_bound=lower_bound))
    check_gradients(cell, random_state(cell, 2))


def test_the_compiled_kernel():
    against_eager(lambda engine: timescales.HGRN(I, H, 2, engine=engine))
    against_eager(lambda engine: timescales.HGRN(I, H, 2, engine=engine), dt=torch.rand(11, B))


def test_layers_start_with_rising_bounds():
    cells = timescales.HGRN(I, H, 4).layers
    assert cells[0].bound is None
    for k, cell in enumerate(cells[1:], 1):
        assert cell.bound.sigmoid().tolist() == pytest.approx([k / 4] * H)
        assert (cell.timescales() > -1.0 / math.log(k / 4)).all()


def test_no_input_makes_a_unit_forget_faster_than_its_bound():
    cell = HGRNCell(I, H, lower_bound=0.7)
    gates = cell.act(torch.full((B, 3 * H), -1e4), None, cell.initial_state(B))
    assert gates.forget.flatten().tolist() == pytest.approx([0.7] * B * H)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="lower_bound must be a number of at least 0 and below 1"):
        HGRNCell(I, H, lower_bound=1.0)
    with pytest.raises(ValueError, match="lower_bound"):
        timescales.HGRN(I, H, lower_bound=0.5)
