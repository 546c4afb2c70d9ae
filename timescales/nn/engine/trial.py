"""Try a cell's kernels before their first use: compare a small sequence with the eager engine in float64.

The trial finds what no test can: a custom step that the tracer misunderstood, or a fault of this machine's compiler.
"""

import contextvars
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import eager
from timescales.nn.engine.copies import tensors_on_cpu, with_tensors

S, B, INPUTS = 4, 3, 2
# The largest difference, relative to the largest number of a tensor. A larger one is allowed only where float32 itself
# is inexact: up to this many times the difference of the eager engine in float32.
TOLERANCE, TIMES_EAGER = 1e-3, 20.0

Run = Callable[..., tuple[Tensor, Any]]  # as `eager.run`, with the random numbers of the steps as one more argument


class Arguments(NamedTuple):
    """The arguments of the trial: tensors that get gradients, by name; mask (S, B); random numbers, (S, B, H) each."""

    tensors: dict[str, Tensor]
    mask: Tensor
    noise: list[Tensor]


class Prepared(TorchFunctionMode):
    """Let torch.rand_like return numbers that were drawn before, one tensor (B, H) for each call."""

    def __init__(self, noise: Sequence[Tensor]) -> None:
        super().__init__()
        # Of each step, one of each.
        self.numbers = iter([v for step in zip(*(n.unbind(0) for n in noise), strict=True) for v in step])

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return next(self.numbers) if func is torch.rand_like else func(*args, **(kwargs or {}))


def difference(cell: Cell, timed: bool, noises: int, run: Run) -> str | None:
    """Return what differs between `run` and the eager engine, in one line. Return None if nothing does.

    The output and every gradient are compared, with the cell's own parameters but random weights and biases.

    timed: whether the sequence has dt. noises: number of calls of torch.rand_like in a step.
    """
    # In a separate thread no mode of the caller is active: autocast, inference mode, hooks on saved tensors.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, _difference, cell, timed, noises, run).result()


def _difference(cell: Cell, timed: bool, noises: int, run: Run) -> str | None:
    results = functools.partial(_results, cell, _random_arguments(cell, timed, noises))
    found, expected = results(run, torch.float32), results(_eager, torch.float64)
    if _furthest(found, expected)[1] <= TOLERANCE:
        return None
    name, error = _furthest(found, expected, results(_eager, torch.float32))
    if error <= TOLERANCE:
        return None
    return f"its compiled {type(cell).__name__} is wrong: {name} differs by {error:.1e} of its largest number"


def _random_arguments(cell: Cell, timed: bool, noises: int) -> Arguments:
    random = torch.Generator().manual_seed(0)
    H, rows = cell.hidden_size, sum(map(cell.height, cell.gates))
    tensors = {"x": torch.randn(S, B, INPUTS, generator=random)}
    tensors |= {name: torch.rand(B, H, generator=random) for name in cell.State._fields}
    tensors |= {"weight_ih": torch.randn(rows, INPUTS, generator=random)}
    if cell.recurrent:
        tensors |= {"weight_hh": torch.randn(rows, H, generator=random) / H**0.5}
    tensors |= {name: torch.randn(rows, generator=random) for name in ("bias_ih", "bias_hh")[: cell.biases or 1]}
    if timed:
        tensors["dt"] = 0.5 + torch.rand(S, B, generator=random)
    mask = torch.rand(S, B, generator=random) < 0.8
    return Arguments(tensors, mask, [torch.rand(S, B, H, generator=random) for _ in range(noises)])


def _eager(cell: Cell, x: Tensor, weights: Any, state: Any, dt: Any, mask: Any, noise: Any) -> tuple[Tensor, Any]:
    with Prepared(noise):
        return eager.run(cell, x, weights, state, dt, mask)


def _results(cell: Cell, arguments: Arguments, run: Run, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return the output, the last state, and every gradient of a run in a dtype, by name, in float64."""
    cell = with_tensors(cell, tensors_on_cpu(cell, dtype))
    t = {name: v.to(dtype, copy=True).requires_grad_() for name, v in arguments.tensors.items()}
    weights = Weights(t["weight_ih"], t.get("weight_hh"), t["bias_ih"], t.get("bias_hh"))
    state = cell.State(*(t[name] for name in cell.State._fields))
    noise = [v.to(dtype) for v in arguments.noise]
    output, last = run(cell, t["x"], weights, state, t.get("dt"), arguments.mask, noise)
    results = {"the output": output} | {f"the last {name}": v for name, v in last._asdict().items()}
    # Each number has another weight in the loss.
    losses = [(v * torch.linspace(-1.0, 1.5, v.numel(), dtype=dtype).view_as(v)).sum() for v in results.values()]
    wanted = {name: p for name, p in cell.named_parameters() if p.requires_grad} | t
    gradients = torch.autograd.grad(torch.stack(losses).sum(), list(wanted.values()), allow_unused=True)
    for (name, value), gradient in zip(wanted.items(), gradients, strict=True):
        results[f"the gradient of {name}"] = torch.zeros_like(value) if gradient is None else gradient
    return {name: value.detach().double() for name, value in results.items()}


def _furthest(
    found: dict[str, Tensor], expected: dict[str, Tensor], rounded: dict[str, Tensor] | None = None
) -> tuple[str, float]:
    """Return the name of the tensor that differs most, and by how much, relative to its largest number.

    rounded: results of the eager engine in float32. A difference that this rounding explains does not count.
    Numbers of `expected` that are not finite are not compared.
    """
    errors = {}
    for name, exact in expected.items():
        finite = exact.isfinite()
        scale = float(exact[finite].abs().amax()) + 1e-3 if finite.any() else 1.0
        error, explained = (
            float((v[name] - exact)[finite].abs().nan_to_num(torch.inf).amax()) if v and finite.any() else 0.0
            for v in (found, rounded)
        )
        errors[name] = 0.0 if error <= TIMES_EAGER * explained else error / scale
    return max(errors.items(), key=lambda item: item[1])
