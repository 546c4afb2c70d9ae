"""Which cells are scans over time: their new state is affine in the state before, so chunks of steps can be joined.

    s' = a s + b        a matrix a and a vector b for each unit, from the input and from fields that are known already

The fields of the state form components: fields that depend on each other are one component (the real and the imaginary
part of an LRU), and a component may depend on earlier ones in any way (the c of a power-law scan on the age). The
matrix of a component is a part of the step's Jacobian, which the recorded gradients contain.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import NamedTuple

import torch

from timescales.nn.engine.equations import Equations, substitute
from timescales.nn.engine.scalar import Graph, Node, evaluate, in_order

Matrix = tuple[tuple[Node | None, ...], ...]  # None is 0
SAMPLES = 64  # random numbers for each input, with which the expressions are checked
TOLERANCE = 1e-9  # in float64


class Component(NamedTuple):
    """Fields that are computed together: their numbers, and the matrix a and the vector b of a step."""

    fields: tuple[int, ...]
    matrix: Matrix
    drive: tuple[Node, ...]

    @property
    def is_memoryless(self) -> bool:
        """Whether the fields after a step do not depend on those before it."""
        return all(entry is None for row in self.matrix for entry in row)


class Affine(NamedTuple):
    """A step as affine maps: its components in their order, and its Jacobian, of new field i by field j before."""

    components: tuple[Component, ...]
    jacobian: Matrix


class NotLinear(Exception):
    """An expression is not linear in the gradients of the state."""


_known: weakref.WeakKeyDictionary[Graph, Affine | None] = weakref.WeakKeyDictionary()


def affine(e: Equations) -> Affine | None:
    """The affine maps of a cell without recurrent product; None if its step is not affine, or has such a product."""
    if e.graph not in _known:
        _known[e.graph] = _affine(e) if e.is_scan else None
    return _known[e.graph]


def _affine(e: Equations) -> Affine | None:
    try:
        by_state = [_coefficients(e, node) for node in e.d_state]
    except NotLinear:
        return None
    numbers = range(len(e.fields))
    jacobian = tuple(tuple(by_state[j].get(i) for j in numbers) for i in numbers)
    components = []
    for fields in _in_order_of_need(e):
        own = {e.graph.input("state", k) for k in fields}
        matrix = tuple(tuple(jacobian[i][j] for j in fields) for i in fields)
        if any(own & set(in_order([entry])) for row in matrix for entry in row if entry is not None):
            return None
        zero = dict.fromkeys(own, e.graph.constant(0.0))
        components.append(Component(fields, matrix, tuple(substitute(e.graph, [e.new[i] for i in fields], zero))))
    found = Affine(tuple(components), jacobian)
    return found if _holds(e, found) else None


def _coefficients(e: Equations, result: Node) -> dict[int, Node]:
    """The factors of the gradients d_state in an expression that is linear in them, by field. 0 is left out."""
    graph, known = e.graph, dict[Node, dict[int, Node]]()
    for node in in_order([result]):
        parts = [known[a] for a in node.args]
        if node.op == "d_state":
            known[node] = {node.value[0]: graph.constant(1.0)}
        elif not any(parts):
            known[node] = {}
        elif node.op == "neg":
            known[node] = {k: -v for k, v in parts[0].items()}
        elif node.op in ("add", "sub"):
            if any(not part and not _is_zero(a) for part, a in zip(parts, node.args, strict=True)):
                raise NotLinear
            known[node] = {k: _joined(node.op, parts[0].get(k), parts[1].get(k)) for k in parts[0] | parts[1]}
        elif node.op == "mul" and not all(parts):
            linear, factor = (parts[0], node.args[1]) if parts[0] else (parts[1], node.args[0])
            known[node] = {k: v * factor for k, v in linear.items()}
        elif node.op == "div" and not parts[1]:
            known[node] = {k: v / node.args[1] for k, v in parts[0].items()}
        elif node.op == "select" and not parts[0]:
            if any(not part and not _is_zero(a) for part, a in zip(parts[1:], node.args[1:], strict=True)):
                raise NotLinear
            zero = graph.constant(0.0)
            yes, no = parts[1:]
            known[node] = {k: graph("select", node.args[0], yes.get(k, zero), no.get(k, zero)) for k in yes | no}
        else:
            raise NotLinear
    if not known[result] and not _is_zero(result):
        raise NotLinear
    return known[result]


def _is_zero(node: Node) -> bool:
    return node.op == "constant" and node.value == 0.0


def _joined(op: str, a: Node | None, b: Node | None) -> Node:
    """a + b or a - b, where one may be 0."""
    if a is not None and b is not None:
        return a + b if op == "add" else a - b
    if a is not None:
        return a
    assert b is not None
    return b if op == "add" else -b


def _in_order_of_need(e: Equations) -> list[tuple[int, ...]]:
    """The components: fields that need each other, after those that they need."""
    numbers = range(len(e.fields))
    needs = [{node.value[0] for node in in_order([new]) if node.op == "state"} for new in e.new]
    for _ in numbers:  # what the needed ones need
        needs = [own.union(*(needs[k] for k in own)) for own in needs]
    groups = {tuple(j for j in numbers if j == i or (j in needs[i] and i in needs[j])) for i in numbers}
    ordered: list[tuple[int, ...]] = []
    while groups:
        done = {k for group in ordered for k in group}
        ready = min(g for g in groups if all(needs[k] <= done | set(g) for k in g))
        ordered.append(ready)
        groups.remove(ready)
    return ordered


def _holds(e: Equations, found: Affine) -> bool:
    """Whether a s + b is the new state, for random numbers: detach and others give a state another gradient."""
    results = [*e.new, *e.backward]
    random = torch.Generator().manual_seed(0)
    inputs = {
        node: torch.rand(SAMPLES, generator=random, dtype=torch.float64)
        for node in in_order([*results, *(n for c in found.components for n in c.drive)])
        if not node.args and node.op != "constant"
    }
    for component in found.components:
        states = [inputs.get(e.graph.input("state", j), torch.zeros(())) for j in component.fields]
        for i, row, drive in zip(component.fields, component.matrix, component.drive, strict=True):
            value, total = evaluate([e.new[i], drive], inputs)
            for entry, state in zip(row, states, strict=True):
                if entry is not None:
                    total = total + evaluate([entry], inputs)[0] * state
            if not bool(((total - value).abs() <= TOLERANCE * (1.0 + value.abs())).all()):
                return False
    return True


def entries(matrix: Matrix) -> Sequence[tuple[int, int, Node]]:
    """The entries of a matrix that are not 0: row, column, expression."""
    return [(i, j, node) for i, row in enumerate(matrix) for j, node in enumerate(row) if node is not None]
