"""Cells beside implementations that are not ours: outputs and gradients with the same weights."""

import functools
from collections.abc import Callable

import LRU_pytorch
import ncps.torch
import pararnn.cells
import pytest
import torch
import torch_eunn
import torchrecurrent
from torch import Tensor, nn
from torch.func import functional_call
from xlstm.blocks.slstm.src.vanilla.slstm import slstm_forward_pointwise

import timescales
from timescales.nn.cells import urnn

S, B, I, N = 9, 3, 4, 6  # noqa: E741
Call = Callable[..., tuple[Tensor, Tensor]]


def close(found: list[Tensor], expected: list[Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def made(name: str, **arguments: object) -> tuple[timescales.CellRNN, nn.Module]:
    """A layer of ours, and its cell."""
    torch.manual_seed(0)
    layer = getattr(timescales, name)(I, N, **arguments).double()
    return layer, layer.layers[0]


def stepwise(call: Call, x: Tensor) -> Tensor:
    """The outputs of a cell with two fields in its state, (S, B, H)."""
    h = c = torch.zeros(B, N, dtype=x.dtype)
    steps = []
    for step in x:
        h, c = call(step, (h, c))
        steps.append(h)
    return torch.stack(steps)


def check(
    layer: nn.Module, theirs: nn.Module, weights: dict[str, Tensor], run: Callable = stepwise, dt: Tensor | None = None
) -> None:
    """Outputs of ours and theirs are equal, and gradients for our weights, of which theirs are made.

    weights: those of theirs by name; the others are 0.
    """
    given = {name: torch.zeros_like(p) for name, p in theirs.double().named_parameters()} | weights
    x = torch.randn(S, B, I, dtype=torch.float64)
    found, expected = layer(x, dt=dt)[0], run(lambda *words: functional_call(theirs, given, words), x)
    own = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    gradients = ([*torch.autograd.grad(output.square().sum(), own)] for output in (found, expected))
    close([found, *next(gradients)], [expected, *next(gradients)])


def test_indrnn_is_torchrecurrents() -> None:
    ours, cell = made("IndRNN")
    theirs = torchrecurrent.IndRNNCell(I, N, nonlinearity="relu")
    weights = {"weight_ih": cell.weight_ih, "vector_u": cell.u, "bias_ih": cell.bias}

    def run(call: Callable[..., Tensor], x: Tensor) -> Tensor:
        return stepwise(lambda step, state: (call(step, state[0]), state[1]), x)

    check(ours, theirs, weights, run)


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_janet_is_torchrecurrents(beta: float) -> None:
    ours, cell = made("JANET", beta=beta)
    weights = {"weight_ih": cell.weight_ih, "weight_hh": cell.weight_hh, "bias_ih": cell.bias}
    check(ours, torchrecurrent.JANETCell(I, N), weights | {"beta": torch.tensor(beta, dtype=torch.float64)})


@pytest.mark.parametrize("delta", [0.5, 1.0])
def test_lem_is_torchrecurrents_with_the_new_z(delta: float) -> None:
    """Theirs multiplies the z of the last step where the paper's equation 3 has the new one: that is given to it."""
    ours, cell = made("LEM", delta=delta)
    hh, ch = cell.weight_hh.split([3 * N, N])
    weights = {"weight_ih": cell.weight_ih, "weight_hh": hh, "weight_ch": ch, "bias_ih": cell.bias}

    def run(call: Call, x: Tensor) -> Tensor:
        def step(part: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            z = call(part, state)[1]
            return call(part, (state[0], z))[0], z

        return stepwise(step, x)

    check(ours, torchrecurrent.LEMCell(I, N, dt=delta), weights, run)


def test_cornn_is_torchrecurrents() -> None:
    ours, cell = made("CoRNN")
    theirs = torchrecurrent.coRNNCell(I, N, dt=cell.delta, gamma=cell.gamma, epsilon=cell.epsilon)
    weights = {"weight_ih": cell.weight_ih, "weight_hh": cell.weight_hh, "weight_ch": cell.weight_zh}
    check(ours, theirs, weights | {"bias_ih": cell.bias})


@pytest.mark.parametrize("dt", [False, True])
def test_cfc_is_ncps(dt: bool) -> None:
    """Theirs without a backbone. It has a matrix for each part, of the input and the state side by side."""
    ours, cell = made("CfC")
    parts = ("ff1", "ff2", "time_a", "time_b")
    matrices = torch.cat([cell.weight_ih, cell.weight_hh], -1).chunk(4)
    weights = {f"{part}.weight": matrix for part, matrix in zip(parts, matrices, strict=True)}
    weights |= {f"{part}.bias": bias for part, bias in zip(parts, cell.bias.chunk(4), strict=True)}
    spans = torch.rand(S, B, dtype=torch.float64) + 0.5 if dt else torch.ones(S, B, dtype=torch.float64)
    spans_of = iter(spans)

    def run(call: Callable, x: Tensor) -> Tensor:
        return stepwise(lambda step, state: call(step, state[0], next(spans_of).unsqueeze(-1)), x)

    check(ours, ncps.torch.CfCCell(I, N, backbone_layers=0), weights, run, spans if dt else None)


@pytest.mark.parametrize("name", ["ParaGRU", "ParaLSTM"])
def test_diagonal_recurrence_is_pararnns(name: str) -> None:
    """Theirs without its cut of the recurrent weights. The update gate of its GRU is 1 - f."""
    ours, cell = made(name)
    if name == "ParaGRU":
        signs = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64).repeat_interleave(N)
        theirs, diagonals = pararnn.cells.ParaGRU(I, N, max_recurrent_norm=None), ("a_z", "a_r", "a_n")
        weights = {}
    else:
        signs = torch.ones(3 * N, dtype=torch.float64)
        theirs, diagonals = pararnn.cells.ParaLSTM(I, N, max_recurrent_norm=None), ("a_f", "a_z", "a_o")
        weights = dict(zip(("c_f", "c_o"), cell.peephole.chunk(2), strict=True))
    weights |= dict(zip(diagonals, (signs * cell.diagonal).chunk(3), strict=True))
    weights |= {"W_x.weight": signs.unsqueeze(-1) * cell.weight_ih, "W_x.bias": signs * cell.bias}
    theirs.forward = theirs.step

    def run(call: Callable[..., Tensor], x: Tensor) -> Tensor:
        if name == "ParaGRU":
            return stepwise(lambda step, state: (call(state[0], step), state[1]), x)
        return stepwise(lambda step, state: call(torch.stack([state[1], state[0]], 1), step).flip(1).unbind(1), x)

    check(ours, theirs, weights, run)


def test_slstm_is_xlstms() -> None:
    """Theirs keeps the sums c and n and the stabiliser m, ours c / n and m + ln n."""
    ours, cell = made("SLSTM")

    class Theirs(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            states, steps = torch.zeros(4, B, N, dtype=x.dtype), []
            for step in x:
                own = cell.weight_ih, cell.weight_hh, cell.bias
                states, _ = slstm_forward_pointwise(step @ own[0].mT, states[0] @ own[1].mT, own[2], states, {})
                steps.append(states[0])
            return torch.stack(steps)

    check(ours, Theirs(), {}, lambda call, x: call(x))


def test_lru_is_lru_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs with the output Re x: C is the identity, D is 0. Its buffers have torch's default type."""
    ours, cell = made("LRU")
    cell.bias.requires_grad_(False)  # theirs has none; ours begins with 0
    B_matrix = torch.complex(*cell.weight_ih.chunk(2))
    weights = {name: getattr(cell, name) for name in ("nu_log", "theta_log", "gamma_log")}
    weights |= {"B": B_matrix, "C": torch.eye(N, dtype=B_matrix.dtype)}
    monkeypatch.setattr(torch, "empty", functools.partial(torch.empty, dtype=torch.float64))
    theirs = LRU_pytorch.LRU(I, N, N)
    theirs.state = theirs.state.to(B_matrix.dtype)
    check(ours, theirs, weights, lambda call, x: call(x.transpose(0, 1)).transpose(0, 1))


def test_eurnn_is_torch_eunns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs has a rotation of the last unit with the first, no phases after the rotations, and real inputs.

    Without the first, with ours set to the other two, both are the same. The 1e-5 that theirs adds to the modulus, and
    ours in quadrature, is set to 0.
    """
    monkeypatch.setattr(urnn, "SMALL", 0.0)
    torch.manual_seed(0)
    theirs = torch_eunn.EURNN(I, N, capacity=2, output_type="complex").double()
    ours = timescales.EURNN(I, 2 * N, capacity=2).double()
    cell, x = ours.layers[0], torch.randn(S, B, I, dtype=torch.float64)
    even, odd = cell.theta.split([N // 2, N // 2 - 1])
    even_phi, odd_phi = cell.phi.split([N // 2, N // 2 - 1])
    with torch.no_grad():
        cell.phases.zero_()
        cell.weight_ih.zero_()
        cell.weight_ih[:N] = theirs.input_layer.weight
        theirs.input_layer.bias.zero_()
        cell.bias.copy_(theirs.modrelu.bias[0])
        angles = theirs.hidden_layer.angles  # by row phi, theta of each pair; a column for the even, one for the odd
        angles.zero_()
        angles[0::2, 0], angles[1::2, 0] = even_phi, even
        angles[0:-2:2, 1], angles[1:-2:2, 1] = odd_phi, odd
    theirs.modrelu.forward = functools.partial(theirs.modrelu.forward, eps=0.0)
    output = ours(x)[0].unflatten(-1, (2, N)).movedim(-2, -1)
    expected = theirs(x)[0]
    found = list(torch.autograd.grad(output.square().sum(), [cell.theta, cell.phi, cell.bias], retain_graph=True))
    by_angle, by_bias = torch.autograd.grad(expected.square().sum(), [angles, theirs.modrelu.bias], retain_graph=True)
    thetas, phis = (torch.cat([by_angle[k::2, 0], by_angle[k:-2:2, 1]]) for k in (1, 0))
    close([output, *found], [expected, thetas, phis, by_bias[0]])
