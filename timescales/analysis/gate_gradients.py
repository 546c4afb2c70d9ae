"""How large are a gate's gradients at a given activation?

Source: Gu et al. 2020, appendix C, Eq. 35 and Fig. 3: a sigmoid gate's gradient at activation g is g (1 - g); a refined
gate's is never smaller and up to twice as large: over all forget gates f that reach g, it lies between two bounds.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.common import needs_forget_gates, part, replaced
from timescales.analysis.run import Run
from timescales.analysis.study import Study
from timescales.errors import ConfigError
from timescales.nn.cells.gates import refined
from timescales.tasks import Task
from timescales.training.model import SequenceModel

SEQUENCES, STEPS, POINTS = 8, 100, 2000  # sequences read; steps of each looked at; gates drawn
NEAR = 1e-5  # the picture reaches as near to an activation of 1


def study(run: Run) -> Study:
    """Gradient of a unit's forget gate in its own pre-activations (norm over the gates that it depends on), by formula
    for sigmoid and refined gates, and by autograd for gates of the run while it reads test sequences.

    Rows: 2,000 gates of the run: layer, unit, activation, gradient by autograd; at that activation a sigmoid's gradient
    and the two bounds of a refined gate. Values: medians of the run's activations and gradients, the median of its
    gradient over a sigmoid's at the same activation, and `formula_error`, the largest difference of the formulas from
    autograd at 10,000 random pre-activations.
    """
    layers, units, g, gradient = observed(run.model, run.task)
    inside = g.clamp(1e-12, 1.0 - 1e-12)
    sigmoid, (low, high) = inside * (1.0 - inside), refine_gradient_bounds(inside, 1001)
    columns = {"layer": layers, "unit": units, "gate": g, "gradient": gradient}
    columns |= {"sigmoid": sigmoid, "refine_low": low, "refine_high": high}
    rows = [dict(zip(columns, line, strict=True)) for line in zip(*(v.tolist() for v in columns.values()), strict=True)]
    values = {
        "gate_median": float(g.median()), "gradient_median": float(gradient.median()),
        "over_sigmoid_median": float((gradient / sigmoid).median()), "formula_error": formula_error(),
    }  # fmt: skip
    title = "Gradient of a gate in its pre-activations, by its activation"
    return Study(title, rows, values, lambda figure: draw(figure, g, gradient, run))


def refine_gradient(f: Tensor, g: Tensor) -> Tensor:
    """Norm of the gradient of an effective gate g in the pre-activations of f and r (Gu et al. 2020, Eq. 35).

    g lies between f^2 and 1 - (1 - f)^2, and 0 < f < 1. A sigmoid gate's gradient at g is g (1 - g).
    """
    above = g - f * f
    in_forget = above * (1.0 - 2.0 * f) + 2.0 * f * f * (1.0 - f)
    in_refine = above * (1.0 - above / (2.0 * f * (1.0 - f)))
    return (in_forget.square() + in_refine.square()).sqrt()


def refine_gradient_bounds(g: Tensor, points: int = 10_001) -> tuple[Tensor, Tensor]:
    """Least and greatest `refine_gradient` at activations g (n,) inside (0, 1), over all f that reach g (Fig. 3b)."""
    g = g.unsqueeze(-1)
    low, high = 1.0 - (1.0 - g).sqrt(), g.sqrt()
    norms = refine_gradient(low + (high - low) * torch.linspace(0.0, 1.0, points, dtype=g.dtype), g)
    return norms.min(-1).values, norms.max(-1).values


def by_autograd(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The refined gate of pre-activations x and y (n,), and the norm of its gradient in both."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    g = refined(x.sigmoid(), y.sigmoid())
    return g.detach(), torch.stack(torch.autograd.grad(g.sum(), (x, y))).norm(dim=0)


def formula_error() -> float:
    """Largest difference between formula and autograd, for a sigmoid and a refined gate, at random pre-activations."""
    x, y = 4.0 * torch.randn(2, 10_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    g, norm = by_autograd(x, y)
    z = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(z.sigmoid().sum(), z)
    f = x.sigmoid()
    return max(float((refine_gradient(f, g) - norm).abs().max()), float((f * (1.0 - f) - slope).abs().max()))


def observed(model: SequenceModel, task: Task) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Layers, units, forget gates and norms of their gradients of up to 2,000 gates, (n,) each, float64.

    Drawn at random from 100 steps of 8 test sequences. Raises ConfigError where a forget gate is not a function of its
    own unit's pre-activations.
    """
    needs_forget_gates(model)
    for cell in model.rnn.layers:
        mechanism = getattr(cell, "mechanism", None)
        if mechanism and (mechanism.main == "cumax" or mechanism.auxiliary == "master"):
            raise ConfigError(f"this question is for gates of one unit each: those of gate={cell.gate} hang on others")
    exact = copy.deepcopy(model).double()
    batch = part(next(iter(task.batches("test"))), slice(SEQUENCES))
    every = -(-len(batch.x) // STEPS)
    exists = task.exists(batch).cpu()
    found: list[tuple[Tensor, ...]] = []

    def read(layer: int, step: int, cell: Any, act: Callable, gx: Tensor, gh: Tensor, *rest: Any) -> None:
        if step % every:
            return
        with torch.enable_grad():
            x = gx.detach().requires_grad_()
            forget = act(x, gh.detach(), *rest).forget
            (slopes,) = torch.autograd.grad(forget.sum(), x)
        norm = torch.stack(list(cell.by_gate(slopes).values())).norm(dim=0)
        units = torch.arange(forget.shape[-1]).expand(forget.shape)
        rows = exists[step]
        own = (torch.full_like(units, layer + 1), units, forget.detach().cpu(), norm.cpu())
        found.append(tuple(v[rows].flatten() for v in own))

    with torch.no_grad(), called(exact, read):
        exact(batch)
    layers, units, g, gradient = (torch.cat(parts) for parts in zip(*found, strict=True))
    some = torch.randperm(len(g), generator=torch.Generator().manual_seed(0))[:POINTS]
    return layers[some], units[some], g[some], gradient[some]


def called(model: SequenceModel, read: Callable) -> contextlib.AbstractContextManager[None]:
    """Within it the model runs on the eager engine, and `read(layer, step, cell, act, *arguments)` is called before
    every step's `cell.act(*arguments)`."""

    def reporting(layer: int, cell: Any, act: Callable) -> Callable:
        step = -1

        def reported(*arguments: Any) -> Any:
            nonlocal step
            step += 1
            read(layer, step, cell, act, *arguments)
            return act(*arguments)

        return reported

    return replaced(model, reporting)


def draw(figure: Any, g: Tensor, gradient: Tensor, run: Run) -> None:
    """Left: all activations. Right: those near 1 by their distance from it, where memory is long."""
    left, right = plotting.panels(figure, 2, width=12.0, height=4.6)
    away = torch.logspace(torch.tensor(NEAR).log10(), -0.0458, 300, dtype=torch.float64)  # from NEAR to .9
    grid = torch.linspace(0.002, 0.998, 400, dtype=torch.float64)
    sigmoid, refine = plotting.colour({"model": "lstm"}), plotting.colour({"model": "ur"})
    for axis, points, x in ((left, grid, grid), (right, 1.0 - away, away)):
        low, high = refine_gradient_bounds(points, 2001)
        axis.fill_between(x, low, high, color=refine, alpha=0.18, lw=0, label="refined gate, eq. 35: least to most")
        axis.plot(x, high, color=refine, lw=1)
        axis.plot(x, low, color=refine, lw=1)
        axis.plot(x, points * (1.0 - points), color=sigmoid, lw=1.2, label="sigmoid gate, g (1 - g)")
    label = f"gates of this run ({run.config['model']['name']}), by autograd"
    look = {"color": run.colour, "ms": 2.5, "alpha": 0.5, "mec": "none", "rasterized": True}
    left.plot(g, gradient, "o", label=label, **look)
    near = (1.0 - g >= NEAR) & (g > 0.1) & (gradient > 0)
    right.plot(1.0 - g[near], gradient[near], "o", **look)
    # Dots by autograd on the curves' own ground: random pre-activations of a sigmoid and of a refined gate.
    generator = torch.Generator().manual_seed(1)
    x, y = 5.0 * torch.randn(2, 150, dtype=torch.float64, generator=generator)
    at, norm = by_autograd(x, y)
    for axis, place in ((left, at), (right, 1.0 - at)):
        shown = (1.0 - at >= NEAR) & ((at > 0.1) | (place is at))
        axis.plot(place[shown], norm[shown], "x", color=refine, ms=4, mew=0.8, label="refined gate, by autograd")
    left.set(xlabel="activation g of the gate", ylabel="norm of the gradient in its pre-activations", xlim=(0, 1))
    left.set_ylim(0.0, 0.42)  # room for the legend
    right.set(xscale="log", yscale="log", xlim=(0.9, NEAR), ylim=(NEAR / 2, 1))
    right.set_xlabel("1 - g: distance from keeping all")
    left.legend(frameon=False, fontsize=8, loc="upper left")
