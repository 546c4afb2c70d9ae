"""Which cells are scans over time: their new state is affine in the state before, so chunks of steps can be joined.

    s' = a s + b        a matrix a and a vector b for each unit, from the input and from fields that are known already

The fields of the state form components: fields that depend on each other are one component (the real and the imaginary
part of an LRU), and a component may depend on earlier ones in any way (the c of a power-law scan on the age). a and b
are read from the expressions of the new state. The gradients of the state have a matrix of their own, the step's
Jacobian, which is read from the recorded gradients: detach makes it differ from a.

A chunk's map is a product of up to 64 matrices. It must not overflow where the state does not: so a cell is a scan only
if the bounds of its factors (bounds.py) lie between -1 and 1.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from timescales.nn.engine.bounds import bounds_by_case
from timescales.nn.engine.equations import Equations
from timescales.nn.engine.kept import with_equations
from timescales.nn.engine.scalar import Node, in_order

Matrix = tuple[tuple[Node | None, ...], ...]  # None is 0
Terms = dict[Node | None, Node]  # of an affine expression: the factor of each variable, and what is added, by None
MOST = 3  # fields of a component: 3 factors of 1 in a row are at most 3^64 in a chunk, which float32 has


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


class NotAffine(Exception):
    """A step is no scan, for this reason."""


def affine(e: Equations) -> Affine | None:
    """The affine maps of a cell without recurrent product; None if its step is no scan, or has such a product."""
    found = affine_or_reason(e)
    return None if isinstance(found, str) else found


@with_equations
def affine_or_reason(e: Equations) -> Affine | str:
    """The affine maps of a cell's step, or the reason why it is no scan over time."""
    try:
        return _affine(e)
    except NotAffine as error:
        return str(error)


def _affine(e: Equations) -> Affine:
    if not e.is_scan:
        raise NotAffine("a step has a product over the units")
    jacobian = _jacobian(e)
    components = [_component(e, fields) for fields in _in_order_of_need(e, jacobian)]
    for component in components:
        _check_factors(e, component, jacobian)
    return Affine(tuple(components), jacobian)


def _jacobian(e: Equations) -> Matrix:
    """What the gradients of the state before are multiplied with, from those of the new one."""
    after = [e.input("d_state", i) for i in range(len(e.fields))]
    columns = []
    for field, node in zip(e.fields, e.d_state, strict=True):
        found = _terms(node, after)
        if found is None or None in found:
            raise NotAffine(f"the gradient of {field} is not linear in the gradients of the new state")
        columns.append([found.get(d) for d in after])
    return tuple(zip(*columns, strict=True))


def _component(e: Equations, fields: tuple[int, ...]) -> Component:
    own = [e.input("state", k) for k in fields]
    rows, drive = [], []
    for k in fields:
        found = _terms(e.new[k], own)
        if found is None:
            raise NotAffine(f"the new {e.fields[k]} is not affine in {' and '.join(e.fields[j] for j in fields)}")
        rows.append(tuple(found.get(state) for state in own))
        drive.append(found.get(None, e.expressions.constant(0.0)))
    return Component(fields, tuple(rows), tuple(drive))


def _check_factors(e: Equations, component: Component, jacobian: Matrix) -> None:
    """Raise NotAffine if a product of the factors of many steps may overflow, forward or backward."""
    fields = component.fields
    if len(fields) > MOST:
        raise NotAffine(f"more than {MOST} fields depend on each other: {', '.join(e.fields[k] for k in fields)}")
    backward = tuple(tuple(jacobian[i][j] for j in fields) for i in fields)
    for i, j, node in (*entries(component.matrix), *entries(backward)):
        low, high = bounds_by_case(e, node)
        if not -1.0 <= low <= high <= 1.0:
            before, new = e.fields[fields[j]], e.fields[fields[i]]
            raise NotAffine(f"the factor of {before} in the new {new} is not known to lie between -1 and 1")


def _terms(result: Node, variables: Container[Node]) -> Terms | None:
    """The terms of an expression that is affine in the variables; None if it is not. Terms that are 0 are left out."""
    expressions, known = result.expressions, dict[Node, Terms]()
    for node in in_order([result]):
        parts = [known[a] for a in node.args]
        varies = [any(key is not None for key in part) for part in parts]
        if node in variables:
            known[node] = {node: expressions.constant(1.0)}
        elif not any(varies):
            known[node] = {} if node.op == "constant" and node.value == 0.0 else {None: node}
        elif node.op == "neg":
            known[node] = {k: -v for k, v in parts[0].items()}
        elif node.op in ("add", "sub"):
            known[node] = {k: _joined(node.op, parts[0].get(k), parts[1].get(k)) for k in parts[0] | parts[1]}
        elif node.op == "mul" and not all(varies):
            affine, factor = (parts[0], node.args[1]) if varies[0] else (parts[1], node.args[0])
            known[node] = {k: v * factor for k, v in affine.items()}
        elif node.op == "div" and not varies[1]:
            known[node] = {k: v / node.args[1] for k, v in parts[0].items()}
        elif node.op == "select" and not varies[0]:
            zero = expressions.constant(0.0)
            yes, no = parts[1:]
            known[node] = {k: expressions("select", node.args[0], yes.get(k, zero), no.get(k, zero)) for k in yes | no}
        else:
            return None
    return known[result]


def _joined(op: str, a: Node | None, b: Node | None) -> Node:
    """a + b or a - b, where one may be 0."""
    if a is not None and b is not None:
        return a + b if op == "add" else a - b
    if a is not None:
        return a
    assert b is not None
    return b if op == "add" else -b


def _in_order_of_need(e: Equations, jacobian: Matrix) -> list[tuple[int, ...]]:
    """The components: fields that need each other, in value or gradient, after those that they need."""
    numbers = range(len(e.fields))
    needs = [{node.value[0] for node in in_order([new]) if node.op == "state"} for new in e.new]
    needs = [own.union(j for j in numbers if row[j] is not None) for own, row in zip(needs, jacobian, strict=True)]
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


def entries(matrix: Matrix) -> Sequence[tuple[int, int, Node]]:
    """The entries of a matrix that are not 0: row, column, expression."""
    return [(i, j, node) for i, row in enumerate(matrix) for j, node in enumerate(row) if node is not None]
