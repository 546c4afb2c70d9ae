"""NT-ASGD, the optimizer of the AWD-LSTM."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim import Optimizer

from timescales.nn.inits import is_number


class NTASGD(Optimizer):
    """Non-monotonically triggered averaged SGD: SGD that starts to average its weights when validation stops improving.

        SGD     w = w - lr (g + weight_decay w)
        ASGD    as SGD; the weights for evaluation are the average of w since averaging started

    Averaging starts after a validation with loss v if there were more than `nonmono` validations before it, and v is
    greater than the minimum of all of them except the last `nonmono`. It never stops.

    Arguments:
        params: parameters, as for any torch optimizer.
        lr: learning rate. Default: 30.
        weight_decay: L2 penalty. Default: 1.2e-6.
        nonmono: number of recent validations that are ignored. Default: 5.

    Call `observe(loss)` after each validation, and evaluate inside `with optimizer.eval_weights():`.

    Source: Merity, Keskar & Socher 2018 (AWD-LSTM), with the rule of their code, which differs from the paper's
    algorithm 1. Averaging is that of torch.optim.ASGD with t0 = 0 and lambd = 0, which the authors use: from the second
    step on, the average does not include the first one, and a step uses the learning rate of the step before, so a
    scaled lr takes effect one step late.
    Note: a parameter without a gradient is neither decayed nor averaged. The validation losses are stored in the
    parameter groups, so `state_dict` has all that a resumed run needs.
    """

    def __init__(self, params: Any, lr: float = 30.0, weight_decay: float = 1.2e-6, nonmono: int = 5) -> None:
        for name, value, least in (("lr", lr, 0), ("weight_decay", weight_decay, 0), ("nonmono", nonmono, 1)):
            if not is_number(value) or value < least:
                raise ValueError(f"{name} must be a number of at least {least}, not {value!r}")
        defaults = {"lr": lr, "weight_decay": weight_decay, "nonmono": nonmono, "losses": (), "averaging": False}
        super().__init__(params, defaults | {"rate": None, "averaged": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None, "no closure is needed"
        for group in self.param_groups:
            rate = group["lr"] if group["rate"] is None else group["rate"]
            weight = 1.0 / max(1, group["averaged"])  # weight of the new value in the average
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.add_(p.grad.add(p, alpha=group["weight_decay"]), alpha=-rate)
                if group["averaging"]:
                    state = self.state[p]
                    if "average" not in state:  # setdefault would clone at every step
                        state["average"] = p.clone()
                    state["average"].lerp_(p, weight)
            if group["averaging"]:
                group["rate"] = group["lr"]
                group["averaged"] += 1

    def observe(self, loss: float) -> None:
        """Record the loss of a validation, which may start the averaging."""
        for group in self.param_groups:
            if not group["averaging"]:
                before, nonmono = group["losses"], group["nonmono"]
                group["averaging"] = len(before) > nonmono and loss > min(before[:-nonmono])
                group["losses"] = (*before, loss)

    @contextlib.contextmanager
    def eval_weights(self) -> Iterator[None]:
        """Give the parameters their averaged values inside this context."""
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
