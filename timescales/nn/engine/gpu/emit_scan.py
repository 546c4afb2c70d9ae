"""The Triton kernels of a scan over time in chunks: those of scan.py, one launch for each pass over all steps.

`code` writes them from the cell's expressions. A Triton program computes THREADS of the R x B x H numbers of one chunk.
emit_triton.py has what these kernels share with those of single steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from timescales.nn.engine.affine import Affine, Component, Matrix, affine, entries
from timescales.nn.engine.equations import Equations
from timescales.nn.engine.gpu import emit_triton
from timescales.nn.engine.gpu.buffers import Buffers
from timescales.nn.engine.gpu.emit_triton import (
    BEGINS,
    THREADS,
    columns_of,
    fetch_step,
    leave_step,
    legend,
    loads,
    of_step,
    only_existing,
    places_of,
    statements,
)
from timescales.nn.engine.kept import with_equations
from timescales.nn.engine.scalar import Node


@with_equations
def code(e: Equations) -> str:
    """The text of the kernels of a cell whose step is affine."""
    maps = affine(e)
    assert maps is not None
    parts = [emit_triton.HEADER + legend(e)]
    for c, component in enumerate(maps.components):
        parts += [_local_forward(e, maps, c), _final_forward(e, maps, c, component)]
    parts += [_local_backward(e, maps), _final_backward(e)]
    parts += [_carry(n, len(e.fields)) for n in sorted({len(c.fields) for c in maps.components} | {len(e.fields)})]
    return "\n\n".join(parts)


def local_forward(b: Buffers, c: int) -> None:
    """`scan.local_forward` as one launch of a Triton kernel."""
    _launch(b, f"local_forward{c}")


def final_forward(b: Buffers, c: int) -> None:
    """`scan.final_forward` as one launch of a Triton kernel."""
    _launch(b, f"final_forward{c}")


def local_backward(b: Buffers) -> None:
    """`scan.local_backward` as one launch of a Triton kernel."""
    _launch(b, "local_backward")


def final_backward(b: Buffers) -> None:
    """`scan.final_backward` as one launch of a Triton kernel."""
    _launch(b, "final_backward")


def carry(b: Buffers, n: int, backward: bool) -> None:
    """`scan.carry` as one launch of a Triton kernel."""
    R, _, B = b.sizes
    kernel = getattr(emit_triton.kernels(code(b.equations)), f"carry{n}")
    programs = -(-R * B * b.H // THREADS)
    sizes = (B, R * B, b.chunks)
    kernel[(programs,)](b.maps, b.drives, b.starts, *sizes, H=b.H, THREADS=THREADS, BACK=backward, num_warps=4)


def _launch(b: Buffers, name: str) -> None:
    R, S, B = b.sizes
    tensors = (b.z, *b.states, *b.vectors, *b.noises, b.dt, b.mask, b.again, *b.initial, *b.outputs)
    gradients = (b.maps, b.drives, b.starts, *b.d_after(), *b.d_initial, *b.d_states, *b.d_parts, b.d_dt_units)
    grid = (-(-R * B * b.H // THREADS), b.chunks)
    kernel = getattr(emit_triton.kernels(code(b.equations)), name)
    kernel[grid](*tensors, *gradients, S, B, R * B, b.chunk, b.chunks, H=b.H, THREADS=THREADS, num_warps=4)


# ------------------------------------------------------------------------------------------ text


def _local_forward(e: Equations, maps: Affine, c: int) -> str:
    component = maps.components[c]
    return _local(e, f"local_forward{c}", component.matrix, component.drive, [], component.fields)


def _local_backward(e: Equations, maps: Affine) -> str:
    n = len(e.fields)
    forget = [*BEGINS, *(f"    map{i}{j} = tl.where(begins, 0.0, map{i}{j})" for i in range(n) for j in range(n))]
    add = forget + fetch_step([f"drive{i}" for i in range(n)], [""] * n)
    return _local(e, "local_backward", tuple(zip(*maps.jacobian, strict=True)), (), add, None)


def _local(
    e: Equations,
    name: str,
    matrix: Matrix,
    drive: Sequence[Node],
    add: list[str],
    begins: Sequence[int] | None,
) -> str:
    """A pass that multiplies the matrices of a chunk's steps.

    add: what precedes the matrix of a step. begins: forward, the fields that begin again after it; None backward.
    """
    n, used = len(matrix), entries(matrix)
    pairs = [(i, j) for i in range(n) for j in range(n)]
    nodes = [*(node for *_, node in used), *drive]
    names = [*(f"a{i}{j}" for i, j, _ in used), *(f"b{i}" for i in range(len(drive)))]
    before = [f"map{i}{j} = tl.full([THREADS], {float(i == j)}, tl.float32)" for i, j in pairs]
    before += [f"drive{i} = tl.full([THREADS], 0.0, tl.float32)" for i in range(n)]
    loop = [*loads(e, nodes), *statements(e, nodes, names), *add]
    new = {f"map{i}{j}": [f"a{i}{k} * map{k}{j}" for row, k, _ in used if row == i] for i, j in pairs}
    for i in range(n):
        new[f"drive{i}"] = [f"a{i}{k} * drive{k}" for row, k, _ in used if row == i] + ([f"b{i}"] if drive else [])
    loop += [f"new_{key} = {' + '.join(terms) or 'tl.full([THREADS], 0.0, tl.float32)'}" for key, terms in new.items()]
    loop += only_existing([(f"new_{key}", key) for key in new])
    loop += [f"{key} = new_{key}" for key in new]
    if begins is not None:
        loop += [*BEGINS, *(f"    map{i}{j} = tl.where(begins, 0.0, map{i}{j})" for i, j in pairs)]
        first = [f"load(initial{k} + n, inside)" for k in begins]
        loop += [f"    drive{i} = tl.where(begins, {value}, drive{i})" for i, value in enumerate(first)]
    fields = len(e.fields)
    end = [f"tl.store(maps + {i * fields + j} * size + part, map{i}{j}, mask=inside)" for i, j in pairs]
    end += [f"tl.store(drives + {i} * size + part, drive{i}, mask=inside)" for i in range(n)]
    return _function(name, e, before, loop, end, begins is None)


def _final_forward(e: Equations, maps: Affine, c: int, component: Component) -> str:
    own = {e.input("state", field): f"value{i}" for i, field in enumerate(component.fields)}
    nodes = [e.new[field] for field in component.fields]
    names = [f"new{i}" for i in range(len(nodes))]
    before = [f"value{i} = load(starts + {i} * size + part, inside)" for i in range(len(nodes))]
    loop = [*loads(e, nodes, own), *statements(e, nodes, names, own)]
    loop += only_existing([(f"new{i}", f"value{i}") for i in range(len(nodes))])
    loop += leave_step([(field, f"new{i}") for i, field in enumerate(component.fields)])
    for i, field in enumerate(component.fields):
        loop += [f"value{i} = new{i}", f"tl.store(state{field} + old + B * H, value{i}, mask=inside)"]
    return _function(f"final_forward{c}", e, before, loop, [], False)


def _final_backward(e: Equations) -> str:
    fields, vectors = range(len(e.fields)), range(len(e.vectors))
    before = [f"value{k} = load(starts + {k} * size + part, inside)" for k in fields]
    before += [f"sum{k} = tl.full([THREADS], 0.0, tl.float32)" for k in vectors]
    before += [f"initial_sum{k} = tl.full([THREADS], 0.0, tl.float32)" for k in fields]
    loop = [f"after{k} = value{k}" for k in fields]
    loop += fetch_step([f"after{k}" for k in fields], [f"initial_sum{k} += of_initial" for k in fields])
    d_z, d_state = [f"d_z{k}" for k in range(len(e.blocks))], [f"result{k}" for k in fields]
    d_vector = [f"d_v{k}" for k in vectors]
    d_time = ["d_time"] if e.d_dt is not None else []
    nodes = [*e.d_blocks, *e.d_state, *e.d_vectors, *([] if e.d_dt is None else [e.d_dt])]
    names = [*d_z, *d_state, *d_vector, *d_time]
    loop += [*loads(e, nodes), *statements(e, nodes, names)]
    loop += only_existing(
        [*((name, "0.0") for name in (*d_z, *d_vector, *d_time)), *((f"result{k}", f"after{k}") for k in fields)]
    )
    loop += [f"tl.store({place}, {name}, mask=inside)" for place, name in zip(places_of(e), d_z, strict=True)]
    loop += [f"value{k} = result{k}" for k in fields] + [f"sum{k} += d_v{k}" for k in vectors]
    if d_time:
        loop += ["if d_dt is not None:", "    tl.store(d_dt + step * H + unit, d_time, mask=inside)"]
    end = [f"tl.store(d_state{k} + n, value{k}, mask=inside & (chunk == 0))" for k in fields]
    end += [f"tl.store(d_part{k} + part, sum{k}, mask=inside)" for k in vectors]
    end.append("if again is not None:")
    end += [f"    tl.store(d_initial{k} + part, initial_sum{k}, mask=inside)" for k in fields]
    return _function("final_backward", e, before, loop, end, True)


def _function(name: str, e: Equations, before: list[str], loop: list[str], end: list[str], backward: bool) -> str:
    """The kernel of a pass with these lines before, in and after its loop over the steps of a chunk."""
    arguments = ["z", *of_step(e), "maps", "drives", "starts"]
    arguments += [f"{name}{k}" for name in ("d_output", "d_initial", "d_state") for k in range(len(e.fields))]
    arguments += [*(f"d_part{k}" for k in range(len(e.vectors))), "d_dt", "S", "B", "rows", "T", "K"]
    body = [
        *_places(),
        "chunk = tl.program_id(1)",
        *_part("chunk"),
        "first = chunk * T",
        "last = tl.minimum(first + T, S)",
        *before,
        "for i in range(first, last):",
        f"    t = {'first + last - 1 - i' if backward else 'i'}",
        "    seed, unit, step, old = positions(n, t, S, B, H)",
        f"    at = step * ({columns_of(e.blocks)}) + unit",
        *(f"    {line}" for line in loop),
        *end,
    ]
    return _text(name, arguments, body)


def _carry(n: int, fields: int) -> str:
    """The kernel that joins the chunks' maps of n fields."""
    body = [
        *_places(),
        "k = K - 1 if BACK else 0",
        *_part("k"),
        *(f"value{i} = load(starts + {i} * size + part, inside)" for i in range(n)),
        "for i in range(0, K - 1):",
        "    k = K - 1 - i if BACK else i",
        *(f"    {line}" for line in _part("k")),
    ]
    for i in range(n):
        terms = [f"load(maps + {i * fields + j} * size + part, inside) * value{j}" for j in range(n)]
        body.append(f"    new{i} = load(drives + {i} * size + part, inside) + {' + '.join(terms)}")
    body.append("    part = part - B * H if BACK else part + B * H")
    for i in range(n):
        body += [f"    value{i} = new{i}", f"    tl.store(starts + {i} * size + part, value{i}, mask=inside)"]
    return _text(f"carry{n}", ["maps", "drives", "starts", "B", "rows", "K"], body, ["BACK: tl.constexpr"])


def _places() -> list[str]:
    """Statements that say which numbers a program has."""
    return [
        "n = tl.program_id(0) * THREADS + tl.arange(0, THREADS)",
        "inside = n < rows * H",
        "size = tl.full([THREADS], 1, tl.int64) * K * rows * H",
    ]


def _part(chunk: str) -> list[str]:
    """The statement that computes the places of a program's numbers in (R, K, B, H)."""
    return [f"part = ((n // (B * H)).to(tl.int64) * K + {chunk}) * B * H + n % (B * H)"]


def _text(name: str, arguments: list[str], body: list[str], more: Sequence[str] = ()) -> str:
    arguments = [*arguments, "H: tl.constexpr", "THREADS: tl.constexpr", *more]
    return "\n".join(["@jit_scan", f"def {name}({', '.join(arguments)}):", *(f"    {line}" for line in body)]) + "\n"
