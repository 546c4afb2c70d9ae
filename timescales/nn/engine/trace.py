"""Trace `Cell.step` and its backward pass as scalar expressions. README.md says what the modules of this folder do.

`step` runs once on small tensors, and the gradients are torch's own. `Hoisting` sees the calls of torch that it makes,
`Recorder` the operations below autograd. What a kernel cannot do raises `NotTraceable`.
"""

import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell
from timescales.nn.engine.copies import tensors_on_cpu, with_tensors
from timescales.nn.engine.hoisting import Hoisted, Hoisting
from timescales.nn.engine.recorder import NotTraceable, Recorder
from timescales.nn.engine.scalar import Expressions, Node
from timescales.nn.engine.watch import Watch

BATCH = 2  # sequences of the example


def float_type(cell: Cell) -> torch.dtype:
    """Return the dtype of a cell's parameters. Under FSDP1, where there are none, that of its input weights."""
    found = next((p for p in cell.parameters() if p.is_floating_point()), None)
    return (cell.weight_ih if found is None else found).dtype


class Trace(NamedTuple):
    """What a step computes.

    new: the state after the step, by field.
    d_gx, d_gh: gradients of the pre-activations, by gate. d_gh is None for a cell without recurrent weights.
    d_state, d_dt, d_vectors: gradients of the state before, of dt, and of each vector by the name of its input.
    noises: number of calls of torch.rand_like.
    watch: tells later whether the step still computes this.
    """

    expressions: Expressions
    heights: tuple[int, ...]
    new: list[Node]
    d_gx: list[Node]
    d_gh: list[Node] | None
    d_state: list[Node]
    d_dt: Node | None
    d_vectors: dict[tuple[int, ...], Node]
    hoisted: Hoisted
    noises: int
    watch: Watch


class WrongGates(ValueError):
    """A cell's step splits its pre-activations into another number of gates than `gates` names."""


def trace(cell: Cell, with_dt: bool) -> Trace:
    """Trace a cell's step.

    Raises: NotTraceable with class, file, line and reason, or WrongGates.
    """
    try:
        return _trace(cell, with_dt)
    except WrongGates:
        raise
    except Exception as error:
        raise NotTraceable(reason(cell, error)) from None if isinstance(error, NotTraceable) else error


def reason(cell: Cell, error: Exception) -> str:
    """Return why a step cannot be compiled, in one line: class, file, line and the error."""
    what = error if isinstance(error, NotTraceable) else f"raised {error!r} when traced"  # eager raises the same
    return f"{type(cell).__name__}.step{_place(cell, error)} {what}"


def _place(cell: Cell, error: BaseException) -> str:
    """Return " (file:line)" of the failing line of a step: the last frame outside torch and this engine."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/torch/" not in f.filename and "/nn/engine/" not in f.filename]
    if not own:
        code = getattr(cell.step, "__code__", Cell.step.__code__)
        return f" ({code.co_filename}:{code.co_firstlineno})"
    return f" ({own[-1].filename}:{own[-1].lineno})"


def _trace(cell: Cell, with_dt: bool) -> Trace:
    heights = tuple(cell.height(gate) for gate in cell.gates)
    recorder = Recorder(cell.hidden_size)
    example = _example(cell, recorder, heights, with_dt)
    tensors = tensors_on_cpu(cell, float_type(cell))
    watch = Watch(example, tensors)
    hoisting = Hoisting(recorder, heights, watch)
    copy = with_tensors(cell, tensors)
    for prefix, module in copy.named_modules():
        for values in (module._parameters, module._buffers, vars(module)):
            for key, value in values.items():
                if isinstance(value, Tensor):
                    hoisting.hoisted.roots[hoisting.hoisted.add(value)] = f"{prefix}.{key}".removeprefix(".")
    gx, gh, state, dt = example
    new = _forward(copy, example, recorder, hoisting)
    watch.finish(new)
    fields = cell.State._fields
    new_nodes = [_only(recorder, hoisting, cell, value, name) for name, value in zip(fields, new, strict=True)]
    leaves = [leaf for leaf in hoisting.leaves.values() if leaf.requires_grad]
    arguments = [value for value in (gx, gh, *state, dt) if isinstance(value, Tensor)]
    gradients = _gradients(recorder, new, [*arguments, *leaves])
    d_vectors = {
        vector.value: node
        for leaf in leaves
        for vector, node in zip(_nodes_of(recorder, leaf), gradients[id(leaf)], strict=True)
    }
    hoisting.hoisted.finish()
    tensors.free()
    return Trace(
        expressions=recorder.expressions,
        heights=heights,
        new=new_nodes,
        d_gx=gradients[id(gx)],
        d_gh=None if gh is None else gradients[id(gh)],
        d_state=[gradients[id(field)][0] for field in state],
        d_dt=gradients[id(dt)][0] if with_dt else None,
        d_vectors=d_vectors,
        hoisted=hoisting.hoisted,
        noises=hoisting.noises,
        watch=watch,
    )


class Example(NamedTuple):
    """The arguments of the step that is traced: gx and gh (BATCH, sum of heights), state (BATCH, H), dt (BATCH, 1)."""

    gx: Tensor
    gh: Tensor | None
    state: Any
    dt: Tensor | float


def _example(cell: Cell, recorder: Recorder, heights: Sequence[int], with_dt: bool) -> Example:
    """Return arguments for a step whose numbers the recorder knows as inputs."""
    expressions, dtype = recorder.expressions, float_type(cell)

    def argument(blocks: Sequence[tuple[Node, int]]) -> Tensor:
        tensor = torch.full((BATCH, sum(n for _, n in blocks)), 0.1, dtype=dtype, requires_grad=True)
        recorder.remember(tensor, recorder.by_units(blocks, BATCH))
        return tensor

    gx = argument([(expressions.input("x", k), n) for k, n in enumerate(heights)])
    gh = argument([(expressions.input("h", k), n) for k, n in enumerate(heights)]) if cell.recurrent else None
    fields = range(len(cell.State._fields))
    state = cell.State(*(argument([(expressions.input("state", k), cell.hidden_size)]) for k in fields))
    if not with_dt:
        return Example(gx, gh, state, 1.0)
    dt = torch.ones(BATCH, 1, dtype=dtype, requires_grad=True)
    column = recorder.everywhere((BATCH, 1), expressions.input("dt"))
    recorder.remember(dt, column._replace(sequence=torch.arange(BATCH).unsqueeze(1)))
    return Example(gx, gh, state, dt)


def _forward(cell: Cell, example: Example, recorder: Recorder, hoisting: Hoisting) -> Any:
    """Return the state that a step returns. Raises NotTraceable if it returns no state, or if it sets an attribute."""
    attributes = dict(vars(cell))
    with torch.enable_grad(), recorder, hoisting:
        try:
            new = cell.step(*example)
        except (RuntimeError, ValueError) as error:
            if hoisting.pieces in (None, len(cell.gates)):
                raise
            names = f"`gates` names {len(cell.gates)} ({', '.join(cell.gates)})"
            raise WrongGates(f"{type(cell).__name__}.step unpacks {hoisting.pieces} gates, {names}") from error
    if changed := [key for key, value in vars(cell).items() if attributes.get(key) is not value]:
        raise NotTraceable(f"sets the attribute {changed[0]}, which a kernel does not")
    if not isinstance(new, cell.State):
        raise NotTraceable(f"returns {type(new).__name__}, not its State")
    return new


def _gradients(recorder: Recorder, new: Sequence[Tensor], tensors: Sequence[Tensor]) -> dict[int, list[Node]]:
    """Return the gradient of each tensor by its id: one expression for each of its blocks."""
    differentiable = {k: value for k, value in enumerate(new) if value.requires_grad}
    d_new = []
    for k, value in differentiable.items():
        d_new.append(torch.full((BATCH, recorder.H), 0.1, dtype=value.dtype))
        recorder.remember(d_new[-1], recorder.by_units([(recorder.expressions.input("d_state", k), recorder.H)], BATCH))
    recorder.backward = True
    gradients: tuple[Tensor | None, ...] = (None,) * len(tensors)
    if differentiable:
        with recorder:
            loss = Loss.apply(recorder, d_new, *differentiable.values())
            gradients = torch.autograd.grad(loss, tensors, allow_unused=True)
    return {id(like): _gradient(recorder, d, like) for like, d in zip(tensors, gradients, strict=True)}


class Loss(torch.autograd.Function):
    """A loss whose gradient with respect to the new state is `d_new`.

    torch.autograd.grad could take these gradients as an argument, but would then import sympy, which is slow.
    """

    @staticmethod
    def forward(ctx: Any, recorder: Recorder, d_new: Sequence[Tensor], *new: Tensor) -> Tensor:
        ctx.d_new = d_new
        with recorder.pause():
            return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> Any:
        return None, None, *ctx.d_new


def _only(recorder: Recorder, hoisting: Hoisting, cell: Cell, value: Any, name: str) -> Node:
    """Return the only expression of a field of the new state. Raises NotTraceable if there are several."""
    H = recorder.H
    if not isinstance(value, Tensor) or value.shape != (BATCH, H):
        raise NotTraceable(f"returns {name} of another shape than (B, {H})")
    with recorder.pause():
        value = hoisting.leaf(value)
    traced = recorder.traced(value)
    numbers = traced.node.unique()
    if value.dtype != float_type(cell):
        raise NotTraceable(f"changes the type: {name} is {value.dtype}")
    if len(numbers) != 1:
        raise NotTraceable(f"treats units differently: {name} has several expressions")
    units = (traced.unit <= torch.arange(H)) & (torch.arange(H) < traced.unit + traced.span)
    sequences = (traced.sequence < 0) | (traced.sequence == torch.arange(BATCH).unsqueeze(1))
    if not bool((units & sequences).all()):
        raise NotTraceable(f"mixes units or sequences: a unit of {name} is computed from another one")
    return recorder.nodes[int(numbers[0])]


def _nodes_of(recorder: Recorder, tensor: Tensor) -> list[Node]:
    """Return the expressions of an argument or a leaf, by block, in order."""
    numbers = recorder.traced(tensor).node.flatten()[: tensor.shape[-1] if tensor.dim() else 1]
    return [recorder.nodes[int(n)] for n in torch.unique_consecutive(numbers)]


def _gradient(recorder: Recorder, gradient: Tensor | None, like: Tensor) -> list[Node]:
    """Return the expressions of a gradient, one for each block of the tensor that it belongs to."""
    blocks = recorder.traced(like)
    numbers = [recorder.number(node) for node in _nodes_of(recorder, like)]
    if gradient is None:
        return [recorder.expressions.constant(0.0)] * len(numbers)
    traced = recorder.traced(gradient).map(lambda v: v.expand(like.shape))
    nodes = []
    for number in numbers:
        at = blocks.node == number
        found = traced.node[at].unique()
        node = recorder.nodes[int(found[0])]
        aligned = (traced.unit <= blocks.unit)[at] & (blocks.unit < traced.unit + traced.span)[at]
        if len(found) != 1 or not (node.op == "constant" or bool(aligned.all())):
            raise NotTraceable("treats the units of a gate differently")
        nodes.append(node)
    return nodes
