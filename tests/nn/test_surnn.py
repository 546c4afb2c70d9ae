"""The suRNN against its equations in NumPy; its switch and what stands for its derivative, and what it refuses."""

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_input, random_state, run
from distributions import same_distribution
from own_reference import against_eager, compare, moved, parameters
from scipy import stats

import timescales
from timescales.nn.cells import SuRNNCell

PERIODS = (3.0, 10.0, 40.0)


def schedule(own, unit, time):
    """Yin et al. 2026: the sum of sines whose sign is the switch of a unit."""
    size, a = len(own["switch_bias"]), own["switch_bias"][unit]
    for k, period in enumerate(PERIODS):
        place = k * size + unit
        a += own["amplitude"][place] * np.sin(2 * np.pi * time / period + own["phase"][place])
    return a


def reference(own, x, state, dt):
    h, time = state["h"], state["time"] + dt
    new = h.copy()
    for unit in range(len(h)):
        if schedule(own, unit, time[unit]) > 0:
            new[unit] = np.tanh(own["weight_ih"][unit] @ x + own["weight_hh"][unit] @ h + own["bias"][unit])
    return {"h": new, "time": time}


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
def test_equals_the_reference(timed, masked):
    compare(reference, moved(SuRNNCell(I, H, periods=PERIODS)), timed, masked)


def value(own, x, h, gates):
    """A number made of all outputs, with any gates (S, B, H) in the place of the switches."""
    total = 0.0
    for inputs, g in zip(x, gates, strict=True):
        h = g * np.tanh(inputs @ own["weight_ih"].T + h @ own["weight_hh"].T + own["bias"]) + (1 - g) * h
        total += np.sin(h).sum()
    return total


def test_gradients():
    """Of the weights, the input and the state those of the equations; of the schedule those through sigmoid(a)."""
    cell = moved(SuRNNCell(I, H, periods=PERIODS))
    own = {name: v.copy() for name, v in parameters(cell).items()}
    x, dt, _ = random_input(tiny_dt=False)
    h = random_state(cell, B).h
    start = cell.State(h.requires_grad_(), torch.zeros(B, H, dtype=torch.float64))
    x, dt = x.requires_grad_(), dt.requires_grad_()
    output, _ = run(cell, x, start, dt)
    output.sin().sum().backward()

    times = dt.detach().numpy().cumsum(0)
    a = np.array([[[schedule(own, u, time) for u in range(H)] for time in row] for row in times])
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
    for name in ("x", "h"):
        np.testing.assert_allclose(found[name].numpy(), difference(arrays[name]), rtol=1e-6, atol=1e-8)
    for name in ("weight_ih", "weight_hh", "bias"):
        np.testing.assert_allclose(found[name].numpy(), difference(own[name]), rtol=1e-6, atol=1e-8)

    soft = 1 / (1 + np.exp(-a))
    of_a = difference(arrays["gates"]) * soft * (1 - soft)  # (S, B, H)
    np.testing.assert_allclose(found["switch_bias"].numpy(), of_a.sum((0, 1)), rtol=1e-6, atol=1e-8)
    of_time = np.zeros_like(of_a)
    for k, period in enumerate(PERIODS):
        rows, speed = slice(k * H, (k + 1) * H), 2 * np.pi / period
        angle = speed * times[..., None] + own["phase"][rows]
        np.testing.assert_allclose(found["amplitude"][rows], (of_a * np.sin(angle)).sum((0, 1)), rtol=1e-6, atol=1e-8)
        of_phase = of_a * own["amplitude"][rows] * np.cos(angle)
        np.testing.assert_allclose(found["phase"][rows], of_phase.sum((0, 1)), rtol=1e-6, atol=1e-8)
        of_time += speed * of_phase
    of_dt = of_time.sum(-1)[::-1].cumsum(0)[::-1]  # a step's dt moves all later times
    np.testing.assert_allclose(dt.grad.numpy(), of_dt, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_a_unit_rests_exactly_between_its_updates(engine):
    """Period 10, on in the first half: then outputs do not change by one bit, and the gradient of the start is 1."""
    torch.manual_seed(1)
    rnn = timescales.SuRNN(2, 3, periods=[10], engine=engine)
    with torch.no_grad():
        rnn.layers[0].amplitude.fill_(1.0)
        rnn.layers[0].phase.fill_(0.1)
    x = torch.randn(29, 4, 2)
    output, state = rnn(x)
    time = torch.arange(1, 30)
    changes = (output[1:] != output[:-1]).all((1, 2))
    assert changes.tolist() == [t % 10 < 5 for t in time[1:].tolist()]
    assert state.time.unique().tolist() == [29.0]
    start = rnn.layers[0].State(torch.randn(4, 3, requires_grad=True), torch.full((4, 3), 4.5))
    output, _ = rnn(x[:5], [start])
    assert torch.equal(output[-1], start.h)
    (gradient,) = torch.autograd.grad(output[-1].sum(), start.h)
    assert torch.equal(gradient, torch.ones(4, 3))


def test_the_compiled_kernel():
    dt = 0.2 + torch.rand(11, B, generator=torch.Generator().manual_seed(3))
    against_eager(lambda engine: timescales.SuRNN(I, H, 2, periods=PERIODS, engine=engine), dt)


def test_it_learns_its_schedule():
    """Keep the third input through noise, without recurrent weights: a unit must be on at step 3 and off after it."""
    torch.manual_seed(1)
    rnn, readout = timescales.SuRNN(1, 16, periods=(10, 40), engine="fused"), torch.nn.Linear(16, 1)
    (cell,) = rnn.layers
    torch.nn.init.zeros_(cell.weight_hh).requires_grad_(False)
    time = torch.arange(3.0, 13.0).unsqueeze(-1).expand(-1, 16)

    def keeping():
        on = cell.schedule(time) > 0
        return int((on[0] & ~on[1:].any(0)).sum())

    optimizer = torch.optim.Adam([p for p in [*rnn.parameters(), *readout.parameters()] if p.requires_grad], 0.02)
    assert keeping() == 0
    for _ in range(400):
        x = torch.randn(12, 64, 1)
        loss = (readout(rnn(x)[0][-1]) - x[2]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    assert keeping() > 0


def test_time_scales():
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


def test_late_times():
    """In float32 the schedule of a whole period is the same after a million steps."""
    cell = SuRNNCell(I, H, periods=[3, 10, 256])
    time = torch.arange(7_680.0).unsqueeze(-1).expand(-1, H)
    close(cell.schedule(time + 7_680.0 * 130), cell.schedule(time), 1e-5)


def test_initialisation():
    torch.manual_seed(0)
    cell = SuRNNCell(1, 500)
    assert cell.amplitude.shape == cell.phase.shape == (2_000,)
    same_distribution(cell.amplitude.detach(), stats.norm(0, 1))
    same_distribution(cell.phase.detach(), stats.uniform(0, 2 * np.pi))
    assert not cell.switch_bias.any()
    low, high = cell.timescales().quantile(torch.tensor([0.1, 0.9])).tolist()
    assert 1.5 < low < 2.5 < 8.0 < high < 20.0


@pytest.mark.parametrize("periods", [(), 4, "4", [4, 0], [-1.0], ["4"], [float("nan")], [True]])
def test_wrong_periods(periods):
    with pytest.raises(ValueError, match="periods must be a list of numbers above 0"):
        timescales.SuRNN(I, H, periods=periods)
