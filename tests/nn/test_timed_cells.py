"""What is special to cells in continuous time: CfC, LEM, coRNN, Phased LSTM, GRU-D and suRNN."""

import math

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, build, close, moved, random_input, random_state, run
from reference import schedule
from torch.nn.functional import linear

import timescales
from timescales.nn.cells import CoRNNCell, GRUDCell, LEMCell, PhasedLSTMCell, SuRNNCell


@pytest.mark.parametrize(("kind", "known"), [("ExpRNN", torch.isinf), ("URNN", torch.isinf), ("CfC", torch.isnan)])
def test_a_cell_that_loses_nothing_has_no_time_scale_and_a_cfc_none_that_is_known(kind, known):
    assert known(getattr(timescales, kind)(I, H).timescales()[0]).all()


@pytest.mark.parametrize("delta", [1.0, 0.25])
def test_time_scales_of_a_lem(delta):
    cell = LEMCell(I, 2, delta=delta).double()
    cell.set_bias("step_z", torch.tensor([0.0, -4.0]))
    expected = [-1.0 / math.log1p(-delta / (1.0 + math.exp(-b))) for b in (0.0, -4.0)]
    assert cell.timescales().tolist() == pytest.approx(expected)


def test_a_gate_of_a_lem_is_its_formula_bit_for_bit():
    """On the chunk of the pre-activations itself: records of trainings depend on the last bits."""
    cell, s = LEMCell(I, 50, delta=0.3), torch.randn(7, 150).chunk(3, -1)[1]
    f, one_minus_f = cell.forget_and_input(s, 1.0)
    log_f = (-0.3 * s.sigmoid()).log1p()
    assert torch.equal(f, log_f.exp())
    assert torch.equal(one_minus_f, -log_f.expm1())


def test_an_oscillator_of_a_cornn_that_nothing_drives():
    """Weakly damped: a cosine of the frequency sqrt(gamma - epsilon^2 / 4), whose amplitude has the time scale."""
    gamma, epsilon, delta, steps = 4.0, 0.1, 1e-3, 3000
    cell = CoRNNCell(1, 1, delta=delta, gamma=gamma, epsilon=epsilon).double()
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
    assert torch.isinf(CoRNNCell(1, 2, delta=0.1, gamma=1.0, epsilon=0.0).timescales()).all()
    cell = CoRNNCell(1, 2).double()  # of the defaults: that of a simulated decay
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        output, _ = run(cell, torch.zeros(300, B, 1, dtype=torch.float64), random_state(cell, B))
    close(-1.0 / (output[-1] / output[-2]).log(), cell.timescales().expand(B, 2), 1e-6)
    assert cell.timescales()[0].item() == pytest.approx(36.23, abs=0.01)


def test_time_scales_of_a_phased_lstm():
    """-n / ln of what a long run at zero input leaves, over whole cycles of 1,000 short steps."""
    torch.manual_seed(2)
    cell = PhasedLSTMCell(I, H, open_ratio=0.3).double().eval()
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
    cell = moved(GRUDCell(2, 3, flags=[[0, 1]]).double())  # its time scales: what is kept of h at zero input and state
    with torch.no_grad():
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
    cell = SuRNNCell(I, 3, periods=[2, 10]).double()
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
    cell = SuRNNCell(I, H, periods=[3, 10, 256])  # in float32 the schedule is the same after a million steps
    time = torch.arange(7_680.0).unsqueeze(-1).expand(-1, H)
    close(cell.schedule(time + 7_680.0 * 130), cell.schedule(time), 1e-5)
