"""The IndRNN against its equation in NumPy; its time scales, its initialisation, and what it refuses."""

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_input, random_state, run
from distributions import same_distribution
from scipy import stats

import timescales
from timescales.nn.cells import IndRNNCell


def reference(weight, bias, u, activation, x, h, mask):
    """Li et al. 2018, Eq. 4, unit by unit; a step that does not exist changes nothing."""
    function = {"relu": lambda z: max(z, 0.0), "tanh": np.tanh}[activation]
    outputs, h = np.empty((*x.shape[:2], len(u))), h.copy()
    for t in range(len(x)):
        for b in range(x.shape[1]):
            if mask is None or mask[t, b]:
                for unit in range(len(u)):
                    h[b, unit] = function(weight[unit] @ x[t, b] + u[unit] * h[b, unit] + bias[unit])
        outputs[t] = h
    return outputs


def made(activation):
    torch.manual_seed(0)
    cell = IndRNNCell(I, H, activation=activation, u_init=(-1.2, 1.2)).double()
    return cell, [value.detach().numpy() for value in (cell.weight_ih, cell.bias, cell.u)]


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_equals_the_reference(activation, timed, masked):
    """dt changes nothing."""
    cell, weights = made(activation)
    (x, dt, mask), state = random_input(), random_state(cell, B)
    mask = mask if masked else None
    with torch.no_grad():
        output, final = run(cell, x, state, dt if timed else None, mask)
    where = None if mask is None else mask.numpy()
    expected = torch.from_numpy(reference(*weights, activation, x.numpy(), state.h.numpy(), where))
    close(output, expected, 1e-12)
    close(final.h, expected[-1], 1e-12)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_gradients(activation):
    cell, _ = made(activation)
    x, _, mask = random_input()
    h = random_state(cell, B).h.requires_grad_()

    def output(x, h, *values):
        named = dict(zip(("cell.weight_ih", "cell.bias", "cell.u"), values, strict=True))
        return torch.func.functional_call(Runner(cell), named, (x, h, mask))

    values = [v.detach().requires_grad_() for v in (cell.weight_ih, cell.bias, cell.u)]
    assert torch.autograd.gradcheck(output, (x.requires_grad_(), h, *values))


class Runner(torch.nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x, h, mask):
        return run(self.cell, x, self.cell.State(h), None, mask)[0]


def test_time_scales():
    cell = IndRNNCell(I, 4)
    with torch.no_grad():
        cell.u.copy_(torch.tensor([0.5, -0.5, 1.0, 1.3]))
    assert cell.timescales().tolist() == pytest.approx([1 / np.log(2), 1 / np.log(2), np.inf, np.inf])


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_a_unit_that_is_on_decays_by_u(engine):
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


def test_initialisation():
    torch.manual_seed(0)
    cell = IndRNNCell(3, 20_000, u_init=(0.2, 0.7))
    same_distribution(cell.u.detach(), stats.uniform(0.2, 0.5))
    assert float(cell.bias.abs().max()) <= 20_000**-0.5


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"activation": "gelu"}, "activation must be relu or tanh"),
        ({"u_init": (1.0, 0.5)}, "two numbers low <= high"),
        ({"u_init": 0.5}, "two numbers low <= high"),
    ],
)
def test_wrong_arguments(arguments, fix):
    with pytest.raises(ValueError, match=fix):
        timescales.IndRNN(I, H, **arguments)
