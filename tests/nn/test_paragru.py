"""The ParaGRU against its equations in NumPy, and against a GRU with diagonal matrices."""

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_input, random_state, run
from distributions import same_distribution
from own_reference import against_eager, check_gradients, compare, moved
from scipy import stats

import timescales
from timescales.nn.cells import ParaGRUCell


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def reference(own, x, state, dt):
    """Danieli et al. 2025, Eq. 3.1a with diagonal A; z has the opposite sign of our forget gate."""
    B, b, A = (np.split(own[name], 3) for name in ("weight_ih", "bias", "diagonal"))
    h = state["h"]
    z = sigmoid(-(np.diag(A[0]) @ h + B[0] @ x + b[0]))
    r = sigmoid(np.diag(A[1]) @ h + B[1] @ x + b[1])
    c = np.tanh(np.diag(A[2]) @ (h * r) + B[2] @ x + b[2])
    return {"h": (1.0 - z) * h + z * c}


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
def test_equals_the_reference(timed, masked):
    """dt changes nothing."""
    compare(reference, moved(ParaGRUCell(I, H)), timed, masked)


def test_gradients():
    cell = moved(ParaGRUCell(2, 3))
    check_gradients(cell, random_state(cell, 2))


def test_the_compiled_kernel():
    against_eager(lambda engine: timescales.ParaGRU(I, H, 2, engine=engine))


def test_it_is_a_gru_with_diagonal_matrices():
    """Torch's GRU multiplies by r after the product, which for a diagonal matrix is the same."""
    cell, gru = moved(ParaGRUCell(I, H)), torch.nn.GRU(I, H).double()
    a = dict(zip(cell.gates, cell.diagonal.detach().chunk(3), strict=True))
    with torch.no_grad():
        gru.bias_hh_l0.zero_()
        for k, gate in enumerate(("reset", "forget", "cell")):
            rows = slice(k * H, (k + 1) * H)
            gru.weight_hh_l0[rows] = torch.diag(a[gate])
            gru.weight_ih_l0[rows], gru.bias_ih_l0[rows] = cell.weight_ih[cell.rows(gate)], cell.bias_total(gate)
        x, state = random_input()[0], random_state(cell, B)
        expected, _ = gru(x, state.h.unsqueeze(0))
        close(run(cell, x, state)[0], expected)


def test_initialisation():
    torch.manual_seed(0)
    cell = ParaGRUCell(2, 10_000, forget_init=2.0)
    same_distribution(cell.diagonal.detach() * 100.0, stats.norm(0, 1))
    assert (cell.bias_total("forget") == 2.0).all()
    assert cell.timescales()[0].item() == pytest.approx(-1.0 / np.log(sigmoid(2.0)), rel=1e-5)
