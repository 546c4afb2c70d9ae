"""The pointwise half of a step, forward and exact backward, for engines whose matrix products are somebody else's.

Each cell stands here twice, one below the other with the same names: in plain torch (the twin, for tensors anywhere)
and in Triton (one kernel per step on a GPU). fused.cpp has the same equations a third time, for the CPU. At the
end `step_forward` and `step_backward` (the twins), `launch_forward` and `launch_backward` (Triton) do one step of a
sequence in the buffers of `timescales.nn.engine.buffers`:

    forward    the G pre-activations of a step, the state before -> what backward wants to know, the state after
    backward   that, dh and the carried dc, dage of the state after -> the gradients of the pre-activations, and the
               carried ones of the state before

Backward writes over what forward kept. h' = o tanh c' in all cells. Triton knows no accurate tanh, log1p and expm1
that its interpreter knows too, so these are made here from exp, log and short series.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

try:  # the CPU's torch brings no Triton: the twins run without
    import triton
    import triton.language as tl

    jit: Callable[[Any], Any] = triton.jit
    # A specialised t, S or B would compile anew for every value that is 1 or a multiple of 16.
    jit_step = triton.jit(do_not_specialize=("t", "S", "B", "rows"))
    no_triton = ""
except Exception as error:  # also a Triton that is there and broken: `auto` goes on without
    triton = tl = None
    missing = isinstance(error, ModuleNotFoundError) and error.name == "triton"
    no_triton = "torch came without Triton; pip install triton" if missing else f"importing Triton failed: {error!r}"
    jit = jit_step = lambda function: function

GATES = {"lstm": 4, "refine": 4, "coupled": 3, "separate": 4}  # blocks of rows; the last two are the power-law LSTM's
AGED = ("coupled", "separate")
BLOCK = 128  # numbers per Triton program, one per thread: a step is short, so many small programs


@jit
def exp_minus_one(x):
    """exp(x) - 1, also near 0: there the series, by Horner."""
    series = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7 * (1 + x / 8)))))))
    return tl.where(tl.abs(x) < 0.5, series, tl.exp(x) - 1)


@jit
def log_one_plus(x):
    """log(1 + x) for x >= 0, also near 0: there 2 artanh(x / (2 + x)) by its series."""
    s = x / (2 + x)
    ss = s * s
    series = 2 * s * (1 + ss * (1 / 3 + ss * (1 / 5 + ss * (1 / 7 + ss / 9))))
    return tl.where(x < 0.5, series, tl.log(1 + x))


@jit
def sigmoid(x):
    """1 / (1 + exp(-x)); 0 where exp(-x) is infinite."""
    return 1 / (1 + tl.exp(-x))


@jit
def tanh(x):
    """By exp(2 x) - 1."""
    # Not by minimum and maximum: what is not a number must stay so.
    e = exp_minus_one(2 * tl.where(x > 15, 15.0, tl.where(x < -15, -15.0, x)))
    return e / (e + 2)


# ------------------------------------------------------------------------------------------ LSTM
#   i, f, o = sigmoid; g = tanh; c' = f c + i g


def lstm_forward(i: Tensor, f: Tensor, g: Tensor, o: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """Kept: i, f, g, o; then c', h'."""
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new = f * c + i * g
    return i, f, g, o, new, o * new.tanh()


@jit
def lstm_forward_kernel(i, f, g, o, c):
    """`lstm_forward` in Triton."""
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    new = f * c + i * g
    return i, f, g, o, new, o * tanh(new)


def lstm_backward(i: Tensor, f: Tensor, g: Tensor, o: Tensor, c: Tensor, dh: Tensor, dc: Tensor) -> tuple[Tensor, ...]:
    """Gradients of the four pre-activations, and of c."""
    tc = (f * c + i * g).tanh()
    dc = dc + dh * o * (1 - tc * tc)
    return dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * tc * o * (1 - o), dc * f


@jit
def lstm_backward_kernel(i, f, g, o, c, dh, dc):
    """`lstm_backward` in Triton."""
    tc = tanh(f * c + i * g)
    dc = dc + dh * o * (1 - tc * tc)
    return dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * tc * o * (1 - o), dc * f


# ------------------------------------------------------------------------------------------ refine gate
#   f, r, o = sigmoid; u = tanh; gate = 2 r f + (1 - 2 r) f^2; c' = gate c + (1 - gate) u


def refine_forward(f: Tensor, r: Tensor, u: Tensor, o: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """Kept: f, r, u, o; then c', h'."""
    f, r, u, o = f.sigmoid(), r.sigmoid(), u.tanh(), o.sigmoid()
    gate = f * (2 * r + (1 - 2 * r) * f)
    new = gate * c + (1 - gate) * u
    return f, r, u, o, new, o * new.tanh()


@jit
def refine_forward_kernel(f, r, u, o, c):
    """`refine_forward` in Triton."""
    f, r, u, o = sigmoid(f), sigmoid(r), tanh(u), sigmoid(o)
    gate = f * (2 * r + (1 - 2 * r) * f)
    new = gate * c + (1 - gate) * u
    return f, r, u, o, new, o * tanh(new)


def refine_backward(
    f: Tensor, r: Tensor, u: Tensor, o: Tensor, c: Tensor, dh: Tensor, dc: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of the four pre-activations, and of c."""
    gate = f * (2 * r + (1 - 2 * r) * f)
    tc = (gate * c + (1 - gate) * u).tanh()
    dc = dc + dh * o * (1 - tc * tc)
    dgate = dc * (c - u)
    # d gate / df = 2 r + 2 (1 - 2 r) f;  d gate / dr = 2 f (1 - f)
    df = dgate * 2 * (r + (1 - 2 * r) * f) * f * (1 - f)
    dr = dgate * 2 * f * (1 - f) * r * (1 - r)
    return df, dr, dc * (1 - gate) * (1 - u * u), dh * tc * o * (1 - o), dc * gate


@jit
def refine_backward_kernel(f, r, u, o, c, dh, dc):
    """`refine_backward` in Triton."""
    gate = f * (2 * r + (1 - 2 * r) * f)
    tc = tanh(gate * c + (1 - gate) * u)
    dc = dc + dh * o * (1 - tc * tc)
    dgate = dc * (c - u)
    df = dgate * 2 * (r + (1 - 2 * r) * f) * f * (1 - f)
    dr = dgate * 2 * f * (1 - f) * r * (1 - r)
    return df, dr, dc * (1 - gate) * (1 - u * u), dh * tc * o * (1 - o), dc * gate


# ------------------------------------------------------------------------------------------ power law
#   r, o = sigmoid; q = 1 - r; g = tanh
#   age'   = q (age + dt) + r floor
#   before = q (age + 1)  + r floor + epsilon
#   L = ln((age' + 1) / before) = ln(1 + (r + q dt - epsilon) / before), at least 0;   f = exp(-p L)
#   i = 1 - f (coupled) or a sigmoid gate of its own;   c' = f c + i g
#
# Kept of the reset gate is its pre-activation: r and q are both wanted exactly, however close to 0 they are.


def forgetting(
    z: Tensor, age: Tensor, dt: Tensor | float, p: Tensor, epsilon: float, floor: float
) -> tuple[Tensor, ...]:
    """r, q, age', before, excess, L, f, 1 - f."""
    r, q = z.sigmoid(), (-z).sigmoid()
    new = q * (age + dt) + r * floor
    before = q * (age + 1) + (r * floor + epsilon)
    excess = q * dt + (r - epsilon)
    L = (excess.clamp(min=0.0) / before).log1p()
    return r, q, new, before, excess, L, (-p * L).exp(), -(-p * L).expm1()


@jit
def forgetting_kernel(z, age, dt, p, epsilon, floor):
    """`forgetting` in Triton."""
    r, q = sigmoid(z), sigmoid(-z)
    new = q * (age + dt) + r * floor
    before = q * (age + 1) + (r * floor + epsilon)
    excess = q * dt + (r - epsilon)
    L = log_one_plus(tl.where(excess < 0, 0.0, excess) / before)
    return r, q, new, before, excess, L, tl.exp(-p * L), -exp_minus_one(-p * L)


def power_forward(
    z: Tensor, i: Tensor | None, g: Tensor, o: Tensor, c: Tensor, age: Tensor, *unit: Any
) -> tuple[Tensor, ...]:
    """Kept: z, i, g, o (coupled: z, g, o); then c', h', age'. unit: dt, p, epsilon, floor."""
    _, _, new_age, _, _, _, f, lost = forgetting(z, age, *unit)
    g, o = g.tanh(), o.sigmoid()
    i = lost if i is None else i.sigmoid()
    new = f * c + i * g
    return z, i, g, o, new, o * new.tanh(), new_age


@jit
def power_forward_kernel(z, i, g, o, c, age, dt, p, epsilon, floor, coupled: tl.constexpr):
    """`power_forward` in Triton."""
    _, _, new_age, _, _, _, f, lost = forgetting_kernel(z, age, dt, p, epsilon, floor)
    g, o = tanh(g), sigmoid(o)
    i = lost if coupled else sigmoid(i)
    new = f * c + i * g
    return z, i, g, o, new, o * tanh(new), new_age


def power_backward(
    z: Tensor, i: Tensor | None, g: Tensor, o: Tensor, c: Tensor, age: Tensor, dt: Tensor | float, p: Tensor,
    epsilon: float, floor: float, dh: Tensor, dc: Tensor, dage: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of the pre-activations z, i (coupled: to be left out), g, o; of c, age and p."""
    coupled = i is None
    r, q, new_age, before, excess, L, f, lost = forgetting(z, age, dt, p, epsilon, floor)
    i = lost if i is None else i
    tc = (f * c + i * g).tanh()
    dc = dc + dh * o * (1 - tc * tc)
    df = dc * (c - g) if coupled else dc * c
    dlog = -df * f  # of p L
    dL = torch.where(excess < 0, 0.0, dlog * p)  # none where L is held at 0
    dage, dbefore = dage + dL / (new_age + 1), -dL / before
    # d age'/dr = floor - (age + dt), d before/dr = floor - (age + 1), dr/dz = r q
    dz = -(r * q) * (dbefore * (age + (1 - floor)) + dage * (age + (dt - floor)))
    return (
        dz, dc * g * i * (1 - i), dc * i * (1 - g * g), dh * tc * o * (1 - o), dc * f, q * (dbefore + dage), dlog * L,
    )  # fmt: skip


@jit
def power_backward_kernel(z, i, g, o, c, age, dt, p, epsilon, floor, dh, dc, dage, coupled: tl.constexpr):
    """`power_backward` in Triton."""
    r, q, new_age, before, excess, L, f, lost = forgetting_kernel(z, age, dt, p, epsilon, floor)
    i = lost if coupled else i
    tc = tanh(f * c + i * g)
    dc = dc + dh * o * (1 - tc * tc)
    df = dc * (c - g) if coupled else dc * c
    dlog = -df * f
    dL = tl.where(excess < 0, 0.0, dlog * p)
    dage, dbefore = dage + dL / (new_age + 1), -dL / before
    dz = -(r * q) * (dbefore * (age + (1 - floor)) + dage * (age + (dt - floor)))
    return dz, dc * g * i * (1 - i), dc * i * (1 - g * g), dh * tc * o * (1 - o), dc * f, q * (dbefore + dage), dlog * L


# ------------------------------------------------------------------------------------------ a step in its buffers
#
# Rows are R replicas times B sequences. Buffers (R, S, B, n) hold what belongs to a step, (R, S + 1, B, n) what lies
# between steps, (R, B, n) what is carried backward. A masked step holds the whole state, and backward passes the
# gradient of what was held.


def step_forward(b: Any, t: int) -> None:
    """The twin: step t of `b` (buffers.Buffers), whose z[:, t] holds the pre-activations."""
    a = list(b.z[:, t].unflatten(-1, (b.gates, b.H)).unbind(-2))
    c: Tensor = b.c[:, t]
    age: Any = b.age[:, t] if b.aged else None
    age_new: Any = None
    if b.aged:
        i = a.pop(1) if b.kind == "separate" else None
        dt = 1.0 if b.dt is None else b.dt[:, t].unsqueeze(-1)
        *kept, c_new, h_new, age_new = power_forward(
            a[0], i, a[1], a[2], c, age, dt, b.power.unsqueeze(1), b.epsilon, b.floor
        )
        if b.kind == "coupled":
            del kept[1]
    else:
        forward: Callable[..., Any] = lstm_forward if b.kind == "lstm" else refine_forward
        *kept, c_new, h_new = forward(*a, c)
    if b.mask is not None:
        exists = b.mask[:, t].bool().unsqueeze(-1)
        c_new, h_new = torch.where(exists, c_new, c), torch.where(exists, h_new, b.h[:, t])
        age_new = None if age_new is None else torch.where(exists, age_new, age)
    b.z[:, t] = torch.cat(kept, -1)
    b.c[:, t + 1], b.h[:, t + 1] = c_new, h_new
    if age_new is not None:
        b.age[:, t + 1] = age_new


@jit_step
def forward_kernel(
    z, h, c, age, dt, mask, power, t, S, B, rows, epsilon, floor,
    H: tl.constexpr, G: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`step_forward` in Triton."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = n < rows * H
    row, unit = n // H, n % H
    replica, sequence = row // B, row % B
    step = (replica.to(tl.int64) * S + t) * B + sequence  # of R x S x B
    old = ((replica.to(tl.int64) * (S + 1) + t) * B + sequence) * H + unit
    new = old + B * H
    at = step * (G * H) + unit
    z0 = tl.load(z + at, mask=inside, other=0.0)
    z1 = tl.load(z + at + H, mask=inside, other=0.0)
    z2 = tl.load(z + at + 2 * H, mask=inside, other=0.0)
    z3 = z2
    if G == 4:
        z3 = tl.load(z + at + 3 * H, mask=inside, other=0.0)
    c_old = tl.load(c + old, mask=inside, other=0.0)
    if KIND == "lstm":
        z0, z1, z2, z3, c_new, h_new = lstm_forward_kernel(z0, z1, z2, z3, c_old)
    elif KIND == "refine":
        z0, z1, z2, z3, c_new, h_new = refine_forward_kernel(z0, z1, z2, z3, c_old)
    else:
        age_old = tl.load(age + old, mask=inside, other=0.0)
        p = tl.load(power + replica * H + unit, mask=inside, other=0.0)
        time = tl.zeros_like(c_old) + 1
        if dt is not None:
            time = tl.load(dt + step, mask=inside, other=1.0)
        if KIND == "coupled":
            z0, _, z1, z2, c_new, h_new, age_new = power_forward_kernel(
                z0, z1, z1, z2, c_old, age_old, time, p, epsilon, floor, True
            )
        else:
            z0, z1, z2, z3, c_new, h_new, age_new = power_forward_kernel(
                z0, z1, z2, z3, c_old, age_old, time, p, epsilon, floor, False
            )
        if mask is not None:
            age_new = tl.where(tl.load(mask + step, mask=inside, other=0) != 0, age_new, age_old)
        tl.store(age + new, age_new, mask=inside)
    if mask is not None:
        exists = tl.load(mask + step, mask=inside, other=0) != 0
        c_new = tl.where(exists, c_new, c_old)
        h_new = tl.where(exists, h_new, tl.load(h + old, mask=inside, other=0.0))
    tl.store(z + at, z0, mask=inside)
    tl.store(z + at + H, z1, mask=inside)
    tl.store(z + at + 2 * H, z2, mask=inside)
    if G == 4:
        tl.store(z + at + 3 * H, z3, mask=inside)
    tl.store(c + new, c_new, mask=inside)
    tl.store(h + new, h_new, mask=inside)


def step_backward(b: Any, t: int) -> None:
    """The twin: b.z[:, t] becomes the gradients of the pre-activations; b.dh, b.dc, b.dage go one step back."""
    a = list(b.z[:, t].unflatten(-1, (b.gates, b.H)).unbind(-2))
    dh = b.dh if b.d_output is None else b.dh + b.d_output[:, t]
    c: Tensor = b.c[:, t]
    dage: Any = None
    dpower: Any = None
    if b.aged:
        i = a.pop(1) if b.kind == "separate" else None
        dt = 1.0 if b.dt is None else b.dt[:, t].unsqueeze(-1)
        *dz, dc, dage, dpower = power_backward(
            a[0], i, a[1], a[2], c, b.age[:, t], dt, b.power.unsqueeze(1), b.epsilon, b.floor, dh, b.dc, b.dage
        )
        if b.kind == "coupled":
            del dz[1]
    else:
        backward: Callable[..., Any] = lstm_backward if b.kind == "lstm" else refine_backward
        *dz, dc = backward(*a, c, dh, b.dc)
    exists = None if b.mask is None else b.mask[:, t].bool().unsqueeze(-1)
    if exists is not None:
        dz = [torch.where(exists, v, 0.0) for v in dz]
        dc = torch.where(exists, dc, b.dc)
        if dage is not None:
            dage, dpower = torch.where(exists, dage, b.dage), torch.where(exists, dpower, 0.0)
    b.z[:, t] = torch.cat(dz, -1)
    b.dh.copy_(torch.zeros_like(dh) if exists is None else torch.where(exists, 0.0, dh))
    b.dc.copy_(dc)
    if dage is not None:
        b.dage.copy_(dage)
        b.dpower += dpower


@jit_step
def backward_kernel(
    z, c, age, dt, mask, power, d_output, dh, dc, dage, dpower, t, S, B, rows, epsilon, floor,
    H: tl.constexpr, G: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`step_backward` in Triton."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = n < rows * H
    row, unit = n // H, n % H
    replica, sequence = row // B, row % B
    step = (replica.to(tl.int64) * S + t) * B + sequence
    old = ((replica.to(tl.int64) * (S + 1) + t) * B + sequence) * H + unit
    at = step * (G * H) + unit
    a0 = tl.load(z + at, mask=inside, other=0.0)
    a1 = tl.load(z + at + H, mask=inside, other=0.0)
    a2 = tl.load(z + at + 2 * H, mask=inside, other=0.0)
    a3 = a2
    if G == 4:
        a3 = tl.load(z + at + 3 * H, mask=inside, other=0.0)
    c_old = tl.load(c + old, mask=inside, other=0.0)
    dh_new = tl.load(dh + n, mask=inside, other=0.0)
    dc_new = tl.load(dc + n, mask=inside, other=0.0)
    if d_output is not None:
        dh_new += tl.load(d_output + step * H + unit, mask=inside, other=0.0)
    if KIND == "lstm":
        a0, a1, a2, a3, dc_old = lstm_backward_kernel(a0, a1, a2, a3, c_old, dh_new, dc_new)
    elif KIND == "refine":
        a0, a1, a2, a3, dc_old = refine_backward_kernel(a0, a1, a2, a3, c_old, dh_new, dc_new)
    else:
        age_old = tl.load(age + old, mask=inside, other=0.0)
        dage_new = tl.load(dage + n, mask=inside, other=0.0)
        p = tl.load(power + replica * H + unit, mask=inside, other=0.0)
        time = tl.zeros_like(c_old) + 1
        if dt is not None:
            time = tl.load(dt + step, mask=inside, other=1.0)
        if KIND == "coupled":
            a0, _, a1, a2, dc_old, dage_old, dp = power_backward_kernel(
                a0, a1, a1, a2, c_old, age_old, time, p, epsilon, floor, dh_new, dc_new, dage_new, True
            )
        else:
            a0, a1, a2, a3, dc_old, dage_old, dp = power_backward_kernel(
                a0, a1, a2, a3, c_old, age_old, time, p, epsilon, floor, dh_new, dc_new, dage_new, False
            )
        if mask is not None:
            here = tl.load(mask + step, mask=inside, other=0) != 0
            dage_old = tl.where(here, dage_old, dage_new)
            dp = tl.where(here, dp, 0.0)
        tl.store(dage + n, dage_old, mask=inside)
        tl.store(dpower + n, tl.load(dpower + n, mask=inside, other=0.0) + dp, mask=inside)
    dh_old = tl.zeros_like(dh_new)  # the product with the weights comes on top
    if mask is not None:
        exists = tl.load(mask + step, mask=inside, other=0) != 0
        a0 = tl.where(exists, a0, 0.0)
        a1 = tl.where(exists, a1, 0.0)
        a2 = tl.where(exists, a2, 0.0)
        a3 = tl.where(exists, a3, 0.0)
        dc_old = tl.where(exists, dc_old, dc_new)
        dh_old = tl.where(exists, 0.0, dh_new)
    tl.store(z + at, a0, mask=inside)
    tl.store(z + at + H, a1, mask=inside)
    tl.store(z + at + 2 * H, a2, mask=inside)
    if G == 4:
        tl.store(z + at + 3 * H, a3, mask=inside)
    tl.store(dh + n, dh_old, mask=inside)
    tl.store(dc + n, dc_old, mask=inside)


def launch_forward(b: Any, t: int) -> None:
    """`step_forward` as one Triton launch."""
    R, S, B, _ = b.z.shape
    forward_kernel[(triton.cdiv(R * B * b.H, BLOCK),)](
        b.z, b.h, b.c, b.age, b.dt, b.mask, b.power, t, S, B, R * B, b.epsilon, b.floor,
        H=b.H, G=b.gates, KIND=b.kind, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip


def launch_backward(b: Any, t: int) -> None:
    """`step_backward` as one Triton launch."""
    R, S, B, _ = b.z.shape
    backward_kernel[(triton.cdiv(R * B * b.H, BLOCK),)](
        b.z, b.c, b.age, b.dt, b.mask, b.power, b.d_output, b.dh, b.dc, b.dage, b.dpower, t, S, B, R * B, b.epsilon,
        b.floor, H=b.H, G=b.gates, KIND=b.kind, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
