# mypy: allow-untyped-defs, no-check-untyped-defs
"""The functions that the Triton kernels of a cell call (emit_triton.py).

Triton has no accurate tanh, log1p and expm1 that its interpreter supports too, so they are written here with exp, log
and short series. Its sine and cosine compute in float64 for large numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

unavailable: str | None = None  # the reason why Triton cannot be used, or None
try:
    import triton
    import triton.language as tl

    jit: Callable[[Any], Any] = triton.jit
    # Specialised to t, S or B, a kernel would be compiled again for each value that is 1 or a multiple of 16.
    jit_step = triton.jit(do_not_specialize=("t", "S", "B", "rows"))
    jit_scan = triton.jit(do_not_specialize=("S", "B", "rows", "T", "K"))
except Exception as error:  # a Triton that is installed but broken raises any exception; `auto` then goes on without
    triton = tl = None
    missing = isinstance(error, ModuleNotFoundError) and error.name == "triton"
    unavailable = "torch came without Triton; pip install triton" if missing else f"importing Triton failed: {error!r}"
    jit = jit_step = jit_scan = lambda function: function


@jit
def exp_minus_one(x):
    """exp(x) - 1, by its series near 0."""
    series = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7 * (1 + x / 8)))))))
    return tl.where(tl.abs(x) < 0.5, series, tl.exp(x) - 1)


@jit
def log_one_plus(x):
    """log(1 + x); near 0 it is 2 artanh(x / (2 + x)) by its series."""
    s = x / (2 + x)
    ss = s * s
    series = 2 * s * (1 + ss * (1 / 3 + ss * (1 / 5 + ss * (1 / 7 + ss / 9))))
    return tl.where((x < 0.5) & (x > -0.3), series, tl.log(1 + x))


@jit
def sigmoid(x):
    """1 / (1 + exp(-x)); 0 where exp(-x) is infinite."""
    return 1 / (1 + tl.exp(-x))


@jit
def both_sigmoids(x):
    """sigmoid(x) and sigmoid(-x). Both keep their digits, however close to 0 they are."""
    e = tl.exp(-tl.abs(x))
    large = 1 / (1 + e)
    small = e * large
    return tl.where(x < 0, small, large), tl.where(x < 0, large, small)


@jit
def tanh(x):
    """tanh by exp(2 x) - 1."""
    # Clipped by comparisons, since minimum and maximum would replace NaN by a number.
    e = exp_minus_one(2 * tl.where(x > 15, 15.0, tl.where(x < -15, -15.0, x)))
    return e / (e + 2)


@jit
def sign(x):
    """1, -1, or x itself for 0 and NaN."""
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, x))


@jit
def sine_from(x, quarters):
    """sin(x + quarters pi / 2), to a few 1e-7 for |x| < 10,000: x = n pi/2 + t, |t| <= pi/4, and a polynomial in t."""
    n = tl.floor(x * 0.6366197723675814 + 0.5)
    t = ((x - n * 1.5703125) - n * 4.837512969970703e-4) - n * 7.549789954891882e-8
    tt = t * t
    sine = ((-1.9515295891e-4 * tt + 8.3321608736e-3) * tt - 1.6666654611e-1) * tt * t + t
    cosine = ((2.443315711809948e-5 * tt - 1.388731625493765e-3) * tt + 4.166664568298827e-2) * tt * tt - 0.5 * tt + 1
    quadrant = n + quarters
    quadrant = quadrant - 4 * tl.floor(quadrant * 0.25)
    value = tl.where((quadrant == 1) | (quadrant == 3), cosine, sine)
    return tl.where(quadrant >= 2, -value, value)


@jit
def sine(x):
    """sin(x); see `sine_from`."""
    return sine_from(x, 0)


@jit
def cosine(x):
    """cos(x); see `sine_from`."""
    return sine_from(x, 1)


@jit
def power(x, y):
    """x to the power of y, exact to a few units in the last place times |y log x|; x < 0 needs a whole number y."""
    size = tl.exp(y * tl.log(tl.abs(x)))
    half = y * 0.5
    is_whole, is_even = tl.floor(y) == y, tl.floor(half) == half
    negative = tl.where(is_whole, tl.where(is_even, size, -size), float("nan"))
    return tl.where((y == 0) | (x == 1), 1.0, tl.where(x < 0, negative, size))


@jit
def positions(n, t, S, B, H: tl.constexpr):
    """Seed and unit of the numbers n of step t, and their indices: of the step in (R, S, B), and in the states."""
    row, unit = n // H, n % H
    seed, sequence = row // B, row % B
    step = (seed.to(tl.int64) * S + t) * B + sequence
    old = ((seed.to(tl.int64) * (S + 1) + t) * B + sequence) * H + unit
    return seed, unit, step, old


@jit
def load(pointer, inside):
    """The numbers at a pointer; 0 outside of the buffer."""
    return tl.load(pointer, mask=inside, other=0.0)
