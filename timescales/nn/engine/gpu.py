"""Run cells on a GPU: torch's cuDNN layers for a plain LSTM or GRU, compiled pieces of the eager loop for all others.

README.md describes the pieces, and the trial before their first use. If torch cannot compile a cell, or if the numbers
differ, one warning says so and the eager engine runs. Both engines also run on a CPU if the caller names them, as the
tests do.
"""

import functools
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales import torch_private
from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.engine import caches, eager
from timescales.nn.engine.kernel import check_backward
from timescales.nn.engine.reset import Resets, reset_where
from timescales.torch_private import tree_leaves, tree_map_only

BACKEND = "inductor"  # of torch.compile; "aot_eager" runs the same steps without writing kernels
STEPS = 8  # of a piece: with more of them compiling takes longer, with fewer the CPU waits more often between pieces
# The largest difference between the two engines, relative to the largest number of a tensor. float32 includes TF32.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
HALF_TOLERANCE = 6e-2  # of bfloat16, float16 and autocast


def cudnn_reason(cell: Cell, x: Tensor, masked: bool = False, stepwise: bool = False) -> str | None:
    """Say why torch's cuDNN layers cannot run a call, with the fix. Return None if they can."""
    if _torch_function(cell) is None:
        return f"it runs only the plain LSTM and GRU, not {type(cell).__name__}; use engine='auto'"
    if x.dtype != cell.weight_ih.dtype:
        return f"x is {x.dtype} and the weights are {cell.weight_ih.dtype}; use engine='auto'"
    if masked:
        return "it cannot hold the state where a mask is 0; use engine='auto'"
    if stepwise:
        return "it can neither reset the state within a sequence nor return states; use engine='auto'"
    if torch.are_deterministic_algorithms_enabled():
        return "it may not be deterministic, and torch.use_deterministic_algorithms is on; use engine='auto'"
    if x.is_cuda and not torch.backends.cudnn.is_acceptable(x):
        return "torch has no cuDNN here, or it is turned off; use engine='auto'"
    return None


def _torch_function(cell: Cell) -> Any:
    """Return torch's function with the equations of a cell. Return None if the cell has other equations."""
    for kind in type(cell).__mro__:
        if "_torch_layer" in vars(kind):
            same = type(cell).step is kind.step and type(cell).act is kind.act  # type: ignore[attr-defined]
            function = torch_private.lstm if cell._torch_layer == "LSTM" else torch_private.gru
            return function if same and not vars(cell).keys() & {"step", "act"} else None
    return None


def cudnn(cell: Cell, x: Tensor, weights: Weights, state: Any, *others: Any) -> tuple[Any, ...]:
    """Run a cell as `eager.run` does, by torch's own kernel. `cudnn_reason` says which calls it takes.

    torch.backends.cudnn.allow_tf32 decides whether products are rounded to TF32.
    """
    if 0 in x.shape:
        return eager.run(cell, x, weights, state, *others)
    ih, hh, bias_ih, bias_hh = weights
    assert bias_ih is not None, "see arguments.fitted"
    parameters = [ih, hh, bias_ih, torch.zeros_like(bias_ih) if bias_hh is None else bias_hh]
    before = tuple(v.contiguous().unsqueeze(0) for v in state)
    # Autocast would use half precision, where a gate near 1 becomes 1 and forgets nothing.
    with torch.autocast(x.device.type, enabled=False), warnings.catch_warnings():
        # "weights are not part of single contiguous chunk": they are computed for this call.
        warnings.simplefilter("ignore", UserWarning)
        # Biases, layers, dropout, whether backward may follow, bidirectional, batch first.
        options = (True, 1, 0.0, torch.is_grad_enabled(), False, False)
        output, *last = _torch_function(cell)(x, before if len(before) > 1 else before[0], parameters, *options)
    return output, type(state)(*(v[0] for v in last))


def compiled(cell: Cell, x: Tensor, *others: Any) -> tuple[Any, ...]:
    """Run a cell as `eager.run` does, with all its arguments, in compiled pieces.

    The eager engine runs the steps that fill no piece, forward-mode derivatives, and calls under hooks on saved
    tensors: torch.utils.checkpoint runs a call again in backward, where torch does not compile.
    """
    arguments = (x, *others)
    if len(x) <= STEPS or 0 in x.shape or torch_private.saved_tensors_have_hooks() or torch_private.is_in_dual_level():
        return eager.run(cell, *arguments)
    _, state, dt, mask, resets, states = others
    modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled(x.device.type))
    of_call = (x.dtype, state.h.dtype, dt is None, mask is None, resets is None, states)
    # Calls with the same key share what torch compiles, up to the sizes of the batch.
    key = ("compiled", type(cell), cell.extra_repr(), x.device, cell.training, *modes, *of_call, BACKEND)
    reason = caches.trial_result(key, lambda: _difference(cell, key, arguments))
    if reason is None:
        try:
            with warnings.catch_warnings():
                # torch's compiler reads .grad of the state when it compiles again, for another batch size.
                warnings.filterwarnings("ignore", "The .grad attribute of a Tensor", UserWarning)
                return loop(_compiled_piece(key), cell, *arguments)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if x.is_cuda and torch.cuda.is_current_stream_capturing():
                raise  # the capture is broken, not the cell
            found = eager.run(cell, *arguments)  # if the call itself is wrong, this raises its error
            reason = caches.TRIAL_RESULTS[key] = _one_line(error)
            caches.warn_once(cell, f"{reason}; {caches.HOW_TO_SILENCE}")
            return found
    caches.warn_once(cell, f"{reason}; {caches.HOW_TO_SILENCE}")
    return eager.run(cell, *arguments)


def failure(cell: Cell, device: torch.device) -> str | None:
    """Say why compiled pieces of a cell failed on a device in this process. Return None if none has failed."""
    kind = ("compiled", type(cell), cell.extra_repr(), device)
    results = caches.TRIAL_RESULTS.items()
    return next((why for key, why in results if why is not None and key[: len(kind)] == kind), None)


@functools.cache
def _compiled_piece(key: tuple[Any, ...]) -> Callable[..., Any]:
    """Return `piece`, which torch compiles at its first call.

    Each kind of call has its own copy with its own name. torch gives up on a function that it had to compile too
    often, and treats a size that changed between two calls of one name as unknown.
    """
    code = piece.__code__.replace(co_name=f"piece_{_compiled_piece.cache_info().currsize}_of_{key[1].__name__}")
    return torch_private.compile_with_backward(types.FunctionType(code, piece.__globals__), BACKEND)


def _one_line(error: Exception) -> str:
    """Write an error in one line. torch's first line may only say that its backend raised something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"torch cannot compile it, {type(error).__name__}: {' '.join(lines[:2])[:300]}"


def loop(
    run_piece: Callable[..., Any],
    cell: Cell,
    x: Tensor,
    weights: Weights,
    state: Any,
    dt: Tensor | None = None,
    mask: Tensor | None = None,
    resets: Resets | None = None,
    states: bool = False,
) -> tuple[Any, ...]:
    """Run a cell as `eager.run` does: first the steps that fill no piece, then whole pieces.

    run_piece: `piece`, or its compiled form.
    """
    x, dt = eager.fill_masked(x, dt, mask)
    kind, h0, hh = type(state), state.h.detach(), weights.hh
    known: dict[str, Tensor] = {}
    first = (len(x) - 1) % STEPS + 1
    sizes = [first] + [STEPS] * ((len(x) - first) // STEPS)
    gx = F.linear(x, weights.ih, weights.bias_ih).to(state.h.dtype)
    bias = None if hh is None else AllSteps.apply(hh, weights.bias_hh, x.shape[:-1], known)
    dt, mask = (None if v is None else v.unsqueeze(-1) for v in (dt, None if mask is None else mask.bool()))
    after, initial = (None, None) if resets is None else (resets.after, tuple(v.contiguous() for v in resets.initial))
    each = zip(
        *([None] * len(sizes) if v is None else v.contiguous().split(sizes) for v in (gx, dt, mask, after)),
        [None] * len(sizes) if bias is None else bias.split(sizes),
        strict=True,
    )
    fields, parts = tuple(state), []
    for k, (gx_k, dt_k, mask_k, after_k, bias_k) in enumerate(each):
        run = run_piece if k else piece
        recurrent = None if hh is None else (hh.detach(), bias_k)
        fields, every = run(cell, gx_k, recurrent, fields, dt_k, mask_k, after_k, initial, states)
        parts.append(every)
    output, *others = (torch.cat(field) for field in zip(*parts, strict=True))
    if bias is not None and bias.requires_grad:
        h = torch.cat([h0.expand_as(output[0]).unsqueeze(0), output[:-1].detach()])
        if after is not None and initial is not None:
            begins = torch.cat([torch.zeros_like(after[:1]), after[:-1]]).unsqueeze(-1)
            h = torch.where(begins, initial[0].detach(), h)
        known["h"] = h
    return (output, kind(*fields), kind(output, *others)) if states else (output, kind(*fields))


def piece(
    cell: Any, gx: Tensor, recurrent: Any, fields: Any, dt: Any, mask: Any, after: Any, initial: Any, states: bool
) -> tuple[Any, Any]:
    """Run some steps. Return the fields of the state after them, and h (with `states` all fields) after each step.

    Arguments:
        gx, dt, mask, after: of each step; all but gx may be None.
        recurrent: weight_hh, and bias_hh of each step; None without recurrent weights.
        fields: of the state before the first step. initial: of the state after a reset.
    """
    state, every = cell.State(*fields), []
    for t in range(len(gx)):
        gh = None
        if recurrent is not None:
            hh, bias = recurrent
            gh = ((state.h @ hh.mT).to(state.h.dtype) + bias[t]).to(state.h.dtype)
        new = eager.step(cell, gx[t], gh, state, 1.0 if dt is None else dt[t], None if mask is None else mask[t])
        every.append(tuple(new) if states else (new.h,))
        state = new if after is None else reset_where(after[t], initial, new)
    return tuple(state), tuple(torch.stack(field) for field in zip(*every, strict=True))


class AllSteps(torch.autograd.Function):
    """Repeat bias_hh for every step and sequence, (S, B, rows), and compute the gradient of weight_hh as one product.

    The gradients that come back are those of W_hh h + bias_hh at every step. `known` is a dictionary that the loop
    fills at its end: `h` is the output before every step.
    """

    @staticmethod
    def forward(ctx: Any, hh: Tensor, bias: Tensor | None, sizes: Sequence[int], known: dict[str, Tensor]) -> Tensor:
        ctx.known, ctx.biased = known, bias is not None
        value = hh.new_zeros(()) if bias is None else bias
        return value.expand(*sizes, len(hh))

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Any:
        check_backward("compiled", [d])
        d_bias = d.sum((0, 1)) if ctx.biased else None
        h = ctx.known["h"].to(d.dtype)
        return d.flatten(0, 1).mT @ h.flatten(0, 1), d_bias, None, None


def tensors_of(*values: Any) -> list[Tensor]:
    """Return all tensors of nested values, in their order."""
    return [v for v in tree_leaves(values) if isinstance(v, Tensor)]


def _difference(cell: Cell, key: tuple[Any, ...], arguments: tuple[Any, ...]) -> str | None:
    """Compare both engines on the first steps of a call, forward and backward. Return what differs, in one line."""
    x, weights, state, dt, mask, resets, states = arguments
    dt, mask = (None if v is None else v[: STEPS + 1] for v in (dt, mask))
    resets = None if resets is None else Resets(resets.after[: STEPS + 1], resets.initial)
    given = (x[: STEPS + 1], weights, state, dt, mask, resets, states)
    # A tensor that is given twice is copied once, and the copies need gradients as the originals do. So the trial
    # compiles just what the call needs.
    copies = {id(v): v.detach().clone().requires_grad_(v.requires_grad) for v in tensors_of(given)}
    given = tree_map_only(Tensor, lambda v: copies[id(v)], given)
    wanted = [v for v in dict.fromkeys([*copies.values(), *cell.parameters()]) if v.requires_grad]

    def results(run: Callable[..., Any]) -> list[Tensor]:
        with torch.random.fork_rng([x.device] if x.is_cuda else []):
            torch.default_generator.manual_seed(0)  # torch.manual_seed would seed all devices
            if x.is_cuda:
                with torch.cuda.device(x.device):
                    torch.cuda.manual_seed(0)
            found = tensors_of(run(cell, *given))
        if not any(v.requires_grad for v in found):
            return found
        # Each number has another weight in the loss.
        loss: Any = sum((v * torch.linspace(-1.0, 1.5, v.numel()).to(v).view(v.shape)).sum() for v in found)
        return found + list(torch.autograd.grad(loss, wanted, materialize_grads=True, allow_unused=True))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's compiler; the call itself repeats those of the step
            found, expected = (results(run) for run in (functools.partial(loop, _compiled_piece(key)), eager.run))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        results(eager.run)  # if the call itself is wrong, this raises its error
        return _one_line(error)
    half = torch.is_autocast_enabled(x.device.type)
    for a, b in zip(found, expected, strict=True):
        a, b = a.detach(), b.detach()
        tolerance = HALF_TOLERANCE if half else TOLERANCE.get(b.dtype, HALF_TOLERANCE)
        finite = b[b.isfinite()]
        scale = float(finite.abs().max()) if len(finite) else 0.0
        if not torch.allclose(a, b, rtol=0.0, atol=tolerance * scale + 1e-6, equal_nan=True):
            return "its compiled steps are wrong: they differ from the eager engine"
    return None
