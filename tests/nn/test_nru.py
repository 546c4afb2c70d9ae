"""The NRU against its equations in NumPy; its heads, its initialisation, and what it refuses."""

import numpy as np
import pytest
import torch
from cell_cases import B, H, I, close, random_input, random_state, run
from distributions import same_distribution
from scipy import stats

import timescales
from timescales.nn.cells import NRUCell

M, K = 8, 2


def directions(p, q):
    """The K rows of M numbers of the outer product, each divided by its 5-norm."""
    rows = np.outer(p, q).reshape(K, M)
    return np.array([row / np.sum(np.abs(row) ** 5) ** 0.2 for row in rows])


def reference(own, x, h, memory, mask):
    """Chandar et al. 2019, with the mean over the heads, sequence by sequence; an absent step changes nothing."""
    outputs, h, memory, side = np.empty((*x.shape[:2], H)), h.copy(), memory.copy(), 4
    for t, n in np.ndindex(x.shape[:2]):
        if mask is None or mask[t, n]:
            z = own["weight_ih"] @ x[t, n] + own["weight_hh"] @ h[n] + own["weight_memory"] @ memory[n] + own["bias"]
            h[n] = np.maximum(z, 0)
            read = own["weight_heads"] @ np.concatenate([h[n], memory[n]]) + own["bias_heads"]
            a, b, rest = read[:K], read[K : 2 * K], read[2 * K :].reshape(4, side)
            v, w = directions(*rest[:2]), directions(*rest[2:])
            memory[n] = memory[n] + sum(a[k] * v[k] - b[k] * w[k] for k in range(K)) / K
        outputs[t, n] = h[n]
    return outputs, memory


def made():
    torch.manual_seed(0)
    return NRUCell(I, H, memory_size=M, heads=K).double()


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("timed", [False, True], ids=["unit", "timed"])
def test_equals_the_reference(timed, masked):
    """dt changes nothing."""
    cell = made()
    (x, dt, mask), state = random_input(), random_state(cell, B)
    mask = mask if masked else None
    with torch.no_grad():
        output, final = run(cell, x, state, dt if timed else None, mask)
    own = {name: value.detach().numpy() for name, value in cell.named_parameters()}
    arrays = [None if v is None else v.numpy() for v in (x, state.h, state.memory, mask)]
    expected, memory = reference(own, *arrays)
    close(output, torch.from_numpy(expected), 1e-12)
    close(final.memory, torch.from_numpy(memory), 1e-12)


def test_gradients():
    cell = made()
    x, _, mask = random_input(shape=(4, 2), tiny_dt=False)
    state, names = random_state(cell, 2), [name for name, _ in cell.named_parameters()]

    class Runner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, x, *state):
            output, final = run(cell, x, cell.State(*state), None, mask)
            return output, final.memory

    def output(x, h, memory, *values):
        named = {f"cell.{name}": value for name, value in zip(names, values, strict=True)}
        return torch.func.functional_call(Runner(), named, (x, h, memory))

    inputs = [x, *state, *(p.detach().clone() for p in cell.parameters())]
    assert torch.autograd.gradcheck(output, [value.requires_grad_() for value in inputs])


def test_a_memory_that_nothing_changes_stays():
    """With heads of strength 0 the memory is what it was after 1,000 steps: it does not decay."""
    cell = made()
    with torch.no_grad():
        cell.weight_heads[: 2 * K].zero_()
        cell.bias_heads[: 2 * K].zero_()
    state = random_state(cell, B)
    _, final = run(cell, torch.randn(1000, B, I, dtype=torch.float64), state)
    assert torch.equal(final.memory, state.memory)
    assert cell.timescales().isinf().all()


def test_the_memory_of_a_new_network_stays_small():
    """After the steps of a digit."""
    torch.manual_seed(0)
    for hidden, size in ((16, 64), (212, 256)):
        with torch.no_grad():
            _, state = timescales.NRU(1, hidden, memory_size=size)(torch.rand(784, 4, 1))
        assert 0.0 < state.memory.abs().max() < 100.0


def test_large_and_vanishing_directions_are_finite():
    cell = NRUCell(I, H, memory_size=M, heads=K)
    for size in (0.0, 1e-15, 1e15):
        p = torch.full((1, 4), size, requires_grad=True)
        rows = cell._directions(p, torch.full((1, 4), size))
        rows.sum().backward()
        assert rows.isfinite().all()
        assert p.grad.isfinite().all()


def test_initialisation_and_sizes():
    torch.manual_seed(0)
    cell = NRUCell(3, 90, memory_size=100, heads=4)
    strengths, factors = cell.weight_heads.detach().split([8, 80])
    same_distribution(10 * strengths.flatten(), stats.uniform(-(190**-0.5), 2 * 190**-0.5))
    same_distribution(factors.flatten(), stats.uniform(-(190**-0.5), 2 * 190**-0.5))
    same_distribution(cell.weight_memory.detach().flatten(), stats.uniform(-(193**-0.5), 2 * 193**-0.5))
    # Six linear maps of torch as the released code has them, which gives 212 units and a memory of 256 for digits
    count = sum(p.numel() for p in NRUCell(1, 212, memory_size=256, heads=4).parameters())
    assert count == 212 * (1 + 212 + 256 + 1) + (4 * 32 + 2 * 4) * (212 + 256 + 1)


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"memory_size": 65}, "memory_size x heads = 65 x 4 = 260 must be a square, as 64 x 4 is"),
        ({"memory_size": 0}, "memory_size must be a whole number of at least 1"),
        ({"heads": 2.0}, "heads must be a whole number of at least 1"),
    ],
)
def test_wrong_arguments(arguments, fix):
    with pytest.raises(ValueError, match=fix):
        timescales.NRU(I, H, **arguments)
