"""The Triton kernels of a cell: one for a step forward and one for a step backward in `Buffers`.

`code` writes the text of two functions from the cell's expressions; what they call is in triton_kernels.py. They do
what `step_forward` and `step_backward` of pointwise.py do; a Triton program computes THREADS of the R x B x H numbers
of a step.

Text is compiled under a file name that has its hash. Triton reads the source of a function through `linecache`, so no
file is written; Triton itself caches the compiled kernels on the disk.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import math
import struct
import types
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from timescales.nn.engine import render
from timescales.nn.engine.equations import Block, Equations
from timescales.nn.engine.gpu.buffers import Buffers, is_zero
from timescales.nn.engine.kept import with_equations
from timescales.nn.engine.render import Language
from timescales.nn.engine.scalar import Node, in_order

THREADS = 128  # numbers per Triton program, one per thread: a step is short, so it is split into many small programs
SMALLEST = 2.0**-126  # of the normal numbers; Triton takes smaller constants for double precision

HEADER = """\
import triton.language as tl

from timescales.nn.engine.gpu.triton_kernels import (
    both_sigmoids, cosine, exp_minus_one, jit_scan, jit_step, load, log_one_plus, positions, power, sigmoid, sign, sine,
    tanh,
)
"""

OPERATIONS = {
    "add": "{a} + {b}",
    "sub": "{a} - {b}",
    "mul": "{a} * {b}",
    "div": "{a} / {b}",
    "neg": "-{a}",
    "gt": "{a} > {b}",
    "ge": "{a} >= {b}",
    "lt": "{a} < {b}",
    "le": "{a} <= {b}",
    "eq": "{a} == {b}",
    "ne": "{a} != {b}",
    "and": "{a} & {b}",
    "or": "{a} | {b}",
    "not": "~{a}",
    "select": "tl.where({a}, {b}, {c})",
    "abs": "tl.abs({A})",
    "sign": "sign({A})",
    "sqrt": "tl.sqrt({A})",
    "exp": "tl.exp({A})",
    "expm1": "exp_minus_one({A})",
    "log": "tl.log({A})",
    "log1p": "log_one_plus({A})",
    "sigmoid": "sigmoid({A})",
    "tanh": "tanh({A})",
    "sin": "sine({A})",
    "cos": "cosine({A})",
    "erf": "tl.erf({A})",
    "floor": "tl.floor({A})",
    "pow": "power({A}, {B})",
    "max": "tl.where({a} > {b}, {a}, {b})",  # b if one is NaN, as in C++
    "min": "tl.where({a} < {b}, {a}, {b})",
}

BEGINS = ("if again is not None:", "    begins = tl.load(again + step, mask=inside, other=0) != 0")


@with_equations
def code(equations: Equations) -> str:
    """The text of a cell's kernels. Equal texts are equal kernels."""
    return "\n\n".join([HEADER + legend(equations), _forward(equations), _backward(equations)])


def legend(e: Equations) -> str:
    """Comments that say what z0, z1, ... are. `Buffers` depend on it: equal texts must have equal blocks."""
    shares = {"x": "input's share", "pre": "pre-activation", "h": "recurrent share"}
    lines = [
        f"# z{k}: {'cumax of the ' * block.is_row}{shares[block.kind]} of gate {block.gate}"
        for k, block in enumerate(e.blocks)
    ]
    return "\n".join(["", *lines, ""])


@functools.cache
def kernels(text: str) -> types.ModuleType:
    """The module with the kernels `forward` and `backward`."""
    name = f"timescales_step_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    file = f"<{name}.py>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = types.ModuleType(name)
    exec(compile(text, file, "exec"), vars(module))
    return module


def launch_forward(b: Buffers, t: int) -> None:
    """`pointwise.step_forward` as one launch of a Triton kernel."""
    _launch(kernels(code(b.equations)).forward, b, t, [])


def launch_backward(b: Buffers, t: int) -> None:
    """`pointwise.step_backward` as one launch of a Triton kernel."""
    gradients = [*b.d_after(), *b.d_initial, *b.d_states, *b.d_vectors, b.d_dt_units]
    _launch(kernels(code(b.equations)).backward, b, t, gradients)


def _launch(kernel: Any, b: Buffers, t: int, gradients: Sequence[Tensor | None]) -> None:
    R, S, B = b.sizes
    tensors = (b.z, b.wide, *b.states, *b.vectors, *b.noises, b.dt, b.mask, b.again, *b.initial, *b.outputs, *gradients)
    kernel[(-(-R * B * b.H // THREADS),)](*tensors, t, S, B, R * B, H=b.H, THREADS=THREADS, num_warps=4)


# ------------------------------------------------------------------------------------------ text


def _forward(e: Equations) -> str:
    states = [f"state{k}" for k in range(len(e.fields))]
    new = [f"new{k}" for k in range(len(e.fields))]
    before = [f"load({state} + old, inside)" for state in states]
    lines = [*loads(e, e.new), *statements(e, e.new, new), *only_existing(zip(new, before, strict=True))]
    lines += leave_step(list(enumerate(new)))
    for name, state in zip(new, states, strict=True):
        lines.append(f"tl.store({state} + old + B * H, {name}, mask=inside)")
    return _function("forward", e, [], lines)


def only_existing(results: Iterable[tuple[str, str]]) -> list[str]:
    """Statements that give a result another value where the step does not exist."""
    lines = ["if mask is not None:", "    exists = tl.load(mask + step, mask=inside, other=0) != 0"]
    return lines + [f"    {name} = tl.where(exists, {name}, {other})" for name, other in results]


def leave_step(new: Sequence[tuple[int, str]]) -> list[str]:
    """Statements that keep fields after a step, and begin again where the sequence does.

    new: number and name of each field.
    """
    lines = [*BEGINS]
    for k, name in new:
        lines.append(f"    if output{k} is not None:")
        lines.append(f"        tl.store(output{k} + step * H + unit, {name}, mask=inside)")
        lines.append(f"    {name} = tl.where(begins, load(initial{k} + n, inside), {name})")
    return lines


def fetch_step(names: Sequence[str], sums: Sequence[str]) -> list[str]:
    """Statements that make the gradients of the fields after a step of those of the state that the next step read.

    names: of these, by field. sums: statements that add `of_initial` to the gradient of the initial state, by field.
    """
    lines = [*BEGINS]
    for name, add in zip(names, sums, strict=True):
        if add:
            lines += [f"    of_initial = tl.where(begins, {name}, 0.0)", f"    {add}"]
        lines.append(f"    {name} = tl.where(begins, 0.0, {name})")
    for k, name in enumerate(names):
        lines += [f"if d_output{k} is not None:", f"    {name} += load(d_output{k} + step * H + unit, inside)"]
    return lines


def _backward(e: Equations) -> str:
    d_states = [f"d_state{k}" for k in range(len(e.fields))]
    d_vectors = [f"d_vector{k}" for k in range(len(e.vectors))]
    lines = [f"after{k} = load({name} + n, inside)" for k, name in enumerate(d_states)]
    sums = [f"d_initial{k} + n" for k in range(len(e.fields))]
    add = [f"tl.store({place}, load({place}, inside) + of_initial, mask=inside)" for place in sums]
    lines += fetch_step([f"after{k}" for k in range(len(e.fields))], add)
    places = places_of(e)
    # The place of each gradient, its expression, and its value where the step does not exist.
    stored = [(place, node, "0.0") for place, node in zip(places, e.d_blocks, strict=True)]
    stored += [(f"{d} + n", node, f"after{k}") for k, (d, node) in enumerate(zip(d_states, e.d_state, strict=True))]
    summed = [(d, node) for d, node in zip(d_vectors, e.d_vectors, strict=True) if not is_zero(node)]
    results = [node for _, node, _ in stored] + [node for _, node in summed] + ([e.d_dt] if e.d_dt is not None else [])
    names = [f"result{k}" for k in range(len(results))]
    others = [other for _, _, other in stored] + ["0.0"] * (len(results) - len(stored))
    lines += [*loads(e, results), *statements(e, results, names), *only_existing(zip(names, others, strict=True))]
    for (place, _, _), name in zip(stored, names, strict=False):
        lines.append(f"tl.store({place}, {name}, mask=inside)")
    for (d, _), name in zip(summed, names[len(stored) :], strict=False):
        lines.append(f"tl.store({d} + n, load({d} + n, inside) + {name}, mask=inside)")
    if e.d_dt is not None:
        lines += ["if d_dt is not None:", f"    tl.store(d_dt + n, {names[-1]}, mask=inside)"]
    of_fields = [f"{name}{k}" for name in ("d_output", "d_initial") for k in range(len(e.fields))]
    return _function("backward", e, [*of_fields, *d_states, *d_vectors, "d_dt"], lines)


def _function(name: str, e: Equations, gradients: Iterable[str], lines: Iterable[str]) -> str:
    """The kernel with these lines. All kernels have the arguments of `_launch`."""
    arguments = ["z", "wide", *of_step(e), *gradients]
    arguments += ["t", "S", "B", "rows", "H: tl.constexpr", "THREADS: tl.constexpr"]
    body = [
        "n = tl.program_id(0) * THREADS + tl.arange(0, THREADS)",
        "inside = n < rows * H",
        "seed, unit, step, old = positions(n, t, S, B, H)",
        f"at = step * ({columns_of(e.blocks)}) + unit",
        *lines,
    ]
    return "\n".join(["@jit_step", f"def {name}({', '.join(arguments)}):", *(f"    {line}" for line in body)]) + "\n"


def of_step(e: Equations) -> list[str]:
    """The arguments of a kernel that have what a step reads besides z, and what it leaves."""
    fields = range(len(e.fields))
    read = [f"state{k}" for k in fields] + [f"vector{k}" for k in range(len(e.vectors))]
    read += [f"noise{k}" for k in range(e.noises)]
    return [*read, "dt", "mask", "again", *(f"{name}{k}" for name in ("initial", "output") for k in fields)]


def columns_of(blocks: Sequence[Block]) -> str:
    """Number of rows of some blocks together, as an expression of H."""
    whole = sum(block.divisor == 1 for block in blocks)
    terms = [f"{whole} * H"] if whole else []
    return " + ".join([*terms, *(f"H // {block.divisor}" for block in blocks if block.divisor > 1)])


def places_of(e: Equations) -> list[str]:
    """The pointers to a program's numbers of each block: in z, or in `wide` if it is expanded."""
    places, expanded = [], 0
    for k, block in enumerate(e.blocks):
        if block.is_expanded:
            places.append(f"wide + {expanded} * rows * H + n")
            expanded += 1
        else:
            places.append(f"z + at + {columns_of(e.blocks[:k])}" if k else "z + at")
    return places


def _inputs(e: Equations) -> dict[Node, tuple[str, str]]:
    """Name and pointer of the inputs that are loaded."""
    inputs = {b.node: (f"z{k}", place) for k, (b, place) in enumerate(zip(e.blocks, places_of(e), strict=True))}
    inputs |= {e.input("state", k): (f"before{k}", f"state{k} + old") for k in range(len(e.fields))}
    for k, name in enumerate(e.vectors):
        inputs[e.input("vector", *name)] = (f"v{k}", f"vector{k} + seed * H + unit")
    inputs |= {e.input("noise", k): (f"drawn{k}", f"noise{k} + step * H + unit") for k in range(e.noises)}
    inputs[e.input("dt")] = ("time", "dt + step")
    return inputs


def loads(e: Equations, results: Iterable[Node], given: Container[Node] = ()) -> list[str]:
    """Statements that load the inputs of the results, but those that are given."""
    inputs, needed = _inputs(e), in_order(results)
    return [
        f"{name} = load({place}, inside)"
        for node, (name, place) in inputs.items()
        if node in needed and node not in given
    ]


def statements(
    e: Equations, results: Sequence[Node], targets: Sequence[str], given: Mapping[Node, str] | None = None
) -> list[str]:
    """Statements that compute the results and assign them to the targets. given: other names of inputs."""
    names = {node: name for node, (name, _) in _inputs(e).items()}
    names |= {e.input("d_state", k): f"after{k}" for k in range(len(e.fields))}
    return render.statements(TRITON, results, names | dict(given or {}), targets)


def literal(value: float) -> str:
    """A float32 constant of Triton."""
    (value,) = struct.unpack("f", struct.pack("f", value))
    if not math.isfinite(value):
        return f'float("{value}")'
    return repr(value if abs(value) >= SMALLEST else math.copysign(0.0, value))


TRITON = Language(OPERATIONS, literal, vector="tl.full([THREADS], {}, tl.float32)", temporary="x")
