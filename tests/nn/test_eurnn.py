"""The EURNN against its equations in NumPy, rotation by rotation; its matrix, and what it refuses."""

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_input, random_state, run
from distributions import same_distribution
from scipy import stats
from test_urnn import reference as of_urnn

import timescales
from timescales.nn.cells import EURNNCell
from timescales.nn.cells.eurnn import chain

CASES = [
    (6, {}),
    (6, {"capacity": 5}),
    (6, {"capacity": 1}),
    (4, {"capacity": 2}),
    (2, {"capacity": 3}),
    (8, {"style": "fft"}),
    (16, {"style": "fft"}),
]


def reference(own, pairs, x, h, mask):
    """Jing et al. 2017, section 4: one rotation after another, then the phases, then as the uRNN."""

    def turned(own, z):
        z, angles = z.copy(), iter(zip(own["theta"], own["phi"], strict=True))
        for a, b in pairs:
            theta, phi = next(angles)
            R = np.array([[np.exp(1j * phi) * np.cos(theta), -np.exp(1j * phi) * np.sin(theta)]] * 2)
            R[1] = np.sin(theta), np.cos(theta)
            z[[a, b]] = R @ z[[a, b]]
        assert next(angles, None) is None
        return np.exp(1j * own["phases"]) * z

    return of_urnn(own, x, h, mask, turned)


def pairs_of(hidden, capacity=2, style="tunable"):
    """The pairs of units in the order in which they are rotated, written out once more."""
    N = hidden // 2
    if style == "fft":
        distances = [2**k for k in reversed(range(int(np.log2(N))))]
        return [(i, i + d) for d in distances for i in range(N) if (i // d) % 2 == 0]
    even, odd = [(i, i + 1) for i in range(0, N - 1, 2)], [(i, i + 1) for i in range(1, N - 1, 2)]
    return [pair for layer in range(capacity) for pair in (even, odd)[layer % 2]]


def made(hidden, **arguments):
    torch.manual_seed(0)
    cell = EURNNCell(I, hidden, **arguments).double()
    with torch.no_grad():
        cell.weight_ih.normal_()
        cell.bias.normal_()
    return cell


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize(("hidden", "arguments"), CASES)
def test_equals_the_reference(hidden, arguments, masked, monkeypatch):
    """dt changes nothing."""
    monkeypatch.setattr("test_urnn.H", hidden)
    monkeypatch.setattr("test_urnn.N", hidden // 2)
    cell = made(hidden, **arguments)
    (x, dt, mask), state = random_input(), random_state(cell, B)
    mask = mask if masked else None
    with torch.no_grad():
        output, _ = run(cell, x, state, dt, mask)
    own = {name: value.numpy() for name, value in cell.state_dict().items()}
    pairs = pairs_of(hidden, **arguments)
    expected = reference(own, pairs, x.numpy(), state.h.numpy(), None if mask is None else mask.numpy())
    close(output, torch.from_numpy(expected), 1e-12)


@pytest.mark.parametrize("arguments", [{"capacity": 3}, {"style": "fft"}], ids=["tunable", "fft"])
def test_gradients(arguments):
    cell = made(8, **arguments)
    x, _, mask = random_input(shape=(3, 2), tiny_dt=False)
    names, h = [name for name, _ in cell.named_parameters()], random_state(cell, 2).h

    class Runner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, x, h):
            return run(cell, x, cell.State(h), None, mask)[0]

    def output(x, h, *values):
        named = {f"cell.{name}": value for name, value in zip(names, values, strict=True)}
        return torch.func.functional_call(Runner(), named, (x, h))

    inputs = [x, h, *(p.detach().clone() for p in cell.parameters())]
    assert torch.autograd.gradcheck(output, [value.requires_grad_() for value in inputs])


@pytest.mark.parametrize(("hidden", "arguments"), CASES)
def test_the_matrix_is_unitary(hidden, arguments):
    W = made(hidden, **arguments).matrix()
    close(W @ W.mH, torch.eye(hidden // 2, dtype=torch.complex128), 1e-12)


def test_enough_layers_mix_all_units():
    """Two layers reach neighbours alone; N layers, and the FFT style, leave no zeros in W."""
    assert (made(32).matrix() == 0).sum() > 150
    assert (made(32, capacity=16).matrix() != 0).all()
    assert (made(32, style="fft").matrix() != 0).all()


def test_initialisation():
    torch.manual_seed(0)
    cell = EURNNCell(20, 800)
    for name in ("theta", "phi", "phases"):
        same_distribution(getattr(cell, name).detach(), stats.uniform(-np.pi, 2 * np.pi))
    same_distribution(cell.weight_ih.detach().flatten(), stats.uniform(-0.01, 0.02))
    assert not cell.bias.any()
    assert cell.theta.shape == (399,)  # 200 pairs, and 199 between them
    assert cell.timescales().isinf().all()


@pytest.mark.parametrize(
    ("hidden", "arguments", "fix"),
    [
        (7, {}, "must be even: give 6 or 8"),
        (8, {"capacity": 0}, "capacity must be a whole number of at least 1"),
        (8, {"style": "butterfly"}, "style must be tunable or fft"),
        (12, {"style": "fft"}, "style=fft needs a power of two as the number of units, not 6: give style=tunable"),
    ],
)
def test_wrong_arguments(hidden, arguments, fix):
    with pytest.raises(ValueError, match=fix):
        timescales.EURNN(I, hidden, **arguments)


def test_a_single_unit_has_no_partner():
    assert chain(1, 2, "tunable") == [[], []]
    assert chain(1, 2, "fft") == []
    assert H == 6
