"""The graph engine's autograd function: a sequence, forward and backward, in the buffers of a lease (capture.py).

Shapes: S steps, R batched seeds, B sequences, I inputs, H units, C rows of all blocks. Callers have (S, B, ...), or
(S, R, B, ...); buffers always have (R, S, B, ...).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales.nn.engine.affine import affine
from timescales.nn.engine.equations import Equations
from timescales.nn.engine.gpu import capture, emit_triton
from timescales.nn.engine.gpu.buffers import Buffers, engine_of
from timescales.nn.engine.gpu.emit_cuda import Kernels
from timescales.nn.engine.kernel import check_backward, check_shape, no_jvp
from timescales.torch_private import saved_tensors_have_hooks


def code_of(found: Equations) -> tuple[str, bool]:
    """The kernels of a cell, and whether they are run as a scan, which may depend on what the vectors are."""
    return emit_triton.code(found), affine(found) is not None


def on_device_of(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """The context in which kernels are launched on the GPU of x."""
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()


class Plan(NamedTuple):
    """Arguments of a call that are not tensors.

    pool: graphs of this cell, or None to run without graphs. strict: see `run`. keep: whether backward follows.
    time_gradient: whether dt needs a gradient. every: whether the state after every step is wanted.
    cluster: the kernels of the cluster engine; None for the graph engine.
    """

    equations: Equations
    hidden_size: int
    pool: capture.Pool | None
    strict: bool
    keep: bool
    time_gradient: bool
    every: bool = False
    cluster: Kernels | None = None


class Inputs(NamedTuple):
    """The tensors of a call. Weights as in `in_block_order`; other shapes as in `eager.run`."""

    x: Tensor
    ih: Tensor
    hh: Tensor | None
    bias: Tensor
    bias_h: Tensor | None
    dt: Tensor | None
    mask: Tensor | None
    again: Tensor | None
    state: tuple[Tensor, ...]
    vectors: tuple[Tensor, ...]
    noises: tuple[Tensor, ...]
    initial: tuple[Tensor, ...]

    @classmethod
    def of(cls, found: Equations, tensors: Sequence[Any]) -> Inputs:
        """The inputs from the tensors of `GraphFunction`."""
        lists = iter(tensors[8:])
        sizes = (len(found.fields), len(found.vectors), found.noises)
        return cls._make([*tensors[:8], *(tuple(itertools.islice(lists, n)) for n in sizes), tuple(lists)])

    def flat(self) -> list[Tensor | None]:
        """The tensors in one list."""
        return [*self[:8], *self.state, *self.vectors, *self.noises, *self.initial]

    @property
    def batched(self) -> bool:
        """Whether there is a dimension of batched seeds."""
        return self.x.dim() == 4

    def seeds_first(self, v: Tensor) -> Tensor:
        """(S, R, B, ...) or (S, B, ...) as (R, S, B, ...)."""
        return v.transpose(0, 1) if self.batched else v.unsqueeze(0)

    def without_seeds(self, v: Tensor) -> Tensor:
        """(R, ...), or (...) if there are no batched seeds."""
        return v if self.batched else v[0]

    def steps_first(self, v: Tensor) -> Tensor:
        """The reverse of `seeds_first`."""
        return v.transpose(0, 1) if self.batched else v[0]


class GraphFunction(torch.autograd.Function):
    """A sequence as one autograd function, from the `Inputs`.

    Results: the output, the last state, and, where they are wanted, all fields but h after every step.
    """

    @staticmethod
    def forward(ctx: Any, plan: Plan, *tensors: Any) -> tuple[Any, ...]:
        ctx.set_materialize_grads(False)  # None instead of zeros for a result without a gradient
        inputs = Inputs.of(plan.equations, tensors)
        lease = _forward(plan, inputs)
        states = lease.b.states
        last = [inputs.without_seeds(state[:, -1]).clone() for state in states]
        fields = range(len(states) if plan.every else 1)
        output, *every = (inputs.steps_first(lease.b.after(k)).clone() for k in fields)
        results = (output, *last, *every)
        # Hooks on saved tensors are there to save memory. They cannot take the buffers: backward computes them again.
        keep_buffers = plan.keep and not saved_tensors_have_hooks()
        if plan.keep:
            ctx.plan, ctx.lease = plan, lease if keep_buffers else None
            ctx.save_for_backward(*tensors)
        if not keep_buffers:
            lease.release()
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        check_backward(engine_of(ctx.plan.cluster), grads)
        inputs = Inputs.of(ctx.plan.equations, ctx.saved_tensors)
        lease, ctx.lease = ctx.lease, None
        if lease is None:  # it was not kept, or this is a second backward and the first one overwrote it
            lease = _forward(ctx.plan, inputs)
        wanted = Inputs.of(ctx.plan.equations, ctx.needs_input_grad[1:])
        with on_device_of(inputs.x):
            _run_backward(lease, inputs, grads, first=wanted.state[0])  # type: ignore[arg-type]  # they are booleans
            gradients = _gradients(lease.b, inputs, wanted)
        lease.release()
        return None, *gradients.flat()

    jvp = staticmethod(no_jvp)


def _forward(plan: Plan, inputs: Inputs) -> capture.Lease:
    """Fill the buffers of a call and run it forward."""
    x, dt, mask, H = inputs.x, inputs.dt, inputs.mask, plan.hidden_size
    sizes = (x.shape[1] if inputs.batched else 1, x.shape[0], x.shape[-2])

    given = (dt is not None, mask is not None, plan.time_gradient, inputs.again is not None, plan.every)

    def make() -> Buffers:
        with torch.inference_mode(False), torch.no_grad():
            return Buffers(plan.equations, sizes, H, x.device, *given, plan.cluster)

    key: tuple[Any, ...] = ()
    if plan.pool is not None:
        key = (*code_of(plan.equations), *sizes, H, *given, *capture.settings(x.device))
    lease = capture.Lease(plan.pool, key, plan.strict, make)
    b = lease.b
    _check_shapes(b, inputs)
    _project(b, inputs)
    if inputs.hh is not None:
        b.hh.copy_(inputs.hh)
    for buffer, value in zip(b.vectors, inputs.vectors, strict=True):
        buffer.copy_(value)
    for buffer, value in zip(b.states, inputs.state, strict=True):
        buffer[:, 0].copy_(value)
    for buffer, value in zip(b.noises, inputs.noises, strict=True):
        buffer.copy_(inputs.seeds_first(value))
    if b.dt is not None and dt is not None:
        b.dt.copy_(inputs.seeds_first(dt))
    if b.mask is not None and mask is not None:
        b.mask.copy_(inputs.seeds_first(mask.bool()))
    if b.again is not None and inputs.again is not None:
        b.again.copy_(inputs.seeds_first(inputs.again))
        for initial, value in zip(b.initial, inputs.initial, strict=True):
            assert initial is not None
            initial.copy_(value)
    lease.forward()
    return lease


def _check_shapes(b: Buffers, inputs: Inputs) -> None:
    """Raise RuntimeError for a tensor of another shape than its buffer: torch would broadcast it without a word.

    The kernels read and write nothing but the buffers, which have the sizes of the call.
    """
    R, S, B = b.sizes
    seeds = (R,) if inputs.batched else ()
    rows, steps, H = b.hh.shape[1], (S, *seeds, B), b.H
    shapes = {
        "weight_ih": (inputs.ih, (*seeds, b.x_columns, inputs.x.shape[-1])),
        "weight_hh": (inputs.hh, (*seeds, rows, H)),
        "bias": (inputs.bias, (*seeds, b.x_columns)),
        "bias_hh": (inputs.bias_h, (*seeds, b.z.shape[-1] - b.x_columns)),
        "dt": (inputs.dt, steps),
        "mask": (inputs.mask, steps),
        "again": (inputs.again, steps),
    }
    for name, (tensor, shape) in shapes.items():
        if tensor is not None or (name == "weight_hh" and rows) or (name == "dt" and b.timed):
            check_shape(b.engine, name, tensor, shape)
    for name, tensors, shape in (
        ("the state", inputs.state, (*seeds, B, H)),
        ("the initial state", inputs.initial, (*seeds, B, H)),
        ("a vector", inputs.vectors, (*seeds, H)),
        ("noise", inputs.noises, (*steps, H)),
    ):
        for tensor in tensors:
            check_shape(b.engine, name, tensor, shape)


def _project(b: Buffers, inputs: Inputs) -> None:
    """Write to z what does not depend on h: the input's share, and the bias of blocks without one."""
    R, S, B = b.sizes
    x, ih, bias = inputs.x, inputs.ih, inputs.bias
    if inputs.batched:
        folded = inputs.seeds_first(x).reshape(R, S * B, x.shape[-1])
        torch.baddbmm(bias.unsqueeze(1), folded, ih.mT, out=b.z.flatten(1, 2)[..., : b.x_columns])
    else:
        torch.addmm(bias, x.reshape(S * B, x.shape[-1]), ih.t(), out=b.z.flatten(0, 2)[:, : b.x_columns])
    if inputs.bias_h is None:
        b.z[..., b.x_columns :].zero_()
    else:
        bias_h = inputs.bias_h if inputs.batched else inputs.bias_h.unsqueeze(0)
        b.z[..., b.x_columns :].copy_(bias_h[:, None, None])


def _run_backward(lease: capture.Lease, inputs: Inputs, grads: Any, first: bool) -> None:
    """Run a call backward in its buffers, from the gradients of the output and the last state."""
    b = lease.b
    d_output, *rest = grads
    fields = len(b.states)
    for buffer, value in zip(b.d_states, rest[:fields], strict=True):
        if value is not None:
            check_shape(b.engine, "a gradient of the last state", value, buffer.shape[0 if inputs.batched else 1 :])
        buffer.zero_() if value is None else buffer.copy_(value)
    for of_steps, value in zip(b.d_others, rest[fields:], strict=False):
        assert of_steps is not None
        of_steps.zero_() if value is None else of_steps.copy_(inputs.seeds_first(value))
    for sums in (*b.d_vectors, *b.d_initial):
        if sums is not None:
            sums.zero_()
    if d_output is not None:
        d_output = inputs.seeds_first(d_output).float()
        check_shape(b.engine, "the gradient of the output", d_output, (*b.sizes, b.H))
    lease.backward(d_output, first)


def _gradients(b: Buffers, inputs: Inputs, wanted: Inputs) -> Inputs:
    """Gradients of the inputs, None where they are not wanted, after the loop ran backward."""
    R, S, B = b.sizes
    dz, h_before = (inputs.without_seeds(v.flatten(1, 2)) for v in (b.z, b.states[0][:, :-1]))
    dz_x, dz_h = dz[..., : b.x_columns], dz[..., b.first_h :]
    x = inputs.without_seeds(inputs.seeds_first(inputs.x).reshape(R, S * B, -1))
    d_x = d_dt = None
    if wanted.x:
        d_x = inputs.steps_first((dz_x @ inputs.ih).view(R, S, B, -1))
    if wanted.dt:
        assert b.d_dt is not None
        d_dt = inputs.steps_first(b.d_dt).clone()
    d_vectors = [
        _vector_gradient(sums, value, inputs) if want else None
        for sums, value, want in zip(b.d_vectors, inputs.vectors, wanted.vectors, strict=True)
    ]
    d_state = [
        inputs.without_seeds(d).clone() if want else None for d, want in zip(b.d_states, wanted.state, strict=True)
    ]
    d_initial = [
        inputs.without_seeds(d.sum(1) if d.dim() == 4 else d).clone() if want and d is not None else None
        for d, want in zip(b.d_initial, wanted.initial, strict=False)
    ]
    return Inputs(
        x=d_x,  # type: ignore[arg-type]  # gradients may be None
        ih=dz_x.mT @ x if wanted.ih else None,  # type: ignore[arg-type]
        hh=dz_h.mT @ h_before if wanted.hh else None,
        bias=dz_x.sum(-2) if wanted.bias else None,  # type: ignore[arg-type]
        bias_h=dz[..., b.x_columns :].sum(-2) if wanted.bias_h else None,
        dt=d_dt,
        mask=None,
        again=None,
        state=tuple(d_state),  # type: ignore[arg-type]
        vectors=tuple(d_vectors),  # type: ignore[arg-type]
        noises=(None,) * len(inputs.noises),  # type: ignore[arg-type]
        initial=tuple(d_initial),  # type: ignore[arg-type]
    )


def _vector_gradient(sums: Tensor | None, value: Tensor, inputs: Inputs) -> Tensor:
    """The gradient of a vector, (R, H) or (H,), from its sums over the steps (R, B, H)."""
    return torch.zeros_like(value) if sums is None else inputs.without_seeds(sums.sum(1))
