"""Inputs, gradients and comparisons of the uses."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from rnn_cases import B, I, S
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from uses.layers import Layer

TOLERANCE = 1e-5  # of float32; the engines sum in different orders


def data(*shape: int, seed: int = 1, **options: Any) -> Tensor:
    """Random numbers, by default an input (S, B, I)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*(shape or (S, B, I)), generator=generator, **options)


def fields(state: Any) -> list[Tensor]:
    """The tensors (layers, B, H) of a state, in the order h, c, age."""
    return pytree.tree_leaves(state)


def with_fields(state: Any, values: list[Tensor]) -> Any:
    """A state of the same kind with other tensors."""
    return pytree.tree_unflatten(values, pytree.tree_structure(state))


def plain(module: nn.Module) -> nn.Module:
    """A copy of a module on the eager engine."""
    duplicate = copy.deepcopy(module)
    if hasattr(duplicate, "engine"):
        duplicate.engine = "eager"
    return duplicate


def loss_of(output: Tensor) -> Tensor:
    """A loss whose gradient is different for every element."""
    output = output.to(torch.promote_types(output.dtype, torch.float32))
    return (output.sin() * torch.arange(1.0, output.numel() + 1).view(output.shape)).sum()


def trained(module: nn.Module, x: Tensor, state: Any = None) -> list[Tensor]:
    """Output and gradients of one forward and backward pass: of x where it requires one, and of every parameter.

    Where a state is given, the gradient of a first state that is learned is zero.
    """
    output, _ = module(x) if state is None else module(x, state)
    wanted = [t for t in (x, *module.parameters()) if t.requires_grad]
    return [output, *torch.autograd.grad(loss_of(output), wanted, materialize_grads=state is not None)]


def close(found: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    """Assert that tensors, or lists of tensors, are equal up to rounding."""
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def close_in_size(
    layer: Layer, found: Iterable[Tensor], expected: Iterable[Tensor], tolerance: float = TOLERANCE
) -> None:
    """As `close`, and up to the layer's `roundings`: small sums have the errors of their terms."""
    rounding = layer.roundings * torch.finfo(torch.float32).eps
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e, rtol=tolerance, atol=tolerance + rounding * e.abs().max().item())


def same(found: Iterable[Tensor], expected: Iterable[Tensor]) -> None:
    """Assert that tensors are bitwise equal."""
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)
