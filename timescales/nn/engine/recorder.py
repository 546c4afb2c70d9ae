"""Record a step: find the expression, the unit and the sequence of every number in every tensor.

The recorder sees the operations below autograd. `trace.py` describes how a step is traced.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.nn.engine.operations import CONSTANT, ELEMENTWISE, STRUCTURAL
from timescales.nn.engine.scalar import Expressions, Node
from timescales.torch_private import DispatchMode, operation, schema, tree_leaves, tree_map

READS = ("any", "all", "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "item", "allclose")
READ = "reads a number from a tensor, as .item() or `if` do; use torch.where"
LIKE_CUMAX = ("_softmax", "_log_softmax", "cumsum")
MIXES = (
    *("sum", "mean", "prod", "var", "std", "norm", "logsumexp", "amax", "amin", "max", "min", "argmax", "argmin"),
    *("mm", "addmm", "bmm", "baddbmm", "mv", "dot", "linear", "convolution", "native_layer_norm"),
    *("cumprod", "sort", "topk", "gather", "scatter", *LIKE_CUMAX),
)


class NotTraceable(Exception):
    """A cell's step cannot be compiled. The message is one line: class, file and line, and the reason."""


class Traced(NamedTuple):
    """What is known about the numbers of a tensor: four integer tensors of its shape.

    node: number of the expression in `Recorder.nodes`.
    unit, span: the expression holds for the units unit ... unit + span - 1.
    sequence: index in the batch, or -1 for all.
    """

    node: Tensor
    unit: Tensor
    span: Tensor
    sequence: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> Traced:
        """Return the same with `function` applied to each of the four tensors."""
        return Traced(*map(function, self))


class OnParameters:
    """A call of torch that is made only on parameters. It is not recorded, and it must have no effects.

    Inside the call torch's own code may write to tensors that it has made, as F.linear does. It may also read their
    numbers, as F.one_hot does, since the call is repeated for every sequence: `reads` says so.
    """

    def __init__(self) -> None:
        self.made: set[int] = set()  # the memory of new tensors
        self.reads = False

    def note(self, arguments: Any, results: Any) -> None:
        """Note the memory of the results of an operation, unless it is the memory of an argument."""
        old = {_memory(v) for v in tree_leaves(arguments) if isinstance(v, Tensor)}
        self.made |= {_memory(v) for v in tree_leaves(results) if isinstance(v, Tensor)} - old


def draws(func: Any) -> bool:
    """Return whether an operation draws random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Recorder(DispatchMode):
    """Record the operations of a step as expressions."""

    def __init__(self, H: int) -> None:
        super().__init__()
        self.H, self.expressions = H, Expressions()
        self.nodes: list[Node] = []
        self.numbers: dict[Node, int] = {}
        self.known: dict[Any, Traced] = {}
        self.alive: list[Tensor] = []  # so that no address is used twice
        self.paused = self.backward = False
        self.on_parameters: OnParameters | None = None  # during a call that is made only on parameters

    # ------------------------------------------------------------------------------ tensors and expressions

    @staticmethod
    def key(tensor: Tensor) -> Any:
        """Return the identity of a tensor. autograd returns what it saved as another object with the same memory."""
        return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype

    def remember(self, tensor: Tensor, traced: Traced) -> None:
        """Note the expressions of a tensor."""
        self.alive.append(tensor)
        self.known[self.key(tensor)] = traced

    def traced(self, tensor: Tensor) -> Traced:
        """Return what is known about a tensor. Raises NotTraceable if nothing is."""
        known = self.known.get(self.key(tensor))
        if known is not None:
            return known
        if tensor.dim() == 0:  # a number that torch turned into a tensor
            self.alive.append(tensor)
            with self.pause():
                return self.constant((), float(tensor))
        raise NotTraceable("uses a tensor that is neither an argument, nor a parameter or attribute of the cell")

    def is_known(self, tensor: Tensor) -> bool:
        """Return whether a tensor belongs to the step."""
        return self.key(tensor) in self.known

    def number(self, node: Node) -> int:
        """Return the number of an expression."""
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
        """Return the tables of a tensor that holds one number everywhere."""
        return self.everywhere(shape, self.expressions.constant(value))

    def everywhere(self, shape: Sequence[int], node: Node) -> Traced:
        """Return the tables of a tensor that holds one expression everywhere, of no unit."""
        full = functools.partial(torch.full, tuple(shape), dtype=torch.int64)
        return Traced(full(self.number(node)), full(0), full(self.H), full(-1))

    def remember_rows(self, tensor: Tensor, node: Node) -> None:
        """Note a tensor (B, n) that holds one expression for all units of a sequence."""
        rows = torch.arange(len(tensor)).unsqueeze(1).expand(tensor.shape)
        self.remember(tensor, self.everywhere(tensor.shape, node)._replace(sequence=rows))

    @staticmethod
    def places(traced: Traced, units: Tensor, span: int) -> bool:
        """Return whether the numbers of a tensor (B, n) belong to these units, and each row to its own sequence."""
        rows = torch.arange(len(traced.unit)).unsqueeze(1)
        return bool(((traced.unit == units) & (traced.span == span) & (traced.sequence == rows)).all())

    def by_units(self, blocks: Sequence[tuple[Node, int]], batch: int | None) -> Traced:
        """Return the tables of a tensor (batch, sum of the heights) from its blocks, pairs of (expression, height).

        A block with fewer rows than H has one number for several neighbouring units. Without batch the tensor has one
        dimension.
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
        name = operation(func)
        if self.on_parameters is not None:
            self._refuse_effects_outside(self.on_parameters, func, name, args, kwargs)
            result = func(*args, **kwargs)
            self.on_parameters.note((args, kwargs), result)
            return result
        if self.paused:
            return func(*args, **kwargs)
        self._refuse_effects(func, name)
        if name in MIXES and not (self.backward and name == "sum"):
            instead = "; over the units of a gate: timescales.nn.cells.gates.cumax" if name in LIKE_CUMAX else ""
            raise NotTraceable(f"mixes units or sequences with {name}{instead}")
        result = func(*args, **kwargs)
        with self.pause():
            self._record(func, name, args, kwargs, result)
        return result

    def _refuse_effects(self, func: Any, name: str) -> None:
        if draws(func):
            raise NotTraceable(f"draws random numbers with {name}; torch.rand_like can be compiled")
        if name in READS:
            raise NotTraceable(READ)
        if schema(func).is_mutable and not self.backward:
            raise NotTraceable(f"writes in place with {name}; use an operation that returns a new tensor")

    def _refuse_effects_outside(self, call: OnParameters, func: Any, name: str, args: Any, kwargs: Any) -> None:
        """Refuse effects as `_refuse_effects` does, for an operation inside a call on parameters."""
        if name in READS:
            call.reads = True
            return
        given = {a.name: v for a, v in zip(schema(func).arguments, args, strict=False)} | kwargs
        written = [given.get(a.name) for a in schema(func).arguments if a.alias_info and a.alias_info.is_write]
        if all(isinstance(v, Tensor) and _memory(v) in call.made for v in written) and not draws(func):
            return
        self._refuse_effects(func, name)

    def _record(self, func: Any, name: str, args: Any, kwargs: Any, result: Any) -> None:
        if schema(func).is_mutable:  # in backward: a new value of the tensor
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
            source = args[0]
            if result.dtype != source.dtype and source.dtype != torch.bool:  # only true and false may become numbers
                raise NotTraceable(f"changes the type, {source.dtype} to {result.dtype}")
            self.remember(result, self._elementwise("copy", (source,), {}, result.shape))
        elif name == "log_sigmoid_forward":
            self.remember(result[0], self._elementwise(name, args, kwargs, result[0].shape))
            self.remember(result[1], self.constant(result[1].shape, 0.0))
        elif name in ELEMENTWISE:
            self.remember(result, self._elementwise(name, args, kwargs, result.shape))
        else:
            raise NotTraceable(f"calls {name}, which this engine does not know")

    def _move(self, func: Any, args: Any, kwargs: Any, result: Any, zeros: bool = False) -> None:
        """Record an operation that moves numbers: apply it to the four tables."""
        tables = []
        fills = self.constant((), 0.0) if zeros else Traced(*(torch.tensor(0),) * 4)
        for k in range(4):
            kwargs_here = {name: value for name, value in kwargs.items() if name != "dtype"}
            inputs = tree_map(lambda v, k=k: self.traced(v)[k] if self._has_expression(v) else v, (args, kwargs_here))
            table = func(*inputs[0], **inputs[1])
            if zeros and fills[k].item() != 0:  # torch fills up with 0: move ones too, to see where
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
        """Record an elementwise operation: make one new expression for each combination of expressions."""
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
            return self.expressions.as_number(args[0])
        try:
            return self.expressions.node(ELEMENTWISE[name](*args, **kwargs))
        except TypeError:
            raise NotTraceable(f"calls {name} with arguments that this engine does not know") from None

    @staticmethod
    def _alignment(traced: Sequence[Traced]) -> tuple[Tensor, Tensor, Tensor]:
        """Return unit, span and sequence of a combination. Raises NotTraceable if it mixes units or sequences."""
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
        """Record a sum in backward: over sequences, neighbouring units, gates, or several of these.

        The result gets the expression of the numbers that are summed. The kernels sum at the very end, over all numbers
        that the result's unit, span and sequence stand for. This is right because backward is linear in the gradients.
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
        """Record the sums of rows that have the same expressions."""
        terms = []
        for number in pattern.unique().tolist():
            node, at = self.nodes[number], pattern == number
            if node.op == "constant":
                if node.value != 0.0:
                    raise NotTraceable("has a gradient whose sum no kernel can compute")
                continue
            first, end = unit[:, at].amin(-1), (unit + span)[:, at].amax(-1)
            sequences = max(1, len(sequence[:, at][0].unique()))
            if not bool((span[:, at].sum(-1) == (end - first) * sequences).all()):
                raise NotTraceable("has a gradient whose sum no kernel can compute")
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


class Mean(torch.autograd.Function):
    """The mean of each row, (B, n) to (B, 1). The kernels compute means in separate stages."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, recorder: Recorder) -> Tensor:
        ctx.recorder, ctx.shape = recorder, x.shape
        with recorder.pause():
            out = x.mean(-1, keepdim=True)
            gates, rest = divmod(x.shape[-1], recorder.H)
            traced = recorder.traced(x)
            place = x.dim() == 2 and not rest and recorder.places(traced, torch.arange(recorder.H).repeat(gates), 1)
            nodes = [part.unique().tolist() for part in traced.node.split(recorder.H, -1)]
            if not place or any(len(found) > 1 for found in nodes):
                raise NotTraceable("takes a mean of something else than a number for each unit")
            total = functools.reduce(lambda a, b: a + b, (recorder.nodes[found[0]] for found in nodes))
            recorder.remember_rows(out, recorder.expressions("mean", total) / gates)
        return out

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Any:
        recorder, (_, n) = ctx.recorder, ctx.shape
        with recorder.pause():
            traced = recorder.traced(d)  # summed over the units only at the very end (`Recorder._sum`): here
            numbers = traced.node.unique().tolist()
            if len(numbers) > 1 or not recorder.places(traced, torch.zeros(1, dtype=torch.int64), recorder.H):
                raise NotTraceable("has a gradient whose sum no kernel can compute")
            out = d.expand(ctx.shape) / n
            recorder.remember_rows(out, recorder.expressions("mean", recorder.nodes[numbers[0]]) / (n // recorder.H))
        return out, None


class Cumax(torch.autograd.Function):
    """The `cumax` of a gate's pre-activations as one operation. The kernels have special code for it."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, recorder: Recorder) -> Tensor:
        ctx.recorder = recorder
        with recorder.pause():
            ctx.source = source = recorder.traced(z)
            numbers = source.node.unique()
            node = recorder.nodes[int(numbers[0])]
            if len(numbers) > 1 or node.op != "pre":
                raise NotTraceable("calls cumax on something else than the pre-activations gx + gh of one gate")
            out = torch.softmax(z, -1)
            row = recorder.number(recorder.expressions.input("row", *node.value))
            ctx.gate = node.value
            recorder.remember(out, source._replace(node=torch.full_like(source.node, row)))
        return out

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Any:
        recorder = ctx.recorder
        with recorder.pause():
            gradient = recorder.traced(d)
            numbers = gradient.node.unique()
            if len(numbers) != 1:
                raise NotTraceable("treats the units of a gate differently")
            node = recorder.expressions.make("row_gradient", recorder.nodes[int(numbers[0])], value=ctx.gate)
            out = torch.empty_like(d)
            recorder.remember(out, ctx.source._replace(node=torch.full_like(gradient.node, recorder.number(node))))
        return out, None
