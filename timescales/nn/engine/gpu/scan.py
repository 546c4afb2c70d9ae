"""A scan over time in `Buffers`, in chunks of steps that are joined: for cells whose step is affine (affine.py).

    local    each chunk, from its first step on: the affine map of all its steps together
    carry    from chunk to chunk: the state before each chunk
    final    each chunk again, from that state: the state after each step

Backward does the same with the gradients of the state, which are linear in those after a step, in the reverse order;
its last pass computes all gradients of each step. This is the reference implementation, in torch, of the kernels that
emit_scan.py writes: all chunks at once, one step after the other.

Shapes: R seeds, S steps, B sequences, H units, K chunks of CHUNK steps, m fields.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from timescales.nn.engine.affine import Matrix, entries
from timescales.nn.engine.gpu.buffers import Buffers
from timescales.nn.engine.gpu.pointwise import at, inputs_at
from timescales.nn.engine.scalar import Node, evaluate


def local_forward(b: Buffers, c: int) -> None:
    """The maps of all chunks for component c, in `b.maps` and `b.drives`."""
    assert b.affine is not None
    component = b.affine.components[c]
    maps, drives = unit_maps(b, len(component.fields))
    for t, count in steps_of_chunks(b):
        inputs = inputs_at(b, t)
        new_maps, new_drives = joined(component.matrix, maps[:, :, :, :count], drives[:, :, :count], inputs)
        own = evaluate(component.drive, inputs)
        exists, begins = at(b.mask, t), at(b.again, t)
        for i, (drive, field) in enumerate(zip(own, component.fields, strict=True)):
            keep(drives[i, :, :count], new_drives[i] + drive, exists)
            keep_initial(drives[i, :, :count], b.initial[field], begins)
            for j in range(len(own)):
                keep(maps[i, j, :, :count], new_maps[i][j], exists)
                forget(maps[i, j, :, :count], begins)


def final_forward(b: Buffers, c: int) -> None:
    """The fields of component c after every step, from those before each chunk in `b.starts`."""
    assert b.affine is not None
    fields = b.affine.components[c].fields
    values = [b.starts[i].clone() for i in range(len(fields))]
    for t, count in steps_of_chunks(b):
        inputs = inputs_at(b, t)
        for field, value in zip(fields, values, strict=True):
            inputs[b.equations.input("state", field)] = value[:, :count]
        new = evaluate([b.equations.new[field] for field in fields], inputs)
        for field, value, result in zip(fields, values, new, strict=True):
            keep(value[:, :count], result, at(b.mask, t))
            if (output := b.outputs[field]) is not None:
                output[:, t] = value[:, :count]
            keep_initial(value[:, :count], b.initial[field], at(b.again, t))
            b.states[field][:, after(t)] = value[:, :count]


def local_backward(b: Buffers) -> None:
    """The maps of all chunks from the gradients of the state after them to those before them."""
    n = len(b.equations.fields)
    maps, drives = unit_maps(b, n)
    assert b.affine is not None
    transposed = tuple(zip(*b.affine.jacobian, strict=True))
    for t, count in reversed(list(steps_of_chunks(b))):
        inputs, exists, begins = inputs_at(b, t), at(b.mask, t), at(b.again, t)
        for i, d_after in enumerate(b.d_after()):
            forget(drives[i, :, :count], begins)
            forget(maps[i, :, :, :count], begins)
            if d_after is not None:
                drives[i, :, :count] += d_after[:, t]
        new_maps, new_drives = joined(transposed, maps[:, :, :, :count], drives[:, :, :count], inputs)
        for i in range(n):
            keep(drives[i, :, :count], new_drives[i], exists)
            for j in range(n):
                keep(maps[i, j, :, :count], new_maps[i][j], exists)


def final_backward(b: Buffers) -> None:
    """All gradients, from those of the state after each chunk in `b.starts`: z becomes their gradients."""
    e = b.equations
    values = [b.starts[i].clone() for i in range(len(e.fields))]
    for parts in (*b.d_parts, *b.d_initial):
        if parts is not None:
            parts.zero_()
    for t, count in reversed(list(steps_of_chunks(b))):
        inputs, exists, begins = inputs_at(b, t), at(b.mask, t), at(b.again, t)
        for value, sums, d_after in zip(values, b.d_initial, b.d_after(), strict=True):
            if begins is not None and sums is not None:
                sums[:, :count] += torch.where(begins, value[:, :count], 0.0)
                forget(value[:, :count], begins)
            if d_after is not None:
                value[:, :count] += d_after[:, t]
        for k, value in enumerate(values):
            inputs[e.input("d_state", k)] = value[:, :count].clone()
        nodes = (e.d_blocks, e.d_state, e.d_vectors, () if e.d_dt is None else (e.d_dt,))
        d_blocks, d_state, d_vectors, d_dt = (evaluate(v, inputs) for v in nodes)
        zero = torch.zeros_like(values[0][:, :count])
        for k, d in enumerate(d_blocks):
            b.block(k, t)[...] = d if exists is None else torch.where(exists, d, zero)
        for k, value in enumerate(values):
            keep(value[:, :count], d_state[k], exists)
        for sums, d in zip(b.d_parts, d_vectors, strict=True):
            sums[:, :count] += d if exists is None else torch.where(exists, d, zero)
        for d in d_dt if b.d_dt_units is not None else ():
            b.d_dt_units[:, t] = d if exists is None else torch.where(exists, d, zero)  # type: ignore[index]
    for k, value in enumerate(values):
        b.d_states[k].copy_(value[:, 0])


def carry(b: Buffers, n: int, backward: bool) -> None:
    """`b.starts` of all chunks, from that of the first one (backward: the last one), for n fields."""
    order = list(range(b.chunks))
    if backward:
        order.reverse()
    for k, following in itertools.pairwise(order):
        for i in range(n):
            terms = [b.maps[i, j, :, k] * b.starts[j, :, k] for j in range(n)]
            b.starts[i, :, following] = sum(terms, b.drives[i, :, k])


def unit_maps(b: Buffers, n: int) -> tuple[Tensor, Tensor]:
    """`b.maps` (n, n, R, K, B, H) and `b.drives` (n, R, K, B, H) of n fields, set to the map that changes nothing."""
    maps, drives = b.maps[:n, :n], b.drives[:n]
    maps.zero_()
    drives.zero_()
    for i in range(n):
        maps[i, i] = 1.0
    return maps, drives


def joined(
    matrix: Matrix, maps: Tensor, drives: Tensor, inputs: Mapping[Node, Tensor]
) -> tuple[list[list[Tensor]], list[Tensor]]:
    """The matrix of a step times the maps and drives so far."""
    n = len(matrix)
    new_maps = [[torch.zeros_like(drives[0]) for _ in range(n)] for _ in range(n)]
    new_drives = [torch.zeros_like(drives[0]) for _ in range(n)]
    for i, k, node in entries(matrix):
        (factor,) = evaluate([node], inputs)
        new_drives[i] = new_drives[i] + factor * drives[k]
        for j in range(n):
            new_maps[i][j] = new_maps[i][j] + factor * maps[k, j]
    return new_maps, new_drives


def steps_of_chunks(b: Buffers) -> Iterator[tuple[slice, int]]:
    """For each step of a chunk: the steps of all chunks that have it, and their number."""
    S = b.sizes[1]
    for t in range(min(b.chunk, S)):
        count = -(-(S - t) // b.chunk)
        yield slice(t, t + (count - 1) * b.chunk + 1, b.chunk), count


def after(t: slice) -> slice:
    """The steps after these."""
    return slice(t.start + 1, t.stop + 1, t.step)


def keep(value: Tensor, new: Tensor, exists: Tensor | None) -> None:
    """Write `new` to `value` where the step exists."""
    value.copy_(new if exists is None else torch.where(exists, new, value))


def keep_initial(value: Tensor, initial: Tensor | None, begins: Tensor | None) -> None:
    """Write the initial state (R, B, H) to `value` (R, K, B, H) where the sequences begin again."""
    if begins is not None and initial is not None:
        value.copy_(torch.where(begins, initial.unsqueeze(1), value))


def forget(value: Tensor, begins: Tensor | None) -> None:
    """Write zeros where the sequences begin again."""
    if begins is not None:
        value.copy_(torch.where(begins, 0.0, value))
