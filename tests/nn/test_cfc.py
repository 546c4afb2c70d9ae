"""CfC against its equations in NumPy; what an infinitely long step comes to."""

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_state, run
from own_reference import against_eager, check_gradients, compare, moved

import timescales
from timescales.nn.cells import CfCCell


def reference(own, x, state, dt):
    """Hasani et al. 2022, with their code's time gate."""
    V, W, b = (np.split(own[name], 4) for name in ("weight_ih", "weight_hh", "bias"))
    first, second, rate, phase = (W[k] @ state["h"] + V[k] @ x + b[k] for k in range(4))
    gate = 1.0 / (1.0 + np.exp(-(rate * dt + phase)))
    return {"h": np.tanh(first) * (1.0 - gate) + gate * np.tanh(second)}


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
def test_equals_the_reference(timed, masked):
    compare(reference, moved(CfCCell(I, H)), timed, masked)


def test_gradients():
    cell = moved(CfCCell(2, 3))
    check_gradients(cell, random_state(cell, 2))


def test_the_compiled_kernel():
    against_eager(lambda engine: timescales.CfC(I, H, 2, engine=engine))
    against_eager(lambda engine: timescales.CfC(I, H, 2, engine=engine), dt=3.0 * torch.rand(11, B))


def test_after_a_long_time_one_candidate_is_left():
    cell = moved(CfCCell(I, H))
    x, state = torch.randn(1, B, I, dtype=torch.float64), random_state(cell, B)
    with torch.no_grad():
        output, _ = run(cell, x, state, torch.full((1, B), 1e6, dtype=torch.float64))
        first, second, rate, _ = (x[0] @ cell.weight_ih.T + cell.bias + state.h @ cell.weight_hh.T).chunk(4, -1)
    close(output[0], torch.where(rate > 0, second, first).tanh(), 1e-9)


def test_there_are_no_time_scales():
    assert torch.isnan(CfCCell(I, H).timescales()).all()
    assert CfCCell(I, H).timescales().shape == (H,)
