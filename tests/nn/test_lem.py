"""LEM against its equations in NumPy; its time scales, irregular steps, and what it refuses."""

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_state
from own_reference import check_gradients, compare, moved

import timescales
from timescales.nn.cells import LEMCell


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def reference(own, x, state, dt):
    """Rusch et al. 2022, Eq. 3: V and b of all four lines, W_1, W_2, W_z on y, and W_y on the new z."""
    V, W, b = (np.split(own[name], 4) for name in ("weight_ih", "weight_hh", "bias"))
    y, z = state["h"], state["z"]
    kept_y = (1.0 - reference.delta * sigmoid(W[0] @ y + V[0] @ x + b[0])) ** dt
    kept_z = (1.0 - reference.delta * sigmoid(W[1] @ y + V[1] @ x + b[1])) ** dt
    z = kept_z * z + (1.0 - kept_z) * np.tanh(W[2] @ y + V[2] @ x + b[2])
    y = kept_y * y + (1.0 - kept_y) * np.tanh(W[3] @ z + V[3] @ x + b[3])
    return {"h": y, "z": z}


@pytest.mark.parametrize("delta", [1.0, 0.3])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
def test_equals_the_reference(delta, timed, masked):
    reference.delta = delta
    compare(reference, moved(LEMCell(I, H, delta=delta)), timed, masked, tolerance=1e-11)


@pytest.mark.parametrize("delta", [1.0, 0.3])
def test_gradients(delta):
    cell = moved(LEMCell(2, 3, delta=delta))
    check_gradients(cell, random_state(cell, 2))


def test_auto_takes_the_eager_engine():
    rnn = timescales.LEM(I, H)
    rnn(torch.randn(3, B, I))
    with pytest.raises(ValueError, match="compiled"):
        timescales.LEM(I, H, engine="fused")(torch.randn(3, B, I))


def test_two_short_steps_are_a_long_one():
    """Of z, without recurrent weights."""
    cell = moved(LEMCell(I, H, delta=0.7))
    with torch.no_grad():
        cell.weight_hh.zero_()
    one = torch.randn(1, B, I, dtype=torch.float64)
    rnn, start = timescales.RNN([cell]), [random_state(cell, B)]
    _, long = rnn(one, start, dt=torch.full((1, B), 3.0, dtype=torch.float64))
    steps = torch.tensor([0.5, 0.0, 2.5], dtype=torch.float64)
    _, short = rnn(one.expand(3, -1, -1), start, dt=steps.unsqueeze(1).expand(3, B))
    close(long.z, short.z)


@pytest.mark.parametrize("delta", [1.0, 0.25])
def test_time_scales(delta):
    cell = LEMCell(I, 2, delta=delta).double()
    cell.set_bias("step_z", torch.tensor([0.0, -4.0]))
    d = delta * sigmoid(np.array([0.0, -4.0]))
    assert cell.timescales().tolist() == pytest.approx(list(-1.0 / np.log1p(-d)))


@pytest.mark.parametrize("delta", [0.0, 1.5, True])
def test_wrong_arguments(delta):
    with pytest.raises(ValueError, match="delta must be a number above 0, at most 1"):
        timescales.LEM(I, H, delta=delta)
