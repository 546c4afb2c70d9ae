"""The Phased LSTM against its equations in NumPy; its clock, its time scales, and what it refuses."""

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_input, random_state, run
from distributions import same_distribution
from scipy import stats

import timescales
from timescales.nn.cells import PhasedLSTMCell


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def openness(t, tau, s, r, leak):
    """Neil et al. 2016, equation 6: how far a unit's gate is open at the time t."""
    phi = np.fmod(np.fmod(t - s, tau) + tau, tau) / tau
    if phi < r / 2:
        return 2 * phi / r
    return 2 - 2 * phi / r if phi < r else leak * phi


def reference(own, leak, peephole, x, h, c, time, dt, mask):
    """Neil et al. 2016, equations 1 to 10, unit by unit; a step that does not exist changes nothing."""
    W, U, b = (own[name].reshape(4, H, -1) for name in ("weight_ih", "weight_hh", "bias"))
    peepholes = [own.get(f"peephole_{name}", np.zeros(H)) for name in ("input", "forget", "output")]
    assert peephole == ("peephole_input" in own)
    outputs, h, c, time = np.empty((*x.shape[:2], H)), h.copy(), c.copy(), time.copy()
    for t, n in np.ndindex(x.shape[:2]):
        if mask is None or mask[t, n]:
            old = h[n].copy()
            for u in range(H):
                z = [W[gate, u] @ x[t, n] + U[gate, u] @ old + b[gate, u, 0] for gate in range(4)]
                i = sigmoid(z[0] + peepholes[0][u] * c[n, u])
                f = sigmoid(z[1] + peepholes[1][u] * c[n, u])
                proposed = f * c[n, u] + i * np.tanh(z[2])
                o = sigmoid(z[3] + peepholes[2][u] * proposed)
                time[n, u] += 1.0 if dt is None else dt[t, n]
                k = openness(time[n, u], abs(own["period"][u]), own["shift"][u], abs(own["open_ratio"][u]), leak)
                h[n, u] = k * o * np.tanh(proposed) + (1 - k) * old[u]
                c[n, u] = k * proposed + (1 - k) * c[n, u]
        outputs[t, n] = h[n]
    return outputs, c, time


def made(peephole=True, train_open_ratio=True):
    """A cell whose units are open for half a cycle, so that every branch of the clock is taken."""
    torch.manual_seed(0)
    cell = PhasedLSTMCell(
        I, H, open_ratio=0.5, leak=0.1, peephole=peephole, train_open_ratio=train_open_ratio, shift_init=(-4, 9)
    ).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return cell


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
@pytest.mark.parametrize("peephole", [True, False], ids=["peephole", "plain"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_equals_the_reference(training, peephole, timed, masked):
    cell = made(peephole, train_open_ratio=peephole).train(training)
    (x, dt, mask), state = random_input(), random_state(cell, B)
    dt, mask = dt if timed else None, mask if masked else None
    with torch.no_grad():
        output, final = run(cell, x, state, dt, mask)
    own = {name: value.numpy() for name, value in cell.state_dict().items()}
    arrays = [None if v is None else v.numpy() for v in (x, state.h, state.c, state.time, dt, mask)]
    expected, c, time = reference(own, 0.1 if training else 0.0, peephole, *arrays)
    close(output, torch.from_numpy(expected), 1e-12)
    close(final.c, torch.from_numpy(c), 1e-12)
    close(final.time, torch.from_numpy(time), 1e-12)


def test_gradients():
    cell = made()
    x, dt, mask = random_input(shape=(5, 2))
    state = random_state(cell, 2)
    names = [name for name, _ in cell.named_parameters()]
    assert {"period", "shift", "open_ratio", "peephole_output"} <= set(names)

    def output(x, dt, h, c, time, *values):
        named = {f"cell.{name}": value for name, value in zip(names, values, strict=True)}
        return torch.func.functional_call(Runner(cell), named, (x, dt, mask, h, c, time))

    inputs = [x, dt, *state, *(p.detach().clone() for p in cell.parameters())]
    assert torch.autograd.gradcheck(output, [value.requires_grad_() for value in inputs])


class Runner(torch.nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x, dt, mask, *state):
        return run(self.cell, x, self.cell.State(*state), dt, mask)[0]


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_a_closed_unit_keeps_what_it_has(engine):
    """Period 10, open in the first half: from the phase .5 on, in evaluation, output and cell do not change."""
    torch.manual_seed(1)
    rnn = timescales.PhasedLSTM(2, 3, open_ratio=0.5, engine=engine).eval()
    with torch.no_grad():
        rnn.layers[0].period.fill_(10.0)
        rnn.layers[0].shift.zero_()
    output, state = rnn(torch.randn(25, 4, 2), dt=torch.full((25, 4), 0.5))
    time = 0.5 * torch.arange(1, 26)
    closed = (time % 10 >= 5) & ((time - 0.5) % 10 >= 5)
    change = (output[1:] - output[:-1]).abs().amax((1, 2))
    assert not change[closed[1:]].any()
    assert (change[~closed[1:] & (time[1:] % 10 > 0) & (time[1:] % 10 < 5)] > 0).all()
    assert state.time.unique().tolist() == [12.5]


def test_time_scales():
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
    with torch.no_grad():
        cell.bias.fill_(-900.0)
    close(cell.timescales(), torch.full((H,), 1 / 0.3, dtype=torch.float64), 1e-6)


def test_initialisation():
    torch.manual_seed(0)
    cell = PhasedLSTMCell(1, 1_000)
    same_distribution(cell.period.detach().log(), stats.uniform(0, 3))
    same_distribution((cell.shift / cell.period).detach(), stats.uniform(0, 1))
    same_distribution(cell.peephole_forget.detach(), stats.norm(0, 0.1))
    assert cell.open_ratio.unique().tolist() == pytest.approx([0.05])
    assert "open_ratio" not in dict(cell.named_parameters())
    cell = PhasedLSTMCell(1, 1_000, period_init=(1, 3), shift_init=(0, 100), train_open_ratio=True)
    same_distribution(cell.period.detach().log(), stats.uniform(1, 2))
    same_distribution(cell.shift.detach(), stats.uniform(0, 100))
    assert "open_ratio" in dict(cell.named_parameters())


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"period_init": (3, 1)}, "period_init must be two numbers low <= high"),
        ({"shift_init": 5}, "shift_init must be two numbers low <= high"),
        ({"open_ratio": 0}, "open_ratio must be a number above 0, at most 1"),
        ({"leak": -0.1}, "leak must be a number from 0 to 1"),
    ],
)
def test_wrong_arguments(arguments, fix):
    with pytest.raises(ValueError, match=fix):
        timescales.PhasedLSTM(I, H, **arguments)
