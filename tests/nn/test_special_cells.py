"""What is special to single kinds of cells: gates of the input alone, continuous time, other matrices, memories."""

import copy
import math

import numpy as np
import pytest
import torch
from cell_cases import ALL, B, H, I, build, close, moved, random_input, random_state, run
from configs import config
from reference import schedule
from torch.nn.functional import linear

import timescales
from timescales.config import schema
from timescales.errors import ConfigError
from timescales.nn import cells
from timescales.nn import engine as engines
from timescales.nn.engine import eager
from timescales.training import build as builder

SCANS = [name for name, (kind, _) in ALL.items() if not kind.recurrent]
ENGINES = pytest.mark.parametrize("engine", ["eager", "fused"])


# In a ParaGRU and a ParaLSTM something comes back through the gates, too; an IndRNN forgets by the size of u.
@pytest.mark.parametrize("name", [name for name in SCANS if not name.startswith(("para", "indrnn_"))])
def test_a_units_jacobian_is_the_product_of_its_forget_gates(name):
    """So T_1/e, which sums ln f, is exact: nothing is left out. For the complex state of the LRU it is its modulus."""
    x, dt, _ = random_input()
    cell, gates = build(name), []
    act = cell.act
    cell.act = lambda *arguments: gates.append(act(*arguments)) or gates[-1]
    state = random_state(cell, B)
    held = "c" if "c" in cell.State._fields else "h"
    state = state._replace(**{held: getattr(state, held).requires_grad_()})
    _, last = run(cell, x, state, dt)
    kept = math.prod(getattr(g, "factor", g.forget) for g in gates)  # with its sign, where it has one
    (d,) = torch.autograd.grad(getattr(last, held).sum(), getattr(state, held), retain_graph=True)
    if isinstance(cell, cells.LRUCell):
        (d_imaginary,) = torch.autograd.grad(last.imaginary.sum(), state.h)
        d = (d.square() + d_imaginary.square()).sqrt()
    close(d, kept)


@pytest.mark.parametrize("kind", [cells.MinGRUCell, cells.MinLSTMCell, cells.PLScanCell])
def test_long_memories_keep_their_digits(kind):
    """20,000 steps in float32 against float64, with units that forget after 1e5 steps.

    f is rounded to 2^-25, which makes up to 6e-4 in 20,000 steps. 1 - f is about 1e-5: as a difference of rounded
    numbers it could be wrong by 3e-3.
    """
    torch.manual_seed(0)
    cell = kind(1, 3)
    with torch.no_grad():
        gate = "reset" if kind is cells.PLScanCell else "forget"
        cell.weight_ih[cell.rows(gate)] = 0.0
        cell.set_bias(gate, torch.full((3,), -17.0 if gate == "reset" else math.log(1e5)))
        if kind is cells.MinLSTMCell:
            cell.weight_ih[cell.rows("input")] = 0.0
            cell.set_bias("input", torch.full((3,), -math.log(1e5)))
        x = torch.randn(20_000, 1, 1)
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


def test_what_needs_recurrent_weights_says_so():
    cell = cells.MinGRUCell(I, H)
    cell.weight_drop = 0.5
    with pytest.raises(ValueError, match="MinGRUCell has no recurrent weights to drop: set its weight_drop to 0"):
        timescales.RNN([cell])(torch.zeros(2, 1, I))

    class TwoBiases(cells.LSTMCell):
        recurrent = False

    with pytest.raises(TypeError, match="TwoBiases has recurrent = False: it has one bias vector, write biases = 1"):
        TwoBiases(I, H)


@ENGINES
def test_a_unit_of_an_indrnn_that_is_on_decays_by_u(engine):
    """After one input, h falls as u^t; a unit that an input turns off has forgotten all."""
    rnn = timescales.IndRNN(1, 2, engine=engine)
    with torch.no_grad():
        rnn.layers[0].weight_ih.fill_(1.0)
        rnn.layers[0].bias.zero_()
        rnn.layers[0].u.copy_(torch.tensor([0.9, 0.5]))
    x = torch.zeros(12, 2, 1)
    x[0] = 1.0
    x[6, 1] = -5.0
    output, _ = rnn(x)
    t = torch.arange(12.0)
    close(output[:, 0], torch.stack([0.9**t, 0.5**t], 1), 1e-6)
    assert not output[6:, 1].any()
    cell = cells.IndRNNCell(I, 4)
    with torch.no_grad():
        cell.u.copy_(torch.tensor([0.5, -0.5, 1.0, 1.3]))
    assert cell.timescales().tolist() == pytest.approx([1 / math.log(2), 1 / math.log(2), math.inf, math.inf])


def test_a_signed_mingru_forgets_by_the_absolute_factor():
    cell = cells.SignedMinGRUCell(I, 4).double()
    cell.set_bias("forget", torch.tensor([math.log(3.0), -math.log(3.0), 0.0, 30.0]))  # f = 3/4, 1/4, 1/2
    half = 1.0 / math.log(2.0)
    assert cell.timescales().tolist() == pytest.approx([half, half, 0.0, math.exp(30.0) / 2], rel=1e-6)
    gates = cell.act(torch.randn(B, 8, dtype=torch.float64), None, cell.initial_state(B))
    assert (gates.factor < 0).any()
    close(gates.forget, gates.factor.abs())


@ENGINES
def test_an_rglru_at_no_time_at_all(engine):
    """A step after dt = 0 changes nothing, and has finite gradients, where that of the square root is infinite."""
    rnn = timescales.RGLRU(I, H, engine=engine)
    x, h, dt = torch.randn(3, B, I), torch.randn(1, B, H), torch.zeros(3, B, requires_grad=True)
    output, _ = rnn(x, h, dt)
    close(output, h.expand_as(output), 1e-6)
    output.sum().backward()
    assert all(v.grad.isfinite().all() for v in (dt, *rnn.parameters()))


def test_layers_of_an_hgrn_start_with_rising_bounds():
    layers = timescales.HGRN(I, H, 4).layers
    assert layers[0].bound is None
    for k, cell in enumerate(layers[1:], 1):
        assert cell.bound.sigmoid().tolist() == pytest.approx([k / 4] * H)
        assert (cell.timescales() > -1.0 / math.log(k / 4)).all()
    cell = cells.HGRNCell(I, H, lower_bound=0.7)  # no input makes a unit forget faster
    gates = cell.act(torch.full((B, 3 * H), -1e4), None, cell.initial_state(B))
    assert gates.forget.flatten().tolist() == pytest.approx([0.7] * B * H)


@pytest.mark.parametrize(("kind", "known"), [("ExpRNN", torch.isinf), ("URNN", torch.isinf), ("CfC", torch.isnan)])
def test_a_cell_that_loses_nothing_has_no_time_scale_and_a_cfc_none_that_is_known(kind, known):
    assert known(getattr(timescales, kind)(I, H).timescales()[0]).all()


@pytest.mark.parametrize("delta", [1.0, 0.25])
def test_time_scales_of_a_lem(delta):
    cell = cells.LEMCell(I, 2, delta=delta).double()
    cell.set_bias("step_z", torch.tensor([0.0, -4.0]))
    expected = [-1.0 / math.log1p(-delta / (1.0 + math.exp(-b))) for b in (0.0, -4.0)]
    assert cell.timescales().tolist() == pytest.approx(expected)


def test_a_gate_of_a_lem_is_its_formula_bit_for_bit():
    """On the chunk of the pre-activations itself: records of trainings depend on the last bits."""
    cell, s = cells.LEMCell(I, 50, delta=0.3), torch.randn(7, 150).chunk(3, -1)[1]
    f, one_minus_f = cell.forget_and_input(s, 1.0)
    log_f = (-0.3 * s.sigmoid()).log1p()
    assert torch.equal(f, log_f.exp())
    assert torch.equal(one_minus_f, -log_f.expm1())


def test_an_oscillator_of_a_cornn_that_nothing_drives():
    """Weakly damped: a cosine of the frequency sqrt(gamma - epsilon^2 / 4), whose amplitude has the time scale."""
    gamma, epsilon, delta, steps = 4.0, 0.1, 1e-3, 3000
    cell = cells.CoRNNCell(1, 1, delta=delta, gamma=gamma, epsilon=epsilon).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        start = cell.State(torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
        output, _ = run(cell, torch.zeros(steps, 1, 1, dtype=torch.float64), start)
    t = delta * torch.arange(1, steps + 1, dtype=torch.float64)
    omega = math.sqrt(gamma - epsilon**2 / 4)
    expected = torch.exp(-epsilon * t / 2) * (torch.cos(omega * t) + epsilon / (2 * omega) * torch.sin(omega * t))
    assert (output[:, 0, 0] - expected).abs().max() < 3e-3
    assert cell.timescales().item() == pytest.approx(2 / (epsilon * delta), rel=1e-3)
    assert torch.isinf(cells.CoRNNCell(1, 2, delta=0.1, gamma=1.0, epsilon=0.0).timescales()).all()
    cell = cells.CoRNNCell(1, 2).double()  # of the defaults: that of a simulated decay
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        output, _ = run(cell, torch.zeros(300, B, 1, dtype=torch.float64), random_state(cell, B))
    close(-1.0 / (output[-1] / output[-2]).log(), cell.timescales().expand(B, 2), 1e-6)
    assert cell.timescales()[0].item() == pytest.approx(36.23, abs=0.01)


def test_time_scales_of_a_phased_lstm():
    """-n / ln of what a long run at zero input leaves, over whole cycles of 1,000 short steps."""
    torch.manual_seed(2)
    cell = cells.PhasedLSTMCell(I, H, open_ratio=0.3).double().eval()
    with torch.no_grad():
        cell.period.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0, 6.0, 12.0]))
    zero, n = torch.zeros(H, dtype=torch.float64), 12
    time = 0.001 * torch.arange(1, 1000 * n + 1, dtype=torch.float64)
    f = cell.bias_total("forget").sigmoid()
    mean = (1 - cell.time_gate(time[:, None].expand(-1, H)) * (1 - f)).log().mean(0)
    close(cell.timescales(), -1 / mean, 1e-4)
    gates = cell.act(cell.bias, torch.zeros(4 * H).double(), cell.State(zero, zero, zero), 0.4)
    close(gates.forget, 1 - gates.open * (1 - f), 1e-12)
    with torch.no_grad():
        cell.bias.fill_(900.0)
        assert (cell.timescales() > 1e300).all()
        cell.bias.fill_(-900.0)
    close(cell.timescales(), torch.full((H,), 1 / 0.3, dtype=torch.float64), 1e-6)


def test_the_flags_of_a_series_are_those_of_the_first_layer_of_a_grud():
    rnn = timescales.GRUD(5, H, 2, flags=[[0, 4], [2, 3]])
    assert [cell.flags for cell in rnn.layers] == [[(0, 4), (2, 3)], []]
    output, state = rnn(torch.randn(3, B, 5))
    output.sum().backward()
    assert [tuple(each.shape) for each in state.last] == [(B, 2), (B, 1)]
    assert all(p.grad is not None for name, p in rnn.named_parameters() if "fade" not in name)
    torch.manual_seed(0)
    cell = moved(cells.GRUDCell(2, 3, flags=[[0, 1]]).double())
    with torch.no_grad():  # its time scales: what is kept of h at zero input and state
        x = torch.tensor([0.0, 1.0], dtype=torch.float64)  # known
        kept = cell.act(linear(x, *cell.weights()[::2]), None, cell.initial_state()).forget
    assert cell.timescales().tolist() == pytest.approx((-1.0 / kept.log()).tolist())


PERIODS = (3.0, 10.0, 40.0)


def value(own, x, h, gates):
    """A number made of all outputs of a suRNN, with any gates (S, B, H) in the place of the switches."""
    total = 0.0
    for inputs, g in zip(x, gates, strict=True):
        h = g * np.tanh(inputs @ own["weight_ih"].T + h @ own["weight_hh"].T + own["bias"]) + (1 - g) * h
        total += np.sin(h).sum()
    return total


def test_gradients_of_a_surnn():
    """Of the weights, the input and the state those of the equations; of the schedule those through sigmoid(a)."""
    cell = build("surnn_fast")
    own = {name: v.detach().numpy().copy() for name, v in cell.named_parameters()}
    x, dt, _ = random_input(tiny_dt=False)
    h = random_state(cell, B).h
    start = cell.State(h.requires_grad_(), torch.zeros(B, H, dtype=torch.float64))
    x, dt = x.requires_grad_(), dt.requires_grad_()
    run(cell, x, start, dt)[0].sin().sum().backward()

    times = dt.detach().numpy().cumsum(0)
    a = np.array([[[schedule(own, PERIODS, u, time) for u in range(H)] for time in row] for row in times])
    arrays = {"x": x.detach().numpy().copy(), "h": h.detach().numpy().copy(), "gates": (a > 0).astype(float)}
    assert 0.2 < arrays["gates"].mean() < 0.8

    def difference(array):
        """Central differences with respect to an array, changed in place."""
        result = np.empty_like(array)
        for place in np.ndindex(array.shape):
            before, ends = array[place], []
            for step in (1e-6, -1e-6):
                array[place] = before + step
                ends.append(value(own, arrays["x"], arrays["h"], arrays["gates"]))
            array[place] = before
            result[place] = (ends[0] - ends[1]) / 2e-6
        return result

    found = {"x": x.grad, "h": h.grad} | {name: p.grad for name, p in cell.named_parameters()}
    expected = {name: difference(arrays[name]) for name in ("x", "h")}
    expected |= {name: difference(own[name]) for name in ("weight_ih", "weight_hh", "bias")}
    soft = 1 / (1 + np.exp(-a))
    of_a = difference(arrays["gates"]) * soft * (1 - soft)  # (S, B, H)
    expected["switch_bias"], of_time = of_a.sum((0, 1)), np.zeros_like(of_a)
    amplitude, phase = [], []
    for k, period in enumerate(PERIODS):
        rows, speed = slice(k * H, (k + 1) * H), 2 * np.pi / period
        angle = speed * times[..., None] + own["phase"][rows]
        of_phase = of_a * own["amplitude"][rows] * np.cos(angle)
        amplitude.append((of_a * np.sin(angle)).sum((0, 1)))
        phase.append(of_phase.sum((0, 1)))
        of_time += speed * of_phase
    expected |= {"amplitude": np.concatenate(amplitude), "phase": np.concatenate(phase)}
    for name, numbers in expected.items():
        np.testing.assert_allclose(found[name].numpy(), numbers, rtol=1e-6, atol=1e-8, err_msg=name)
    of_dt = of_time.sum(-1)[::-1].cumsum(0)[::-1]  # a step's dt moves all later times
    np.testing.assert_allclose(dt.grad.numpy(), of_dt, rtol=1e-6, atol=1e-8)


def test_time_scales_of_a_surnn():
    """The mean wait for the next update: of every second step, of every tenth, and where there is none."""
    cell = cells.SuRNNCell(I, 3, periods=[2, 10]).double()
    with torch.no_grad():
        cell.phase.fill_(0.1)
        cell.amplitude.copy_(torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 0.0]))
        cell.switch_bias.copy_(torch.tensor([0.0, -0.97, -1.0]))
    on = cell.schedule(torch.arange(1.0, 21.0, dtype=torch.float64).unsqueeze(-1).expand(-1, 3)) > 0
    assert on.sum(0).tolist() == [10, 2, 0]
    times = cell.timescales()
    close(times[0].item(), 1.5, 1e-3)
    close(times[1].item(), 5.5, 1e-3)
    assert torch.isinf(times[2])
    cell = cells.SuRNNCell(I, H, periods=[3, 10, 256])  # in float32 the schedule is the same after a million steps
    time = torch.arange(7_680.0).unsqueeze(-1).expand(-1, H)
    close(cell.schedule(time + 7_680.0 * 130), cell.schedule(time), 1e-5)


def count(module):
    return sum(p.numel() for p in module.parameters())


# --- GRUs and LSTMs ---------------------------------------------------------------------------------------------------
def test_with_a_forget_gate_of_one_an_slstm_is_a_mean():
    """So a unit keeps (t - 1) / t at step t: it forgets as a power."""
    cell = cells.SLSTMCell(1, 1, forget="exp").double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        cell.weight_ih[2] = 1.0
        x = torch.randn(50, 1, 1, dtype=torch.float64)
        output, state = run(cell, x)
    close(2.0 * output, x.tanh().cumsum(0) / torch.arange(1, 51).view(-1, 1, 1))
    close(state.log_n.exp().item(), 50.0)
    assert torch.isinf(cell.timescales()).all()


@pytest.mark.parametrize(("forget", "level"), [("sigmoid", 500.0), ("exp", 500.0), ("exp", -500.0)])
def test_nothing_overflows_in_an_slstm(forget, level):
    """Input gates of e^500, which no float holds, and forget gates of e^500, over 2,000 steps."""
    rnn = timescales.SLSTM(1, 2, forget=forget, engine="fused")
    with torch.no_grad():
        rnn.layers[0].set_bias("input", torch.tensor([level, -level]))
        rnn.layers[0].set_bias("forget", torch.full((2,), level))
    x = torch.randn(2000, 1, 1, requires_grad=True)
    output, state = rnn(x)
    output.sum().backward()
    assert all(value.isfinite().all() for value in (output, *rnn.split_state(state)[0], x.grad))
    assert output.abs().max() < 1.0


# --- orthogonal and unitary matrices ----------------------------------------------------------------------------------
@pytest.mark.parametrize("make", [
    *(lambda n=n: cells.URNNCell(3, n).double().weights().hh for n in (2, 4, 30, 64)),
    *(lambda n=n: cells.ExpRNNCell(I, n).double().weights().hh for n in (1, 2, 7, 64)),
    lambda: cells.EURNNCell(I, 6, capacity=5).double().matrix(),
    lambda: cells.EURNNCell(I, 4, capacity=1).double().matrix(),
    lambda: cells.EURNNCell(I, 16, style="fft").double().matrix(),
    lambda: cells.GORUCell(I, 5, capacity=3).double().weights().hh[10:],
    lambda: cells.GORUCell(I, 1).double().weights().hh[2:],
    lambda: cells.GORUCell(I, 8, style="fft").double().weights().hh[16:],
])  # fmt: skip
def test_the_matrix_is_unitary(make):
    torch.manual_seed(1)
    W = make()
    close(W @ W.mH, torch.eye(len(W), dtype=W.dtype), 1e-11)


def test_exprnn_in_other_types():
    torch.manual_seed(0)
    x = torch.randn(6, B, I)
    plain = timescales.ExpRNN(I, H)
    half = copy.deepcopy(plain).bfloat16()
    torch.testing.assert_close(half(x.bfloat16())[0].float(), plain(x)[0], rtol=0.05, atol=0.05)
    assert timescales.ExpRNN(I, H, dtype=torch.float64).layers[0].weights().hh.dtype == torch.float64


def test_a_urnn_starts_from_its_learned_state_and_runs_in_half_precision():
    cell = build("urnn")
    x, start = random_input()[0], cell.start.detach().expand(B, H)
    close(run(cell, x)[0], run(cell, x, cell.State(start))[0])
    assert torch.autograd.grad(run(cell, x)[0].sum(), cell.start)[0].all()
    cell = cell.bfloat16()
    assert cell.weights().hh.dtype == torch.bfloat16
    assert run(cell, torch.randn(3, B, I).bfloat16())[0].isfinite().all()
    torch.manual_seed(3)
    assert torch.equal(cells.URNNCell(I, H).permutation, cell.permutation)  # that of seeds trained together, too


# --- memories ---------------------------------------------------------------------------------------------------------
def test_a_memory_of_an_nru_that_nothing_changes_stays():
    """With heads of strength 0 the memory is what it was after 1,000 steps: it does not decay."""
    cell = cells.NRUCell(I, H, memory_size=8, heads=2).double()
    with torch.no_grad():
        cell.weight_heads[:4].zero_()
        cell.bias_heads[:4].zero_()
        state = random_state(cell, B)
        _, final = run(cell, torch.randn(1000, B, I, dtype=torch.float64), state)
    assert torch.equal(final.memory, state.memory)
    assert cell.timescales().isinf().all()
    torch.manual_seed(0)
    with torch.no_grad():  # that of a new network stays small after the steps of a digit
        _, state = timescales.NRU(1, 16, memory_size=64)(torch.rand(784, 4, 1))
    assert 0.0 < state.memory.abs().max() < 100.0
    cell = cells.NRUCell(I, H, memory_size=8, heads=2)
    for size in (0.0, 1e-15, 1e15):
        p = torch.full((1, 4), size, requires_grad=True)
        rows = cell._directions(p, torch.full((1, 4), size))
        rows.sum().backward()
        assert rows.isfinite().all()
        assert p.grad.isfinite().all()


def test_an_average_of_an_sru_decays_by_its_rate():
    """Without new statistics, what an average had is alpha^t of it after the time t."""
    cell = cells.SRUCell(1, H, statistics=2, alphas=(0.5, 0.9)).double()
    with torch.no_grad():
        cell.bias.fill_(-100.0)  # no statistic is above 0
    start = cell.State(torch.zeros(1, H).double(), torch.ones(1, 4).double())
    _, final = run(cell, torch.zeros(6, 1, 1).double(), start, torch.full((6, 1), 0.5).double())
    close(final.averages[0], torch.tensor([0.5**3] * 2 + [0.9**3] * 2, dtype=torch.float64))
    close(cell.timescales(), torch.full((H,), -1 / math.log(0.9), dtype=torch.float64))
    assert not cells.SRUCell(1, H, alphas=(0.0,)).timescales().any()
    cell = cells.SRUCell(3, 80)
    assert (cell.statistics, cell.width("averages"), cell.weight_summary.shape) == (80, 400, (20, 400))


# Counted on another implementation of Santoro et al.'s code, with inputs of size 45 or 27 and memories of size S. They
# depend on the size of a memory alone.
@pytest.mark.parametrize(("inputs", "size", "style", "memories", "heads", "expected"), [
    (45, 512, "unit", 2, 2, 2_392_576), (45, 512, "unit", 4, 4, 2_392_576), (45, 512, "memory", 2, 4, 1_344_004),
    (27, 512, "unit", 4, 2, 2_383_360), (27, 64, "unit", 2, 2, 39_872), (27, 32, "unit", 4, 4, 10_720),
])  # fmt: skip
def test_counts_of_an_rmc(inputs, size, style, memories, heads, expected):
    rnn = timescales.RMC(inputs, memories * size, memories=memories, heads=heads, gate_style=style)
    assert count(rnn) == expected


@pytest.mark.parametrize(
    ("memories", "hidden", "rows"), [(2, 6, [[1, 0, 0], [0, 1, 0]]), (3, 6, [[1, 0], [0, 1], [0, 0]]), (1, 2, [[1, 0]])]
)
def test_an_rmc_starts_as_rows_of_the_identity(memories, hidden, rows):
    state = cells.RMCCell(I, hidden, memories=memories).double().initial_state(2, B)
    assert torch.equal(state.h, torch.tensor(rows, dtype=torch.float64).flatten().expand(2, B, hidden))
    rnn, x = timescales.RMC(I, hidden, memories=memories), torch.randn(5, B, I)
    assert torch.equal(rnn(x)[0], rnn(x, rnn.layers[0].initial_state(B).h.unsqueeze(0))[0])


@pytest.mark.parametrize(
    ("gate", "rows", "low", "high"), [("u", 64, 1 / 64, 63 / 64), ("um", 4, 1 / 4, 3 / 4), ("c", 64, 1 / 2, 63 / 64)]
)
def test_b_is_shared_by_the_memories_of_an_rmc(gate, rows, low, high):
    """One value for each row of the main gate of one memory; c: ln U[1, 64 - 1], so sigmoid(b) is T / (T + 1)."""
    torch.manual_seed(0)
    drawn = [cells.RMCCell(I, 256, memories=4, gate=gate).gate_bias for _ in range(200)]
    assert drawn[0].shape == (rows,)
    f = torch.cat(drawn).detach().sigmoid()
    assert low - 1e-6 <= f.min() < low + 0.01
    assert high - 0.01 < f.max() <= high + 1e-6
    cell = cells.RMCCell(I, 256, memories=4, gate=gate)
    by_memory = cell.by_memory(cell.bias_total(cell.main))
    assert by_memory.shape == (4, rows)
    assert all(torch.equal(one, cell.gate_bias) for one in by_memory)
    assert torch.equal(cell.bias_total(cell.opposite), -cell.bias_total(cell.main))


def test_an_rmc_runs_on_the_eager_engine_alone(recwarn):
    rnn = timescales.RMC(I, 8)
    assert engines.pick("auto", rnn.layers[0], torch.zeros(2, B, I)) is eager.run
    rnn(torch.zeros(2, B, I))
    assert not recwarn.list
    for name, reason in (("fused", "RMCCell has no kernel"), ("cudnn", "runs only the plain LSTM and GRU, not RMC")):
        with pytest.raises(ValueError, match=f"^the {name} engine cannot run here: .*{reason}.*; use engine=.*$"):
            engines.pick(name, rnn.layers[0], torch.zeros(2, B, I))


def test_sizes_of_an_rmc_on_the_command_line():
    message = r"^model=rmc: hidden_size 130 must be a multiple of memories 4: give 128 or 132$"
    with pytest.raises(ConfigError, match=message):
        builder.build(schema.resolved(config("model=rmc", "model.hidden_size=130", "model.memories=4")))
    settings = ["model.hidden_size=24", "model.memories=3", "model.memory_size=8", "model.heads=2", "task.T=3"]
    network, *_ = builder.build(schema.resolved(config("model=rmc", *settings)))
    assert (network.rnn.hidden_size, network.rnn.layers[0].units) == (24, 8)
