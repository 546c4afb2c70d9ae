"""torch's elementwise operations (aten) as scalar expressions, forward and backward.

`ELEMENTWISE` has a function for each operation: from the operation's arguments, which are nodes or numbers, to a node.
An operation cannot be compiled if it is not listed here, does not move numbers (`STRUCTURAL`) and does not make
constants (`CONSTANT`).
"""

import math
from collections.abc import Callable

from timescales.nn.engine.scalar import Node

Number = Node | float


def _apply(op: str) -> Callable[..., Node]:
    """Return the function that applies `op` of `Expressions` to a node and other arguments."""
    return lambda x, *others: x.apply(op, *others)


def _divide(x: Number, y: Number, rounding_mode: str | None = None) -> Node:
    if rounding_mode is not None:
        raise TypeError("div with rounding_mode")
    return x / y  # type: ignore[return-value]


def _truth(x: Node) -> Node:
    """Return whether a number differs from 0. isfinite, for example, is a product of two comparisons."""
    return x if x.is_boolean else x.apply("ne", 0)


def _logical(op: str) -> Callable[..., Node]:
    return lambda x, *others: _truth(x).apply(op, *(_truth(x.expressions.node(other)) for other in others))


def _select(condition: Node, a: Number, b: Number) -> Node:
    return _truth(condition).apply("select", a, b)


def _clamp(x: Node, low: Number | None = None, high: Number | None = None) -> Node:
    # The constant is the first argument: the processor's maximum returns its second argument if one is NaN.
    if low is not None:
        x = x.expressions("max", x.expressions.node(low), x)
    return x if high is None else x.expressions("min", x.expressions.node(high), x)


def _extreme(op: str, x: Node, y: Node) -> Node:
    return _select(x.apply("ne", x), x, x.apply(op, y))  # torch returns NaN if one of the two is NaN


def _softplus(x: Node, beta: float = 1, threshold: float = 20) -> Node:
    return _select((x * beta).apply("gt", threshold), x, (x * beta).apply("exp").apply("log1p") / beta)


def _softplus_backward(d: Node, x: Node, beta: float, threshold: float) -> Node:
    x = x * beta
    return _select(x.apply("gt", threshold), d, d * x.apply("sigmoid"))


def _hardsigmoid(x: Node) -> Node:
    return _clamp(x + 3, 0, 6) / 6


def _elu(x: Node, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Node:
    negative = (x * input_scale).apply("expm1") * (alpha * scale)
    return _select(x.apply("gt", 0), x * scale, negative)


def _elu_backward(d: Node, alpha: float, scale: float, input_scale: float, is_result: bool, x: Node) -> Node:
    factor = input_scale * alpha * scale
    negative = (x + alpha * scale) * input_scale if is_result else (x * input_scale).apply("exp") * factor
    return _select(x.apply("le", 0), d * negative, d * scale)


def _mish_backward(d: Node, x: Node) -> Node:
    t = _softplus(x).apply("tanh")
    return d * (t + x * x.apply("sigmoid") * (1 - t * t))


def _inner(x: Node) -> Node:
    """Return the tanh in the tanh approximation of gelu."""
    return ((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)).apply("tanh")


def _normal(x: Node) -> Node:
    """Return the cumulative normal distribution, for gelu."""
    return (1 + (x * math.sqrt(0.5)).apply("erf")) * 0.5


def _gelu_backward(d: Node, x: Node, approximate: str = "none") -> Node:
    if approximate == "tanh":
        t = _inner(x)
        slope = (1 - t * t) * (1 + x * x * 0.134145) * math.sqrt(2 / math.pi)
        return d * (1 + t + x * slope) * 0.5
    density = (x * x * -0.5).apply("exp") * math.sqrt(0.5 / math.pi)
    return d * (_normal(x) + x * density)


def _pow(x: Number, y: Number) -> Node:
    expressions = x.expressions if isinstance(x, Node) else y.expressions  # type: ignore[union-attr]
    return expressions("pow", expressions.node(x), expressions.node(y))


ELEMENTWISE: dict[str, Callable[..., Node]] = {
    **{name: _apply(name) for name in ("neg", "abs", "sign", "sqrt", "exp", "expm1", "log", "log1p")},
    **{name: _apply(name) for name in ("tanh", "sigmoid", "sin", "cos", "erf", "floor")},
    **{name: _apply(name) for name in ("gt", "ge", "lt", "le", "eq", "ne")},
    "add": lambda x, y, alpha=1: x + (y if alpha == 1 else alpha * y),
    "sub": lambda x, y, alpha=1: x - (y if alpha == 1 else alpha * y),
    "rsub": lambda x, y, alpha=1: y - (x if alpha == 1 else alpha * x),
    "mul": lambda x, y: x * y,
    "div": _divide,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / x.apply("sqrt"),
    "ceil": lambda x: -(-x).apply("floor"),
    "square": lambda x: x * x,
    "pow": _pow,
    "log2": lambda x: x.apply("log") * (1 / math.log(2)),
    "log10": lambda x: x.apply("log") * (1 / math.log(10)),
    "exp2": lambda x: (x * math.log(2)).apply("exp"),
    "relu": lambda x: _clamp(x, 0),
    "clamp": _clamp,
    "clamp_min": lambda x, low: _clamp(x, low),
    "clamp_max": lambda x, high: _clamp(x, None, high),
    "hardtanh": lambda x, low=-1, high=1: _clamp(x, low, high),
    "hardsigmoid": _hardsigmoid,
    "softplus": _softplus,
    "silu": lambda x: x * x.apply("sigmoid"),
    "leaky_relu": lambda x, slope=0.01: _select(x.apply("gt", 0), x, x * slope),
    "elu": _elu,
    "celu": lambda x, alpha=1: _elu(x, alpha, 1, 1 / alpha),
    "hardswish": lambda x: x * _hardsigmoid(x),
    "mish": lambda x: x * _softplus(x).apply("tanh"),
    "gelu": lambda x, approximate="none": x * (1 + _inner(x)) * 0.5 if approximate == "tanh" else x * _normal(x),
    "log_sigmoid_forward": lambda x: -_softplus(-x),
    "maximum": lambda x, y: _extreme("max", x, y),
    "minimum": lambda x, y: _extreme("min", x, y),
    "where": _select,
    "masked_fill": lambda x, mask, value: _select(mask, value, x),
    **{f"{kind}_{op}": _logical(op) for kind in ("logical", "bitwise") for op in ("and", "or", "not")},
    "lerp": lambda start, end, weight: start + weight * (end - start),
    "addcmul": lambda x, a, b, value=1: x + a * b * value,
    "addcdiv": lambda x, a, b, value=1: x + a / b * value,
    "sigmoid_backward": lambda d, s: d * s * (1 - s),
    "tanh_backward": lambda d, t: d * (1 - t * t),
    "threshold_backward": lambda d, x, threshold: _select(x.apply("le", threshold), 0, d),
    "hardtanh_backward": lambda d, x, low, high: _select(x.apply("le", low).apply("or", x.apply("ge", high)), 0, d),
    "hardsigmoid_backward": lambda d, x: _select(x.apply("gt", -3).apply("and", x.apply("lt", 3)), d / 6, 0),
    "softplus_backward": _softplus_backward,
    "silu_backward": lambda d, x: d * x.apply("sigmoid") * (1 + x * (1 - x.apply("sigmoid"))),
    "leaky_relu_backward": lambda d, x, slope, _is_result: _select(x.apply("gt", 0), d, d * slope),
    "elu_backward": _elu_backward,
    "log_sigmoid_backward": lambda d, x, _buffer: d * (-x).apply("sigmoid"),
    "hardswish_backward": lambda d, x: _select(x.apply("le", -3), 0, _select(x.apply("ge", 3), d, d * (x / 3 + 0.5))),
    "mish_backward": _mish_backward,
    "gelu_backward": _gelu_backward,
    "sgn": _apply("sign"),
}

# Operations that move numbers without changing them. They run on the tables of `recorder.Traced`.
STRUCTURAL = {
    "view", "_unsafe_view", "reshape", "_reshape_alias", "unsqueeze", "squeeze", "expand", "permute", "transpose",
    "select", "slice", "split", "split_with_sizes", "unbind", "cat", "stack", "clone", "alias", "detach", "contiguous",
    "index_select", "repeat", "narrow", "unsafe_split", "unsafe_chunk", "lift_fresh", "flip", "roll",
}  # fmt: skip

# Operations that make a tensor of one number: the number, from the operation's arguments.
CONSTANT: dict[str, Callable[..., float]] = {
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), lambda *_: 0),
    **dict.fromkeys(("empty_like", "new_empty", "new_empty_strided"), lambda *_: 0),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), lambda *_: 1),
    **dict.fromkeys(("full", "full_like", "new_full", "scalar_tensor"), lambda *arguments: arguments[-1]),
}
