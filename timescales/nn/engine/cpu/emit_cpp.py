"""The C++ code of a cell: the struct `Cell` that loop.cpp includes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from timescales.nn.engine.equations import KINDS, Equations
from timescales.nn.engine.scalar import Node, schedule

OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
COMPARED = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
LOGIC = {"and": "&", "or": "|"}
FUNCTIONS = {
    "abs": "absolute",
    "sign": "sign",
    "sqrt": "square_root",
    "exp": "exp_of",
    "expm1": "exp_minus_one",
    "log": "logarithm",
    "log1p": "log_one_plus",
    "sigmoid": "sigmoid",
    "tanh": "hyperbolic_tangent",
    "sin": "sine",
    "cos": "cosine",
    "erf": "error_function",
    "floor": "round_down",
    "pow": "power",
    "max": "maximum",
    "min": "minimum",
}


def cell_code(equations: Equations) -> str:
    """The text of `struct Cell`."""
    e = equations
    inputs: dict[Node, str] = {block.node: f"z[{k}]" for k, block in enumerate(e.blocks)}
    inputs |= {e.graph.input("state", k): f"state[{k}]" for k in range(len(e.fields))}
    inputs |= {e.graph.input("vector", *name): f"vector[{k}]" for k, name in enumerate(e.vectors)}
    inputs |= {e.graph.input("noise", k): f"noise[{k}]" for k in range(e.noises)}
    inputs |= {e.graph.input("d_state", k): f"d[{k}]" for k in range(len(e.fields))}
    inputs[e.graph.input("dt")] = "dt"
    forward = _statements(e.new, inputs, [f"now[{k}]" for k in range(len(e.fields))])
    gradients = [f"dz[{k}]" for k in range(len(e.blocks))]
    gradients += [f"dstate[{k}]" for k in range(len(e.fields))]
    gradients += [f"dvector[{k}]" for k in range(len(e.vectors))]
    gradients += ["ddt"] if e.d_dt is not None else []
    backward = _statements(e.backward, inputs, gradients)
    kinds = [sum(block.kind == kind for block in e.blocks) for kind in KINDS]
    arguments = "const Vec* z, const Vec* state, const Vec* vector, const Vec* noise, const Vec& dt"
    lines = [
        "struct Cell {",
        f"    static constexpr int X_ONLY = {kinds[0]}, SUMS = {kinds[1]}, "
        f"H_ONLY = {kinds[2]}, FIELDS = {len(e.fields)},",
        f"                         VECTORS = {len(e.vectors)}, NOISES = {e.noises};",
        f"    static constexpr bool READS_H = {_bool(e.reads_h)}, TIMED = {_bool(e.d_dt is not None)};",
        f"    static constexpr int gate(int block) {{ return {_choice([b.gate for b in e.blocks])}; }}",
        f"    static constexpr int divisor(int gate) {{ return {_choice(e.divisors, 'gate')}; }}",
        f"    static constexpr bool is_row(int block) {{ return {_choice([int(b.is_row) for b in e.blocks])}; }}",
        f"    static INLINE void forward({arguments}, Vec* now) {{",
        *forward,
        "    }",
        f"    static INLINE void backward({arguments},",
        "                                const Vec* d, Vec* dz, Vec* dstate, Vec* dvector, Vec& ddt) {",
        *backward,
        "    }",
        "};",
    ]
    return "\n".join(lines) + "\n"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _choice(values: Sequence[int], name: str = "block") -> str:
    """The expression of the value with the number `name`."""
    if len(set(values)) == 1:
        return str(values[0])
    return " : ".join(f"{name} == {k} ? {v}" for k, v in enumerate(values[:-1])) + f" : {values[-1]}"


def _statements(results: Sequence[Node], inputs: Mapping[Node, str], targets: Iterable[str]) -> list[str]:
    """Statements that compute the results and assign them to the targets."""
    names = dict(inputs)
    lines = []
    for node, opposite in schedule(results, inputs):
        names[node] = name = f"v{len(names)}"
        if opposite is None:
            lines.append(f"{'Mask' if node.is_boolean else 'Vec'} {name} = {_expression(node, names)};")
        else:
            names[opposite] = f"v{len(names)}"
            lines.append(f"Vec {name}, {names[opposite]};")
            lines.append(f"both_sigmoids({_operand(node.args[0], names)}, {name}, {names[opposite]});")
    for node, target in zip(results, targets, strict=True):
        lines.append(f"{target} = {_vector(node, names)};")
    return [f"        {line}" for line in lines]


def _expression(node: Node, names: Mapping[Node, str]) -> str:
    operands = [_operand(a, names) for a in node.args]
    if node.op == "neg":
        return f"-{operands[0]}"
    if node.op == "not":
        return f"~{operands[0]}"
    if node.op in OPERATORS:
        if all(a.op == "constant" for a in node.args):
            operands[0] = _vector(node.args[0], names)
        return f"{operands[0]} {OPERATORS[node.op]} {operands[1]}"
    if node.op in LOGIC:
        return f"{operands[0]} {LOGIC[node.op]} {operands[1]}"
    vectors = [_vector(a, names) for a in node.args]
    if node.op in COMPARED:
        return f"{vectors[0]} {COMPARED[node.op]} {vectors[1]}"
    if node.op == "select":
        return f"select({', '.join([operands[0], *vectors[1:]])})"
    return f"{FUNCTIONS[node.op]}({', '.join(vectors)})"


def _operand(node: Node, names: Mapping[Node, str]) -> str:
    return literal(node.value) if node.op == "constant" else names[node]


def _vector(node: Node, names: Mapping[Node, str]) -> str:
    return f"spread_vec({literal(node.value)})" if node.op == "constant" else names[node]


def literal(value: float) -> str:
    """A float constant of C++."""
    if math.isnan(value):
        return '__builtin_nanf("")'
    if math.isinf(value):
        return "__builtin_inff()" if value > 0 else "-__builtin_inff()"
    text = f"{value:.9g}"
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"
