"""Treat all optimizers alike: learning rates, the weights to evaluate with, and validation losses."""

from __future__ import annotations

import contextlib
import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from timescales.config.schema import LoopSettings
from timescales.errors import ConfigError


def eval_weights(optimizer: Optimizer) -> contextlib.AbstractContextManager[None]:
    """Return the context in which to evaluate: the optimizer's own `eval_weights`, or nothing if it has none."""
    return optimizer.eval_weights() if hasattr(optimizer, "eval_weights") else contextlib.nullcontext()


def observe(optimizer: Optimizer, loss: float) -> None:
    """Give the loss of a validation to an optimizer that has `observe`."""
    if hasattr(optimizer, "observe"):
        optimizer.observe(loss)


def schedule(optimizer: Optimizer, settings: LoopSettings, last_step: int, steps_taken: int) -> LambdaLR | None:
    """Return the scheduler of the learning rate, or None for a constant rate. Step it after each training step.

    The rate depends only on the step. A resume also needs the optimizer's state, which has the initial rate.

    Args:
        last_step: the step at which training ends.
        steps_taken: the number of steps taken so far.
    """
    if settings.schedule == "none" and not settings.warmup:
        return None
    if settings.warmup >= last_step:
        raise ConfigError(f"loop.warmup={settings.warmup} must be below the number of training steps, {last_step}")

    def factor(step: int) -> float:
        """Return the learning rate after a number of steps, as a factor of the initial rate."""
        if step < settings.warmup:
            return (step + 1) / (settings.warmup + 1)
        done = min((step - settings.warmup) / (last_step - settings.warmup), 1.0)
        if settings.schedule == "cosine":
            return (1 + math.cos(math.pi * done)) / 2
        if settings.schedule == "step":
            assert settings.step_size is not None, "see config/schema.py"
            return settings.gamma ** ((step - settings.warmup) // settings.step_size)
        return 1 - done if settings.schedule == "linear" else 1.0

    return LambdaLR(optimizer, factor, last_epoch=steps_taken - 1)


def step(optimizer: Optimizer, lr_scale: float | None = None) -> None:
    """Take one step of an optimizer.

    lr_scale: multiplies its learning rates, only in this step. None: 1.
    """
    if lr_scale is None:
        optimizer.step()
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] *= lr_scale
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
