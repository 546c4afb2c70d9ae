"""The uRNN against its equations in NumPy, with complex numbers; its matrix, its start, and what it refuses."""

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_input, random_state, run
from distributions import same_distribution
from scipy import stats

import timescales
from timescales.nn.cells import URNNCell

N = H // 2


def modrelu(a, bias):
    modulus = np.sqrt(np.abs(a) ** 2 + 1e-10)
    return a * np.maximum(modulus + bias, 0) / modulus


def reflect(z, v):
    return z - 2 * v * (np.conj(v) @ z) / (np.conj(v) @ v)


def turned(own, z):
    """W z as the paper has it: one factor after another, with numpy's Fourier transform."""
    v = own["reflections"][:, :N] + 1j * own["reflections"][:, N:]
    z = np.fft.fft(np.exp(1j * own["phases"][0]) * z, norm="ortho")
    z = np.exp(1j * own["phases"][1]) * reflect(z, v[0])[own["permutation"]]
    return np.exp(1j * own["phases"][2]) * reflect(np.fft.ifft(z, norm="ortho"), v[1])


def reference(own, x, h, mask, turn=turned):
    """Arjovsky et al. 2016, equations 6 and 8, sequence by sequence; an absent step changes nothing."""
    outputs, z = np.empty((*x.shape[:2], H)), h[:, :N] + 1j * h[:, N:]
    V = own["weight_ih"][:N] + 1j * own["weight_ih"][N:]
    for t, n in np.ndindex(x.shape[:2]):
        if mask is None or mask[t, n]:
            z[n] = modrelu(V @ x[t, n] + turn(own, z[n]), own["bias"])
        outputs[t, n] = np.concatenate([z[n].real, z[n].imag])
    return outputs


def made():
    torch.manual_seed(0)
    return URNNCell(I, H).double()


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
@pytest.mark.parametrize("started", [False, True], ids=["learned", "given"])
def test_equals_the_reference(started, timed, masked):
    """dt changes nothing. Without a state the learned one is the start."""
    cell = made()
    x, dt, mask = random_input()
    mask, state = mask if masked else None, random_state(cell, B) if started else None
    with torch.no_grad():
        output, final = run(cell, x, state, dt if timed else None, mask)
    own = {name: value.numpy() for name, value in cell.state_dict().items()}
    h = state.h.numpy() if started else np.tile(own["start"], (B, 1))
    expected = torch.from_numpy(reference(own, x.numpy(), h, None if mask is None else mask.numpy()))
    close(output, expected, 1e-12)
    close(final.h, expected[-1], 1e-12)


def test_gradients():
    cell = made()
    x, _, mask = random_input(shape=(4, 2), tiny_dt=False)
    names = [name for name, _ in cell.named_parameters()]

    class Runner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, x):
            return run(cell, x, None, None, mask)[0]

    def output(x, *values):
        return torch.func.functional_call(Runner(), {f"cell.{k}": v for k, v in zip(names, values, strict=True)}, (x,))

    inputs = [x, *(p.detach().clone() for p in cell.parameters())]
    assert torch.autograd.gradcheck(output, [value.requires_grad_() for value in inputs])


@pytest.mark.parametrize("hidden", [2, 4, 30, 64])
def test_the_matrix_is_orthogonal(hidden):
    torch.manual_seed(1)
    W = URNNCell(3, hidden).double().weights().hh
    close(W @ W.T, torch.eye(hidden, dtype=torch.float64), 1e-12)


def test_an_empty_step_keeps_the_length_of_the_state():
    """With a bias of 0: 1,000 steps without an input, in float32."""
    torch.manual_seed(2)
    rnn = timescales.URNN(2, 64)
    with torch.no_grad():
        rnn.layers[0].bias.zero_()
    output, _ = rnn(torch.zeros(1000, 3, 2))
    start = rnn.layers[0].start.norm().expand(3)
    torch.testing.assert_close(output[-1].norm(dim=-1), start, rtol=1e-4, atol=0)
    assert rnn.timescales()[0].isinf().all()


def test_half_precision_and_seeds():
    cell = made().bfloat16()
    assert cell.weights().hh.dtype == torch.bfloat16
    assert run(cell, torch.randn(3, B, I).bfloat16())[0].isfinite().all()
    torch.manual_seed(3)
    assert torch.equal(URNNCell(I, H).permutation, cell.permutation)  # that of seeds trained together, too


def test_initialisation():
    torch.manual_seed(0)
    cell = URNNCell(20, 600)
    bounds = {"phases": np.pi, "reflections": (3 / 301) ** 0.5, "start": 0.005**0.5, "bias": 0.01}
    for name, bound in {**bounds, "weight_ih": (6 / 620) ** 0.5}.items():
        same_distribution(getattr(cell, name).detach().flatten(), stats.uniform(-bound, 2 * bound))
    assert sum(p.numel() for p in cell.parameters()) == 20 * 600 + 7 * 300 + 300 + 600


@pytest.mark.parametrize(("hidden", "near"), [(7, "6 or 8"), (1, "2")])
def test_an_odd_size_is_refused(hidden, near):
    with pytest.raises(ValueError, match=f"hidden_size {hidden} counts real and imaginary parts.*: give {near}$"):
        timescales.URNN(I, hidden)
