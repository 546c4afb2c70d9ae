"""What the training loop does with any optimizer: scaled steps, weights to evaluate with, the validation losses."""

from __future__ import annotations

import contextlib

from torch.optim import Optimizer

from timescales.training.stack import StackedOptimizer


def eval_weights(optimizer: Optimizer | StackedOptimizer) -> contextlib.AbstractContextManager[None]:
    """The context in which to evaluate: the optimizer's own `eval_weights`, or nothing if it has none."""
    return optimizer.eval_weights() if hasattr(optimizer, "eval_weights") else contextlib.nullcontext()


def observe(optimizer: Optimizer, loss: float) -> None:
    """Tell an optimizer that has `observe` a validation's loss."""
    if hasattr(optimizer, "observe"):
        optimizer.observe(loss)


def step(optimizer: Optimizer | StackedOptimizer, lr_scale: float | None = None) -> None:
    """One step of the optimizer.

    lr_scale: factor of its learning rates in this step alone; None for 1. A `StackedOptimizer` takes None only.
    """
    if lr_scale is None:
        optimizer.step()
        return
    assert isinstance(optimizer, Optimizer), "see reason_not_batched"
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] *= lr_scale
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
