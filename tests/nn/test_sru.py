"""The statistical recurrent unit against its equations in NumPy; its averages, and what it refuses."""

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_input, random_state, run
from distributions import same_distribution
from scipy import stats

import timescales
from timescales.nn.cells import SRUCell

ALPHAS = (0.0, 0.5, 0.99)
ARGUMENTS = {"statistics": 5, "summary": 3, "alphas": ALPHAS}


def reference(own, x, averages, dt, mask):
    """Oliva et al. 2017, section 3, with alpha^dt for alpha; an absent step changes nothing."""
    W = {name.removeprefix("weight_"): value for name, value in own.items()}
    averages, outputs, h = averages.copy(), np.empty((*x.shape[:2], H)), None
    for t, n in np.ndindex(x.shape[:2]):
        if mask is None or mask[t, n]:
            r = np.maximum(W["summary"] @ averages[n] + own["bias_summary"], 0)
            phi = np.maximum(W["ih"] @ x[t, n] + W["statistics"] @ r + own["bias"], 0)
            for k, alpha in enumerate(ALPHAS):
                kept = alpha ** (1.0 if dt is None else dt[t, n])
                part = slice(5 * k, 5 * k + 5)
                averages[n, part] = kept * averages[n, part] + (1 - kept) * phi
        outputs[t, n] = np.maximum(W["output"] @ averages[n] + own["bias_output"], 0)
    return outputs, averages, h


def made():
    torch.manual_seed(0)
    cell = SRUCell(I, H, **ARGUMENTS).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return cell


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
def test_equals_the_reference(timed, masked):
    cell = made()
    (x, dt, mask), state = random_input(), random_state(cell, B)
    dt, mask = dt if timed else None, mask if masked else None
    if masked:
        mask[0] = True  # before the first step that exists, the output is the given h
    with torch.no_grad():
        output, final = run(cell, x, state, dt, mask)
    own = {name: value.detach().numpy() for name, value in cell.named_parameters()}
    arrays = [None if v is None else v.numpy() for v in (x, state.averages, dt, mask)]
    expected, averages, _ = reference(own, *arrays)
    close(output, torch.from_numpy(expected), 1e-12)
    close(final.averages, torch.from_numpy(averages), 1e-12)


def test_gradients():
    cell = made()
    x, dt, mask = random_input(shape=(4, 2), tiny_dt=False)
    state, names = random_state(cell, 2), [name for name, _ in cell.named_parameters()]

    class Runner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, x, dt, *state):
            output, final = run(cell, x, cell.State(*state), dt, mask)
            return output, final.averages

    def output(x, dt, h, averages, *values):
        named = {f"cell.{name}": value for name, value in zip(names, values, strict=True)}
        return torch.func.functional_call(Runner(), named, (x, dt, h, averages))

    inputs = [x, dt, *state, *(p.detach().clone() for p in cell.parameters())]
    assert torch.autograd.gradcheck(output, [value.requires_grad_() for value in inputs])


def test_an_average_decays_by_its_rate():
    """Without new statistics, what an average had is alpha^t of it after the time t."""
    cell = SRUCell(1, H, statistics=2, alphas=(0.5, 0.9)).double()
    with torch.no_grad():
        cell.bias.fill_(-100.0)  # no statistic is above 0
    start = cell.State(torch.zeros(1, H).double(), torch.ones(1, 4).double())
    _, final = run(cell, torch.zeros(6, 1, 1).double(), start, torch.full((6, 1), 0.5).double())
    close(final.averages[0], torch.tensor([0.5**3] * 2 + [0.9**3] * 2, dtype=torch.float64))
    close(cell.timescales(), torch.full((H,), -1 / np.log(0.9), dtype=torch.float64))
    assert not SRUCell(1, H, alphas=(0.0,)).timescales().any()


def test_sizes_and_initialisation():
    torch.manual_seed(0)
    cell = SRUCell(3, 80)
    assert (cell.statistics, cell.width("averages"), cell.width("h")) == (80, 400, 80)
    assert cell.weight_summary.shape == (20, 400)
    same_distribution(cell.weight_output.detach().flatten(), stats.uniform(-0.05, 0.1))
    _, state = timescales.SRU(3, 8, 2)(torch.randn(4, 2, 3))
    assert state.averages.shape == (2, 2, 40)


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"alphas": (0.5, 1.0)}, "alphas must be numbers from 0 to below 1"),
        ({"alphas": ()}, "alphas must be numbers from 0 to below 1"),
        ({"statistics": 0}, "statistics must be a whole number of at least 1"),
        ({"summary": "8"}, "summary must be a whole number of at least 1"),
    ],
)
def test_wrong_arguments(arguments, fix):
    with pytest.raises(ValueError, match=fix):
        timescales.SRU(I, H, **arguments)
