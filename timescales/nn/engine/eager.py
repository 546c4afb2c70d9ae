"""The time loop in plain torch: the readable truth that every other engine is tested against."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell, Weights


def run(
    cell: Cell, x: Tensor, weights: Weights, state: Any, dt: Tensor | None = None, mask: Tensor | None = None
) -> tuple[Tensor, Any]:
    """Run a cell over a sequence.

    x: (S, B, I); dt: (S, B) time since the previous step; mask: (S, B), 0 where a step does not exist.
    Returns the outputs h of every step, (S, B, H), and the final state. A masked step holds every field of the state,
    so its output is the held h. A leading replica dimension, x (S, R, B, I) with weights (R, G*H, I), works too.
    """
    x, dt = blanked(x, dt, mask)
    outputs = []
    # Under autocast the products alone are in half precision: near 1 it has no gates but 1, which never forget.
    wide = state.h.dtype
    # unbind, never gx[t]: under autograd each indexing would allocate a gradient of the whole sequence.
    projected = project(x, weights.ih, weights.bias_ih).to(wide).unbind(0)
    steps = dt.unsqueeze(-1).unbind(0) if dt is not None else [1.0] * len(projected)
    masks = mask.bool().unsqueeze(-1).unbind(0) if mask is not None else None
    for t, gx in enumerate(projected):
        new = cell.step(gx, project(state.h, weights.hh, weights.bias_hh).to(wide), state, steps[t])
        if masks is not None:
            new = type(new)(*(torch.where(masks[t], after, before) for after, before in zip(new, state, strict=True)))
        state = new
        outputs.append(state.h)
    return (torch.stack(outputs) if outputs else x.new_zeros(*x.shape[:-1], cell.hidden_size)), state


def blanked(x: Tensor, dt: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """x and dt, overwritten at steps that do not exist: NaN there, times 0, would reach the gradients."""
    if mask is None:
        return x, dt
    nothing = ~mask.bool()
    return x.masked_fill(nothing.unsqueeze(-1), 0.0), None if dt is None else dt.masked_fill(nothing, 1.0)


def project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b; with a leading replica dimension on W (R, O, I) and b (R, O), of x (R, B, I) or (S, R, B, I)."""
    if weight.dim() == 2:
        return torch.nn.functional.linear(x, weight, bias)
    if x.dim() == 4:  # one product for each replica, not for each step
        S, R, B, _ = x.shape
        folded = x.transpose(0, 1).reshape(R, S * B, -1)
        return project(folded, weight, bias).view(R, S, B, -1).transpose(0, 1)
    return x @ weight.mT if bias is None else torch.baddbmm(bias.unsqueeze(-2), x, weight.mT)
