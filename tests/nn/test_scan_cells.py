"""Cells without recurrent weights, whose gates read the input alone: what they are, closed forms, initialisation."""

import copy
import math

import pytest
import torch
from cell_cases import SCANS, build, random_input, random_state, run
from distributions import same_distribution
from scan_cells import OneField, TwoFields
from scipy import stats

import timescales
from timescales.nn.cells import LRUCell, LSTMCell, MinGRUCell, MinLSTMCell, PLScanCell, PLSTMCell
from timescales.nn.engine import eager

S, B, I, H = 7, 3, 4, 5  # noqa: E741


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SCANS)
def test_there_are_no_recurrent_weights(name):
    cell = build(name)
    names = {key for key, _ in cell.named_parameters()}
    assert cell.weight_hh is None
    assert cell.weights().hh is None
    assert {"weight_ih", "bias"} <= names
    assert not names & {"weight_hh", "bias_hh", "bias_ih"}
    assert "weight_hh" not in cell.state_dict()


# In a ParaGRU and a ParaLSTM something comes back through the gates, too.
@pytest.mark.parametrize("name", [name for name in SCANS if not name.startswith("para")])
def test_a_units_jacobian_is_the_product_of_its_forget_gates(name):
    """So T_1/e, which sums ln f, is exact: nothing is left out. For the complex state of the LRU it is its modulus."""
    x, dt, _ = random_input()
    cell = build(name)
    gates = []
    act = cell.act
    cell.act = lambda *arguments: gates.append(act(*arguments)) or gates[-1]
    state = random_state(cell, B)
    held = "c" if "c" in cell.State._fields else "h"
    state = state._replace(**{held: getattr(state, held).requires_grad_()})
    _, last = run(cell, x, state, dt)
    kept = math.prod(getattr(g, "factor", g.forget) for g in gates)  # with its sign, where it has one
    (d,) = torch.autograd.grad(getattr(last, held).sum(), getattr(state, held), retain_graph=True)
    if isinstance(cell, LRUCell):
        (d_imaginary,) = torch.autograd.grad(last.imaginary.sum(), state.h)
        d = (d.square() + d_imaginary.square()).sqrt()
    close(d, kept)


def test_plscan_is_plstm_without_recurrent_weights():
    torch.manual_seed(0)
    scan, lstm = PLScanCell(I, H).double(), PLSTMCell(I, H).double()
    with torch.no_grad():
        lstm.weight_hh.zero_()
        for name, parameter in scan.named_parameters():
            parameter.copy_(lstm.get_parameter(name))
    x, dt, mask = random_input()
    state = random_state(scan, B)
    output, last = run(scan, x, state, dt, mask)
    expected, theirs = run(lstm, x, lstm.State(*state), dt, mask)
    close(output, expected, 1e-14)
    for a, b in zip(last, theirs, strict=True):
        close(a, b, 1e-14)


def test_minlstm_is_mingru_with_the_ratio_of_its_gates():
    """f / (f + i) is the sigmoid of ln f - ln i, here of constants."""
    gru, lstm = MinGRUCell(I, H).double(), MinLSTMCell(I, H).double()
    with torch.no_grad():
        lstm.weight_ih[: 2 * H] = gru.weight_ih[:H] = 0.0
        lstm.weight_ih[2 * H :], lstm.bias[2 * H :] = gru.weight_ih[H:], gru.bias[H:]
        f, i = lstm.bias[: 2 * H].sigmoid().chunk(2)
        gru.bias[:H] = f.log() - i.log()
    x, dt, mask = random_input()
    close(run(lstm, x, None, dt, mask)[0], run(gru, x, None, dt, mask)[0])
    close(lstm.timescales(), gru.timescales())
    close(lstm.timescales(), -1.0 / (f / (f + i)).log())


@pytest.mark.parametrize("kind", [MinGRUCell, MinLSTMCell])
def test_two_short_steps_are_a_long_one(kind):
    cell = kind(I, H).double()
    rnn, one = timescales.RNN([cell]), random_input()[0][:1]
    start = [cell.State(torch.full((B, H), 0.7, dtype=torch.float64))]
    _, long = rnn(one, start, dt=torch.full((1, B), 3.0, dtype=torch.float64))
    steps = torch.tensor([0.5, 0.0, 2.5], dtype=torch.float64)
    _, short = rnn(one.expand(3, -1, -1), start, dt=steps.unsqueeze(1).expand(3, B))
    close(long, short)


@pytest.mark.parametrize("kind", [MinGRUCell, MinLSTMCell])
def test_what_is_written_in_a_short_time_keeps_its_digits(kind):
    """1 - f at dt = 1e-6, where 1 - exp(...) in float32 would be off by percents. f = 1/2 at dt = 1."""
    cell = kind(I, H)
    found = cell.act(torch.zeros(B, len(cell.weight_ih)), None, cell.initial_state(B), torch.full((B, 1), 1e-6)).input
    torch.testing.assert_close(found, torch.full((B, H), 1e-6 * math.log(2)), rtol=2e-6, atol=0)


@pytest.mark.parametrize("kind", [MinGRUCell, MinLSTMCell, PLScanCell])
def test_long_memories_keep_their_digits(kind):
    """20,000 steps in float32 against float64, with units that forget after 1e5 steps.

    f is rounded to 2^-25, which makes up to 6e-4 in 20,000 steps. 1 - f is about 1e-5: as a difference of rounded
    numbers it could be wrong by 3e-3.
    """
    torch.manual_seed(0)
    cell = kind(1, 3)
    with torch.no_grad():
        gate = "reset" if kind is PLScanCell else "forget"
        cell.weight_ih[cell.rows(gate)] = 0.0
        cell.set_bias(gate, torch.full((3,), -17.0 if gate == "reset" else math.log(1e5)))
        if kind is MinLSTMCell:
            cell.weight_ih[cell.rows("input")] = 0.0
            cell.set_bias("input", torch.full((3,), -math.log(1e5)))
    x = torch.randn(20_000, 1, 1)
    with torch.no_grad():
        found = timescales.RNN([cell], engine="fused")(x)[0]
        expected = timescales.RNN([copy.deepcopy(cell).double()], engine="eager")(x.double())[0]
    assert (found - expected).abs().max() < 6e-4 * expected.abs().max()


def test_lru_rings():
    """The response to an impulse is |lambda|^k times a cosine of theta k, from the phase at which B writes."""
    torch.manual_seed(0)
    rnn = timescales.LRU(1, 4, r_min=0.9, r_max=0.999).double()
    (cell,) = rnn.layers
    x = torch.zeros(500, 1, 1, dtype=torch.float64)
    x[0] = 1.0
    output, state = rnn(x)
    k = torch.arange(500, dtype=torch.float64).unsqueeze(1)
    real, imaginary = cell.weight_ih.detach().squeeze(1).chunk(2)
    size = cell.gamma_log.detach().exp() * torch.hypot(real, imaginary)
    angle = 2 * math.pi * k / cell.periods().detach() + torch.atan2(imaginary, real)
    decay = torch.exp(-k / rnn.timescales()[0])
    close(output[:, 0], size * decay * angle.cos(), 1e-10)
    close(state.imaginary[0, 0], (size * decay * angle.sin())[-1], 1e-10)


def test_lru_at_irregular_steps():
    """Without a drive only the sum of the times counts."""
    cell = LRUCell(1, H).double()
    start = cell.State(*torch.randn(2, B, H, dtype=torch.float64))
    x = torch.zeros(3, B, 1, dtype=torch.float64)
    dt = torch.tensor([0.5, 0.0, 2.5], dtype=torch.float64).unsqueeze(1).expand(3, B)
    _, short = run(cell, x, start, dt)
    _, long = run(cell, x[:1], start, dt.sum(0, keepdim=True))
    for a, b in zip(short, long, strict=True):
        close(a, b)


def test_lrus_init():
    """Uniform on the ring: the squared radius and the phase are. B as in the authors' code, gamma normalises."""
    torch.manual_seed(0)
    cell = timescales.LRU(3, 2001, r_min=0.5, r_max=0.9, max_phase=1.0).layers[0]
    squared = torch.exp(-2.0 / cell.timescales().detach().double())
    same_distribution(squared, stats.uniform(0.25, 0.81 - 0.25))
    same_distribution(cell.theta_log.detach().double().exp(), stats.uniform(0, 1.0))
    close(cell.gamma_log.detach().double().exp().square(), 1.0 - squared, 1e-5)
    same_distribution(cell.weight_ih.detach().double().flatten(), stats.norm(0, 6**-0.5))
    assert not cell.bias.any()
    whole = timescales.LRU(3, 20_001).layers[0]
    assert all(p.isfinite().all() for p in whole.parameters())
    one = LRUCell(1, 3, r_min=1.0)
    assert one.timescales().min() > 1e11  # a radius of 1, as far as gamma can be positive


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"r_min": 0.9, "r_max": 0.5}, "0 <= r_min <= r_max <= 1, not 0.9 and 0.5"),
        ({"r_max": 1.1}, "not 0.0 and 1.1"),
        ({"r_min": "auto"}, "not 'auto' and 1.0"),
        ({"max_phase": 0.0}, "max_phase must be a number above 0 and at most 2 pi, not 0.0"),
        ({"max_phase": 6.3}, "at most 2 pi, not 6.3"),
    ],
)
def test_lrus_arguments(arguments, text):
    with pytest.raises(ValueError, match=text):
        timescales.LRU(1, 3, **arguments)


@pytest.mark.parametrize("kind", ["MinGRU", "MinLSTM"])
def test_chrono_init(kind):
    """ln(T - 1) in the forget gate; in the minLSTM its negative in the input gate. Without T_max torch's default."""
    torch.manual_seed(0)
    cell = getattr(timescales, kind)(1, 1151, T_max=50).layers[0]
    same_distribution(cell.bias_total("forget").detach().exp(), stats.uniform(1, 48))
    same_distribution(1.0 / torch.expm1(1.0 / cell.timescales().detach().double()), stats.uniform(1, 48))
    assert cell.bias_total("cell").all()
    assert getattr(timescales, kind)(1, 99).layers[0].bias_total("forget").abs().max() < 1 / math.sqrt(99)


def test_what_needs_recurrent_weights_says_so():
    cell = MinGRUCell(I, H)
    cell.weight_drop = 0.5
    rnn = timescales.RNN([cell])
    with pytest.raises(ValueError, match="MinGRUCell has no recurrent weights to drop: set its weight_drop to 0"):
        rnn(torch.zeros(2, 1, I))

    class TwoBiases(LSTMCell):
        recurrent = False

    with pytest.raises(TypeError, match="TwoBiases has recurrent = False: it has one bias vector, write biases = 1"):
        TwoBiases(I, H)


class Square(TwoFields):
    """A scan cell of a user, which is not linear in its state, and uses its one gate twice."""

    def step(self, gx, gh, state, dt=1.0):
        assert gh is None
        return self.State((gx + 0.5 * state.h * state.h).tanh(), state.n * gx.sigmoid() + dt)


@pytest.mark.parametrize("engine", ["eager", "fused", "compiled"])
def test_a_cell_of_ones_own(engine):
    rnn = timescales.RNN([Square(I, H)], engine=engine)
    x = torch.randn(S, B, I)
    output, state = rnn(x)
    h = n = torch.zeros(B, H)
    for gx in x @ rnn.layers[0].weight_ih.T + rnn.layers[0].bias:
        h, n = (gx + 0.5 * h * h).tanh(), n * gx.sigmoid() + 1.0
    close(output[-1], h, 1e-5)
    close(state.n[0], n, 1e-5)


@pytest.mark.parametrize("kind", ["sin", "cos"])
def test_sines_of_any_number(kind):
    """In the C++ engine; beyond 8,192 the library's are taken."""

    class Wave(OneField):
        def step(self, gx, gh, state, dt=1.0):
            return self.State(gx * 0.0 + getattr(torch, kind)(state.h))

    values = torch.cat([torch.linspace(-40, 40, 4001), torch.logspace(-8, 30, 400), -torch.logspace(-8, 30, 400)])
    values = torch.cat([values, torch.tensor([torch.inf, -torch.inf, torch.nan])])
    cell = Wave(1, 1)
    rnn = timescales.RNN([cell], engine="fused")
    with torch.no_grad():
        output, _ = rnn(torch.zeros(2, len(values), 1), [cell.State(values.unsqueeze(1))])
    found, expected = output[0, :, 0], getattr(torch, kind)(values.double())
    assert torch.equal(found.isnan(), expected.isnan())
    assert (found - expected)[~expected.isnan()].abs().max() < 2e-7
    small = expected.abs() > 1e-7
    assert ((found - expected) / expected)[small & (values.abs() < 3)].abs().max() < 1e-6


def test_reference_of_eager():
    """A masked step carries the state of every field."""
    cell = build("lru")
    x, dt, mask = random_input()
    before = random_state(cell, B)
    output, after = eager.run(cell, x, cell.weights(), before, dt, torch.zeros_like(mask))
    close(output, before.h.expand_as(output))
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
