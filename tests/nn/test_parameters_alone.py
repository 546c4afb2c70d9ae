"""What a step computes from parameters alone, torch computes once for each sequence: any function, with gradients."""

import pytest
import torch
from engine_cases import close
from torch import nn
from torch.nn import functional

from timescales import RNN, Cell, GRUCell
from timescales.nn.engine import equations

H = 6


class Own(Cell):
    """A step that adds one number per unit, which `function` computes from parameters of several shapes."""

    gates, State = ("a",), GRUCell.State
    function = staticmethod(lambda cell: cell.v)

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.w, self.v = nn.Parameter(torch.randn(H, H)), nn.Parameter(torch.randn(H))
        self.m, self.row = nn.Parameter(torch.randn(H, 1)), nn.Parameter(torch.randn(1, H))
        self.layer = nn.Linear(H, H)
        self.register_buffer("place", torch.randperm(H))
        self.register_buffer("kept", torch.zeros(H))

    def step(self, gx, gh, state, dt=1.0):
        return self.State((gx + gh + type(self).function(self)).tanh())


# Several of these write in place to a tensor that they have made, or read its numbers.
ANY = {
    "v @ w": lambda c: c.v @ c.w, "w @ m": lambda c: (c.w @ c.m).squeeze(-1),
    "F.linear": lambda c: functional.linear(c.v, c.w), "nn.Linear": lambda c: c.layer(c.v),
    "einsum": lambda c: torch.einsum("ij,j->i", c.w, c.v), "solve": lambda c: torch.linalg.solve(c.w, c.v),
    "rms_norm": lambda c: functional.rms_norm(c.v, (H,)),
    "conv1d": lambda c: functional.conv1d(c.row[None], c.w[:1, None, :3], padding=1)[0, 0],
    "one_hot": lambda c: functional.one_hot(c.place, H).float() @ c.v,
}  # fmt: skip


def rnn(function):
    torch.manual_seed(0)
    return RNN([type("Own", (Own,), {"function": staticmethod(function)})(3, H)])


@pytest.mark.parametrize("name", ANY)
def test_its_numbers_and_gradients_are_those_of_the_function(name):
    """At each call, from the parameters as they are then."""
    cell = rnn(ANY[name]).layers[0]
    found = equations.known(cell, False)
    assert isinstance(found, equations.Equations), found
    for _ in range(2):
        (vector,), expected = found.vector_values(cell, cell.weight_ih), ANY[name](cell).reshape(H)
        close(vector, expected, 1e-6)
        wanted = [p for p in cell.parameters() if p.requires_grad]
        weights = torch.linspace(-1.0, 1.0, H)
        gradients = [torch.autograd.grad((v * weights).sum(), wanted, allow_unused=True) for v in (vector, expected)]
        assert any(g is not None for g in gradients[1])
        for a, b in zip(*gradients, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                close(a, b, 1e-6)
        with torch.no_grad():
            cell.v.mul_(1.5)
            cell.w.mul_(-0.7)


@pytest.mark.parametrize(("function", "reason"), [
    (lambda c: c.v.clone().mul_(2.0), "writes in place with mul_"),
    (lambda c: c.kept.add_(1.0) + c.v, "writes in place with add_"),
    (lambda c: torch.where(c.v > 0, c.v, c.kept.__setitem__(0, 1.0) or c.v), "writes in place with"),
    (lambda c: functional.dropout(c.v, 0.5, training=True), "draws random numbers with bernoulli_"),
    (lambda c: c.v * c.v.sum().item(), "reads numbers with item"),
    (lambda c: c.v if torch.allclose(c.v, c.v) else -c.v, "reads a number from a tensor"),
])  # fmt: skip
def test_what_has_an_effect_or_reads_is_still_refused(function, reason):
    found = equations.known(rnn(function).layers[0], False)
    assert isinstance(found, str)
    assert reason in found
