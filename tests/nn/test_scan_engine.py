"""The C++ loop of scan cells against the eager engine in float64: chunks, threads, masks, irregular steps, seeds."""

import itertools
from typing import NamedTuple

import cell_models
import pytest
import torch
from engine_cases import compare, some_state
from scan_cells import OneField
from torch import Tensor

import timescales
from timescales.nn.cells import Cell
from timescales.nn.engine import equations
from timescales.nn.engine.cpu import fused, shared_library

KINDS = ("mingru", "minlstm", "plscan", "lru")
# (S, B, I, H): less than a vector; several chunks of steps; more sequences than a chunk has; several vectors of inputs;
# incomplete vectors of units; pre-activations of more than a chunk's share of the cache.
SHAPES = [(2, 1, 1, 1), (250, 1, 3, 70), (31, 19, 2, 33), (13, 9, 70, 17), (5, 10, 3, 1100)]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


def of(kind, inputs, hidden):
    rnn = cell_models.model(kind, inputs, hidden)
    if kind == "lru":  # the rounding of a phase grows with the steps that a unit remembers
        rnn.layers[0].nu_log.data.clamp_(min=-3.0)
    return rnn


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_eager(kind, shape):
    S, B, inputs, H = shape
    model = of(kind, inputs, H)
    assert equations.known(model.layers[0], False).is_scan
    x, dt, mask = torch.randn(S, B, inputs), 2.0 * torch.rand(S, B), torch.rand(S, B) < 0.6
    for k, (d, m) in enumerate(itertools.product((None, dt), (None, mask))):
        state = some_state(model, B) if k % 2 else None
        compare("fused", model, x, state, d, m, last=k in (1, 2))


# Threads share the batch, or units too where there are fewer sequences: 3 and 4 threads of 1 sequence, 4 of 3.
@pytest.mark.parametrize(("threads", "B"), [(2, 5), (3, 1), (4, 1), (4, 3), (3, 2), (2, 40)])
@pytest.mark.parametrize("kind", ["minlstm", "lru"])
def test_threads(kind, threads, B):
    S, inputs, H = 110, 5, 70
    model = of(kind, inputs, H)
    x, dt, mask = torch.randn(S, B, inputs), 2.0 * torch.rand(S, B), torch.rand(S, B) < 0.6
    torch.set_num_threads(threads)
    try:
        for d, m in ((None, None), (dt, mask)):
            compare("fused", model, x, some_state(model, B), d, m)
    finally:
        torch.set_num_threads(1)


def test_threads_add_up_to_the_same_numbers_each_time():
    model = of("plscan", 3, 40)
    x = torch.randn(50, 3, 3)
    torch.set_num_threads(3)
    try:
        found = []
        for _ in range(3):
            model.zero_grad()
            model(x)[0].square().sum().backward()
            found.append([p.grad.clone() for p in model.parameters()])
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_without_gradients(kind):
    """No field of the state is kept then."""
    model = of(kind, 3, 20)
    x, mask = torch.randn(150, 2, 3), torch.rand(150, 2) < 0.5
    expected, last = model(x, mask=mask)
    with torch.no_grad():
        found, state = model(x, mask=mask)
    assert torch.equal(found, expected)
    for a, b in zip(model.split_state(state)[0], model.split_state(last)[0], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_only_some_gradients(kind):
    """Of the input alone, of the state alone, of the weights alone: as when all are wanted."""
    model = of(kind, 3, 20)
    x, state = torch.randn(30, 2, 3), some_state(model, 2)
    tensors = [x, *state[0], *model.parameters()]
    weights = torch.linspace(-1.0, 1.0, 20)

    def gradients(wanted):
        for k, v in enumerate(tensors):
            v.requires_grad_(k in wanted)
        loss = (model(x, state)[0] * weights).sum()
        return torch.autograd.grad(loss, [tensors[k] for k in wanted])

    whole = gradients(range(len(tensors)))
    for k in range(len(tensors)):
        assert torch.equal(gradients([k])[0], whole[k]), k


def test_pre_activations_are_not_kept():
    """The workspace grows with the sequence by the fields of the state but h: by none, and by two."""
    sizes = {}
    for kind in ("mingru", "plscan"):
        code = fused.compiled(of(kind, 4, 64).layers[0], False)
        for S in (100, 200):
            problem = shared_library.Problem(1, S, 10, 4, 64, 1)
            sizes[kind, S] = code.functions.timescales_workspace(problem)
    assert sizes["mingru", 200] == sizes["mingru", 100]
    assert 2 * 100 * 10 * 64 <= sizes["plscan", 200] - sizes["plscan", 100] <= 2.6 * 100 * 10 * 64


class Mixed(Cell):
    """A scan cell with random numbers, a gate with half as many rows as units, and a field that does not change."""

    gates = ("coarse", "fine")
    recurrent = False

    class State(NamedTuple):
        h: Tensor
        kept: Tensor

    def height(self, gate):
        return self.hidden_size // 2 if gate == "coarse" else self.hidden_size

    def step(self, gx, gh, state, dt=1.0):
        coarse, fine = self.by_gate(gx).values()
        f = coarse.sigmoid().repeat_interleave(2, -1)
        noise = torch.rand_like(fine)
        return self.State(f * state.h + (1.0 - f) * fine + 0.1 * noise * state.kept, state.kept)


def test_a_gate_with_fewer_rows_runs_in_the_other_loop():
    rnn = timescales.RNN([Mixed(3, 8)], engine="fused")
    assert not equations.known(rnn.layers[0], False).is_scan
    x = torch.randn(6, 2, 3)
    results = []
    for rnn.engine in ("fused", "eager"):
        torch.manual_seed(3)
        output, _ = rnn(x, [rnn.layers[0].State(*torch.ones(2, 2, 8))])
        results.append((output, *torch.autograd.grad(output.square().sum(), list(rnn.parameters()))))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


class Noisy(OneField):
    """A scan cell with random numbers."""

    def step(self, gx, gh, state, dt=1.0):
        return self.State(torch.where(torch.rand_like(gx) < 0.5, gx, 0.9 * state.h))


@pytest.mark.parametrize("threads", [1, 2])
def test_random_numbers_are_those_of_eager(threads):
    rnn = timescales.RNN([Noisy(3, 40)])
    x = torch.randn(60, 3, 3)
    results = []
    torch.set_num_threads(threads)
    for rnn.engine in ("fused", "eager"):
        torch.manual_seed(3)
        results.append(rnn(x)[0])
    torch.set_num_threads(1)
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)
