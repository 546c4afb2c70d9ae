"""The coRNN against its equations in NumPy; its oscillations, and what it refuses."""

import math

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_state
from own_reference import check_gradients, compare, moved

import timescales
from timescales.nn.cells import CoRNNCell


def reference(own, x, state, dt):
    """Rusch & Mishra 2021, Eq. 3 with the old z in the damping: W y + the other W z + V u + b."""
    delta, gamma, epsilon = reference.constants
    y, z = state["h"], state["z"]
    force = np.tanh(own["weight_hh"] @ y + own["weight_zh"] @ z + own["weight_ih"] @ x + own["bias"])
    z = z + delta * dt * force - delta * dt * gamma * y - delta * dt * epsilon * z
    return {"h": y + delta * dt * z, "z": z}


@pytest.mark.parametrize("constants", [(0.042, 2.7, 4.7), (0.2, 1.0, 0.0)])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
def test_equals_the_reference(constants, timed, masked):
    reference.constants = constants
    delta, gamma, epsilon = constants
    compare(reference, moved(CoRNNCell(I, H, delta=delta, gamma=gamma, epsilon=epsilon)), timed, masked)


def test_gradients():
    cell = moved(CoRNNCell(2, 3, delta=0.5, gamma=1.0, epsilon=0.5))
    check_gradients(cell, random_state(cell, 2))


def test_an_oscillator_that_nothing_drives():
    """Weakly damped: a cosine of the frequency sqrt(gamma - epsilon^2 / 4), whose amplitude has the time scale."""
    gamma, epsilon, delta = 4.0, 0.1, 1e-3
    cell = CoRNNCell(1, 1, delta=delta, gamma=gamma, epsilon=epsilon).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
    steps = 3000
    start = cell.State(torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
    output, _ = timescales.RNN([cell])(torch.zeros(steps, 1, 1, dtype=torch.float64), [start])
    t = delta * torch.arange(1, steps + 1, dtype=torch.float64)
    omega = math.sqrt(gamma - epsilon**2 / 4)
    expected = torch.exp(-epsilon * t / 2) * (torch.cos(omega * t) + epsilon / (2 * omega) * torch.sin(omega * t))
    assert (output[:, 0, 0] - expected).abs().max() < 3e-3
    assert cell.timescales().item() == pytest.approx(2 / (epsilon * delta), rel=1e-3)


def test_the_defaults_time_scale_is_that_of_a_simulated_decay():
    cell = CoRNNCell(1, 2).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
    output, _ = timescales.RNN([cell])(torch.zeros(300, B, 1, dtype=torch.float64), [random_state(cell, B)])
    close(-1.0 / (output[-1] / output[-2]).log(), cell.timescales().expand(B, 2), 1e-6)
    assert cell.timescales()[0].item() == pytest.approx(36.23, abs=0.01)


def test_without_damping_nothing_decays():
    assert torch.isinf(CoRNNCell(1, 2, delta=0.1, gamma=1.0, epsilon=0.0).timescales()).all()


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"delta": 0.0}, "delta must be a number above 0"),
        ({"gamma": -1.0}, "gamma must be a number of at least 0"),
        ({"epsilon": "auto"}, "epsilon must be a number of at least 0"),
    ],
)
def test_wrong_arguments(arguments, fix):
    with pytest.raises(ValueError, match=fix):
        timescales.CoRNN(I, H, **arguments)
