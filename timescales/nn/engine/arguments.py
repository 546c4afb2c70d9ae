"""Check the tensors of a call, so that every engine can rely on their shapes.

A custom cell may return any state and any weights. torch's operations broadcast them or raise an error, but a kernel
reads memory by the sizes of the call. So this runs before any engine: tensors are broadcast as the eager loop would
broadcast them, and anything else raises WrongShape with a message of one line.

Shapes: S steps, B sequences, I inputs, H units; x (S, B, I).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from timescales.errors import WrongShape
from timescales.nn.cells.cell import Cell, Weights


def fitted(
    cell: Cell,
    x: Tensor,
    weights: Weights,
    state: Any,
    dt: Tensor | None,
    mask: Tensor | None,
    reset: Tensor | None = None,
) -> tuple[Weights, Any]:
    """Return the weights and the state of a call, broadcast to the shapes that `eager.run` lists.

    Raises: WrongShape for a tensor that cannot be broadcast to them, and for x, dt, mask or reset of another shape.
    """
    name, ih = type(cell).__name__, weights.ih
    if x.dim() != 3 or ih.dim() != 2:
        sizes = f"x is {tuple(x.shape)}, weight_ih {tuple(ih.shape)}"
        raise WrongShape(f"{name} needs x (S, B, input) and weight_ih (rows, input): {sizes}")
    for key, value in (("dt", dt), ("mask", mask), ("reset", reset)):
        if value is not None and value.shape != x.shape[:-1]:
            raise WrongShape(f"{name}: {key} is {tuple(value.shape)}; give {tuple(x.shape[:-1])}, like x")
    weights = _fitted_weights(cell, x, weights)
    for key, value in (("x", x), ("weight_hh", weights.hh), ("a bias", weights.bias_ih), ("a bias", weights.bias_hh)):
        if value is None or _is_like(value, weights.ih) or torch.is_autocast_enabled(x.device.type):
            continue
        types = f"{value.dtype} on {value.device}, weight_ih {weights.ih.dtype} on {weights.ih.device}"
        raise WrongShape(f"{name}: {key} is {types}: convert one of them")
    return weights, fitted_state(cell, state, x.shape[1:-1], weights.ih)


def first_state(cell: Cell, *batch: int) -> Any:
    """Return `cell.initial_state(*batch)` with every field broadcast to (*batch, H). Raises WrongShape."""
    return fitted_state(cell, cell.initial_state(*batch), batch, cell.weight_ih)


def fitted_state(cell: Cell, state: Any, batch: Sequence[int], like: Tensor) -> Any:
    """Return the state with every field broadcast to (*batch, H), with gradients. Numbers become tensors.

    Only the eager engine runs a cell with compiled = False, so only its first field, h, is broadcast.

    Arguments:
        like: a tensor with the dtype and device of the weights, which the state must have too.

    Raises: WrongShape.
    """
    name, fields = type(cell).__name__, cell.State._fields
    if getattr(state, "_fields", None) != fields:
        expected = f"self.State({', '.join(fields)})"
        raise WrongShape(f"the state of {name} is a {type(state).__name__}: let initial_state return {expected}")
    shape = (*batch, cell.hidden_size)
    free = cell.compiled is False
    for field, value in zip(fields, state, strict=True):
        if free and field != fields[0]:
            continue
        if not (isinstance(value, Tensor) and value.shape == shape and _is_like(value, like)):
            state = state._replace(**{field: _broadcast(name, field, value, shape, like)})
    return state


def _is_like(value: Tensor, like: Tensor) -> bool:
    return value.dtype == like.dtype and value.device == like.device


def _broadcast(name: str, field: str, value: Any, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return a field of the state as a tensor of this shape. Raises WrongShape."""
    if isinstance(value, int | float):
        value = like.new_full((), value)
    if not isinstance(value, Tensor):
        raise WrongShape(f"{name}: the state's {field} is a {type(value).__name__}; give a tensor {shape}")
    # As torch's operations do: whole numbers, and single ones, take the type of the others.
    if not value.dim() or not (value.is_floating_point() or value.is_complex()):
        value = value.to(like)
    if not _is_like(value, like) and not torch.is_autocast_enabled(like.device.type):
        fix = f"let initial_state return it .to({str(like.device)!r}, {like.dtype}), as the weights are"
        raise WrongShape(f"{name}: the state's {field} is {value.dtype} on {value.device}: {fix}")
    try:
        return value.expand(shape)
    except RuntimeError:
        raise WrongShape(
            f"{name}: the state's {field} is {tuple(value.shape)}, not (batch, hidden) = {shape}: correct initial_state"
        ) from None


def _fitted_weights(cell: Cell, x: Tensor, weights: Weights) -> Weights:
    """Return the weights with one bias for every row. Raises WrongShape if a matrix or a bias does not fit."""
    ih, hh, bias_ih, bias_hh = weights
    name = type(cell).__name__
    free = cell.compiled is False  # such a cell may have other rows, as the RMC has
    rows = len(ih) if free else sum(map(cell.height, cell.gates))
    if not free and (hh is None) == cell.recurrent:
        raise WrongShape(f"{name}: weight_hh is {'missing' if hh is None else 'given'}, recurrent = {cell.recurrent}")
    for key, value, size in (("weight_ih", ih, x.shape[-1]), ("weight_hh", hh, cell.hidden_size)):
        if value is not None:
            shape = (len(value) if free and value.dim() > 1 else rows, size)
            if value.shape != shape:
                raise WrongShape(f"{name}: {key} is {tuple(value.shape)}; it must be {shape}, (rows of all gates, n)")
    if bias_ih is None:
        bias_ih = ih.new_zeros(rows)
    elif bias_ih.shape != (rows,):
        bias_ih = _bias(name, "bias_ih" if cell.biases == 2 else "bias", bias_ih, rows)
    if hh is None:
        bias_hh = None
    elif bias_hh is not None and bias_hh.shape != (len(hh),):
        bias_hh = _bias(name, "bias_hh", bias_hh, len(hh))
    return weights._replace(bias_ih=bias_ih, bias_hh=bias_hh)


def _bias(name: str, key: str, value: Tensor, rows: int) -> Tensor:
    """Return a bias with one number for every row. Raises WrongShape."""
    try:
        return value.expand(rows)
    except RuntimeError:
        raise WrongShape(f"{name}: {key} is {tuple(value.shape)}; it must be {(rows,)}, one number a row") from None
