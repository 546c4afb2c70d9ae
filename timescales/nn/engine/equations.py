"""Write a cell's step as the kernels need it: blocks of pre-activations, state, vectors, and their gradients.

Shapes: S steps, B sequences, H units.
"""

import contextvars
import dataclasses
import functools
import itertools
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell
from timescales.nn.engine.hoisting import Hoisted
from timescales.nn.engine.recorder import NotTraceable
from timescales.nn.engine.scalar import Expressions, Node, in_order
from timescales.nn.engine.trace import Trace, reason, trace
from timescales.nn.engine.watch import FIX, SameObject, Watch, random_state

KINDS = ("x", "pre", "h")


class Block(NamedTuple):
    """A gate's pre-activations, or one share of them. A kernel computes a block with one matrix product.

    gate: number of the gate.
    kind: "x" for W_ih x + bias_ih, "h" for W_hh h + bias_hh, "pre" for their sum.
    divisor: the gate has H / divisor rows; each serves `divisor` neighbouring units.
    is_row: whether the step takes their cumax over the units.
    node: the input that stands for the block in the expressions.
    """

    gate: int
    kind: str
    divisor: int
    is_row: bool
    node: Node


@dataclasses.dataclass(frozen=True, eq=False)
class Equations:
    """A step and its gradients as expressions.

    divisors: H / height, by gate.
    blocks: in the order x, pre, h.
    fields: names of the state's fields.
    new: the state after the step, by field.
    d_blocks, d_state, d_dt: gradients of the blocks, of the state before, and of dt (None without dt).
    vectors: the inputs with one number per unit: (number in `Hoisted.used`, number of the gate).
    d_vectors: their gradients, 0 for a vector without gradient.
    noises: number of calls of torch.rand_like in a step.
    reads_dt: whether the expressions contain dt.
    """

    divisors: tuple[int, ...]
    blocks: tuple[Block, ...]
    fields: tuple[str, ...]
    new: tuple[Node, ...]
    d_blocks: tuple[Node, ...]
    d_state: tuple[Node, ...]
    d_dt: Node | None
    vectors: tuple[tuple[int, int], ...]
    d_vectors: tuple[Node, ...]
    noises: int
    reads_dt: bool
    hoisted: Hoisted
    expressions: Expressions

    def input(self, kind: str, *name: int) -> Node:
        """Return an input of the expressions, for example ("state", 1)."""
        return self.expressions.input(kind, *name)

    @property
    def backward(self) -> list[Node]:
        """Return all gradients."""
        return [*self.d_blocks, *self.d_state, *self.d_vectors, *([] if self.d_dt is None else [self.d_dt])]

    @property
    def mixes_units(self) -> bool:
        """Return whether a unit's equations need numbers of other units: rows that it shares, a cumax, or a mean."""
        return any(block.is_row or block.divisor > 1 for block in self.blocks) or any(self.means)

    @property
    def is_scan(self) -> bool:
        """Return whether a step has no recurrent product, and each unit needs only its own numbers."""
        return not self.mixes_units and all(block.kind == "x" for block in self.blocks)

    @functools.cached_property
    def means(self) -> tuple[list[list[Node]], list[list[Node]]]:
        """Return the means over the units in stages: those for the new state, and those that only the gradients need.

        The means of a stage depend only on the stages before it.
        """
        forward = _stages(self.new, [])
        return forward, _stages(self.backward, [mean for stage in forward for mean in stage])

    @property
    def reads_h(self) -> bool:
        """Return whether the expressions read the h of the step before, other than through the recurrent weights."""
        h = self.input("state", 0)
        return any(node is h for node in in_order([*self.new, *self.backward]))

    def vector_values(self, cell: Cell, ih: Tensor) -> list[Tensor]:
        """Compute the vectors, each (H,), from the cell's parameters, with gradients.

        ih: the input weights, whose dtype the vectors get.
        """
        if not self.vectors:
            return []
        values, H = self.hoisted.values(cell, ih.device), cell.hidden_size
        heights = [H // divisor for divisor in self.divisors]
        return [_per_unit(values[number], gate, H, heights, ih.dtype) for number, gate in self.vectors]


def _stages(results: Iterable[Node], given: Sequence[Node]) -> list[list[Node]]:
    """Put the means that the results need, except the given ones, into stages. Each gets the first possible stage."""
    stages: list[list[Node]] = []
    first: dict[Node, int] = dict.fromkeys(given, 0)  # the first stage in which an expression can be computed
    for node in in_order(results):
        if node not in first:
            first[node] = stage = max((first[a] for a in node.args), default=0)
            if node.op == "mean":
                stages += [[]] * (stage == len(stages))
                stages[stage] = [*stages[stage], node]
                first[node] += 1
    return stages


def _per_unit(value: Tensor, gate: int, H: int, heights: list[int], dtype: torch.dtype) -> Tensor:
    """Return one number per unit from a parameter with one number, one per unit, or one per row of the gates."""
    if value.shape == (H,) and value.dtype == dtype:
        return value
    value = value.to(dtype).flatten()
    length = len(value)
    if length != H and length == sum(heights) and length != 1:
        value = value.narrow(0, sum(heights[:gate]), heights[gate])
        length = heights[gate]
    if length == H:
        return value
    return value.expand(H) if length == 1 else value.repeat_interleave(H // length)


def of_cell(cell: Cell, timed: bool) -> Equations:
    """Trace a cell's step and return its equations. timed: whether the step gets dt. Raises NotTraceable."""
    return _watched(cell, timed)[0]


def _watched(cell: Cell, timed: bool) -> tuple[Equations, Watch]:
    """Return the equations of a cell, and a `Watch` that can tell later whether its step still has them.

    The step is traced in a separate thread, where no mode of the caller is active (autocast, inference mode, hooks on
    saved tensors, a default device). Then it runs again in the caller's thread. Raises NotTraceable if the runs differ.
    """
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as thread, torch.autograd.set_detect_anomaly(False):  # its checks are operations too
        found = thread.submit(context.run, trace, cell, timed).result()
    equations, watch = _equations(found, cell.State._fields), found.watch
    references, draws = [], True
    for _ in range(8):  # a step that makes random choices most probably differs in one of the runs
        before = random_state()
        if error := watch.change(cell):
            raise NotTraceable(reason(cell, error))
        draws = draws and random_state() != before  # in every run, since other threads may draw too
        references.append(watch.references())
    if draws:
        raise NotTraceable(reason(cell, NotTraceable(f"draws random numbers outside of torch; {FIX}")))
    if references[-1] > references[0] and watch.is_kept(cell):
        raise NotTraceable(reason(cell, NotTraceable("keeps a tensor outside of its state, which a kernel does not")))
    return equations, watch


PLAIN = frozenset((bool, int, float, str, type(None)))  # types whose values a signature contains unchanged
# Attributes that no equation depends on: those of every module, such as hooks, and the arguments that `Cell` stores.
TORCH_ATTRIBUTES = frozenset(vars(torch.nn.Module())) - {"training"} | {"_arguments"}


def signature(cell: Cell, timed: bool) -> tuple[Any, ...]:
    """Return the part of a cell that can change its equations: attributes, modules, and the kinds of its tensors.

    `Watch` notices everything else. The code of `step` is included, since nothing watches a step that was refused.
    """
    key: list[Any] = [SameObject(type(cell)), _kind(getattr(cell.step, "__code__", None)), timed]
    for module in cell.modules() if cell._modules else (cell,):
        for name, value in module.__dict__.items():
            if type(value) in PLAIN:
                key += (name, value)
            elif name not in TORCH_ATTRIBUTES:
                key += (name, _kind(value))
        for name, parameter in module._parameters.items():
            if parameter is not None:
                key += (name, parameter.requires_grad, parameter.dtype, parameter.shape)
        for name, buffer in module._buffers.items():
            key += (name, _kind(buffer))
        for name, inner in module._modules.items():
            key += (name, SameObject(type(inner)))
    return tuple(key)


def _kind(value: object) -> Any:
    """Return what a signature contains of an object. It has no numbers of a tensor: each call reads these."""
    if isinstance(value, Tensor):
        return value.dtype, value.shape, value.requires_grad
    if value is None or isinstance(value, (tuple, list, dict, set, int, float, str)):
        return repr(value)
    return SameObject(value)


def is_fixed(cell: Cell) -> bool:
    """Return whether a cell's signature determines what its step computes, so that nothing needs to watch it.

    So it is for the cells of this package: their steps read attributes, and nothing else that may change
    (tests/nn/test_watch.py). The attributes must be such that the signature has their values.
    """

    def has_value(value: object) -> bool:
        if isinstance(value, (tuple, list)):
            return all(map(has_value, value))
        return type(value) in PLAIN or isinstance(value, Tensor)

    own = (value for name, value in vars(cell).items() if name not in TORCH_ATTRIBUTES)
    return type(cell).__module__.startswith("timescales.nn.cells.") and not cell._modules and all(map(has_value, own))


class Cached(NamedTuple):
    """The equations of a cell, or the reason why it has none, and the `Watch` that tells whether they are still valid.

    watch: None for a step that was refused, since it is not run only to be watched, and for a cell that `is_fixed`.
    """

    found: Equations | str
    watch: Watch | None


MAX_VERSIONS = 12  # of the equations of one cell
CACHE: weakref.WeakKeyDictionary[Cell, dict[Any, list[Cached]]] = weakref.WeakKeyDictionary()


def known(cell: Cell, timed: bool) -> Equations | str:
    """Return the equations of a cell's step as it is now, or the reason why there are none. Both are cached.

    A step that does not read dt has the same equations with and without dt.
    """
    versions = CACHE.get(cell)
    if versions is None:
        versions = CACHE.setdefault(cell, {})
    key = signature(cell, timed)
    candidates = versions.get(key, [])
    for entry in candidates:
        if entry.watch is None or entry.watch.change(cell) is None:
            if entry is not candidates[0]:
                candidates[:] = [entry, *(other for other in candidates if other is not entry)]  # tried first next time
            return entry.found
    if len({id(entry.found) for entries in versions.values() for entry in entries}) >= MAX_VERSIONS:
        fix = "keep a number that changes in a buffer or a parameter"
        return f"what its step depends on has changed {MAX_VERSIONS} times; {fix}"
    versions[key] = [_new(cell, timed), *candidates]
    return versions[key][0].found


def _new(cell: Cell, timed: bool) -> Cached:
    if not cell.compiled:
        return Cached(f"{type(cell).__name__} has no kernel, since its class sets compiled = False", None)
    try:
        found, watch = _watched(cell, timed)
    except NotTraceable as error:
        return Cached(str(error), None)
    return Cached(found if found.reads_dt or not timed else known(cell, False), None if is_fixed(cell) else watch)


def _equations(t: Trace, fields: tuple[str, ...]) -> Equations:
    expressions = t.expressions
    H = max(t.heights)
    d_x, rows_x = _without_row_gradients(t.d_gx)
    d_h, rows_h = _without_row_gradients(t.d_gh or [])
    parts = [t.new, d_x, d_h, t.d_state, list(t.d_vectors.values()), [] if t.d_dt is None else [t.d_dt]]
    # A gate needs separate shares if a step reads one of them, or if their gradients differ.
    separate = {node.value[0] for node in in_order(itertools.chain(*parts)) if node.op in ("x", "h")}
    if t.d_gh is None:
        separate = set(range(len(t.heights)))
    else:
        separate |= {k for k, (a, b) in enumerate(zip(t.d_gx, t.d_gh, strict=True)) if a is not b}
    replaced = {}
    for k in separate:  # the pre-activation is the sum of two shares that are computed separately
        shares = expressions.input("x", k), expressions.input("h", k)
        replaced[expressions.input("pre", k)] = expressions.make("add", *shares)
    read = substitute(expressions, itertools.chain(*parts), replaced)
    rest = iter(read)
    new, d_x, d_h, d_state, d_vectors, d_dt = (list(itertools.islice(rest, len(part))) for part in parts)
    read = in_order(read)
    rows = {node.value[0] for node in read if node.op == "row"} | rows_x | rows_h
    if wrong := rows & (separate | {node.value[0] for node in read if node.op == "pre"}):
        raise NotTraceable(f"uses the pre-activations of gate {min(wrong)} besides their cumax")
    blocks, d_blocks = [], []
    for kind in KINDS if t.d_gh is not None else ("x",):
        for k, height in enumerate(t.heights):
            if (kind == "pre") == (k not in separate):
                node = expressions.input("row" if k in rows else kind, k)
                blocks.append(Block(k, kind, H // height, k in rows, node))
                d_blocks.append((d_h if kind == "h" else d_x)[k])
    used = in_order([*new, *d_blocks, *d_state, *d_vectors, *d_dt])
    d_vector = dict(zip(t.d_vectors, d_vectors, strict=True))
    vectors = tuple(sorted(node.value for node in used if node.op == "vector"))
    zero = expressions.constant(0.0)
    return Equations(
        divisors=tuple(H // height for height in t.heights),
        blocks=tuple(blocks),
        fields=fields,
        new=tuple(new),
        d_blocks=tuple(d_blocks),
        d_state=tuple(d_state),
        d_dt=d_dt[0] if d_dt else None,
        vectors=vectors,
        d_vectors=tuple(d_vector.get(v, zero) for v in vectors),
        noises=t.noises,
        reads_dt=any(node.op == "dt" for node in used),
        hoisted=t.hoisted,
        expressions=expressions,
    )


def _without_row_gradients(gradients: Iterable[Node]) -> tuple[list[Node], set[int]]:
    """Return the gradients with respect to the cumax instead of its pre-activations, and the gates with a cumax."""
    results, gates = [], set()
    for node in gradients:
        if node.op == "row_gradient":
            gates.add(node.value[0])
            node = node.args[0]
        if any(inner.op == "row_gradient" for inner in in_order([node])):
            raise NotTraceable("uses the pre-activations of a gate besides their cumax")
        results.append(node)
    return results, gates


def substitute(expressions: Expressions, results: Iterable[Node], replaced: Mapping[Node, Node]) -> list[Node]:
    """Return the results with some inputs replaced."""
    results = list(results)
    if not replaced:
        return results
    new: dict[Node, Node] = dict(replaced)
    for node in in_order(results):
        if node not in new:
            new[node] = expressions.make(node.op, *(new[a] for a in node.args), value=node.value) if node.args else node
    return [new[node] for node in results]
