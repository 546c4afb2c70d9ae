"""Bounds of expressions: two numbers between which their values lie, whatever the inputs are.

Known of the inputs are the signs of dt, which is not negative, and of random numbers, which are between 0 and 1. What
is computed from parameters alone has the bounds of the calls that compute it: exp(-exp(p)) lies between 0 and 1.
"""

from __future__ import annotations

import itertools
import math
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from timescales.nn.engine.equations import Equations
from timescales.nn.engine.hoisting import Hoisted, Reference
from timescales.nn.engine.scalar import Node, in_order

Bounds = tuple[float, float]
ANY: Bounds = (-math.inf, math.inf)
CONDITIONS = 6  # that are told apart
COPIES = frozenset((
    "expand", "expand_as", "unsqueeze", "squeeze", "reshape", "flatten", "clone", "detach", "contiguous",
    "chunk", "split", "unbind", "getitem", "repeat_interleave",
))  # fmt: skip  # calls whose results are numbers of their first argument


def bounds_by_case(e: Equations, result: Node) -> Bounds:
    """The bounds of an expression, from those in each case of its conditions: so where(c, f, 0) + where(c, 0, g) has
    those of f and g, not of their sum. Conditions after the first few are not told apart.
    """
    conditions = list(dict.fromkeys(node.args[0] for node in in_order([result]) if node.op == "select"))[:CONDITIONS]
    cases = itertools.product((True, False), repeat=len(conditions))
    found = [bounds(e, [result], dict(zip(conditions, case, strict=True)))[result] for case in cases]
    return min(low for low, _ in found), max(high for _, high in found)


def bounds(
    e: Equations, results: Iterable[Node], case: Mapping[Node, bool] = types.MappingProxyType({})
) -> dict[Node, Bounds]:
    """The bounds of the results and of all nodes that they need. NaN is not considered.

    case: conditions of which it is known whether they hold.
    """
    vectors = _of_calls(e.hoisted)
    found: dict[Node, Bounds] = {}
    for node in in_order(results):
        if node.op == "constant":
            found[node] = _checked(node.value, node.value)
        elif node.op == "vector":
            found[node] = vectors[e.hoisted.used[node.value[0]]]
        elif node.op == "dt":
            found[node] = (0.0, math.inf)
        elif node.op == "noise":
            found[node] = (0.0, 1.0)
        elif node.op == "select":
            found[node] = _select(node, found, case)
        elif node.op == "mul" and node.args[0] is node.args[1]:
            found[node] = _square(found[node.args[0]])
        elif node.op in ("max", "min"):
            found[node] = (_max if node.op == "max" else _min)(*(found[a] for a in node.args))
        elif node.op in RULES:
            found[node] = RULES[node.op](*(found[a] for a in node.args))
        else:
            found[node] = ANY
    return found


def _select(node: Node, found: Mapping[Node, Bounds], case: Mapping[Node, bool]) -> Bounds:
    """The bounds of both choices. What a condition says of its own choice counts, as in softplus and maximum."""
    condition, yes, no = node.args
    (low, high), other = found[yes], found[no]
    if condition.op in ("gt", "ge", "lt", "le", "ne") and condition.args[0] is yes:
        limit = condition.args[1]
        if condition.op == "ne" and limit is yes:  # only for NaN
            return other
        if condition.op in ("gt", "ge"):
            low = max(low, found[limit][0])
        elif condition.op in ("lt", "le"):
            high = min(high, found[limit][1])
    if condition in case:
        return (low, high) if case[condition] else other
    return min(low, other[0]), max(high, other[1])


def _of_calls(hoisted: Hoisted) -> dict[int, Bounds]:
    """The bounds of what is computed from parameters alone, by place."""
    found = dict.fromkeys(hoisted.roots, ANY)

    def of(value: Any) -> Bounds | None:
        if isinstance(value, Reference):
            return found[value.place]
        return _checked(value, value) if isinstance(value, (int, float)) else None

    for call in hoisted.calls:
        name = getattr(call.function, "__name__", "").strip("_")
        result = ANY
        if name in COPIES and call.args:
            result = of(call.args[0]) or ANY
        elif name in RULES:
            args, kwargs = [of(v) for v in call.args], {key: of(v) for key, v in call.kwargs.items()}
            try:
                result = RULES[name](*args, **kwargs)
            except TypeError:  # arguments that the rule does not know, as alpha
                result = ANY
        found.update(dict.fromkeys(call.places, result))
    return found


def _checked(low: float, high: float) -> Bounds:
    return ANY if math.isnan(low) or math.isnan(high) else (float(low), float(high))


def _neg(a: Bounds) -> Bounds:
    return -a[1], -a[0]


def _add(a: Bounds, b: Bounds) -> Bounds:
    return _checked(a[0] + b[0], a[1] + b[1])


def _sub(a: Bounds, b: Bounds) -> Bounds:
    return _add(a, _neg(b))


def _mul(a: Bounds, b: Bounds) -> Bounds:
    products = [0.0 if 0.0 in (x, y) else x * y for x in a for y in b]
    return min(products), max(products)


def _div(a: Bounds, b: Bounds) -> Bounds:
    if b[0] < 0.0:
        return _div(_neg(a), _neg(b)) if b[1] <= 0.0 else ANY
    return _mul(a, (1.0 / b[1] if b[1] else math.inf, 1.0 / b[0] if b[0] else math.inf))


def _square(a: Bounds) -> Bounds:
    low, high = _abs(a)
    return low * low, high * high


def _abs(a: Bounds) -> Bounds:
    return max(0.0, a[0], -a[1]), max(abs(a[0]), abs(a[1]))


def _pow(a: Bounds, b: Bounds) -> Bounds:
    if b == (2.0, 2.0):
        return _square(a)
    if a[0] < 0.0:
        return ANY
    return 0.0, 1.0 if a[1] <= 1.0 and b[0] >= 0.0 else math.inf


def _max(a: Bounds, b: Bounds) -> Bounds:
    return max(a[0], b[0]), max(a[1], b[1])


def _min(a: Bounds, b: Bounds) -> Bounds:
    return min(a[0], b[0]), min(a[1], b[1])


def _clamp(a: Bounds, min: Bounds | None = None, max: Bounds | None = None) -> Bounds:  # torch's names
    a = a if min is None else _max(a, min)
    return a if max is None else _min(a, max)


def _increasing(function: Callable[[float], float], first: float = -math.inf) -> Callable[[Bounds], Bounds]:
    """The rule of a function that increases. first: its value at the left end of where it exists."""

    def value(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return first

    return lambda a: (value(a[0]), value(a[1]))


def _sigmoid(x: float) -> float:
    return 0.5 * (1.0 + math.tanh(0.5 * x))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


# By the name of an operation of a node, or of a call of torch on parameters.
RULES: dict[str, Callable[..., Bounds]] = {
    "neg": _neg,
    "abs": _abs,
    "square": _square,
    "sign": lambda a: (-1.0, 1.0),
    "sin": lambda a: (-1.0, 1.0),
    "cos": lambda a: (-1.0, 1.0),
    "exp": _increasing(math.exp),
    "expm1": _increasing(math.expm1),
    "log": _increasing(math.log),
    "log1p": _increasing(math.log1p),
    "sqrt": _increasing(math.sqrt, 0.0),
    "tanh": _increasing(math.tanh),
    "erf": _increasing(math.erf),
    "floor": _increasing(lambda x: math.floor(x) if math.isfinite(x) else x),
    "sigmoid": _increasing(_sigmoid),
    "softplus": _increasing(_softplus),
    "logsigmoid": _increasing(lambda x: -_softplus(-x)),
    "log_sigmoid": _increasing(lambda x: -_softplus(-x)),
    "relu": lambda a: _max(a, (0.0, 0.0)),
    "clamp": _clamp,
    "add": _add,
    "radd": _add,
    "sub": _sub,
    "rsub": lambda a, b: _sub(b, a),
    "mul": _mul,
    "rmul": _mul,
    "div": _div,
    "truediv": _div,
    "rdiv": lambda a, b: _div(b, a),
    "rtruediv": lambda a, b: _div(b, a),
    "pow": _pow,
    "maximum": _max,
    "minimum": _min,
}
