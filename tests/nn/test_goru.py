"""The GORU against its equations in NumPy, rotation by rotation; its gates, its engines, and what it refuses."""

import numpy as np
import pytest
import torch
from cell_cases import B, I, close, random_input, random_state, run
from distributions import same_distribution
from scipy import stats
from test_eurnn import pairs_of

import timescales
from timescales.nn.cells import GORUCell

CASES = [(6, {}), (5, {"capacity": 3}), (1, {}), (8, {"style": "fft"})]


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def reference(own, pairs, x, h, mask):
    """Jing et al. 2019, section 3, sequence by sequence; an absent step changes nothing."""
    H = h.shape[1]
    W, U, b = own["weight_ih"].reshape(3, H, -1), own["weight_hh"].reshape(2, H, H), own["bias"].reshape(3, H)
    outputs, h = np.empty((*x.shape[:2], H)), h.copy()
    for t, n in np.ndindex(x.shape[:2]):
        if mask is None or mask[t, n]:
            turned = h[n].copy()
            for (i, j), theta in zip(pairs, own["theta"], strict=True):
                turned[i], turned[j] = (
                    np.cos(theta) * turned[i] - np.sin(theta) * turned[j],
                    np.sin(theta) * turned[i] + np.cos(theta) * turned[j],
                )
            f, r = (sigmoid(W[k] @ x[t, n] + U[k] @ h[n] + b[k]) for k in range(2))
            a = W[2] @ x[t, n] + r * turned
            h[n] = f * h[n] + (1 - f) * np.sign(a) * np.maximum(np.abs(a) + b[2], 0)
        outputs[t, n] = h[n]
    return outputs


def made(hidden=6, **arguments):
    torch.manual_seed(0)
    cell = GORUCell(I, hidden, **arguments).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(torch.randn_like(parameter))
    return cell


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize(("hidden", "arguments"), CASES)
def test_equals_the_reference(hidden, arguments, masked):
    """dt changes nothing."""
    cell = made(hidden, **arguments)
    (x, dt, mask), state = random_input(), random_state(cell, B)
    mask = mask if masked else None
    with torch.no_grad():
        output, _ = run(cell, x, state, dt, mask)
    own = {name: value.detach().numpy() for name, value in cell.named_parameters()}
    pairs = pairs_of(2 * hidden, **arguments)
    expected = reference(own, pairs, x.numpy(), state.h.numpy(), None if mask is None else mask.numpy())
    close(output, torch.from_numpy(expected), 1e-12)


def test_gradients():
    cell = made(5, capacity=3)
    x, _, mask = random_input(shape=(4, 2), tiny_dt=False)
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
def test_the_matrix_is_orthogonal(hidden, arguments):
    matrix = made(hidden, **arguments).weights().hh[2 * hidden :]
    close(matrix @ matrix.T, torch.eye(hidden, dtype=torch.float64), 1e-12)


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_it_keeps_and_it_turns(engine):
    """f = 1 keeps the state; f = 0 and r = 1 turn it, and keep its length."""
    rnn = timescales.GORU(2, 4, engine=engine)
    x, h = torch.zeros(50, 3, 2), torch.randn(1, 3, 4)
    for bias, moved in ((40.0, False), (-200.0, True)):
        with torch.no_grad():
            for name, parameter in rnn.layers[0].named_parameters():
                if name != "theta":
                    parameter.zero_()
            rnn.layers[0].bias[:4] = bias
            rnn.layers[0].bias[4:8] = 40.0
        output, _ = rnn(x, h)
        close(output.norm(dim=-1), h.norm(dim=-1).expand(50, 3), 1e-4)
        assert (output[-1] - h[0]).abs().max().item() > 0.1 if moved else torch.equal(output[-1], h[0])


def test_initialisation():
    torch.manual_seed(0)
    cell = GORUCell(20, 200, capacity=4)
    same_distribution(cell.theta.detach(), stats.uniform(-np.pi, 2 * np.pi))
    same_distribution(cell.weight_hh.detach().flatten(), stats.uniform(-0.01, 0.02))
    assert cell.bias.view(3, 200).unique(dim=1).flatten().tolist() == pytest.approx([0.0, 2.0, 0.01])
    assert cell.theta.shape == (2 * 100 + 2 * 99,)
    close(cell.timescales(), torch.full((200,), 1 / np.log(2), dtype=torch.float32), 1e-6)


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"capacity": True}, "capacity must be a whole number of at least 1"),
        ({"style": "full"}, "style must be tunable or fft"),
        ({"style": "fft"}, "style=fft needs a power of two as the number of units, not 6"),
    ],
)
def test_wrong_arguments(arguments, fix):
    with pytest.raises(ValueError, match=fix):
        timescales.GORU(I, 6, **arguments)
