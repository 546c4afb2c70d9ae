"""The time loop of any cell on the CPU in C++, as one autograd function: its code is generated from `Cell.step`.

The equations of a step are traced (trace.py), written as C++ (emit_cpp.py) and compiled into the loop (loop.cpp,
cell_library.py). It needs float32 on the CPU and a C++ compiler. No module uses it yet: it is to replace fused.py,
which has its cells by hand.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import cell_library, eager, equations
from timescales.nn.engine.cell_library import Problem
from timescales.nn.engine.equations import Equations
from timescales.nn.engine.fused import longest_first, with_contiguous_rows
from timescales.nn.engine.kernel import check_backward, no_jvp, tracing_reason
from timescales.nn.engine.recorder import NotTraceable
from timescales.nn.engine.workspace import Workspace


def run(
    cell: Cell, x: Tensor, weights: Weights, state: Any, dt: Tensor | None = None, mask: Tensor | None = None
) -> tuple[Tensor, Any]:
    """Run a cell over a sequence; see `eager.run`.

    The eager engine runs what does not pay: empty batches, and fewer than two steps (the layout of the weights would
    cost more than it saves).
    """
    if x.shape[0] < 2 or x.shape[1] == 0:
        return eager.run(cell, x, weights, state, dt, mask)
    found = equations.of_cell(cell, dt is not None)
    S, *batch, _ = x.shape
    vectors = found.vector_values(cell)
    noise = equations.draw_noise(found, cell, S, tuple(batch), x)
    if x.dim() == 3:
        return _run_one(found, x, weights, state, dt, mask, vectors, noise)
    seeds = [
        _run_one(
            found,
            x_r,
            Weights(*(None if w is None else w[r] for w in weights)),  # type: ignore[arg-type]
            type(state)(*(v[r] for v in state)),
            None if dt is None else dt[:, r],
            None if mask is None else mask[:, r],
            [v[r] for v in vectors],
            [n[:, r] for n in noise],
        )
        for r, x_r in enumerate(x.unbind(1))
    ]
    outputs, states = zip(*seeds, strict=True)
    return torch.stack(outputs, 1), type(state)(*(torch.stack(field) for field in zip(*states, strict=True)))


def _run_one(
    found: Equations,
    x: Tensor,
    weights: Weights,
    state: Any,
    dt: Tensor | None,
    mask: Tensor | None,
    vectors: Sequence[Tensor],
    noise: Sequence[Tensor],
) -> tuple[Tensor, Any]:
    library = cell_library.load(found)
    assert library.functions is not None, library.error
    program = Program(library.functions, len(state), len(vectors), torch.get_num_threads())
    differentiable = (x, *weights, *state, *vectors, dt)
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in differentiable)
    output, *last = GeneratedFunction.apply(program, keep, x, *weights, dt, mask, *state, *vectors, *noise)
    return output, type(state)(*last)


class Program(NamedTuple):
    """The compiled library of a cell, the numbers of its states and vectors, and the number of threads.

    Backward uses forward's number of threads, since the workspace is laid out for it.
    """

    functions: ctypes.CDLL
    fields: int
    vectors: int
    threads: int


class Inputs(NamedTuple):
    """The tensors that the library reads, in the layout that it expects.

    x (S, B, I), weights, state and vectors as in `Cell`; dt (S, B) float32; mask (S, B) bool; noise (S, B, H) each;
    order (B,), see `longest_first`.
    """

    x: Tensor
    ih: Tensor
    hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor | None
    dt: Tensor | None
    mask: Tensor | None
    order: Tensor | None
    state: tuple[Tensor, ...]
    vectors: tuple[Tensor, ...]
    noise: tuple[Tensor, ...]

    @classmethod
    def of(cls, program: Program, tensors: Sequence[Tensor | None]) -> Inputs:
        """The inputs from the tensors of `GeneratedFunction`."""
        x, ih, hh, bias_ih, bias_hh, dt, mask, *rest = tensors
        assert x is not None
        present = [t.contiguous() for t in (ih, hh, bias_ih, *rest) if t is not None]
        states, vectors = 3 + program.fields, 3 + program.fields + program.vectors
        return cls(
            x=with_contiguous_rows(x),
            ih=present[0],
            hh=present[1],
            bias_ih=present[2],
            bias_hh=None if bias_hh is None else bias_hh.contiguous(),
            dt=None if dt is None else dt.to(torch.float32).contiguous(),
            mask=None if mask is None else mask.bool().contiguous(),
            order=None if mask is None else longest_first(mask.bool(), program.threads),
            state=tuple(present[3:states]),
            vectors=tuple(present[states:vectors]),
            noise=tuple(present[vectors:]),
        )


class GeneratedFunction(torch.autograd.Function):
    """A sequence as one autograd function: the output and the last state, from `Inputs` without the order."""

    @staticmethod
    def forward(ctx: Any, program: Program, keep: bool, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # None instead of zeros for a result without a gradient
        inputs = Inputs.of(program, tensors)
        ctx.program = program
        ctx.workspace, results = _forward(program, keep, inputs)
        if keep:
            ctx.save_for_backward(*inputs[:8], *inputs.state, *inputs.vectors, *inputs.noise, results[0])
        else:
            ctx.workspace.release()
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        check_backward("generated", grads)
        program: Program = ctx.program
        saved: list[Any] = list(ctx.saved_tensors)
        output = saved.pop()
        f, v = 8 + program.fields, 8 + program.fields + program.vectors
        x, ih, hh, bias_ih, bias_hh, dt, mask, order = saved[:8]
        rest = tuple(saved[8:f]), tuple(saved[f:v]), tuple(saved[v:])
        inputs = Inputs(x, ih, hh, bias_ih, bias_hh, dt, mask, order, *rest)
        workspace, ctx.workspace = ctx.workspace, None
        if workspace is None:  # a second backward through a retained graph: the first one overwrote the activations
            workspace, _ = _forward(program, True, inputs)
        wanted = ctx.needs_input_grad[2:]
        if not any(wanted):
            return (None,) * len(ctx.needs_input_grad)
        weights = any(wanted[1:5])  # their gradients are computed together
        states = wanted[7 : 7 + program.fields]
        vectors = wanted[7 + program.fields : 7 + program.fields + program.vectors]
        d_x, *d_weights, d_dt = (
            t.new_empty(t.shape) if t is not None and want else None
            for t, want in zip(inputs[:6], [wanted[0], *[weights] * 4, wanted[5]], strict=True)
        )
        d_state = [t.new_empty(t.shape) if want else None for t, want in zip(inputs.state, states, strict=True)]
        d_vectors = [t.new_empty(t.shape) if want else None for t, want in zip(inputs.vectors, vectors, strict=True)]
        _backward(program, inputs, workspace, output, grads, (d_x, *d_weights, d_dt), d_state, d_vectors)
        workspace.release()
        return None, None, d_x, *d_weights, d_dt, None, *d_state, *d_vectors, *[None] * len(inputs.noise)

    jvp = staticmethod(no_jvp)


def _forward(program: Program, keep: bool, inputs: Inputs) -> tuple[Workspace, tuple[Tensor, ...]]:
    """Run the library forward. Returns its workspace, the output and the last state."""
    problem = _problem(program, keep, inputs)
    workspace = Workspace(program.functions.timescales_workspace(ctypes.byref(problem)))
    problem.workspace = workspace.address
    h = inputs.state[0]
    output = h.new_empty(*inputs.x.shape[:2], h.shape[-1])
    last = [torch.empty_like(h) for _ in inputs.state]
    problem.output = output.data_ptr()
    problem.last = pointers(last)
    program.functions.timescales_forward(ctypes.byref(problem))
    return workspace, (output, *last)


def _backward(
    program: Program,
    inputs: Inputs,
    workspace: Workspace,
    output: Tensor,
    grads: Sequence[Tensor | None],
    results: Sequence[Tensor | None],
    d_state: Sequence[Tensor | None],
    d_vectors: Sequence[Tensor | None],
) -> None:
    """Run the library backward: from the gradients of the output and the last state to those of the inputs."""
    d_output, *d_last = grads
    problem = _problem(program, True, inputs)
    problem.workspace = workspace.address
    problem.output = output.data_ptr()
    if d_output is not None:
        d_output = with_contiguous_rows(d_output)
        problem.d_output = d_output.data_ptr()
        problem.d_output_step, problem.d_output_row = d_output.stride()[:2]
    d_last = [None if d is None else d.contiguous() for d in d_last]
    problem.d_last, problem.d_state, problem.d_vectors = pointers(d_last), pointers(d_state), pointers(d_vectors)
    for name, tensor in zip(("d_x", "d_ih", "d_hh", "d_bias_ih", "d_bias_hh", "d_dt"), results, strict=True):
        setattr(problem, name, None if tensor is None else tensor.data_ptr())
    program.functions.timescales_backward(ctypes.byref(problem))


def _problem(program: Program, keep: bool, inputs: Inputs) -> Problem:
    """A `Problem` with the sizes and the inputs."""
    (S, B, I), H = inputs.x.shape, inputs.hh.shape[-1]  # noqa: E741
    problem = Problem(program.threads, S, B, I, H, keep)
    problem.x_step, problem.x_row = inputs.x.stride()[:2]
    for name, tensor in zip(Inputs._fields[:8], inputs[:8], strict=True):
        setattr(problem, name, None if tensor is None else tensor.data_ptr())
    problem.state, problem.vectors = pointers(inputs.state), pointers(inputs.vectors)
    problem.noise = pointers(inputs.noise)
    return problem


def pointers(tensors: Iterable[Tensor | None]) -> Any:
    """An array of addresses; null for None. It lives as long as the `Problem` that it is assigned to."""
    addresses = [None if t is None else t.data_ptr() for t in tensors]
    return ctypes.cast((ctypes.c_void_p * max(1, len(addresses)))(*addresses), ctypes.POINTER(ctypes.c_void_p))


def unsupported_reason(cell: Cell, x: Tensor, with_dt: bool = False) -> str | None:
    """The reason why this engine cannot run `cell` over `x`, with the fix; None if it can."""
    if reason := tracing_reason():
        return reason
    for name, tensor in (("x", x), ("the weights", cell.weight_ih)):
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            return f"{name} must be float32 on the CPU, not {tensor.dtype} on {tensor.device}; use engine='eager'"
    try:
        found = equations.of_cell(cell, with_dt)
    except NotTraceable as error:
        return f"{error}; use engine='eager'"
    return cell_library.load(found).error
