"""NT-ASGD, and what the loop does with any optimizer: scaled steps, weights to evaluate with, telling it the loss."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim import Optimizer

from timescales.nn.inits import is_number


class NTASGD(Optimizer):
    """SGD that turns into averaged SGD when validation has stopped improving (non-monotonically triggered ASGD).

    Source: Merity, Keskar & Socher 2018 (AWD-LSTM), with the rule of their code, which is not quite the paper's
    algorithm 1: after a validation with loss v, averaging begins if there were more than `nonmono` validations before
    and v is above the lowest of all of them but the last `nonmono`. It never ends.

        SGD     w = w - lr (g + weight_decay w)
        ASGD    the same, and the average of w over the steps since; the average is what is evaluated

    Averaging is torch.optim.ASGD's with t0 = 0 and lambd = 0, to which the authors switch: the first step is left out
    of the average as soon as there is a second, and a step uses the rate of the step before (torch computes the next
    rate when a step is done), so that a scaled lr acts one step late.
    A parameter that gets no gradient is neither decayed nor averaged.
    The trigger and the validation losses lie in the parameter groups: `state_dict` has all that a resume needs.
    """

    def __init__(self, params: Any, lr: float = 30.0, weight_decay: float = 1.2e-6, nonmono: int = 5) -> None:
        for name, value, least in (("lr", lr, 0), ("weight_decay", weight_decay, 0), ("nonmono", nonmono, 1)):
            if not is_number(value) or value < least:
                raise ValueError(f"{name} must be a number of at least {least}, not {value!r}")
        start = {"lr": lr, "weight_decay": weight_decay, "nonmono": nonmono, "losses": (), "averaging": False}
        super().__init__(params, start | {"rate": None, "averaged": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None, "no closure is needed"
        for group in self.param_groups:
            rate = group["lr"] if group["rate"] is None else group["rate"]
            weight = 1.0 / max(1, group["averaged"])  # of the new w in its average
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.add_(p.grad.add(p, alpha=group["weight_decay"]), alpha=-rate)
                if group["averaging"]:
                    state = self.state[p]
                    if "average" not in state:  # no setdefault: it would clone at every step
                        state["average"] = p.clone()
                    state["average"].lerp_(p, weight)
            if group["averaging"]:
                group["rate"] = group["lr"]
                group["averaged"] += 1

    def observe(self, loss: float) -> None:
        """Note a validation's loss, which may begin the averaging."""
        for group in self.param_groups:
            if not group["averaging"]:
                before, kept = group["losses"], group["nonmono"]
                group["averaging"] = len(before) > kept and loss > min(before[:-kept])
                group["losses"] = (*before, loss)

    @contextlib.contextmanager
    def eval_weights(self) -> Iterator[None]:
        """Within it the parameters hold their averages; afterwards what they held before."""
        averaged = [p for p, state in self.state.items() if "average" in state]
        before = [p.detach().clone() for p in averaged]
        with torch.no_grad():
            for p in averaged:
                p.copy_(self.state[p]["average"])
        try:
            yield
        finally:
            with torch.no_grad():
                for p, value in zip(averaged, before, strict=True):
                    p.copy_(value)
