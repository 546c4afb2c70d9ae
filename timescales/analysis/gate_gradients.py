"""Measure the size of the gradients of a gate at a given activation.

Source: Gu et al. 2020, appendix C, Eq. 35 and Fig. 3. The gradient of a sigmoid gate at activation g is g (1 - g). That
of a refined gate is never smaller and up to twice as large: over all forget gates f that reach g, it is between two
bounds.
"""

import copy
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.run import Trained
from timescales.analysis.study import Study
from timescales.errors import ConfigError, NotMadeFor
from timescales.models.sequence import SequenceModel
from timescales.nn.cells.gates import refined
from timescales.tasks import Task
from timescales.training.gates import needs_forget_gates, part, replaced

SEQUENCES, STEPS, POINTS = 8, 100, 2000  # sequences read; steps of each that are used; gates drawn
NEAR = 1e-5  # smallest distance from activation 1 in the picture


class Gates(NamedTuple):
    """Forget gates of some units at some steps, (n,) each: layer (from 1), unit, activation, norm of the gradient."""

    layer: Tensor
    unit: Tensor
    gate: Tensor
    gradient: Tensor


def study(run: Trained) -> Study:
    """Study the gradient of a unit's forget gate with respect to its own pre-activations.

    It is the norm over the gates on which it depends: by formula for sigmoid and refined gates, and by autograd for the
    run's gates on test sequences.

    Rows: 2,000 gates of the run: layer, unit, activation, gradient by autograd; at that activation the gradient of a
    sigmoid and the two bounds for a refined gate. Values: medians of the run's activations and gradients, the median of
    its gradient over that of a sigmoid at the same activation, and `formula_error`, the largest difference between
    formulas and autograd at 10,000 random pre-activations.
    """
    gates = observed(run.model, run.task)
    inside = gates.gate.clamp(1e-12, 1.0 - 1e-12)
    sigmoid, (low, high) = inside * (1.0 - inside), refine_gradient_bounds(inside, 1001)
    columns = {**gates._asdict(), "sigmoid": sigmoid, "refine_low": low, "refine_high": high}
    values_of_rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    rows = [dict(zip(columns, values, strict=True)) for values in values_of_rows]
    values = {
        "gate_median": float(gates.gate.median()),
        "gradient_median": float(gates.gradient.median()),
        "over_sigmoid_median": float((gates.gradient / sigmoid).median()),
        "formula_error": formula_error(),
    }
    title = "Gradient of a gate with respect to its pre-activations, by its activation"
    return Study(title, rows, values, lambda figure: draw(figure, gates, run))


def refine_gradient(f: Tensor, g: Tensor) -> Tensor:
    """Return the norm of the gradient of an effective gate g in the pre-activations of f and r.

    Source: Gu et al. 2020, Eq. 35. g is between f^2 and 1 - (1 - f)^2, and 0 < f < 1. The gradient of a sigmoid gate at
    g is g (1 - g).
    """
    above = g - f * f
    in_forget = above * (1.0 - 2.0 * f) + 2.0 * f * f * (1.0 - f)
    in_refine = above * (1.0 - above / (2.0 * f * (1.0 - f)))
    return (in_forget.square() + in_refine.square()).sqrt()


def refine_gradient_bounds(g: Tensor, points: int = 10_001) -> tuple[Tensor, Tensor]:
    """Return the least and greatest `refine_gradient` at activations g (n,) inside (0, 1), over all f that reach g.

    Source: Gu et al. 2020, Fig. 3b.
    """
    g = g.unsqueeze(-1)
    low, high = 1.0 - (1.0 - g).sqrt(), g.sqrt()
    norms = refine_gradient(low + (high - low) * torch.linspace(0.0, 1.0, points, dtype=g.dtype), g)
    return norms.min(-1).values, norms.max(-1).values


def by_autograd(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the refined gate of pre-activations x and y (n,), and the norm of its gradient in both."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    g = refined(x.sigmoid(), y.sigmoid())
    return g.detach(), torch.stack(torch.autograd.grad(g.sum(), (x, y))).norm(dim=0)


def formula_error() -> float:
    """Return the largest difference between formula and autograd at random pre-activations, for both gates."""
    x, y = 4.0 * torch.randn(2, 10_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    g, norm = by_autograd(x, y)
    z = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(z.sigmoid().sum(), z)
    f = x.sigmoid()
    return max(float((refine_gradient(f, g) - norm).abs().max()), float((f * (1.0 - f) - slope).abs().max()))


def observed(model: SequenceModel, task: Task) -> Gates:
    """Draw up to 2,000 gates at random from 100 steps of 8 test sequences. Activations and gradients are in float64.

    Raises ConfigError for a model without forget gates, or whose forget gates depend on other units, or on no
    pre-activation, as those of a leaky unit.
    """
    needs_forget_gates(model.rnn)
    for cell in model.rnn.layers:
        if getattr(cell, "gate_style", "unit") == "memory":
            why = "with gate_style=memory, one gate is for a memory"
            raise ConfigError(f"this analysis is for gates of one unit: {why}")
        mechanism = getattr(cell, "mechanism", None)
        if mechanism and (mechanism.main == "cumax" or mechanism.auxiliary == "master"):
            raise ConfigError(f"this analysis needs gates of one unit: those of gate={cell.gate} depend on other units")
    exact = copy.deepcopy(model).double()
    batch = part(next(iter(task.batches("test"))), slice(SEQUENCES))
    every = -(-len(batch.x) // STEPS)
    exists = task.exists(batch).cpu()
    samples: list[Gates] = []

    def reporting(layer: int, cell: Any, act: Callable) -> Callable:
        steps = itertools.count()

        def reported(*arguments: Any, **named: Any) -> Any:
            if (step := next(steps)) % every == 0:
                forget, norm = _gradient(cell, act, *arguments, **named)
                unit = torch.arange(forget.shape[-1]).expand(forget.shape)
                gates = Gates(torch.full_like(unit, layer + 1), unit, forget.cpu(), norm.cpu())
                samples.append(Gates(*(values[exists[step]].flatten() for values in gates)))
            return act(*arguments, **named)

        return reported

    with torch.no_grad(), replaced(exact, reporting):
        exact(batch)
    gates = Gates(*(torch.cat(parts) for parts in zip(*samples, strict=True)))
    chosen = torch.randperm(len(gates.gate), generator=torch.Generator().manual_seed(0))[:POINTS]
    return Gates(*(values[chosen] for values in gates))


def _gradient(
    cell: Any, act: Callable, gx: Tensor, gh: Tensor | None, *rest: Tensor, **named: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the forget gates (B, H) of a step and the norms of their gradients. Arguments: those of `Cell.act`."""
    with torch.enable_grad():
        x = gx.detach().requires_grad_()
        forget = act(x, None if gh is None else gh.detach(), *rest, **named).forget
        slopes = torch.autograd.grad(forget.sum(), x, allow_unused=True)[0] if forget.requires_grad else None
    if slopes is None:
        name = type(cell).__name__
        raise NotMadeFor(f"this analysis is for gates with pre-activations: the forget gate of {name} reads none")
    of_units = [slope for slope in cell.by_gate(slopes).values() if slope.shape == forget.shape]
    return forget.detach(), torch.stack(of_units).norm(dim=0)


def draw(figure: Any, gates: Gates, run: Trained) -> None:
    """Draw all activations (left), and those near 1, where memory is long, by their distance from 1 (right)."""
    left, right = plotting.panels(figure, 2, width=12.0, height=4.6)
    distances = torch.logspace(torch.tensor(NEAR).log10(), -0.0458, 300, dtype=torch.float64)  # from NEAR to .9
    activations = torch.linspace(0.002, 0.998, 400, dtype=torch.float64)
    _draw_formulas(left, activations, activations)
    _draw_formulas(right, 1.0 - distances, distances)
    # Gates of random pre-activations must be between the bounds. Those that are 1 up to NEAR are not drawn.
    x, y = 5.0 * torch.randn(2, 150, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    random_g, random_gradient = by_autograd(x, y)
    shown = 1.0 - random_g >= NEAR
    label = f"gates of this run ({run.config['model']['name']}), by autograd"
    of_run = {"color": run.colour, "ms": 2.5, "alpha": 0.5, "mec": "none", "rasterized": True, "label": label}
    of_random = {"color": plotting.colour({"model": "ur"}), "ms": 4, "mew": 0.8, "label": "refined gate, by autograd"}
    kinds = ((gates.gate, gates.gradient), "o", of_run), ((random_g[shown], random_gradient[shown]), "x", of_random)
    for (g, gradient), marker, look in kinds:
        left.plot(g, gradient, marker, **look)
        near = (1.0 - g >= NEAR) & (g > 0.1) & (gradient > 0)  # those on the logarithmic axes
        right.plot(1.0 - g[near], gradient[near], marker, **look)
    left.set(xlabel="activation g of the gate", ylabel="norm of the gradient", xlim=(0, 1))
    left.set_ylim(0.0, 0.42)  # room for the legend
    right.set(xscale="log", yscale="log", xlim=(0.9, NEAR), ylim=(NEAR / 2, 1))
    right.set_xlabel("1 - g: distance from keeping all")
    plotting.small_legend(left, loc="upper left")


def _draw_formulas(ax: Any, g: Tensor, x: Tensor) -> None:
    """Draw the gradient of a sigmoid gate and the bounds for a refined gate, at activations g, at the places x."""
    sigmoid, refine = plotting.colour({"model": "lstm"}), plotting.colour({"model": "ur"})
    low, high = refine_gradient_bounds(g, 2001)
    ax.fill_between(x, low, high, color=refine, alpha=0.18, lw=0, label="refined gate, eq. 35: least to greatest")
    ax.plot(x, high, color=refine, lw=1)
    ax.plot(x, low, color=refine, lw=1)
    ax.plot(x, g * (1.0 - g), color=sigmoid, lw=1.2, label="sigmoid gate, g (1 - g)")
