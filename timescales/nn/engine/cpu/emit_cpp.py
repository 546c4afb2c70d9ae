"""Write the C++ code of a cell: the struct `Cell` that loop.cpp includes."""

import collections
import dataclasses
import itertools
import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

from timescales.nn.engine.equations import KINDS, Equations, substitute
from timescales.nn.engine.render import Language, statements
from timescales.nn.engine.scalar import ARITHMETIC, COMPARISONS, Node, in_order, schedule

OPERATIONS = {  # functions on vectors are those of vectors.h
    **{op: f"{{a}} {sign} {{b}}" for op, sign in ARITHMETIC.items()},
    **{op: f"{{A}} {sign} {{B}}" for op, sign in COMPARISONS.items()},
    "neg": "-{a}",
    "and": "{a} & {b}",
    "or": "{a} | {b}",
    "not": "~{a}",
    "select": "select({a}, {B}, {C})",
    **{op: f"{op}({{A}})" for op in ("sign", "sigmoid")},
    "abs": "absolute({A})",
    "sqrt": "square_root({A})",
    "exp": "exp_of({A})",
    "expm1": "exp_minus_one({A})",
    "log": "logarithm({A})",
    "log1p": "log_one_plus({A})",
    "tanh": "hyperbolic_tangent({A})",
    "sin": "sine({A})",
    "cos": "cosine({A})",
    "erf": "error_function({A})",
    "floor": "round_down({A})",
    "pow": "power({A}, {B})",
    "max": "maximum({A}, {B})",
    "min": "minimum({A}, {B})",
}


def cell_code(equations: Equations) -> str:
    """Return the text of `struct Cell`."""
    e, activated = with_activations(equations)
    inputs: dict[Node, str] = {block.node: f"z[{k}]" for k, block in enumerate(e.blocks)}
    inputs |= {e.input("activation", k): f"z[{k}]" for k in activated}
    inputs |= {e.input("state", k): f"state[{k}]" for k in range(len(e.fields))}
    inputs |= {e.input("vector", *name): f"vector[{k}]" for k, name in enumerate(e.vectors)}
    inputs |= {e.input("noise", k): f"noise[{k}]" for k in range(e.noises)}
    inputs |= {e.input("d_state", k): f"d[{k}]" for k in range(len(e.fields))}
    inputs[e.input("dt")] = "dt"
    stages = [*e.means[0], *e.means[1]]
    means = list(itertools.accumulate(map(len, stages), initial=0))  # number of means before each stage, and in all
    inputs |= {mean: f"vector[{len(e.vectors) + k}]" for k, mean in enumerate(itertools.chain(*stages))}
    summands, kept = list[str](), [0]
    known = _stages(e.means[0], e.new, inputs, len(e.vectors) + means[-1], kept, summands)
    forward = _statements(e.new, known, [f"now[{k}]" for k in range(len(e.fields))])
    known = _stages(e.means[1], e.backward, inputs, len(e.vectors) + means[-1], kept, summands)
    gradients = [f"dz[{k}]" for k in range(len(e.blocks))]
    gradients += [f"dstate[{k}]" for k in range(len(e.fields))]
    gradients += [f"dvector[{k}]" for k in range(len(e.vectors))]
    gradients += ["ddt"] if e.d_dt is not None else []
    backward = _statements(e.backward, known, gradients)
    are_activated = [int(k in activated) for k in range(len(e.blocks))]
    kinds = [sum(block.kind == kind for block in e.blocks) for kind in KINDS]
    arguments = "Vec* z, const Vec* state, const Vec* vector, const Vec* noise, const Vec& dt"
    lines = [
        "struct Cell {",
        f"    static constexpr int X_ONLY = {kinds[0]}, SUMS = {kinds[1]}, "
        f"H_ONLY = {kinds[2]}, FIELDS = {len(e.fields)},",
        f"                         VECTORS = {len(e.vectors)}, NOISES = {e.noises}, "
        f"MEANS = {means[-1]}, KEPT = {kept[-1]};",
        f"    static constexpr bool READS_H = {str(e.reads_h).lower()}, TIMED = {str(e.d_dt is not None).lower()};",
        f"    static constexpr int gate(int block) {{ return {_choice([b.gate for b in e.blocks])}; }}",
        f"    static constexpr int divisor(int gate) {{ return {_choice(e.divisors, 'gate')}; }}",
        f"    static constexpr bool is_row(int block) {{ return {_choice([int(b.is_row) for b in e.blocks])}; }}",
        f"    static constexpr bool is_activated(int block) {{ return {_choice(are_activated)}; }}",
        "    template <int block> static INLINE Vec activation(const Vec& z) {",
        *(f"        if constexpr (block == {k}) return {code.format('z')};" for k, code in activated.items()),
        "    }",
        f"    static INLINE void forward({arguments}, Vec* now) {{",
        *forward,
        "    }",
        f"    static INLINE void backward({arguments},",
        "                                const Vec* d, Vec* dz, Vec* dstate, Vec* dvector, Vec& ddt) {",
        *backward,
        "    }",
    ]
    if summands:
        lines += [
            f"    template <int stage> static INLINE void summands({arguments},",
            "                                                     const Vec* d, Vec* summand, Vec* kept) {",
            *summands,
            "    }",
        ]
    lines += [
        f"    static constexpr int FORWARD_STAGES = {len(e.means[0])}, STAGES = {len(stages)};",
        f"    static constexpr int means_until(int stage) {{ return {_choice(means, 'stage')}; }}",
        f"    static constexpr int kept_until(int stage) {{ return {_choice(kept, 'stage')}; }}",
        "};",
    ]
    return "\n".join(lines) + "\n"


ACTIVATIONS = {"tanh": "hyperbolic_tangent({})", "sigmoid": "finite_exp(-{})"}


def with_activations(e: Equations) -> tuple[Equations, dict[int, str]]:
    """Let forward keep activations, so that backward does not compute them again from the pre-activations.

    Forward replaces a pre-activation z by tanh(z), if a step and its gradients read only that. If they read only
    sigmoid(z) and sigmoid(-z), it replaces z by exp(-z), with which both keep all digits.

    Returns: equations that read the replaced numbers, the inputs ("activation", block); and the C++ code of each
    replaced block. Cells without recurrent product have none, since backward projects their inputs again, nor have
    cells whose equations need numbers of all units.
    """
    if e.is_scan or e.mixes_units:
        return e, {}
    results = [*e.new, *e.backward]
    users = collections.defaultdict[Node, list[Node]](list)
    for node in in_order(results):
        for argument in node.args:
            users[argument].append(node)
    ends, replaced, code = set(results), dict[Node, Node](), dict[int, str]()
    one, make = e.expressions.constant(1.0), e.expressions.make
    for k, block in enumerate(e.blocks):
        negated = [node for node in users[block.node] if node.op == "neg"]
        plain = [node for node in users[block.node] if node.op != "neg"]
        opposite = [node for z in negated for node in users[z]]
        ops = {node.op for node in [*plain, *opposite]}
        if not ends.isdisjoint([block.node, *negated]) or ops not in ({"tanh"}, {"sigmoid"}):
            continue
        value = e.input("activation", k)
        if ops == {"sigmoid"}:
            sigmoid = make("div", one, make("add", one, value))
            replaced |= dict.fromkeys(plain, sigmoid) | dict.fromkeys(opposite, make("mul", value, sigmoid))
        elif not opposite:
            replaced |= dict.fromkeys(plain, value)
        else:
            continue
        code[k] = ACTIVATIONS[ops.pop()]
    rest = iter(substitute(e.expressions, results, replaced))
    parts: dict[str, Any] = {
        name: tuple(itertools.islice(rest, len(getattr(e, name))))
        for name in ("new", "d_blocks", "d_state", "d_vectors")
    }
    return dataclasses.replace(e, **parts, d_dt=next(rest, None)), code


def _stages(
    stages: Sequence[Sequence[Node]],
    results: Sequence[Node],
    inputs: Mapping[Node, str],
    place: int,
    kept: list[int],
    lines: list[str],
) -> dict[Node, str]:
    """Add the code of stages of means to `lines`. Return the names of everything that is known after them.

    A stage stores what it computes and later stages or the results need, after the first `place` vectors.

    kept: the number of stored expressions before each stage, and in all. The numbers of these stages are added to it.
    """
    known = dict(inputs)
    for number, stage in enumerate(stages):
        of_stage = [mean.args[0] for mean in stage]
        rest = [mean.args[0] for later in stages[number + 1 :] for mean in later]
        needed = _needed(
            [*rest, *results], known, {node for both in schedule(of_stage, known) for node in both if node}
        )
        targets = [f"summand[{k}]" for k in range(len(stage))] + [f"kept[{kept[-1] + k}]" for k in range(len(needed))]
        code = _statements([*of_stage, *needed], known, targets)
        lines += [f"        if constexpr (stage == {len(kept) - 1}) {{", *(f"    {line}" for line in code), "        }"]
        known |= {node: f"vector[{place + kept[-1] + k}]" for k, node in enumerate(needed)}
        kept.append(kept[-1] + len(needed))
    return known


def _needed(results: Sequence[Node], known: Container[Node], computed: Container[Node]) -> list[Node]:
    """Return the numbers among the expressions `computed` that the results need, given what is known."""
    found, visited, stack = list[Node](), set[Node](), [*results]
    while stack:
        node = stack.pop()
        if node in visited or node in known:
            continue
        visited.add(node)
        if node in computed and not node.is_boolean:
            found.append(node)
        else:
            stack += node.args
    return found


def _choice(values: Sequence[int], name: str = "block") -> str:
    """Return a C++ expression for the value whose number is in the variable `name`."""
    if len(set(values)) == 1:
        return str(values[0])
    return " : ".join(f"{name} == {k} ? {v}" for k, v in enumerate(values[:-1])) + f" : {values[-1]}"


def _statements(results: Sequence[Node], inputs: Mapping[Node, str], targets: Sequence[str]) -> list[str]:
    return [f"        {line}" for line in statements(CPP, results, inputs, targets)]


def literal(value: float) -> str:
    """Return a float constant of C++."""
    if math.isnan(value):
        return '__builtin_nanf("")'
    if math.isinf(value):
        return "__builtin_inff()" if value > 0 else "-__builtin_inff()"
    text = f"{value:.9g}"
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"


CPP = Language(
    OPERATIONS,
    literal,
    vector="spread_vec({})",
    define="Vec {name} = {value};",
    define_truth="Mask {name} = {value};",
    both="Vec {name}, {opposite};\nboth_sigmoids({value}, {name}, {opposite});",
    assign="{name} = {value};",
)
