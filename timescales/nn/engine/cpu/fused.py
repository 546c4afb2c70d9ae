"""The fused engine: run the time loop of any cell on the CPU in C++, as one autograd function, in float32.

Before a cell's library is used, a small sequence through it is compared with the eager engine (trial.py).

Small numbers are set to zero: denormal numbers (below 1.2e-38), and in backward the gradients of pre-activations whose
size is below 1e-30. Products of denormal numbers would make vanishing gradients many times slower.

Shapes: S steps, B sequences, I inputs, H units.
"""

import ctypes
import functools
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import eager, equations, trial
from timescales.nn.engine.caches import trial_result
from timescales.nn.engine.cpu import emit_cpp, shared_library
from timescales.nn.engine.cpu.compiler import BuildError
from timescales.nn.engine.cpu.shared_library import Problem
from timescales.nn.engine.cpu.workspace import Workspace
from timescales.nn.engine.equations import Equations
from timescales.nn.engine.kernel import (
    Named,
    address,
    address_of_rows,
    check_backward,
    in_memory,
    is_differentiated,
    readable,
)
from timescales.nn.engine.reset import Resets
from timescales.torch_private import saved_tensors_have_hooks


class Argument(NamedTuple):
    """A tensor that the library reads. needed: whether it must be there."""

    name: str
    dtype: torch.dtype
    needed: bool


class Compiled(NamedTuple):
    """A cell's equations, the functions of its loaded library, and what these read.

    arguments: the tensors that the library reads besides x, which comes first, in the order of `FusedFunction`. The
        weights and the state are as in `Cell`; order: see `longest_first`; reset_after and initial: the fields of
        `Resets`. `Plan.shapes` has their shapes. A call without resets leaves out the initial state.
    lists: the places of state, vectors, noise and initial state among all tensors.
    """

    equations: Equations
    functions: ctypes.CDLL
    arguments: tuple[Argument, ...]
    lists: tuple[slice, ...]


MASK, ORDER, SINGLE = 6, 7, 9  # places of mask and order among all tensors, and of the first list


def compiled(cell: Cell, timed: bool) -> Compiled | str:
    """Return the compiled form of a cell, or the reason why there is none. timed: whether the step gets dt."""
    found = equations.known(cell, timed)
    if isinstance(found, str):
        return found
    if "compiled" not in vars(found):
        vars(found)["compiled"] = _compile(found, cell)
    return vars(found)["compiled"]


def _compile(e: Equations, cell: Cell) -> Compiled | str:
    code = emit_cpp.cell_code(e)
    try:
        functions = shared_library.load(code, type(cell).__name__, e.is_scan)
    except BuildError as error:
        return str(error)
    recurrent = any(block.kind != "x" for block in e.blocks)
    single = [("ih", True), ("hh", recurrent), ("bias_ih", True), ("bias_hh", False), ("dt", e.reads_dt)]
    arguments = [Argument(name, torch.float32, needed) for name, needed in single]
    others = {"mask": torch.bool, "order": torch.int64, "reset_after": torch.bool}
    arguments += [Argument(name, dtype, False) for name, dtype in others.items()]
    lists, sizes = [], (len(e.fields), len(e.vectors), e.noises, len(e.fields))
    for name, n in zip(("state", "vectors", "noise", "initial"), sizes, strict=True):
        lists.append(slice(1 + len(arguments), 1 + len(arguments) + n))
        arguments += [Argument(name, torch.float32, True)] * n
    made = Compiled(e, functions, tuple(arguments), tuple(lists))
    run_there = functools.partial(_run, made)
    key = code, e.hoisted.description()
    return trial_result(key, lambda: trial.difference(cell, e.reads_dt, e.noises, run_there)) or made


def call_reason(cell: Cell, x: Tensor, others: Named = ()) -> str | None:
    """Return why this engine cannot run a call with these tensors, with the fix. Return None if it can."""
    for name, tensor in (("x", x), *(others or [("the weights", cell.weight_ih)])):
        if tensor is None or (tensor.dtype is torch.float32 and tensor.is_cpu):
            continue
        if not tensor.is_cpu or name not in ("dt", "mask", "reset"):  # these are converted
            return f"{name} must be float32 on the CPU, not {tensor.dtype} on {tensor.device}; use engine='eager'"
    return None


def run(
    cell: Cell,
    x: Tensor,
    weights: Weights,
    state: Any,
    dt: Tensor | None = None,
    mask: Tensor | None = None,
    resets: Resets | None = None,
    states: bool = False,
    given: Compiled | None = None,
) -> tuple[Any, ...]:
    """Run a cell over a sequence; see `eager.run`.

    given: `compiled(cell, dt is not None)`, if the caller has it.

    The eager engine runs empty batches, and sequences of fewer than two steps: for these the layout of the weights
    would cost more than it saves.
    """
    S, B, _ = x.shape
    if S < 2 or not B:
        return eager.run(cell, x, weights, state, dt, mask, resets, states)
    found = given or compiled(cell, dt is not None)
    assert isinstance(found, Compiled), found
    noise: list[Tensor] = []
    if noises := found.equations.noises:  # in the order of the eager engine
        drawn = torch.rand((S, noises, B, cell.hidden_size), dtype=x.dtype, device=x.device)
        noise = [numbers.contiguous() for numbers in drawn.unbind(1)]
    return _run(found, cell, x, weights, state, dt, mask, noise, resets, states)


def _run(
    code: Compiled,
    cell: Cell,
    x: Tensor,
    weights: Weights,
    state: Any,
    dt: Tensor | None,
    mask: Tensor | None,
    noise: Sequence[Tensor],
    resets: Resets | None = None,
    states: bool = False,
) -> tuple[Any, ...]:
    vectors = code.equations.vector_values(cell, weights.ih)
    dt = dt if code.equations.reads_dt else None
    keep = dt is not None and dt.requires_grad
    after, initial = (None, ()) if resets is None else resets
    for tensor in (x, *weights, *state, *vectors, *initial):
        if tensor is not None:
            assert (tensor.dtype, tensor.is_cpu) == (torch.float32, True)  # not converted, since results have its type
            keep = keep or tensor.requires_grad
    keep = keep and torch.is_grad_enabled()
    threads = torch.get_num_threads()
    order = None if mask is None else longest_first(mask.bool(), threads)
    plan = Plan(code, cell.hidden_size, threads, keep, states, None if vectors or noise else weakref.ref(cell))
    tensors = (x, *weights, dt, mask, order, after, *state, *vectors, *noise, *initial)
    output, *results = FusedFunction.apply(plan, *tensors)
    last = type(state)(*results[: len(state)])
    return (output, last, type(state)(output, *results[len(state) :])) if states else (output, last)


Shape = tuple[int, ...]


class Plan(NamedTuple):
    """The arguments of a call that are not tensors.

    threads: number of threads. Backward uses the same number as forward, since the workspace is laid out for it.
    keep: whether backward follows.
    states: whether the caller wants the state after every step.
    cell: for second derivatives. None if its step has parameters or random numbers. It is a weak reference, since a
        class keeps all names around its definition alive.
    """

    code: Compiled
    hidden_size: int
    threads: int
    keep: bool
    states: bool
    cell: weakref.ref[Cell] | None

    def shapes(self, x: Tensor) -> list[Shape]:
        """Return the shapes of x and the other arguments. Their gradients have the same shapes."""
        (S, B, I), H, e = x.shape, self.hidden_size, self.code.equations  # noqa: E741
        rows = sum(H // divisor for divisor in e.divisors)
        single: list[Shape] = [(S, B, I), (rows, I), (rows, H), (rows,), (rows,), (S, B), (S, B), (B,), (S, B)]
        state: list[Shape] = [(B, H)] * len(e.fields)
        return [*single, *state, *[(H,)] * len(e.vectors), *[(S, B, H)] * e.noises, *state]


class FusedFunction(torch.autograd.Function):
    """A sequence as one autograd function of x and the arguments of `Compiled`.

    Results: the output, the last state, and, if the caller wants them, all fields but h after every step.
    """

    @staticmethod
    def forward(ctx: Any, plan: Plan, *tensors: Any) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # None instead of zeros for a result without a gradient
        # Hooks on saved tensors exist to save memory, but cannot see the workspace. So backward computes it again.
        keep_workspace = plan.keep and not saved_tensors_have_hooks()
        shapes = plan.shapes(tensors[0])
        problem, read = _problem(plan, keep_workspace, tensors, shapes)
        workspace, results = _forward(plan, problem, read[0])
        if plan.keep:
            ctx.plan, ctx.shapes, ctx.order = plan, shapes, read[ORDER]
            ctx.workspace = workspace if keep_workspace else None
            read[ORDER] = None
            ctx.save_for_backward(*read, results[0] if keep_workspace else None)
        if not keep_workspace:
            workspace.release()
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        cell = None if plan.cell is None else plan.cell()
        if cell is not None and is_differentiated(grads):
            return None, *_in_torch(plan, cell, ctx.saved_tensors[:-1], ctx.needs_input_grad[1:], grads)
        check_backward("fused", grads)
        *saved, output = ctx.saved_tensors
        if any(v is not None and v.shape != shape for v, shape in zip(saved, ctx.shapes, strict=False)):
            raise RuntimeError("hooks returned a saved tensor in another shape: correct them, or use engine='eager'")
        saved[ORDER] = ctx.order
        problem, read = _problem(plan, True, saved, ctx.shapes)
        workspace, ctx.workspace = ctx.workspace, None
        if workspace is None:  # it was not kept, or this is a second backward and the first one overwrote it
            workspace, (output, *_) = _forward(plan, problem, read[0])
        wanted = list(ctx.needs_input_grad[1:])
        if not any(wanted):
            return (None,) * len(ctx.needs_input_grad)
        wanted[1:5] = [any(wanted[1:5])] * 4  # the gradients of the weights are computed together
        wanted[MASK] = False  # a mask of floats has no gradient
        initial = plan.code.lists[-1].start  # from here on, backward adds to the gradients, which begin as zeros
        results = [
            (v.new_empty if k < initial else v.new_zeros)(v.shape) if v is not None and want else None
            for k, (v, want) in enumerate(zip(read, wanted, strict=True))
        ]
        _backward(plan, problem, ctx.shapes, workspace, output, grads, results)
        workspace.release()
        return None, *results

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> None:
        """Raise RuntimeError."""
        raise RuntimeError("this engine has no forward-mode derivatives: use engine='eager'")


def _in_torch(
    plan: Plan, cell: Cell, saved: Sequence[Any], wanted: Sequence[bool], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Compute the gradients by torch's operations, which can be differentiated: the eager engine runs again."""
    fields = len(cell.State._fields)
    with torch.enable_grad():
        inputs = [None if v is None else v.view_as(v) if want else v for v, want in zip(saved, wanted, strict=True)]
        x, ih, hh, bias_ih, bias_hh, dt, mask, _, after, *others = inputs
        assert x is not None
        assert ih is not None
        resets = None if after is None else Resets(after, cell.State(*others[fields:]))
        weights, state = Weights(ih, hh, bias_ih, bias_hh), cell.State(*others[:fields])
        output, last, *every = eager.run(cell, x, weights, state, dt, mask, resets, plan.states)
    found = (output, *last, *(every[0][1:] if every else ()))
    pairs = [(y, grad) for y, grad in zip(found, grads, strict=True) if grad is not None]
    results, given, create = [y for y, _ in pairs], [grad for _, grad in pairs], torch.is_grad_enabled()
    sources = [v for v, want in zip(inputs, wanted, strict=True) if want and v is not None]
    of_sources = iter(torch.autograd.grad(results, sources, given, create_graph=create, allow_unused=True))
    return [next(of_sources) if want and v is not None else None for v, want in zip(inputs, wanted, strict=True)]


def with_contiguous_rows(x: Tensor) -> Tensor:
    """Return x (S, B, n) with a contiguous last dimension. Steps and rows may have any stride (batch_first)."""
    return x if x.stride(2) == 1 or x.shape[2] == 1 else x.contiguous()


def longest_first(mask: Tensor, threads: int) -> Tensor:
    """Return the order of the batch that costs least, (B,): within each thread's slice, the longest sequences first.

    A step computes the products of all rows up to the last one that exists. The results do not depend on the order.
    """
    S, B = mask.shape
    slices = (torch.arange(1, B + 1) * threads - 1) // B  # row b is in the last slice k with B k // threads <= b
    return (slices * (S + 1) - mask.sum(0)).argsort()


def _problem(plan: Plan, keep: bool, tensors: Sequence[Any], shapes: Sequence[Shape]) -> tuple[Problem, list[Any]]:
    """Return a `Problem` with the sizes and the inputs, and the tensors that it reads, converted where necessary.

    tensors: each a tensor or None, in the order of `FusedFunction`; so are the results.

    Raises: RuntimeError for an input of another shape.
    """
    x = with_contiguous_rows(in_memory(tensors[0], torch.float32))
    read = [x]
    places: list[int | None] = [address_of_rows("x", x, shapes[0])]
    for argument, tensor, shape in zip(plan.code.arguments, tensors[1:], shapes[1:], strict=False):
        place = None
        if tensor is not None:
            tensor, place = readable(argument.name, tensor, shape, argument.dtype)
        elif argument.needed:
            raise RuntimeError(f"the fused engine needs {argument.name} {shape}; it is missing: use engine='eager'")
        read.append(tensor)
        places.append(place)
    *lists, initial = (_array(places[part]) for part in plan.code.lists)
    sizes, weights, others = (plan.threads, *shapes[0], plan.hidden_size, keep), places[:5], places[5:SINGLE]
    return Problem(*sizes, *weights, *x.stride()[:2], *lists, *others, initial), read


def _forward(plan: Plan, problem: Problem, x: Tensor) -> tuple[Workspace, tuple[Tensor, ...]]:
    """Run the library forward. Return its workspace, and the results of `FusedFunction`."""
    functions, (S, B, _), H = plan.code.functions, x.shape, plan.hidden_size
    workspace = Workspace(functions.timescales_workspace(ctypes.byref(problem)))
    output = x.new_empty(S, B, H)
    last = [output.new_empty(B, H) for _ in plan.code.equations.fields]
    every = [torch.empty_like(output) if plan.states else None for _ in last[1:]]
    problem.workspace = workspace.address
    problem.output = address("the output", output, (S, B, H))
    problem.last = _addresses("the last state", last, (B, H))
    problem.states = _addresses("the states", [None, *every], (S, B, H))
    functions.timescales_forward(ctypes.byref(problem))
    return workspace, (output, *last, *(values for values in every if values is not None))


def _backward(
    plan: Plan,
    problem: Problem,
    shapes: Sequence[Shape],
    workspace: Workspace,
    output: Tensor,
    grads: Iterable[Tensor | None],
    results: Sequence[Tensor | None],
) -> None:
    """Run the library backward: from the gradients of the output and the last state to those of the inputs."""
    d_output, *rest = grads
    rest = [None if d is None else in_memory(d, torch.float32).contiguous() for d in rest]
    (S, B, _), H, fields = shapes[0], plan.hidden_size, len(plan.code.equations.fields)
    problem.workspace = workspace.address
    problem.output = address("the output", output, (S, B, H))
    if d_output is not None:
        d_output = with_contiguous_rows(in_memory(d_output, torch.float32))
        problem.d_output = address_of_rows("the gradient of the output", d_output, (S, B, H))
        problem.d_output_step, problem.d_output_row = d_output.stride()[:2]
    problem.d_last = _addresses("the gradient of the last state", rest[:fields], (B, H))
    d_states = [None, *(rest[fields:] or [None] * (fields - 1))]
    problem.d_states = _addresses("the gradient of the states", d_states, (S, B, H))
    places = [address("a gradient", d, shape) for d, shape in zip(results, shapes, strict=False)]
    problem.d_x, problem.d_ih, problem.d_hh, problem.d_bias_ih, problem.d_bias_hh, problem.d_dt = places[:MASK]
    problem.d_state, problem.d_vectors, _, problem.d_initial = (_array(places[part]) for part in plan.code.lists)
    plan.code.functions.timescales_backward(ctypes.byref(problem))


def _addresses(name: str, tensors: Sequence[Tensor | None], shape: Shape) -> Any:
    """Return an array of addresses; null for None."""
    return _array([address(name, tensor, shape) for tensor in tensors])


def _array(places: Sequence[int | None]) -> Any:
    """Return an array of addresses for C++ code. None if it would be empty."""
    return (ctypes.c_void_p * len(places))(*places) if places else None
