"""Cells beside implementations that are not ours: outputs and gradients with the same weights."""

import functools

import torch
import torch_eunn
import torchrecurrent
from torch import Tensor

import timescales

S, B, I, N = 9, 3, 4, 6  # noqa: E741


def close(found: list[Tensor], expected: list[Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_indrnn_is_torchrecurrents() -> None:
    theirs = torchrecurrent.IndRNNCell(I, N, nonlinearity="relu").double()
    torch.manual_seed(0)
    ours = timescales.IndRNN(I, N).double()
    cell = ours.layers[0]
    weights, others = [cell.weight_ih, cell.u, cell.bias], [theirs.weight_ih, theirs.vector_u, theirs.bias_ih]
    with torch.no_grad():  # their second bias is 0 from the start
        for own, other in zip(weights, others, strict=True):
            other.copy_(own)
    x = torch.randn(S, B, I, dtype=torch.float64)
    h, steps = torch.zeros(B, N, dtype=torch.float64), []
    for t in range(S):
        h = theirs(x[t], h)
        steps.append(h)
    output, expected = ours(x)[0], torch.stack(steps)
    found = torch.autograd.grad(output.square().sum(), weights)
    close([output, *found], [expected, *torch.autograd.grad(expected.square().sum(), others)])


def test_eurnn_is_torch_eunns() -> None:
    """Theirs has a rotation of the last unit with the first, no phases after the rotations, and real inputs.

    Without the first, with ours set to the other two, both are the same. The 1e-5 that theirs adds to the modulus is
    set to 0; ours adds it in quadrature.
    """
    theirs = torch_eunn.EURNN(I, N, capacity=2, output_type="complex").double()
    torch.manual_seed(0)
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
