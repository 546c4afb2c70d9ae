"""The trial of a cell's kernels before their first use: a small sequence, compared with the eager engine in float64.

It finds what no test can know of: a step that the tracer misunderstood, or a fault of this machine's compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from timescales.nn.cells.cell import Cell
from timescales.nn.engine import eager
from timescales.nn.engine.trace import on_cpu

S, B, INPUTS = 4, 3, 2
# The largest difference, relative to the largest number of a tensor. More is allowed only where float32 itself is that
# far away: at most this many times the difference of the eager engine in float32.
TOLERANCE, TIMES_EAGER = 1e-3, 20.0

Run = Callable[..., tuple[Tensor, Any]]  # as `eager.run`, with the random numbers of the steps as one more argument


class Sequences(NamedTuple):
    """The arguments of the trial: tensors that get gradients by name, mask (S, B), and random numbers (S, B, H)."""

    tensors: dict[str, Tensor]
    mask: Tensor
    noise: list[Tensor]

    def to(self, dtype: torch.dtype) -> Sequences:
        """The same numbers in another dtype."""
        tensors = {name: v.to(dtype, copy=True).requires_grad_() for name, v in self.tensors.items()}
        return Sequences(tensors, self.mask, [v.to(dtype) for v in self.noise])


class Prepared(TorchFunctionMode):
    """torch.rand_like returns numbers that were drawn before, one tensor (B, H) for each call."""

    def __init__(self, noise: Sequence[Tensor]) -> None:
        super().__init__()
        # Of each step, one of each.
        self.numbers = iter([v for step in zip(*(n.unbind(0) for n in noise), strict=True) for v in step])

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return next(self.numbers) if func is torch.rand_like else func(*args, **(kwargs or {}))


def difference(cell: Cell, timed: bool, noises: int, run: Run) -> str | None:
    """What differs between `run` and the eager engine, in one line; None if nothing does.

    Forward and every gradient are compared, with the cell's own parameters, but random weights and biases.

    Arguments:
        timed: whether the sequence has dt. noises: number of torch.rand_like's in a step.
    """
    # In a thread of its own, no mode of the caller is active: autocast, inference mode, hooks on saved tensors.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_difference, cell, timed, noises, run).result()


def _difference(cell: Cell, timed: bool, noises: int, run: Run) -> str | None:
    random = torch.Generator().manual_seed(0)
    small = _with_random_weights(cell, random)
    H = small.hidden_size
    tensors = {"x": torch.randn(S, B, INPUTS, generator=random)}
    tensors |= {name: torch.rand(B, H, generator=random) for name in small.State._fields}
    if timed:
        tensors["dt"] = 0.5 + torch.rand(S, B, generator=random)
    mask = torch.rand(S, B, generator=random) < 0.8
    sequences = Sequences(tensors, mask, [torch.rand(S, B, H, generator=random) for _ in range(noises)])

    def results(run: Run, dtype: torch.dtype) -> dict[str, Tensor]:
        return _results(small, sequences.to(dtype), run, dtype)

    found, expected = results(run, torch.float32), results(_eager, torch.float64)
    if _furthest(found, expected)[1] <= TOLERANCE:
        return None
    rounded = results(_eager, torch.float32)
    name, error = _furthest(found, expected, rounded)
    if error <= TOLERANCE:
        return None
    return f"the compiled {type(cell).__name__} is wrong: {name} differs by {error:.1e} of its largest number"


def _with_random_weights(cell: Cell, random: torch.Generator) -> Cell:
    """A copy of a cell (of batched seeds, of the first) with few inputs, and random weights and biases."""
    small = on_cpu(cell, cell.weight_ih.dim() == 3)
    rows, H = cell.weight_ih.shape[-2], cell.hidden_size
    for name in cell.bias_names():
        setattr(small, name, nn.Parameter(torch.randn(rows, generator=random), getattr(cell, name).requires_grad))
    small.weight_ih = nn.Parameter(torch.randn(rows, INPUTS, generator=random), cell.weight_ih.requires_grad)
    small.weight_hh = nn.Parameter(torch.randn(rows, H, generator=random) / H**0.5, cell.weight_hh.requires_grad)
    assert isinstance(small, Cell)
    return small


def _eager(cell: Cell, x: Tensor, weights: Any, state: Any, dt: Any, mask: Any, noise: Any) -> tuple[Tensor, Any]:
    with Prepared(noise):
        return eager.run(cell, x, weights, state, dt, mask)


def _results(small: Cell, sequences: Sequences, run: Run, dtype: torch.dtype) -> dict[str, Tensor]:
    """The output, the last state, and every gradient, by name, in float64."""
    cell = on_cpu(small, False)
    cell.weight_ih, cell.weight_hh = (nn.Parameter(w.detach(), w.requires_grad) for w in small.weights()[:2])
    cell.to(dtype)
    assert isinstance(cell, Cell)
    tensors = sequences.tensors
    state = cell.State(*(tensors[name] for name in cell.State._fields))
    weights, dt = cell.weights(), tensors.get("dt")
    output, last = run(cell, tensors["x"], weights, state, dt, sequences.mask, sequences.noise)
    results = {"output": output} | {f"the last {name}": v for name, v in last._asdict().items()}
    # Each number gets another weight in the loss.
    loss = sum((v * torch.linspace(-1.0, k + 1.5, v.numel(), dtype=dtype).view_as(v)).sum() for k, v in enumerate(results.values()))
    wanted = tensors | {name: p for name, p in cell.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
    for name, like, gradient in zip(wanted, wanted.values(), gradients, strict=True):
        results[f"the gradient of {name}"] = torch.zeros_like(like) if gradient is None else gradient
    return {name: value.detach().double() for name, value in results.items()}


def _furthest(
    found: dict[str, Tensor], expected: dict[str, Tensor], rounded: dict[str, Tensor] | None = None
) -> tuple[str, float]:
    """The name of the tensor that differs most, and by how much, relative to its largest number.

    rounded: the eager engine in float32. What its rounding explains is not counted. Numbers of `expected` that are not
    finite are not compared.
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
