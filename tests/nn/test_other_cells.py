"""GRU, JANET, expRNN and pGRU: equality with torch, initialisation, closed forms."""

import copy
import math

import numpy as np
import pytest
import torch
from distributions import same_distribution
from scipy import stats
from torch import nn

import timescales
from timescales.nn.cells import ExpRNNCell, PGRUCell, PLSTMCell
from timescales.nn.engine import eager

S, B, I, H = 9, 3, 4, 6  # noqa: E741


def x(steps=S):
    return torch.randn(steps, B, I, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("layers", [1, 2])
def test_gru_is_torchs(layers):
    torch.manual_seed(7)
    theirs = nn.GRU(I, H, layers)
    torch.manual_seed(7)
    ours = timescales.GRU(I, H, layers)
    for k, cell in enumerate(ours.layers):
        for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            assert torch.equal(getattr(cell, key), getattr(theirs, f"{key}_l{k}"))
    theirs.double()
    h = torch.randn(layers, B, H, dtype=torch.float64)
    expected, end = theirs(x(), h)
    converted = timescales.GRU.from_torch(theirs)
    output, state = converted(x(), [cell.State(h[k]) for k, cell in enumerate(converted.layers)])
    close(output, expected)
    close(state, end)
    close(converted.to_torch()(x(), h)[0], expected)
    with pytest.raises(ValueError, match=r"torch\.nn\.GRU with biases"):
        timescales.GRU.from_torch(nn.GRU(I, H, bidirectional=True))
    with pytest.raises(ValueError, match=r"equal hidden_size"):
        timescales.GRU(I, [H, 2], 2).to_torch()


def test_janet_is_a_gru_without_a_reset_gate():
    """Gu et al. 2020, footnote 5: with beta = 0."""
    janet = timescales.JANET(I, H, T_max=20, beta=0.0).double()
    gru = timescales.GRU(I, H).double()
    with torch.no_grad():
        for name in ("weight_ih", "weight_hh"):
            for gate in ("forget", "cell"):
                getattr(gru.layers[0], name)[gru.layers[0].rows(gate)] = getattr(janet.layers[0], name)[
                    janet.layers[0].rows(gate)
                ]
        gru.layers[0].bias_hh.zero_()
        gru.layers[0].bias_ih.copy_(torch.cat([torch.full((H,), 1e3, dtype=torch.float64), janet.layers[0].bias]))
    close(gru(x())[0], janet(x())[0])


def test_janets_init():
    """Chrono in the forget gate, 0 in the candidate; without T_max torch's default."""
    torch.manual_seed(0)
    cell = timescales.JANET(1, 1151, T_max=50).layers[0]
    same_distribution(cell.bias_total("forget").detach().exp(), stats.uniform(1, 48))
    assert not cell.bias_total("cell").any()
    assert timescales.JANET(1, 9, T_max=None).layers[0].bias_total("cell").all()


@pytest.mark.parametrize("hidden", [1, 2, 7, 64])
@pytest.mark.parametrize("skew_init", ["cayley", "henaff"])
def test_exprnn_is_orthogonal_as_torchs_parametrization(skew_init, hidden):
    torch.manual_seed(hidden)
    cell = ExpRNNCell(I, hidden, skew_init=skew_init).double()
    with torch.no_grad():
        cell.skew.add_(torch.randn_like(cell.skew))
    W = cell.weights().hh
    close(W @ W.T, torch.eye(hidden, dtype=torch.float64), 1e-10)
    theirs = nn.Linear(hidden, hidden, bias=False).double()
    nn.utils.parametrizations.orthogonal(theirs, orthogonal_map="matrix_exp", use_trivialization=False)
    lower = torch.zeros(hidden, hidden, dtype=torch.float64)
    j, k = torch.tril_indices(hidden, hidden, -1)
    lower[j, k] = cell.skew.detach()
    with torch.no_grad():
        theirs.parametrizations.weight.original.copy_(lower)
    close(W, theirs.weight, 1e-10)
    assert sum(p.numel() for p in cell.parameters()) == hidden * (I + 1) + hidden * (hidden - 1) // 2


@pytest.mark.parametrize(("skew_init", "low", "high"), [("cayley", 0.0, 1.0), ("henaff", -math.pi, math.pi)])
def test_exprnns_angles(skew_init, low, high):
    torch.manual_seed(0)
    A = torch.zeros(2001, 2001)
    cell = ExpRNNCell(1, 2001, skew_init=skew_init)
    j, k = torch.tril_indices(2001, 2001, -1)
    A[j, k] = cell.skew.detach()
    angles = A[A != 0]
    assert len(angles) == 1000  # the odd one out has none
    assert 0.009 < cell.bias.abs().max() <= 0.01
    assert torch.equal(A.diagonal(-1)[::2], angles)
    if skew_init == "henaff":
        same_distribution(angles.double(), stats.uniform(low, high - low))
    else:  # s = sqrt((1 - cos v) / (1 + cos v)) = tan(v / 2), v ~ U(0, pi / 2)
        same_distribution(angles.double(), lambda s: 4 / math.pi * np.arctan(s))


def test_exprnn_in_other_types():
    torch.manual_seed(0)
    x = torch.randn(6, B, I)
    plain = timescales.ExpRNN(I, H)
    half = copy.deepcopy(plain).bfloat16()
    torch.testing.assert_close(half(x.bfloat16())[0].float(), plain(x)[0], rtol=0.05, atol=0.05)
    torch.set_default_dtype(torch.float64)
    try:
        wide = timescales.ExpRNN(I, H)
    finally:
        torch.set_default_dtype(torch.float32)
    assert wide.layers[0].weights().hh.dtype == torch.float64


def test_exprnn_keeps_a_states_length():
    """Without input and threshold nothing is lost in 300 steps, forward or backward."""
    rnn = timescales.ExpRNN(I, H).double()
    with torch.no_grad():
        rnn.layers[0].bias.zero_()
    h = torch.randn(B, H, dtype=torch.float64, requires_grad=True)
    _, (after,) = rnn(torch.zeros(300, B, I, dtype=torch.float64), [rnn.layers[0].State(h)])
    close(after.norm(dim=-1), h.norm(dim=-1), 1e-10)
    probe = torch.randn(B, H, dtype=torch.float64)
    (back,) = torch.autograd.grad((after * probe).sum(), h)
    close(back.norm(dim=-1), probe.norm(dim=-1), 1e-10)
    assert torch.isinf(rnn.timescales()[0]).all()


def test_pgru_forgets_by_plstms_gate():
    """The same reset pre-activations, age and dt give the same f, i and age; unit steps are dt = 1.

    Up to the last bit: the cells' rows lie differently in memory, and vectors round otherwise than what is left over.
    """
    torch.manual_seed(0)
    gru, lstm = PGRUCell(I, H, power=0.4).double(), PLSTMCell(I, H, power=0.4).double()
    pre, age = torch.randn(2, B, 3 * H, dtype=torch.float64), 5 * torch.rand(B, H, dtype=torch.float64)
    h = torch.randn(B, H, dtype=torch.float64)
    dt = torch.tensor([[0.0], [0.3], [4.0]], dtype=torch.float64)
    for time in (1.0, dt):
        ours, theirs = gru.act(*pre, gru.State(h, age), time), lstm.act(*pre, lstm.State(h, h, age), time)
        for name in ("reset", "forget", "input", "age"):
            close(getattr(ours, name), getattr(theirs, name), 1e-15)


def test_pgru_decays_as_a_power_of_time():
    cell = PGRUCell(1, 1, power=0.4, epsilon=1e-12).double()
    with torch.no_grad():
        for p in cell.parameters():
            p.zero_()
        cell.bias[0] = -1e4
        one = torch.ones(1, 1, dtype=torch.float64)
        zero = torch.zeros(50, 1, 1, dtype=torch.float64)
        output, state = eager.run(cell, zero, cell.weights(), cell.State(one, 0 * one))
        late, _ = eager.run(cell, zero[:1], cell.weights(), cell.State(one, 0 * one), dt=50 * torch.ones(1, 1))
    close(output.flatten(), torch.arange(2.0, 52.0, dtype=torch.float64) ** -0.4, 1e-10)
    assert state.age.item() == 50.0
    close(late, output[-1:], 1e-10)  # one step of 50 from a reset is as long as fifty of 1
