# mypy: allow-untyped-defs, no-check-untyped-defs
"""The pointwise part of a step in Triton: one kernel per step on a GPU.

The functions and their order are those of pointwise.py, the reference implementation, which explains the equations; a
change must be made in both files. `launch_forward` and `launch_backward` do what `step_forward` and `step_backward` do.

Triton has no accurate tanh, log1p and expm1 that its interpreter supports too, so they are written here with exp, log
and short series.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timescales.nn.engine.buffers import Buffers

unavailable: str | None = None  # the reason why Triton cannot be used, or None
try:
    import triton
    import triton.language as tl

    jit: Callable[[Any], Any] = triton.jit
    # Specialised to t, S or B, a kernel would be compiled again for each value that is 1 or a multiple of 16.
    jit_step = triton.jit(do_not_specialize=("t", "S", "B", "rows"))
except Exception as error:  # a Triton that is installed but broken raises any exception; `auto` then goes on without
    triton = tl = None
    missing = isinstance(error, ModuleNotFoundError) and error.name == "triton"
    unavailable = "torch came without Triton; pip install triton" if missing else f"importing Triton failed: {error!r}"
    jit = jit_step = lambda function: function

BLOCK = 128  # numbers per Triton program, one per thread: a step is short, so it is split into many small programs


@jit
def exp_minus_one(x):
    """exp(x) - 1, by its series near 0."""
    series = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7 * (1 + x / 8)))))))
    return tl.where(tl.abs(x) < 0.5, series, tl.exp(x) - 1)


@jit
def log_one_plus(x):
    """log(1 + x) for x >= 0; near 0 it is 2 artanh(x / (2 + x)) by its series."""
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
    """tanh by exp(2 x) - 1."""
    # Clipped by comparisons, since minimum and maximum would replace NaN by a number.
    e = exp_minus_one(2 * tl.where(x > 15, 15.0, tl.where(x < -15, -15.0, x)))
    return e / (e + 2)


# ------------------------------------------------------------------------------------------ LSTM


@jit
def lstm_forward_kernel(i, f, g, o, c):
    """`lstm_forward` in Triton."""
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    new = f * c + i * g
    return i, f, g, o, new, o * tanh(new)


@jit
def lstm_backward_kernel(i, f, g, o, c, dh, dc):
    """`lstm_backward` in Triton."""
    tc = tanh(f * c + i * g)
    dc = dc + dh * o * (1 - tc * tc)
    return dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * tc * o * (1 - o), dc * f


# ------------------------------------------------------------------------------------------ refine gate


@jit
def refine_forward_kernel(f, r, u, o, c):
    """`refine_forward` in Triton."""
    f, r, u, o = sigmoid(f), sigmoid(r), tanh(u), sigmoid(o)
    gate = f * (2 * r + (1 - 2 * r) * f)
    new = gate * c + (1 - gate) * u
    return f, r, u, o, new, o * tanh(new)


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


@jit
def forgetting_kernel(z, age, dt, p, epsilon, floor):
    """`forgetting` in Triton."""
    r, q = sigmoid(z), sigmoid(-z)
    new = q * (age + dt) + r * floor
    before = q * (age + 1) + (r * floor + epsilon)
    excess = q * dt + (r - epsilon)
    L = log_one_plus(tl.where(excess < 0, 0.0, excess) / before)
    return r, q, new, before, excess, L, tl.exp(-p * L), -exp_minus_one(-p * L)


@jit
def power_forward_kernel(z, i, g, o, c, age, dt, p, epsilon, floor, coupled: tl.constexpr):
    """`power_forward` in Triton."""
    _, _, new_age, _, _, _, f, one_minus_f = forgetting_kernel(z, age, dt, p, epsilon, floor)
    g, o = tanh(g), sigmoid(o)
    i = one_minus_f if coupled else sigmoid(i)
    new = f * c + i * g
    return z, i, g, o, new, o * tanh(new), new_age


@jit
def power_backward_kernel(z, i, g, o, c, age, dt, p, epsilon, floor, dh, dc, dage, coupled: tl.constexpr):
    """`power_backward` in Triton."""
    r, q, new_age, before, excess, L, f, one_minus_f = forgetting_kernel(z, age, dt, p, epsilon, floor)
    i = one_minus_f if coupled else i
    tc = tanh(f * c + i * g)
    dc = dc + dh * o * (1 - tc * tc)
    df = dc * (c - g) if coupled else dc * c
    dlog = -df * f
    dL = tl.where(excess < 0, 0.0, dlog * p)
    dage, dbefore = dage + dL / (new_age + 1), -dL / before
    dz = -(r * q) * (dbefore * (age + (1 - floor)) + dage * (age + (dt - floor)))
    return dz, dc * g * i * (1 - i), dc * i * (1 - g * g), dh * tc * o * (1 - o), dc * f, q * (dbefore + dage), dlog * L


# ------------------------------------------------------------------------------------------ a step in Buffers
#
# A program computes BLOCK numbers of the R x B x H numbers of a step: `row` = seed x sequence, then the unit.


@jit
def positions(n, t, S, B, H: tl.constexpr, G: tl.constexpr):
    """Seed and unit of the numbers n of step t, and their indices: in (R, S, B), in z, and in the states."""
    row, unit = n // H, n % H
    seed, sequence = row // B, row % B
    step = (seed.to(tl.int64) * S + t) * B + sequence
    old = ((seed.to(tl.int64) * (S + 1) + t) * B + sequence) * H + unit
    at = step * (G * H) + unit
    return seed, unit, step, at, old


@jit
def load(pointer, inside):
    """The numbers at a pointer; 0 outside of the buffer."""
    return tl.load(pointer, mask=inside, other=0.0)


@jit
def load_gates(z, at, inside, H: tl.constexpr, G: tl.constexpr):
    """The numbers of the gates; with three gates, the fourth is the third."""
    z0, z1, z2 = load(z + at, inside), load(z + at + H, inside), load(z + at + 2 * H, inside)
    z3 = z2
    if G == 4:
        z3 = load(z + at + 3 * H, inside)
    return z0, z1, z2, z3


@jit
def store_gates(z, at, inside, z0, z1, z2, z3, H: tl.constexpr, G: tl.constexpr):
    """Store the numbers of the gates; with three gates, the fourth is dropped."""
    tl.store(z + at, z0, mask=inside)
    tl.store(z + at + H, z1, mask=inside)
    tl.store(z + at + 2 * H, z2, mask=inside)
    if G == 4:
        tl.store(z + at + 3 * H, z3, mask=inside)


@jit
def zero_unless(exists, z0, z1, z2, z3):
    """The numbers of the gates where a step exists, else 0."""
    return tl.where(exists, z0, 0.0), tl.where(exists, z1, 0.0), tl.where(exists, z2, 0.0), tl.where(exists, z3, 0.0)


@jit
def load_time(dt, step, inside, like):
    """Time since the previous step: 1 without dt."""
    time = tl.zeros_like(like) + 1
    if dt is not None:
        time = tl.load(dt + step, mask=inside, other=1.0)
    return time


@jit_step
def forward_kernel(
    z,
    h,
    c,
    age,
    dt,
    mask,
    power,
    t,
    S,
    B,
    rows,
    epsilon,
    floor,
    H: tl.constexpr,
    G: tl.constexpr,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """`step_forward` in Triton."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = n < rows * H
    seed, unit, step, at, old = positions(n, t, S, B, H, G)
    new = old + B * H
    z0, z1, z2, z3 = load_gates(z, at, inside, H, G)
    c_old = load(c + old, inside)
    if KIND == "lstm":
        z0, z1, z2, z3, c_new, h_new = lstm_forward_kernel(z0, z1, z2, z3, c_old)
    elif KIND == "refine":
        z0, z1, z2, z3, c_new, h_new = refine_forward_kernel(z0, z1, z2, z3, c_old)
    else:
        age_old, p = load(age + old, inside), load(power + seed * H + unit, inside)
        time = load_time(dt, step, inside, c_old)
        z0, z1, z2, z3, c_new, h_new, age_new = power_gates_forward(
            z0, z1, z2, z3, c_old, age_old, time, p, epsilon, floor, KIND
        )
        if mask is not None:
            age_new = tl.where(tl.load(mask + step, mask=inside, other=0) != 0, age_new, age_old)
        tl.store(age + new, age_new, mask=inside)
    if mask is not None:
        exists = tl.load(mask + step, mask=inside, other=0) != 0
        c_new = tl.where(exists, c_new, c_old)
        h_new = tl.where(exists, h_new, load(h + old, inside))
    store_gates(z, at, inside, z0, z1, z2, z3, H, G)
    tl.store(c + new, c_new, mask=inside)
    tl.store(h + new, h_new, mask=inside)


@jit
def power_gates_forward(z0, z1, z2, z3, c, age, dt, p, epsilon, floor, KIND: tl.constexpr):
    """`power_forward` for the three gates z, g, o (coupled) or the four gates z, i, g, o (separate)."""
    if KIND == "coupled":
        z0, _, z1, z2, c_new, h_new, age_new = power_forward_kernel(z0, z1, z1, z2, c, age, dt, p, epsilon, floor, True)
    else:
        z0, z1, z2, z3, c_new, h_new, age_new = power_forward_kernel(
            z0, z1, z2, z3, c, age, dt, p, epsilon, floor, False
        )
    return z0, z1, z2, z3, c_new, h_new, age_new


@jit_step
def backward_kernel(
    z,
    c,
    age,
    dt,
    mask,
    power,
    d_output,
    dh,
    dc,
    dage,
    dpower,
    t,
    S,
    B,
    rows,
    epsilon,
    floor,
    H: tl.constexpr,
    G: tl.constexpr,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """`step_backward` in Triton."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = n < rows * H
    seed, unit, step, at, old = positions(n, t, S, B, H, G)
    a0, a1, a2, a3 = load_gates(z, at, inside, H, G)
    c_old, dh_new, dc_new = load(c + old, inside), load(dh + n, inside), load(dc + n, inside)
    if d_output is not None:
        dh_new += load(d_output + step * H + unit, inside)
    if KIND == "lstm":
        a0, a1, a2, a3, dc_old = lstm_backward_kernel(a0, a1, a2, a3, c_old, dh_new, dc_new)
    elif KIND == "refine":
        a0, a1, a2, a3, dc_old = refine_backward_kernel(a0, a1, a2, a3, c_old, dh_new, dc_new)
    else:
        age_old, dage_new, p = load(age + old, inside), load(dage + n, inside), load(power + seed * H + unit, inside)
        time = load_time(dt, step, inside, c_old)
        a0, a1, a2, a3, dc_old, dage_old, dp = power_gates_backward(
            a0, a1, a2, a3, c_old, age_old, time, p, epsilon, floor, dh_new, dc_new, dage_new, KIND
        )
        store_age_gradients(dage, dpower, mask, n, step, inside, dage_old, dage_new, dp)
    dh_old = tl.zeros_like(dh_new)  # `loop_backward` adds the gradient that comes through the recurrent weights
    if mask is not None:
        exists = tl.load(mask + step, mask=inside, other=0) != 0
        a0, a1, a2, a3 = zero_unless(exists, a0, a1, a2, a3)
        dc_old, dh_old = tl.where(exists, dc_old, dc_new), tl.where(exists, 0.0, dh_new)
    store_gates(z, at, inside, a0, a1, a2, a3, H, G)
    tl.store(dh + n, dh_old, mask=inside)
    tl.store(dc + n, dc_old, mask=inside)


@jit
def power_gates_backward(a0, a1, a2, a3, c, age, dt, p, epsilon, floor, dh, dc, dage, KIND: tl.constexpr):
    """`power_backward` for the three gates z, g, o (coupled) or the four gates z, i, g, o (separate)."""
    if KIND == "coupled":
        a0, _, a1, a2, dc_old, dage_old, dp = power_backward_kernel(
            a0, a1, a1, a2, c, age, dt, p, epsilon, floor, dh, dc, dage, True
        )
    else:
        a0, a1, a2, a3, dc_old, dage_old, dp = power_backward_kernel(
            a0, a1, a2, a3, c, age, dt, p, epsilon, floor, dh, dc, dage, False
        )
    return a0, a1, a2, a3, dc_old, dage_old, dp


@jit
def store_age_gradients(dage, dpower, mask, n, step, inside, dage_old, dage_new, dp):
    """Store the gradient of the age before the step, and add dp to the gradient of the power."""
    if mask is not None:
        exists = tl.load(mask + step, mask=inside, other=0) != 0
        dage_old = tl.where(exists, dage_old, dage_new)
        dp = tl.where(exists, dp, 0.0)
    tl.store(dage + n, dage_old, mask=inside)
    tl.store(dpower + n, load(dpower + n, inside) + dp, mask=inside)


def launch_forward(b: Buffers, t: int) -> None:
    """`step_forward` as one launch of a Triton kernel."""
    R, S, B, _ = b.z.shape
    state = (b.z, b.h, b.c, b.age, b.dt, b.mask, b.power)
    constants = {"H": b.H, "G": b.gates, "KIND": b.kind, "BLOCK": BLOCK, "num_warps": 4}
    forward_kernel[(triton.cdiv(R * B * b.H, BLOCK),)](*state, t, S, B, R * B, b.epsilon, b.floor, **constants)


def launch_backward(b: Buffers, t: int) -> None:
    """`step_backward` as one launch of a Triton kernel."""
    R, S, B, _ = b.z.shape
    state = (b.z, b.c, b.age, b.dt, b.mask, b.power)
    gradients = (b.d_output, b.dh, b.dc, b.dage, b.dpower)
    constants = {"H": b.H, "G": b.gates, "KIND": b.kind, "BLOCK": BLOCK, "num_warps": 4}
    grid = (triton.cdiv(R * B * b.H, BLOCK),)
    backward_kernel[grid](*state, *gradients, t, S, B, R * B, b.epsilon, b.floor, **constants)
