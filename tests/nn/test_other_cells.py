"""GRU, JANET, exponential LSTM, leaky RNN, expRNN and pGRU: equality with torch, initialisation, closed forms."""

import copy
import math

import numpy as np
import pytest
import torch
from distributions import same_distribution
from scipy import stats
from torch import nn

import timescales
from timescales.nn.cells import ELSTMCell, ExpRNNCell, LeakyRNNCell, PGRUCell, PLSTMCell
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
    both = nn.GRU(I, H, bidirectional=True)
    close(timescales.GRU.from_torch(both)(x().float())[0], both(x().float())[0], 1e-6)
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
    assert timescales.JANET(1, 9).layers[0].bias_total("cell").all()


def test_a_separate_elstm_is_torchs_lstm_at_unit_steps():
    lstm = nn.LSTM(I, H).double()
    cell = ELSTMCell(I, H, coupled=False).double()
    with torch.no_grad():
        for theirs, gate in enumerate(("input", "forget", "cell", "output")):
            rows, own = slice(theirs * H, (theirs + 1) * H), cell.rows(gate)
            cell.weight_ih[own], cell.weight_hh[own] = lstm.weight_ih_l0[rows], lstm.weight_hh_l0[rows]
            cell.bias[own] = (lstm.bias_ih_l0 + lstm.bias_hh_l0)[rows]
    output, (h, c) = timescales.RNN([cell])(x())
    expected, (h_n, c_n) = lstm(x())
    close(output, expected)
    close(h, h_n)
    close(c, c_n)


@pytest.mark.parametrize("kind", [ELSTMCell, LeakyRNNCell])
def test_two_short_steps_are_a_long_one(kind):
    """Without recurrent weights the gates do not depend on the state, and time can be divided at will."""
    cell = kind(I, H).double()
    with torch.no_grad():
        cell.weight_hh.zero_()
    rnn, one = timescales.RNN([cell]), x(1)
    start = [cell.State(*(torch.full((B, H), 0.7, dtype=torch.float64) for _ in cell.State._fields))]
    _, long = rnn(one, start, dt=torch.full((1, B), 3.0, dtype=torch.float64))
    steps = torch.tensor([0.5, 0.0, 2.5], dtype=torch.float64)
    _, short = rnn(one.expand(3, -1, -1), start, dt=steps.unsqueeze(1).expand(3, B))
    for a, b in zip(rnn.split_state(long)[0], rnn.split_state(short)[0], strict=True):
        close(a, b)


@pytest.mark.parametrize("kind", [ELSTMCell, LeakyRNNCell])
def test_what_is_written_in_a_short_time_keeps_its_digits(kind):
    """1 - f at dt = 1e-6, where 1 - exp(...) in float32 would be off by percents."""
    cell = kind(I, H)
    gx, gh = torch.zeros(2, B, len(cell.weight_ih))
    found = cell.act(gx, gh, cell.initial_state(B), torch.full((B, 1), 1e-6)).input.double()
    double = cell.double()
    rate = math.log(2) if kind is ELSTMCell else 1 / double.timescales().expand(B, H)
    torch.testing.assert_close(found, torch.as_tensor(1e-6 * rate).expand(B, H).double(), rtol=2e-6, atol=0)


def test_elstms_init():
    """Chrono in the forget gate, and its negative in a separate input gate; without T_max torch's default."""
    torch.manual_seed(0)
    cell = timescales.ELSTM(1, 1151, T_max=50).layers[0]
    same_distribution(cell.bias_total("forget").detach().exp(), stats.uniform(1, 48))
    assert cell.bias_total("cell").all()
    separate = timescales.ELSTM(1, 40, T_max=50, coupled=False).layers[0]
    assert torch.equal(separate.bias_total("input"), -separate.bias_total("forget"))
    assert timescales.ELSTM(1, 99).layers[0].bias_total("forget").abs().max() < 1 / math.sqrt(99)


def test_leakys_init():
    """ln tau is uniform on [0, ln T_max]; with T_max = 1 all time constants are 1."""
    torch.manual_seed(0)
    rnn = timescales.LeakyRNN(1, 2001, T_max=400.0)
    same_distribution(rnn.timescales()[0].log().double(), stats.uniform(0, math.log(400)))
    assert torch.equal(timescales.LeakyRNN(1, 3, T_max=1.0).timescales()[0], torch.ones(3))
    for wrong in (0.5, math.inf, "auto", True):
        with pytest.raises(ValueError, match="T_max must be a number of at least 1"):
            timescales.LeakyRNN(1, 3, T_max=wrong)


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
