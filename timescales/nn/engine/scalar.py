"""Expressions for one unit of one sequence: scalar operations, simplified while they are built.

A `Node` is an operation and its arguments. `Expressions` makes each node once: equal expressions are the same object.
The generated C++ code and the text for people are written from these nodes.

Inputs are nodes without arguments: ("pre", k) and the others that `trace.py` makes. One operation is not of one unit:
"mean", over all units of the sequence. Kernels compute it before the others (`Equations.means`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# Operations on numbers: number of arguments. `select(condition, a, b)` is torch.where.
UNARY = (
    *("neg", "abs", "sign", "sqrt", "exp", "expm1", "log", "log1p", "sigmoid", "tanh", "sin", "cos", "erf", "floor"),
    "not",
)
ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
COMPARISONS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}


def _operator(op: str) -> tuple[Callable[[Node, Node | float], Node], Callable[[Node, float], Node]]:
    """Return the methods of an operator of `Node`: for the node on its left, and for a number on its left."""
    return lambda node, other: node.apply(op, other), lambda node, other: node.expressions.node(other).apply(op, node)


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """An operation, its arguments, and the value of a constant or the name of an input. Compared by identity.

    +, -, * and / make nodes of the same `Expressions`; the other argument may be a number.
    """

    expressions: Expressions
    op: str
    args: tuple[Node, ...]
    value: Any

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub")
    __mul__, __rmul__ = _operator("mul")
    __truediv__, __rtruediv__ = _operator("div")

    def __neg__(self) -> Node:
        return self.apply("neg")

    def apply(self, op: str, *others: Node | float) -> Node:
        """Return the node of an operation whose first argument is this node."""
        return self.expressions(op, self, *map(self.expressions.node, others))

    @property
    def is_boolean(self) -> bool:
        """Return whether the value is true or false."""
        return self.op in (*COMPARISONS, "and", "or", "not")

    def __repr__(self) -> str:
        if not self.args:
            return f"{self.value:.9g}" if self.op == "constant" else f"{self.op}{list(self.value)}"
        return f"{self.op}({', '.join(map(repr, self.args))})"


class Expressions:
    """The nodes of a cell. Every method returns the unique node of its expression."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[Any, ...], Node] = {}

    def make(self, op: str, *args: Node, value: Any = None) -> Node:
        """Return the node of an operation, without simplification."""
        key = (op, *map(id, args), repr(value))
        if key not in self._nodes:
            self._nodes[key] = Node(self, op, args, value)
        return self._nodes[key]

    def input(self, kind: str, *name: int) -> Node:
        """Return an input, for example ("state", 1)."""
        return self.make(kind, value=name)

    def constant(self, value: float) -> Node:
        """Return the node of a number."""
        return self.make("constant", value=float(value))

    def node(self, value: Node | float) -> Node:
        """Return `value` itself, or the constant of a number."""
        return value if isinstance(value, Node) else self.constant(value)

    def __call__(self, op: str, *args: Node) -> Node:
        """Return the node of an operation, simplified.

        0 * x does not become 0, since x may be infinite or NaN. 1 - sigmoid(x) becomes sigmoid(-x), which keeps all
        digits where the sigmoid is near 1.
        """
        truths = {"and": 2, "or": 2, "not": 1, "select": 1}.get(op, 0)  # the first arguments, which stay true or false
        args = (*args[:truths], *map(self.as_number, args[truths:]))
        values = [a.value if a.op == "constant" else None for a in args]
        if args and None not in values and op in FOLDED:
            try:
                folded = FOLDED[op](*values)
            except (ArithmeticError, ValueError):
                folded = None  # Python has no result, as for 1 / 0
            if isinstance(folded, (int, float)):
                return self.constant(folded)
        simplified = self._simplify(op, args, values)
        return self.make(op, *args) if simplified is None else simplified

    def as_number(self, node: Node) -> Node:
        """Return 1 for true and 0 for false; return a number unchanged."""
        if not node.is_boolean:
            return node
        return self.make("select", node, self.constant(1.0), self.constant(0.0))

    def _simplify(self, op: str, args: tuple[Node, ...], values: list[Any]) -> Node | None:
        a = args[0]
        if op == "neg":
            return a.args[0] if a.op == "neg" else None
        if op == "select":
            return args[1] if args[1] is args[2] else None
        if len(args) == 1:
            return None
        b, x, y = args[1], values[0], values[1]
        if op == "add":
            return b if x == 0.0 else a if y == 0.0 else self._sum(a, b)
        if op == "sub":
            return self._difference(a, b, x, y)
        if op == "mul":
            return self._product(a, b, x, y)
        if op == "div":
            if y == 1.0:
                return a
            exact = y is not None and y != 0.0 and math.isfinite(y) and math.frexp(abs(y))[0] == 0.5  # a power of two
            return self("mul", a, self.constant(1.0 / y)) if exact else None
        if op == "pow":
            return self._power(a, y)
        return None

    def _sum(self, a: Node, b: Node) -> Node | None:
        if {a.op, b.op} == {"x", "h"} and a.value == b.value:
            return self.input("pre", *a.value)  # both shares of a gate's pre-activation
        if b.op == "neg":
            return self("sub", a, b.args[0])
        if a.op == "neg":
            return self("sub", b, a.args[0])
        return None

    def _difference(self, a: Node, b: Node, x: Any, y: Any) -> Node | None:
        if y == 0.0:
            return a
        if x == 0.0:
            return self("neg", b)
        if x == 1.0 and b.op == "sigmoid":
            return self("sigmoid", self("neg", b.args[0]))
        if b.op == "neg":
            return self("add", a, b.args[0])
        return None

    def _product(self, a: Node, b: Node, x: Any, y: Any) -> Node | None:
        for constant, other in ((x, b), (y, a)):
            if constant == 1.0:
                return other
            if constant == -1.0:
                return self("neg", other)
        if a.op == "neg" and b.op == "neg":
            return self("mul", a.args[0], b.args[0])
        return None

    def _power(self, a: Node, exponent: Any) -> Node | None:
        if exponent == 1.0:
            return a
        if exponent == 2.0:
            return self("mul", a, a)
        if exponent == 3.0:
            return self("mul", self("mul", a, a), a)
        if exponent == 0.5:
            return self("sqrt", a)
        if exponent == -0.5:
            return self("div", self.constant(1.0), self("sqrt", a))
        if exponent == -1.0:
            return self("div", self.constant(1.0), a)
        if exponent == 0.0:
            return self.constant(1.0)
        return None


FOLDED: dict[str, Callable[..., float]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "abs": abs,
    **{op: getattr(math, op) for op in ("sqrt", "exp", "expm1", "log", "log1p", "tanh", "sin", "cos", "erf", "floor")},
    "pow": lambda x, y: x**y,
    "mean": lambda x: x,
}


def in_order(results: Iterable[Node]) -> list[Node]:
    """Return all nodes that the results need, each after its arguments."""
    order: dict[Node, None] = {}
    stack = [(node, False) for node in reversed([*results])]
    while stack:
        node, ready = stack.pop()
        if node in order:
            continue
        if ready:
            order[node] = None
            continue
        stack.append((node, True))
        stack.extend((argument, False) for argument in reversed(node.args))
    return list(order)


def schedule(results: Sequence[Node], given: Container[Node]) -> list[tuple[Node, Node | None]]:
    """Return what to compute for the results, in order, without the given nodes.

    Each entry is a node and None, or sigmoid(x) and sigmoid(-x) if both are needed: one exponential gives both.
    """
    order = [node for node in in_order(results) if node not in given and node.op != "constant"]
    needed = set(order)
    opposites: dict[Node, Node] = {}
    second = set()  # the sigmoids that are computed together with another one
    for node in order:
        if node.op == "sigmoid" and node not in second:
            opposite = node.expressions("sigmoid", -node.args[0])
            if opposite in needed:
                opposites[node] = opposite
                second.add(opposite)
    used, nodes = set(results), []
    for node in reversed(order):  # a negation that only the second sigmoid needed is left out
        if node not in second and (node in used or opposites.get(node) in used):
            used.update(node.args)
            nodes.append(node)
    return [(node, opposites.get(node)) for node in reversed(nodes)]
