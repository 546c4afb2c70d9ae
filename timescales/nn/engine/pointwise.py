"""The pointwise part of a step, forward and backward, in torch. It runs on any device.

It is the reference implementation of the kernels in triton_kernels.py, which have the same names with `_kernel` at the
end. fused.cpp has the same equations for the CPU.

    forward    pre-activations of the G gates, state before  ->  what backward needs to know, state after
    backward   these, gradients of the state after           ->  gradients of the pre-activations, of the state before

All cells have h' = o tanh(c'). `step_forward` and `step_backward` do one step in `Buffers`; backward overwrites what
forward kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from timescales.nn.engine.buffers import Buffers

# ------------------------------------------------------------------------------------------ LSTM
#   i, f, o = sigmoid; g = tanh; c' = f c + i g


def lstm_forward(i: Tensor, f: Tensor, g: Tensor, o: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """Returns what is kept for backward, i, f, g, o; then c', h'."""
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new = f * c + i * g
    return i, f, g, o, new, o * new.tanh()


def lstm_backward(i: Tensor, f: Tensor, g: Tensor, o: Tensor, c: Tensor, dh: Tensor, dc: Tensor) -> tuple[Tensor, ...]:
    """Returns the gradients of the four pre-activations, and of c."""
    tc = (f * c + i * g).tanh()
    dc = dc + dh * o * (1 - tc * tc)
    return dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * tc * o * (1 - o), dc * f


# ------------------------------------------------------------------------------------------ refine gate
#   f, r, o = sigmoid; u = tanh; gate = 2 r f + (1 - 2 r) f^2; c' = gate c + (1 - gate) u


def refine_forward(f: Tensor, r: Tensor, u: Tensor, o: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """Returns what is kept for backward, f, r, u, o; then c', h'."""
    f, r, u, o = f.sigmoid(), r.sigmoid(), u.tanh(), o.sigmoid()
    gate = f * (2 * r + (1 - 2 * r) * f)
    new = gate * c + (1 - gate) * u
    return f, r, u, o, new, o * new.tanh()


def refine_backward(
    f: Tensor, r: Tensor, u: Tensor, o: Tensor, c: Tensor, dh: Tensor, dc: Tensor
) -> tuple[Tensor, ...]:
    """Returns the gradients of the four pre-activations, and of c."""
    gate = f * (2 * r + (1 - 2 * r) * f)
    tc = (gate * c + (1 - gate) * u).tanh()
    dc = dc + dh * o * (1 - tc * tc)
    dgate = dc * (c - u)
    # d gate / df = 2 r + 2 (1 - 2 r) f;  d gate / dr = 2 f (1 - f)
    df = dgate * 2 * (r + (1 - 2 * r) * f) * f * (1 - f)
    dr = dgate * 2 * f * (1 - f) * r * (1 - r)
    return df, dr, dc * (1 - gate) * (1 - u * u), dh * tc * o * (1 - o), dc * gate


# ------------------------------------------------------------------------------------------ power law
#   r, o = sigmoid; q = 1 - r; g = tanh
#   age'   = q (age + dt) + r floor
#   before = q (age + 1)  + r floor + epsilon
#   L = ln((age' + 1) / before) = ln(1 + (r + q dt - epsilon) / before), at least 0;   f = exp(-p L)
#   i = 1 - f (coupled) or a separate sigmoid gate;   c' = f c + i g
#
# The pre-activation z of the reset gate is kept, since both r and q must be exact, however close to 0 they are.


def forgetting(
    z: Tensor, age: Tensor, dt: Tensor | float, p: Tensor, epsilon: float, floor: float
) -> tuple[Tensor, ...]:
    """Returns r, q, age', before, excess, L, f, 1 - f, with excess = r + q dt - epsilon."""
    r, q = z.sigmoid(), (-z).sigmoid()
    new = q * (age + dt) + r * floor
    before = q * (age + 1) + (r * floor + epsilon)
    excess = q * dt + (r - epsilon)
    L = (excess.clamp(min=0.0) / before).log1p()
    return r, q, new, before, excess, L, (-p * L).exp(), -(-p * L).expm1()


def power_forward(
    z: Tensor,
    i: Tensor | None,
    g: Tensor,
    o: Tensor,
    c: Tensor,
    age: Tensor,
    dt: Tensor | float,
    p: Tensor,
    epsilon: float,
    floor: float,
) -> tuple[Tensor, ...]:
    """Returns z, i, g, o; then c', h', age'. i is None in the coupled form, where backward needs only z, g, o."""
    _, _, new_age, _, _, _, f, one_minus_f = forgetting(z, age, dt, p, epsilon, floor)
    g, o = g.tanh(), o.sigmoid()
    i = one_minus_f if i is None else i.sigmoid()
    new = f * c + i * g
    return z, i, g, o, new, o * new.tanh(), new_age


def power_backward(
    z: Tensor,
    i: Tensor | None,
    g: Tensor,
    o: Tensor,
    c: Tensor,
    age: Tensor,
    dt: Tensor | float,
    p: Tensor,
    epsilon: float,
    floor: float,
    dh: Tensor,
    dc: Tensor,
    dage: Tensor,
) -> tuple[Tensor, ...]:
    """Returns the gradients of z, i (without meaning in the coupled form), g, o; of c, age and p."""
    coupled = i is None
    r, q, new_age, before, excess, L, f, one_minus_f = forgetting(z, age, dt, p, epsilon, floor)
    i = one_minus_f if i is None else i
    tc = (f * c + i * g).tanh()
    dc = dc + dh * o * (1 - tc * tc)
    df = dc * (c - g) if coupled else dc * c
    dlog = -df * f  # gradient of p L
    dL = torch.where(excess < 0, 0.0, dlog * p)  # L is constant where it is held at 0
    dage, dbefore = dage + dL / (new_age + 1), -dL / before
    # d age'/dr = floor - (age + dt), d before/dr = floor - (age + 1), dr/dz = r q
    dz = -(r * q) * (dbefore * (age + (1 - floor)) + dage * (age + (dt - floor)))
    di, dg, do = dc * g * i * (1 - i), dc * i * (1 - g * g), dh * tc * o * (1 - o)
    return dz, di, dg, do, dc * f, q * (dbefore + dage), dlog * L


# ------------------------------------------------------------------------------------------ a step in Buffers
#
# A masked step does not change the state, and backward passes its gradient on unchanged.


def step_forward(b: Buffers, t: int) -> None:
    """Step t forward. Before: the pre-activations in z[:, t]. After: what backward needs to know."""
    gates = b.z[:, t].unflatten(-1, (b.gates, b.H)).unbind(-2)
    if b.aged:
        kept, new = _power_step_forward(b, t, gates)
    else:
        forward = lstm_forward if b.kind == "lstm" else refine_forward
        z0, z1, z2, z3 = gates
        *kept, c, h = forward(z0, z1, z2, z3, b.c[:, t])
        new = [c, h]
    exists = _exists(b, t)
    states = [state for state in (b.c, b.h, b.age) if state is not None]
    for state, value in zip(states, new, strict=True):
        state[:, t + 1] = value if exists is None else torch.where(exists, value, state[:, t])
    b.z[:, t] = torch.cat(kept, -1)


def step_backward(b: Buffers, t: int) -> None:
    """Step t backward: z[:, t] becomes the gradients of the pre-activations; dh, dc and dage go one step back."""
    gates = b.z[:, t].unflatten(-1, (b.gates, b.H)).unbind(-2)
    dh = b.dh if b.d_output is None else b.dh + b.d_output[:, t]
    exists = _exists(b, t)
    if b.aged:
        dz, dc = _power_step_backward(b, t, gates, dh, exists)
    else:
        backward = lstm_backward if b.kind == "lstm" else refine_backward
        a0, a1, a2, a3 = gates
        *dz, dc = backward(a0, a1, a2, a3, b.c[:, t], dh, b.dc)
    if exists is None:
        b.dh.zero_()  # `loop_backward` adds the gradient that comes through the recurrent weights
    else:
        dz = [torch.where(exists, v, 0.0) for v in dz]
        dc = torch.where(exists, dc, b.dc)
        b.dh.copy_(torch.where(exists, 0.0, dh))
    b.z[:, t] = torch.cat(dz, -1)
    b.dc.copy_(dc)


def _exists(b: Buffers, t: int) -> Tensor | None:
    """(R, B, 1), whether step t exists; None without a mask."""
    return None if b.mask is None else b.mask[:, t].bool().unsqueeze(-1)


def _power_step_forward(b: Buffers, t: int, gates: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """What is kept for backward, and the new c, h, age."""
    assert b.age is not None
    z, *input_gate, g, o = gates
    i = input_gate[0] if input_gate else None
    *kept, c, h, age = power_forward(z, i, g, o, b.c[:, t], b.age[:, t], *_power_arguments(b, t))
    if i is None:
        del kept[1]
    return kept, [c, h, age]


def _power_step_backward(
    b: Buffers, t: int, gates: tuple[Tensor, ...], dh: Tensor, exists: Tensor | None
) -> tuple[list[Tensor], Tensor]:
    """The gradients of the pre-activations and of c; those of age and power go to the buffers."""
    assert b.age is not None
    assert b.dage is not None
    assert b.dpower is not None
    z, *input_gate, g, o = gates
    i = input_gate[0] if input_gate else None
    *dz, dc, dage, dpower = power_backward(
        z, i, g, o, b.c[:, t], b.age[:, t], *_power_arguments(b, t), dh, b.dc, b.dage
    )
    if i is None:
        del dz[1]
    if exists is not None:
        dage, dpower = torch.where(exists, dage, b.dage), torch.where(exists, dpower, 0.0)
    b.dage.copy_(dage)
    b.dpower += dpower
    return dz, dc


def _power_arguments(b: Buffers, t: int) -> tuple[Tensor | float, Tensor, float, float]:
    """dt, p, epsilon and floor of step t."""
    assert b.power is not None
    dt = 1.0 if b.dt is None else b.dt[:, t].unsqueeze(-1)
    return dt, b.power.unsqueeze(1), b.epsilon, b.floor
