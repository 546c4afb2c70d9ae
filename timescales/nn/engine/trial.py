"""A trace on trial: a cell's expressions and its `step` on random numbers in float64, with every gradient.

The engines compare their kernels with the expressions before they are used the first time. This compares the
expressions with the step that they were traced from, so that a fault of the tracer is found as well.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from timescales.nn.cells.cell import Cell
from timescales.nn.cells.gates import cumax
from timescales.nn.engine.equations import Block, Equations, draw_noise
from timescales.nn.engine.scalar import Node, evaluate
from timescales.nn.engine.trace import on_cpu

BATCH = 3
TOLERANCE = 1e-6  # constants of torch's gradients may be rounded to float32, as the logarithm in that of 2**x


def compare_with_step(cell: Cell, found: Equations) -> None:
    """Raise RuntimeError if a cell's expressions have other values or gradients than its step."""
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        for name, a, b in zip(*_results(cell, found), strict=True):
            if not torch.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
                error = (a - b).abs().max()
                raise RuntimeError(f"its expressions for {type(cell).__name__} are off by {error:.1e}: {name}")


def _results(cell: Cell, found: Equations) -> tuple[list[str], list[Tensor], list[Tensor]]:
    """Names of the results and gradients; their values by the expressions, and by the step."""
    H = cell.hidden_size
    heights = [H // divisor for divisor in found.divisors]
    copy = on_cpu(cell, cell.weight_ih.dim() == 3).double()
    assert isinstance(copy, Cell)
    parameters = {name: p for name, p in copy.named_parameters() if p.requires_grad}
    if "weight_ih" in copy._parameters:  # `on_cpu` leaves it out; its type and its number of dimensions are read
        copy.weight_ih = nn.Parameter(torch.empty(sum(heights), 0, dtype=torch.float64))

    def random(columns: int) -> Tensor:
        return torch.rand(BATCH, columns, dtype=torch.float64).requires_grad_()

    gx, gh, state = random(sum(heights)), random(sum(heights)), [random(H) for _ in found.fields]
    dt = random(1)
    seeds = [random(H).detach() for _ in found.fields]
    wanted = [gx, gh, *state, dt, *parameters.values()]
    names = ["gx", "gh", *found.fields, "dt", *parameters]

    before = torch.get_rng_state()
    noises = draw_noise(found, copy, 1, (BATCH,), gx)
    torch.set_rng_state(before)  # the step draws the same numbers
    new = copy.step(gx, gh, copy.State(*state), 1.0 if found.d_dt is None else dt)
    shares = {"x": gx, "h": gh, "pre": gx + gh}
    inputs: dict[Node, Tensor] = {
        block.node: _expanded(block, shares[block.kind].split(heights, -1)[block.gate]) for block in found.blocks
    }
    inputs |= {found.graph.input("state", k): value for k, value in enumerate(state)}
    vectors = found.vector_values(copy)
    inputs |= {found.graph.input("vector", *v): value for v, value in zip(found.vectors, vectors, strict=True)}
    if found.d_dt is not None:
        inputs[found.graph.input("dt")] = dt
    constants = {found.graph.input("noise", k): noise[0] for k, noise in enumerate(noises)}
    constants |= {found.graph.input("d_state", k): seed for k, seed in enumerate(seeds)}
    inputs = {node: value.expand(BATCH, H) for node, value in inputs.items()}
    values = {node: value.detach() for node, value in (inputs | constants).items()}

    gradients = [value.expand(BATCH, H) for value in evaluate(found.backward, values)]
    by_expressions = _gradients(list(inputs.values()), gradients, wanted)
    by_step = _gradients(list(new), seeds, wanted)
    results = [v.expand(BATCH, H) for v in evaluate(found.new, values)]
    titles = [*found.fields, *(f"gradient of {name}" for name in names)]
    return titles, [*results, *by_expressions], [*(v.detach() for v in new), *by_step]


def _expanded(block: Block, rows: Tensor) -> Tensor:
    """The numbers of a block for all units."""
    return (cumax(rows) if block.is_row else rows).repeat_interleave(block.divisor, -1)


def _gradients(results: list[Tensor], gradients: list[Tensor], wanted: list[Tensor]) -> list[Tensor]:
    """Gradients of `wanted` from those of the results."""
    pairs = [(v, d) for v, d in zip(results, gradients, strict=True) if v.requires_grad]
    if not pairs:
        return [torch.zeros_like(v) for v in wanted]
    values, seeds = zip(*pairs, strict=True)
    return list(torch.autograd.grad(values, wanted, seeds, allow_unused=True, materialize_grads=True))
