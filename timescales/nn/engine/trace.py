"""What `Cell.step` computes, as scalar expressions: its operations and those of its backward pass are recorded.

`step` runs once on small tensors. Two modes of torch see every operation:

- `Hoisting` sees the calls that `step` makes. Calls that depend on parameters alone are not part of a step: they are
  recorded as they are, and torch evaluates them once per sequence, with gradients (`Hoisted`). Each of their results
  that a step uses is a vector with one number per unit.
- `Recorder` sees the operations below autograd, forward and then in torch.autograd.grad, so the gradients are torch's
  own. It knows for each number of each tensor which expression it is, of which unit, and of which sequence.

A step that mixes units or sequences, or does anything else that a kernel cannot do, raises `NotTraceable`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from timescales.nn.cells.cell import Cell
from timescales.nn.cells.gates import cumax
from timescales.nn.engine.operations import CONSTANT, ELEMENTWISE, STRUCTURAL
from timescales.nn.engine.scalar import Graph, Node

BATCH = 2  # sequences of the example
READS = ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "item", "allclose")
REDUCTIONS = (
    "sum",
    "mean",
    "amax",
    "amin",
    "max",
    "min",
    "prod",
    "var",
    "std",
    "norm",
    "logsumexp",
    "argmax",
    "argmin",
)
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "mv", "dot", "linear", "convolution", "native_layer_norm")
MIXES = (*REDUCTIONS, *PRODUCTS, "_softmax", "_log_softmax", "cumsum", "cumprod", "sort", "topk", "gather", "scatter")


class NotTraceable(Exception):
    """A cell's step cannot be compiled. The message is one line: class, file and line, and the reason."""


class Traced(NamedTuple):
    """What is known of the numbers of a tensor: four integer tensors of its shape.

    node: number of the expression in `Recorder.nodes`. unit, span: the expression holds for the units
    unit ... unit + span - 1. sequence: index in the batch, or -1 for all.
    """

    node: Tensor
    unit: Tensor
    span: Tensor
    sequence: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> Traced:
        """The same with `function` applied to each of the four."""
        return Traced(*map(function, self))


class Recorder(TorchDispatchMode):
    """Records the operations of a step as expressions."""

    def __init__(self, H: int) -> None:
        super().__init__()
        self.H, self.graph = H, Graph()
        self.nodes: list[Node] = []
        self.numbers: dict[Node, int] = {}
        self.known: dict[Any, Traced] = {}
        self.alive: list[Tensor] = []  # so that no address is used twice
        self.paused = self.backward = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler at the first operation, which takes seconds

    # ------------------------------------------------------------------------------ tensors and expressions

    @staticmethod
    def key(tensor: Tensor) -> Any:
        """The identity of a tensor: what autograd saves comes back as another object with the same memory."""
        return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype

    def remember(self, tensor: Tensor, traced: Traced) -> None:
        """Note what a tensor is."""
        self.alive.append(tensor)
        self.known[self.key(tensor)] = traced

    def traced(self, tensor: Tensor) -> Traced:
        """What is known of a tensor. Raises NotTraceable if nothing is."""
        known = self.known.get(self.key(tensor))
        if known is not None:
            return known
        if tensor.dim() == 0:  # a number that torch made a tensor of
            self.alive.append(tensor)
            with self.pause():
                return self.constant((), float(tensor))
        raise NotTraceable("uses a tensor that is neither an argument, nor a parameter or attribute of the cell")

    def is_known(self, tensor: Tensor) -> bool:
        """Whether a tensor belongs to the step."""
        return self.key(tensor) in self.known

    def number(self, node: Node) -> int:
        """The number of an expression."""
        if node not in self.numbers:
            self.numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return self.numbers[node]

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Run operations without recording them."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    def constant(self, shape: Sequence[int], value: float) -> Traced:
        """A tensor of one number."""
        return self.everywhere(shape, self.graph.constant(value))

    def everywhere(self, shape: Sequence[int], node: Node) -> Traced:
        """A tensor of one expression that has no unit."""
        full = functools.partial(torch.full, tuple(shape), dtype=torch.int64)
        return Traced(full(self.number(node)), full(0), full(self.H), full(-1))

    def by_units(self, blocks: Sequence[tuple[Node, int]], batch: int | None) -> Traced:
        """A tensor (batch, sum of the heights) of blocks of (expression, height); without batch one of one dimension.

        A block of a height below H has a number for several neighbouring units.
        """
        columns = []
        for node, height in blocks:
            if height < 1 or self.H % height:
                raise NotTraceable(f"has a gate of {height} rows, which do not divide {self.H} units evenly")
            span = self.H // height
            units = torch.arange(height) * span
            columns.append((torch.full_like(units, self.number(node)), units, torch.full_like(units, span)))
        numbers, units, spans = (torch.cat(parts) for parts in zip(*columns, strict=True))
        if batch is None:
            return Traced(numbers, units, spans, torch.full_like(numbers, -1))
        sequence = torch.arange(batch).unsqueeze(1).expand(batch, len(numbers))
        return Traced(numbers.expand(batch, -1), units.expand(batch, -1), spans.expand(batch, -1), sequence)

    # ------------------------------------------------------------------------------ operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        name = func._overloadpacket.__name__
        self._refuse(func, name)
        result = func(*args, **kwargs)
        with self.pause():
            self._record(func, name, args, kwargs, result)
        return result

    def _refuse(self, func: Any, name: str) -> None:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise NotTraceable(f"draws random numbers with {name}; torch.rand_like can be compiled")
        if name in READS:
            raise NotTraceable("reads a number from a tensor, as .item() or `if` do; use torch.where")
        if func._schema.is_mutable and not self.backward:
            raise NotTraceable(f"writes in place with {name}; use an operation that returns a new tensor")
        if name in MIXES and not (self.backward and name == "sum"):
            raise NotTraceable(f"mixes units or sequences with {name}")

    def _record(self, func: Any, name: str, args: Any, kwargs: Any, result: Any) -> None:
        if func._schema.is_mutable:  # in backward: a new value of the tensor
            name, result = name.removesuffix("_"), args[0]
            args = (args[0], *args[1:])
            if name == "copy":
                self.remember(result, self._elementwise("copy", (args[1],), {}, result.shape))
                return
            if name in ("zero", "fill"):
                self.remember(result, self.constant(result.shape, 0.0 if name == "zero" else args[1]))
                return
        if name in CONSTANT:
            self.remember(result, self.constant(result.shape, float(CONSTANT[name](*args))))
        elif name in STRUCTURAL:
            self._move(func, args, kwargs, result)
        elif name in ("slice_backward", "select_backward"):
            self._move(func, args, kwargs, result, zeros=True)
        elif name == "sum":
            self.remember(result, self._sum(args, kwargs, result.shape))
        elif name == "_to_copy":
            self._convert(args[0], result)
        elif name == "log_sigmoid_forward":
            self.remember(result[0], self._elementwise(name, args, kwargs, result[0].shape))
            self.remember(result[1], self.constant(result[1].shape, 0.0))
        elif name in ELEMENTWISE:
            self.remember(result, self._elementwise(name, args, kwargs, result.shape))
        else:
            raise NotTraceable(f"calls {name}, which this engine does not know")

    def _convert(self, source: Tensor, result: Tensor) -> None:
        """A copy of another type: only true and false become numbers."""
        if result.dtype != source.dtype and source.dtype != torch.bool:
            raise NotTraceable(f"changes the type, {source.dtype} to {result.dtype}")
        self.remember(result, self._elementwise("copy", (source,), {}, result.shape))

    def _move(self, func: Any, args: Any, kwargs: Any, result: Any, zeros: bool = False) -> None:
        """An operation that moves numbers: it runs on the four tables."""
        tables = []
        fills = self.constant((), 0.0) if zeros else Traced(*(torch.tensor(0),) * 4)
        for k in range(4):
            kwargs_here = {name: value for name, value in kwargs.items() if name != "dtype"}
            inputs = tree_map(lambda v, k=k: self.traced(v)[k] if self._has_expression(v) else v, (args, kwargs_here))
            table = func(*inputs[0], **inputs[1])
            if zeros and fills[k].item() != 0:  # torch fills up with 0: move ones as well, to see where
                ones = func(torch.ones_like(inputs[0][0]), *inputs[0][1:], **inputs[1])
                table = torch.where(ones == 1, table, fills[k])
            tables.append(table)
        results = [result] if isinstance(result, Tensor) else result
        moved = [[table] if isinstance(result, Tensor) else table for table in tables]
        for tensor, *table in zip(results, *moved, strict=True):
            self.remember(tensor, Traced(*table))

    def _has_expression(self, value: Any) -> bool:
        # index_select's index is a tensor of whole numbers, which has no expression.
        return isinstance(value, Tensor) and (value.dtype == torch.bool or value.is_floating_point())

    def _elementwise(self, name: str, args: Any, kwargs: Any, shape: Sequence[int]) -> Traced:
        """An elementwise operation: one new expression for each combination of expressions."""
        places = [k for k, v in enumerate(args) if isinstance(v, Tensor)]
        traced = [self.traced(args[k]).map(lambda v: v.expand(shape)) for k in places]
        if not traced:
            raise NotTraceable(f"calls {name} without a tensor")
        radix = len(self.nodes) + 1
        key = functools.reduce(lambda total, t: total * radix + t.node, traced, torch.zeros(shape, dtype=torch.int64))
        values, where = key.unique(return_inverse=True)
        new = []
        for value in values.tolist():
            filled = list(args)
            for k in reversed(places):
                value, number = divmod(value, radix)
                filled[k] = self.nodes[number]
            new.append(self.number(self._apply(name, filled, kwargs)))
        unit, span, sequence = self._alignment(traced)
        return Traced(torch.tensor(new, dtype=torch.int64)[where], unit, span, sequence)

    def _apply(self, name: str, args: list[Any], kwargs: Any) -> Node:
        if name == "copy":
            node: Node = self.graph.as_number(args[0])
            return node
        try:
            return self.graph.node(ELEMENTWISE[name](*args, **kwargs))
        except (TypeError, NotImplementedError):
            raise NotTraceable(f"calls {name} with arguments that this engine does not know") from None

    @staticmethod
    def _alignment(traced: Sequence[Traced]) -> tuple[Tensor, Tensor, Tensor]:
        """Unit, span and sequence of a combination, which must be of the same unit and the same sequence."""
        first, *others = traced
        unit, span, sequence = first.unit, first.span, first.sequence
        for other in others:
            finer = other.span < span
            unit, span = torch.where(finer, other.unit, unit), torch.where(finer, other.span, span)
            sequence = torch.where(sequence < 0, other.sequence, sequence)
        for t in traced:
            inside = (t.unit <= unit) & (unit + span <= t.unit + t.span)
            same = (t.sequence < 0) | (t.sequence == sequence)
            if not bool((inside & same).all()):
                raise NotTraceable("mixes units or sequences: it combines numbers of different units")
        return unit, span, sequence

    def _sum(self, args: Any, kwargs: Any, shape: Sequence[int]) -> Traced:
        """A sum in backward: over sequences, over neighbouring units, over gates, or several of these.

        The expression of the result is that of the numbers which are summed. The kernels sum last of all, over all
        numbers that the result's unit, span and sequence stand for: backward is linear in the gradients.
        """
        source = self.traced(args[0])
        dims = args[1] if len(args) > 1 and args[1] else list(range(source.node.dim()))
        dims = sorted(d % source.node.dim() for d in dims)
        rest = [d for d in range(source.node.dim()) if d not in dims]
        node, unit, span, sequence = source.map(
            lambda v: (
                v.permute(*rest, *dims).reshape(*(v.shape[d] for d in rest), -1).flatten(0, -2)
                if rest
                else v.reshape(1, -1)
            )
        )
        order = node.argsort(dim=-1, stable=True)
        node, unit, span, sequence = (v.gather(-1, order) for v in (node, unit, span, sequence))
        patterns, where = node.unique(dim=0, return_inverse=True)
        result = [torch.zeros(len(node), dtype=torch.int64) for _ in range(4)]
        for k, pattern in enumerate(patterns):
            rows = where == k
            self._sum_pattern(pattern, rows, unit[rows], span[rows], sequence[rows], result)
        return Traced(*(v.reshape(tuple(shape)) for v in result))

    def _sum_pattern(
        self, pattern: Tensor, rows: Tensor, unit: Tensor, span: Tensor, sequence: Tensor, result: list[Tensor]
    ) -> None:
        """The sums of rows that have the same expressions."""
        terms = []
        for number in pattern.unique().tolist():
            node, at = self.nodes[number], pattern == number
            if node.op == "constant":
                if node.value != 0.0:
                    raise NotTraceable("has a gradient that this engine cannot sum")
                continue
            first, end = unit[:, at].amin(-1), (unit + span)[:, at].amax(-1)
            sequences = max(1, len(sequence[:, at][0].unique()))
            if not bool((span[:, at].sum(-1) == (end - first) * sequences).all()):
                raise NotTraceable("has a gradient that this engine cannot sum")
            terms.append((node, first, end - first, sequence[:, at].amax(-1) if sequences == 1 else None))
        if not terms:
            zero = self.constant(unit.shape[:1], 0.0)
            for table, value in zip(result, zero, strict=True):
                table[rows] = value
            return
        node = functools.reduce(lambda a, b: a + b, (term[0] for term in terms))
        _, first, length, one_sequence = terms[0]
        result[0][rows], result[1][rows], result[2][rows] = self.number(node), first, length
        result[3][rows] = -1 if one_sequence is None else one_sequence


class _Row(torch.autograd.Function):
    """`cumax` of a gate's pre-activations as one operation: the kernels have code of their own for it."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, recorder: Recorder) -> Tensor:
        """Forward."""
        ctx.recorder = recorder
        with recorder.pause():
            ctx.source = source = recorder.traced(z)
            numbers = source.node.unique()
            node = recorder.nodes[int(numbers[0])]
            if len(numbers) > 1 or node.op != "pre":
                raise NotTraceable("calls cumax on something else than the pre-activations gx + gh of one gate")
            out = torch.softmax(z, -1)
            row = recorder.number(recorder.graph.input("row", *node.value))
            ctx.gate = node.value
            recorder.remember(out, source._replace(node=torch.full_like(source.node, row)))
        return out

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Any:
        """Backward."""
        recorder = ctx.recorder
        with recorder.pause():
            gradient = recorder.traced(d)
            numbers = gradient.node.unique()
            if len(numbers) != 1:
                raise NotTraceable("treats the units of a gate differently")
            node = recorder.graph.make("row_gradient", recorder.nodes[int(numbers[0])], value=ctx.gate)
            out = torch.empty_like(d)
            recorder.remember(out, ctx.source._replace(node=torch.full_like(gradient.node, recorder.number(node))))
        return out, None


@dataclasses.dataclass(frozen=True)
class Reference:
    """A tensor of a `Hoisted` program, by its place in the list of its values."""

    place: int


class Call(NamedTuple):
    """A call that `step` makes on parameters alone. Tensors among the arguments are references."""

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    gradients: bool  # whether gradients were enabled
    first: int  # place of the first of its results


class Root(NamedTuple):
    """A parameter, buffer or attribute of the cell, by name; or a tensor that the step knows from elsewhere."""

    name: str
    tensor: Tensor | None
    is_state: bool  # whether it is a parameter or buffer, which batched seeds have with one more dimension


class Hoisted:
    """What a step computes from parameters alone: `vectors` evaluates it, once per sequence."""

    def __init__(self) -> None:
        self.roots: list[Root] = []
        self.calls: list[Call] = []
        self.places: dict[int, int] = {}  # place of a tensor of the example, by id
        self.examples: list[Any] = []
        self.used: list[int] = []  # places of the values that a step uses

    def add(self, value: Any) -> int:
        """A new place for a value of the example."""
        self.examples.append(value)
        if isinstance(value, Tensor):
            self.places[id(value)] = len(self.examples) - 1
        return len(self.examples) - 1

    def values(self, cell: Cell) -> list[Tensor]:
        """The tensors that a step uses, computed from the cell's parameters as they are now."""
        roots = [_attribute(cell, root) for root in self.roots]
        if cell.weight_ih.dim() == 2 or not self.used:
            return self._evaluate(*roots)
        dims = tuple(0 if root.is_state else None for root in self.roots)
        results = torch.vmap(self._evaluate, in_dims=dims)(*roots)
        return list(results)

    def _evaluate(self, *roots: Tensor) -> list[Tensor]:
        values: list[Any] = [None] * len(self.examples)
        values[: len(roots)] = roots
        for call in self.calls:
            get = functools.partial(_replace, values)
            with torch.set_grad_enabled(call.gradients and torch.is_grad_enabled()):
                result = call.function(*tree_map(get, call.args), **tree_map(get, call.kwargs))
            results = [result] if isinstance(result, Tensor) else list(result)
            values[call.first : call.first + len(results)] = results
        return [values[place] for place in self.used]

    def forget_examples(self) -> None:
        """Free the tensors of the example."""
        self.examples, self.places = [None] * len(self.examples), {}


def _replace(values: list[Any], argument: Any) -> Any:
    return values[argument.place] if isinstance(argument, Reference) else argument


def _attribute(cell: nn.Module, root: Root) -> Tensor:
    if root.tensor is not None:
        return root.tensor.to(next(cell.parameters()).device)
    value: Any = cell
    for name in root.name.split("."):
        value = getattr(value, name)
    assert isinstance(value, Tensor)
    return value


class Hoisting(TorchFunctionMode):
    """Separates the calls on parameters alone from the calls of a step."""

    def __init__(self, recorder: Recorder, rows: Sequence[int]) -> None:
        super().__init__()
        self.recorder, self.heights, self.hoisted = recorder, rows, Hoisted()
        self.leaves: dict[int, Tensor] = {}
        self.noises = 0

    def add_root(self, name: str, value: Tensor, tensor: Tensor | None = None, is_state: bool = True) -> None:
        """Add a parameter, buffer or attribute of the cell."""
        assert not self.hoisted.calls
        self.hoisted.roots.append(Root(name, tensor, is_state))
        self.hoisted.add(value)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [v for v in tree_flatten((args, kwargs))[0] if isinstance(v, Tensor)]
        name = getattr(func, "__name__", "")
        if func is cumax:
            return _Row.apply(self.leaf(args[0]), self.recorder)
        if func is torch.rand_like and self.recorder.is_known(args[0]):
            return self.noise(args[0])
        if any(self.recorder.is_known(t) for t in tensors):
            args, kwargs = tree_map(self.leaf, (args, kwargs))
            return func(*args, **kwargs)
        with self.recorder.pause():
            if tensors and name.endswith("_") and not name.endswith("__"):
                raise NotTraceable(f"writes in place with {name}; use an operation that returns a new tensor")
            before = torch.get_rng_state()
            result = func(*args, **kwargs)
            if not torch.equal(before, torch.get_rng_state()):
                torch.set_rng_state(before)
                raise NotTraceable(f"draws random numbers with {name}; torch.rand_like can be compiled")
        self.hoist(func, args, kwargs, result)
        return result

    def hoist(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Record a call on parameters alone, if it has tensors as results."""
        results = [result] if isinstance(result, Tensor) else result
        if not isinstance(results, (list, tuple)) or not results or not all(isinstance(v, Tensor) for v in results):
            return
        references = tree_map(lambda v: self.reference(v) if isinstance(v, Tensor) else v, (args, kwargs))
        places = [self.hoisted.add(v) for v in results]
        self.hoisted.calls.append(Call(func, references[0], references[1], torch.is_grad_enabled(), places[0]))

    def reference(self, tensor: Tensor) -> Reference:
        """The place of a tensor that depends on parameters alone."""
        if id(tensor) not in self.hoisted.places:
            raise NotTraceable("uses a tensor that is neither an argument, nor a parameter or attribute of the cell")
        return Reference(self.hoisted.places[id(tensor)])

    def leaf(self, value: Any) -> Any:
        """A result of parameters alone as an input of the step; any other value unchanged."""
        if not isinstance(value, Tensor) or self.recorder.is_known(value):
            return value
        place = self.reference(value).place
        if place not in self.leaves:
            with self.recorder.pause():
                self.leaves[place] = self._new_leaf(value, len(self.hoisted.used))
            self.hoisted.used.append(place)
        return self.leaves[place]

    def _new_leaf(self, value: Tensor, number: int) -> Tensor:
        recorder, graph, H = self.recorder, self.recorder.graph, self.recorder.H
        leaf = value.detach().clone()
        if leaf.is_floating_point():
            leaf.requires_grad_(value.requires_grad)
        length = leaf.shape[-1] if leaf.dim() else 1
        if leaf.numel() != length:
            raise NotTraceable(f"uses a parameter of shape {tuple(value.shape)}; a step takes one number per unit")

        def part(k: int) -> Node:
            """Part."""
            node = graph.input("vector", number, k)
            return node if leaf.dtype != torch.bool else node.apply("ne", 0.0)

        if length == 1:
            traced = recorder.everywhere(leaf.shape, part(0))
        elif length == H or length not in (sum(self.heights),):
            if H % length:
                raise NotTraceable(f"uses a parameter of {length} numbers; a step takes one number per unit")
            traced = recorder.by_units([(part(0), length)], None)
        else:
            traced = recorder.by_units([(part(k), n) for k, n in enumerate(self.heights)], None)
        recorder.remember(leaf, traced.map(lambda v: v.reshape(leaf.shape)))
        return leaf

    def noise(self, like: Tensor) -> Tensor:
        """torch.rand_like in a step: its numbers are drawn before the sequence."""
        recorder = self.recorder
        if tuple(like.shape) != (BATCH, recorder.H):
            raise NotTraceable("calls torch.rand_like on something else than one number per unit")
        with recorder.pause():
            result = torch.full_like(like, 0.5).detach()
            node = recorder.graph.input("noise", self.noises)
            recorder.remember(result, recorder.by_units([(node, recorder.H)], BATCH))
        self.noises += 1
        return result


def on_cpu(module: nn.Module, seeds: bool) -> nn.Module:
    """A shallow copy of a cell with copies of its parameters on the CPU; of batched seeds, those of the first."""

    def copied(value: Tensor | None) -> Tensor | None:
        """Copied."""
        if value is None:
            return None
        copy = (value[0] if seeds else value).detach().cpu()
        return nn.Parameter(copy, value.requires_grad) if isinstance(value, nn.Parameter) else copy

    copy = object.__new__(type(module))
    copy.__dict__ = dict(vars(module))
    copy._parameters = {
        # The matrices are large, and no step may read them.
        name: None if name in ("weight_ih", "weight_hh") else copied(value)  # type: ignore[misc]
        for name, value in module._parameters.items()
    }
    copy._buffers = {name: copied(value) for name, value in module._buffers.items()}
    copy._modules = {name: None if m is None else on_cpu(m, seeds) for name, m in module._modules.items()}
    return copy


class Trace(NamedTuple):
    """What a step computes.

    new: the state after the step, by field. d_gx, d_gh: gradients of the pre-activations, by gate. d_state, d_dt,
    d_vectors: gradients of the state before, of dt, and by the name of a vector input. noises: number of its calls of
    torch.rand_like.
    """

    graph: Graph
    heights: tuple[int, ...]
    new: list[Node]
    d_gx: list[Node]
    d_gh: list[Node]
    d_state: list[Node]
    d_dt: Node | None
    d_vectors: dict[tuple[int, ...], Node]
    hoisted: Hoisted
    noises: int


def trace(cell: Cell, with_dt: bool) -> Trace:
    """Trace a cell's step. Raises NotTraceable with class, file, line and reason."""
    try:
        return _trace(cell, with_dt)
    except NotTraceable as error:
        raise NotTraceable(f"{type(cell).__name__}.step{_place(cell, error)} {error}") from None
    except Exception as error:  # the step itself fails: eager raises the same
        raise NotTraceable(f"{type(cell).__name__}.step{_place(cell, error)} raised {error!r} when traced") from error


def _place(cell: Cell, error: BaseException) -> str:
    """ ", file:line" of the line of the step that failed: the last one that is not torch's or this package's engine."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/torch/" not in f.filename and "/nn/engine/" not in f.filename]
    if not own:
        return ""
    return f" ({own[-1].filename}:{own[-1].lineno})"


def _trace(cell: Cell, with_dt: bool) -> Trace:
    H = cell.hidden_size
    heights = tuple(cell.height(gate) for gate in cell.gates)
    recorder = Recorder(H)
    graph = recorder.graph
    hoisting = Hoisting(recorder, heights)
    copy = on_cpu(cell, cell.weight_ih.dim() == 3)
    assert isinstance(copy, Cell)
    _add_roots(hoisting, cell, copy)
    dtype = cell.weight_ih.dtype

    def argument(blocks: Sequence[tuple[Node, int]]) -> Tensor:
        """Argument."""
        tensor = torch.full((BATCH, sum(n for _, n in blocks)), 0.1, dtype=dtype, requires_grad=True)
        recorder.remember(tensor, recorder.by_units(blocks, BATCH))
        return tensor

    gx = argument([(graph.input("x", k), n) for k, n in enumerate(heights)])
    gh = argument([(graph.input("h", k), n) for k, n in enumerate(heights)])
    fields = cell.State._fields
    state = cell.State(*(argument([(graph.input("state", k), H)]) for k in range(len(fields))))
    dt: Tensor | float = 1.0
    if with_dt:
        dt = torch.ones(BATCH, 1, dtype=dtype, requires_grad=True)
        column = recorder.everywhere((BATCH, 1), graph.input("dt"))
        recorder.remember(dt, column._replace(sequence=torch.arange(BATCH).unsqueeze(1)))
    with torch.enable_grad(), recorder, hoisting:
        new = copy.step(gx, gh, state, dt)
    new_nodes = [_only(recorder, hoisting, cell, v, name) for name, v in zip(fields, _checked(cell, new), strict=True)]
    wanted = [gx, gh, *state, *([dt] if isinstance(dt, Tensor) else [])]
    leaves = [leaf for leaf in hoisting.leaves.values() if leaf.requires_grad]
    results = [v for v in new if v.requires_grad]
    seeds = []
    for k, value in enumerate(new):
        if value.requires_grad:
            seed = torch.full((BATCH, H), 0.1, dtype=dtype)
            recorder.remember(seed, recorder.by_units([(graph.input("d_state", k), H)], BATCH))
            seeds.append(seed)
    recorder.backward = True
    gradients: tuple[Tensor | None, ...] = (None,) * (len(wanted) + len(leaves))
    if results:
        with recorder:
            gradients = torch.autograd.grad(results, [*wanted, *leaves], seeds, allow_unused=True)
    d_gx, d_gh, *rest = (_gradient(recorder, d, like) for d, like in zip(gradients, [*wanted, *leaves], strict=True))
    d_state, rest = rest[: len(fields)], rest[len(fields) :]
    d_dt = rest.pop(0) if with_dt else None
    d_vectors = {}
    for leaf, nodes in zip(leaves, rest, strict=True):
        for input_node, node in zip(_nodes_of(recorder, leaf), nodes, strict=True):
            d_vectors[input_node.value] = node
    hoisting.hoisted.forget_examples()
    return Trace(
        graph,
        heights,
        new_nodes,
        d_gx,
        d_gh,
        [nodes[0] for nodes in d_state],
        d_dt[0] if d_dt else None,
        d_vectors,
        hoisting.hoisted,
        hoisting.noises,
    )


def _add_roots(hoisting: Hoisting, cell: Cell, copy: nn.Module) -> None:
    """The parameters, buffers and tensor attributes of a cell and of the modules in it."""
    for name, module in copy.named_modules():
        prefix = f"{name}." if name else ""
        original = cell.get_submodule(name)
        for values, is_state in ((module._parameters, True), (module._buffers, True), (vars(module), False)):
            for key, value in values.items():
                if isinstance(value, Tensor):
                    tensor = None if is_state else getattr(original, key)
                    hoisting.add_root(prefix + key, value.cpu(), tensor, is_state)


def _checked(cell: Cell, new: Any) -> Any:
    """The state that a step returned. Raises NotTraceable if it is none."""
    if not isinstance(new, cell.State):
        raise NotTraceable(f"returns {type(new).__name__}, not its State")
    return new


def _only(recorder: Recorder, hoisting: Hoisting, cell: Cell, value: Any, name: str) -> Node:
    """The one expression of a field of the new state."""
    H = recorder.H
    if not isinstance(value, Tensor) or value.shape != (BATCH, H):
        raise NotTraceable(f"returns {name} of another shape than (B, {H})")
    with recorder.pause():
        value = hoisting.leaf(value)
    traced = recorder.traced(value)
    numbers = traced.node.unique()
    if value.dtype != cell.weight_ih.dtype:
        raise NotTraceable(f"changes the type: {name} is {value.dtype}")
    if len(numbers) != 1:
        raise NotTraceable(f"treats units differently: {name} has several expressions")
    units = (traced.unit <= torch.arange(H)) & (torch.arange(H) < traced.unit + traced.span)
    sequences = (traced.sequence < 0) | (traced.sequence == torch.arange(BATCH).unsqueeze(1))
    if not bool((units & sequences).all()):
        raise NotTraceable(f"mixes units or sequences: a unit of {name} is computed from another one")
    return recorder.nodes[int(numbers[0])]


def _nodes_of(recorder: Recorder, tensor: Tensor) -> list[Node]:
    """The expressions of an argument or a leaf, by block, in their order."""
    numbers = recorder.traced(tensor).node.flatten()[: tensor.shape[-1] if tensor.dim() else 1]
    return [recorder.nodes[int(n)] for n in torch.unique_consecutive(numbers)]


def _gradient(recorder: Recorder, gradient: Tensor | None, like: Tensor) -> list[Node]:
    """The expressions of a gradient, one for each block of the tensor that it belongs to."""
    blocks = recorder.traced(like)
    numbers = [recorder.number(node) for node in _nodes_of(recorder, like)]
    if gradient is None:
        return [recorder.graph.constant(0.0)] * len(numbers)
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
