"""Infinite inputs, states and gradients: the fused engine's gradients are finite where those of torch are."""

from __future__ import annotations

import copy

import pytest
import torch
from engine_cases import MODELS
from torch import nn

from timescales import LSTM

INF = float("inf")
SIZES = [(2, 4), (2, 37), (40, 17), (2, 64)]  # (I, H); 4, 37 and 17 fill no whole group of units


def gradients(rnn, x, state=None, scale=1.0):
    rnn.zero_grad()
    output, _ = rnn(x, state)
    (scale * output.sum()).backward()
    return {name: p.grad for name, p in rnn.named_parameters()}


def assert_alike(found, expected):
    """The same numbers, and NaN and infinities at the same places."""
    for a, b in zip(found.values(), expected.values(), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("bad", [INF, -INF])
def test_an_infinite_input_leaves_the_gradients_of_torchs_lstm(size, bad):
    torch.manual_seed(0)
    theirs = nn.LSTM(*size)
    ours = LSTM.from_torch(theirs)
    ours.engine = "fused"
    x = torch.randn(5, 3, size[0])
    x[2, 1, 0] = bad
    found, expected = gradients(ours, x), gradients(theirs, x)
    assert_alike(found, expected)
    assert found["weight_hh_l0"].isfinite().all()
    assert found["bias_ih_l0"].isfinite().all()
    assert found["weight_ih_l0"][:, 1:].isfinite().all()  # only the weights of the infinite feature are touched
    assert found["weight_ih_l0"][:, 0].isnan().all()


@pytest.mark.parametrize("name", MODELS)
def test_infinities_leave_the_gradients_of_the_eager_engine(name):
    for inputs, hidden in SIZES:
        torch.manual_seed(0)
        fused = MODELS[name](inputs, hidden)
        fused.engine = "fused"
        eager = copy.deepcopy(fused)
        eager.engine = "eager"
        x = torch.randn(5, 3, inputs)
        x[2, 1, 0] = INF
        assert_alike(gradients(fused, x), gradients(eager, x))
        x = torch.randn(5, 3, inputs)
        (zero,) = [cell.initial_state(3) for cell in fused.layers]
        zero.h[1, 0] = INF
        assert_alike(gradients(fused, x, [zero]), gradients(eager, x, [zero]))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_infinite_gradients(size):
    torch.manual_seed(0)
    fused = LSTM(*size, engine="fused")
    with torch.no_grad():  # all positive: no difference of infinities
        for p in fused.parameters():
            p.abs_()
    eager = copy.deepcopy(fused)
    eager.engine = "eager"
    x = torch.rand(3, 2, size[0])
    found = gradients(fused, x, scale=INF)
    assert_alike(found, gradients(eager, x, scale=INF))
    assert any(v.isinf().any() for v in found.values())
