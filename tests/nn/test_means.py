"""Layer norms and other means over the units within a step: compiled, and compared with the eager engine and NumPy."""

import pytest
import torch
from engine_cases import compare, some_state
from torch import nn
from torch.nn import functional as F

from timescales import RNN, Cell
from timescales.nn.cells import GRUCell, LSTMCell
from timescales.nn.cells.gates import cumax
from timescales.nn.engine import equations
from timescales.nn.engine.cpu import fused
from timescales.nn.engine.recorder import NotTraceable


class Gated(Cell):
    gates, State = ("input", "forget", "cell", "output"), LSTMCell.State


class LayerNormLSTM(Gated):
    """The LSTM of Ba et al. (2016): the shares of x and of h and the cell are normalized."""

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.of_x, self.of_h = nn.LayerNorm(4 * hidden_size), nn.LayerNorm(4 * hidden_size, bias=False)
        self.of_c = nn.LayerNorm(hidden_size)
        with torch.no_grad():
            for norm in (self.of_x, self.of_h, self.of_c):
                for parameter in norm.parameters():
                    parameter.add_(0.3 * torch.randn_like(parameter))

    def step(self, gx, gh, state, dt=1.0):
        i, f, g, o = (self.of_x(gx) + self.of_h(gh)).chunk(4, -1)
        c = f.sigmoid() * dt * state.c + i.sigmoid() * g.tanh()
        return self.State(o.sigmoid() * self.of_c(c).tanh(), c)


class EachGate(Gated):
    """Every gate is normalized by itself, one with two statistics of the cell before, another with a cumax."""

    def step(self, gx, gh, state, dt=1.0):
        i, f, g, o = (gx + gh).chunk(4, -1)
        g = F.layer_norm(g, (self.hidden_size,), eps=1e-3)
        o = (o - state.c.mean(-1, keepdim=True)) / (dt + state.c.std(-1, keepdim=True))
        c = cumax(f) * state.c + i.sigmoid() * F.rms_norm(g.tanh(), g.shape[-1:])
        return self.State(o.sigmoid() * c, c)


class Statistics(Gated):
    """Means that need other means, without a dimension of their own, and one of two fields at once."""

    def step(self, gx, gh, state, dt=1.0):
        i, f, g, o = (gx + gh).chunk(4, -1)
        c = f.sigmoid() * state.c + i.sigmoid() * g.tanh()
        both = torch.cat([state.h, c], -1)
        c = c - dt * both.mean(dim=1)[:, None]
        spread = torch.var(c, -1, correction=0)[:, None]
        return self.State(o.sigmoid() * c / (1 + spread) + (g * spread).mean((-1,), True).tanh(), c)


class OfInputs(Cell):
    """Without a recurrent product."""

    gates, State = ("forget", "cell"), GRUCell.State
    recurrent = False

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.norm = nn.RMSNorm(hidden_size, eps=1e-4)

    def step(self, gx, gh, state, dt=1.0):
        f, u = gx.chunk(2, -1)
        f = f.sigmoid() * dt
        return self.State(self.norm(f * state.h + (1 - f) * F.layer_norm(u, (self.hidden_size,))))


CELLS = [LayerNormLSTM, EachGate, Statistics, OfInputs]
SHAPES = [(2, 5, 3, 17), (9, 3, 1, 64), (4, 33, 40, 30)]  # S, B, inputs, H


@pytest.mark.parametrize(("kind", "shape"), [
    *((kind, SHAPES[k % 3]) for k, kind in enumerate(CELLS)), *((LayerNormLSTM, shape) for shape in SHAPES[1:]),
])  # fmt: skip
def test_results_and_gradients_are_those_of_plain_torch(kind, shape):
    S, B, inputs, H = shape
    torch.manual_seed(0)
    model, x = RNN([kind(inputs, H), kind(H, H)]), torch.randn(S, B, inputs)
    assert not isinstance(fused.compiled(model.layers[0], timed=True), str)
    mask, reset = torch.rand(S, B) > 0.3, torch.rand(S, B) > 0.7
    both = [{"dt": torch.rand(S, B) + 0.5, "mask": mask}, {"mask": mask, "reset": reset, "states": True}]
    for more in ({}, {"last": True}, *both):
        compare("fused", model, x, some_state(model, B), tolerance=5e-5, **more)


class Deviations(Cell):
    """Standard deviations of a gate and of the state before, both of which may be those of equal numbers."""

    gates, State = ("cell",), GRUCell.State

    def step(self, gx, gh, state, dt=1.0):
        a = gx + gh
        a = (a - a.mean(-1, keepdim=True)) / (1.0 + a.std(-1, keepdim=True))
        return self.State(a.tanh() / (1.0 + state.h.std(-1, keepdim=True)))


def test_the_deviation_of_equal_numbers_has_the_gradient_0():
    """As torch's: of zero input without a bias, and of the state at the beginning."""
    results = []
    for engine in ("eager", "fused"):
        torch.manual_seed(0)
        rnn = RNN([Deviations(3, 17)], engine=engine)
        with torch.no_grad():
            rnn.layers[0].bias.zero_()
        x, h = torch.randn(6, 2, 3), torch.zeros(1, 2, 17, requires_grad=True)
        x[:2] = 0.0
        output, _ = rnn(x, h)
        results.append([output, *torch.autograd.grad(output.square().sum(), [h, *rnn.parameters()])])
    for eager, compiled in zip(*results, strict=True):
        assert eager.isfinite().all()
        torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)


def test_without_gradients_and_with_two_threads():
    torch.manual_seed(0)
    rnn, x = RNN([LayerNormLSTM(3, 16)], engine="fused"), torch.randn(6, 5, 3)
    threads = torch.get_num_threads()
    outputs = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            outputs.append(rnn(x)[0])
            with torch.no_grad():
                assert torch.equal(rnn(x)[0], outputs[-1])
    finally:
        torch.set_num_threads(threads)
    assert (outputs[1] - outputs[0]).abs().max() < 2e-6


def test_an_epsilon_that_changes_counts_at_once():
    rnn, x = RNN([LayerNormLSTM(3, 8)], engine="fused"), torch.randn(4, 2, 3)
    for eps in (1e-5, 0.5):
        rnn.layers[0].of_c.eps = eps
        compare("fused", rnn, x)


class Wrong(Gated):
    def step(self, gx, gh, state, dt=1.0):
        i, f, g, o = (gx + gh).chunk(4, -1)
        c = f.sigmoid() * state.c + i.sigmoid() * g.tanh()
        return self.State(o.sigmoid() * self.normal(c), c)


H = 6
REFUSED = {
    "all numbers": (lambda h: h - h.mean(), "mixes units or sequences with mean"),
    "sequences": (lambda h: h - h.mean(0), "mixes units or sequences with mean"),
    "other sequence": (lambda h: h - h.flip(0).mean(-1, True), "a mean of something else than a number for each unit"),
    "half": (lambda h: h - h[:, : H // 2].mean(-1, True), "a mean of something else than a number for each unit"),
    "heads": (lambda h: F.layer_norm(h.view(2, 2, 3), (3,)).view(2, H), "a mean of something else"),
    "two dimensions": (lambda h: F.layer_norm(h, (2, H)), "normalizes several dimensions"),
    "sum": (lambda h: h / h.sum(-1, True), "mixes units or sequences with sum"),
    "one gate": (lambda h: torch.cat([h[:, :1], (h - h.mean(-1, True))[:, 1:]], -1), "treats units differently"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_forms_are_refused_with_a_reason(name):
    cell = Wrong(3, H)
    Wrong.normal, reason = lambda self, h: REFUSED[name][0](h), REFUSED[name][1]
    with pytest.raises(NotTraceable, match=reason):
        equations.of_cell(cell, False)
