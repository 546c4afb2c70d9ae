"""The ParaLSTM against its equations in NumPy; its initialisation."""

import numpy as np
import pytest
import torch
from cell_cases import H, I, random_state
from distributions import same_distribution
from own_reference import against_eager, check_gradients, compare, moved
from scipy import stats

import timescales
from timescales.nn.cells import ParaLSTMCell


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def reference(own, x, state, dt):
    """Danieli et al. 2025, Eq. 3.1b with diagonal A and C."""
    B, b, A = (np.split(own[name], 3) for name in ("weight_ih", "bias", "diagonal"))
    C_f, C_o = np.split(own["peephole"], 2)
    h, c = state["h"], state["c"]
    f = sigmoid(np.diag(A[0]) @ h + np.diag(C_f) @ c + B[0] @ x + b[0])
    z = np.tanh(np.diag(A[1]) @ h + B[1] @ x + b[1])
    c = f * c + (1.0 - f) * z
    o = sigmoid(np.diag(A[2]) @ h + np.diag(C_o) @ c + B[2] @ x + b[2])
    return {"h": o * np.tanh(c), "c": c}


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
def test_equals_the_reference(timed, masked):
    """dt changes nothing."""
    compare(reference, moved(ParaLSTMCell(I, H)), timed, masked)


def test_gradients():
    cell = moved(ParaLSTMCell(2, 3))
    check_gradients(cell, random_state(cell, 2))


def test_the_compiled_kernel():
    against_eager(lambda engine: timescales.ParaLSTM(I, H, 2, engine=engine))


def test_initialisation():
    torch.manual_seed(0)
    cell = ParaLSTMCell(2, 10_000, forget_init=2.0)
    same_distribution(cell.diagonal.detach() * 100.0, stats.norm(0, 1))
    same_distribution(cell.peephole.detach() * 100.0, stats.norm(0, 1))
    assert (cell.bias_total("forget") == 2.0).all()
    assert cell.timescales()[0].item() == pytest.approx(-1.0 / np.log(sigmoid(2.0)), rel=1e-5)
