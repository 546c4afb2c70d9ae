"""Laws for the bias of the forget gate: how long each unit remembers before training has begun.

A forget gate held at f keeps a fraction f of its cell at each step, so it forgets with the time scale
T = -1 / ln f steps. At zero input f = sigmoid(b), and a law for the bias b is a law for T.

`forget_law` reads what a configuration may say:

    "default"                                         torch's own uniform bias: no law
    1.0                                               Constant(1.0)
    "uniform"                                         Uniform()
    {"law": "chrono", "T_max": 750}                   Chrono(750)
    "chrono_unknown"                                  ChronoUnknown()
    {"law": "inverse_gamma", "alpha": 0.56}           InverseGamma(0.56)
    {"law": "assigned", "timescales": [3, 4]}         Assigned((3, 4))
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


def bias_of_timescale(timescale: Tensor) -> Tensor:
    """Forget bias whose gate, at zero input, forgets with the given time scale (steps): b = -ln(e^(1/T) - 1).

    Mahto et al. 2021, Eq. 5. T = 0 gives -inf (f = 0), T = inf gives +inf (f = 1).
    """
    return -torch.log(torch.expm1(1.0 / timescale))


def timescale_of_bias(bias: Tensor) -> Tensor:
    """Time scale (steps) of a sigmoid gate at zero input: -1 / ln sigmoid(b), the inverse of `bias_of_timescale`."""
    return 1.0 / torch.nn.functional.softplus(-bias)


def inverse_gamma_isf(q: Tensor, alpha: float, scale: float = 1.0) -> Tensor:
    """The T that an InvGamma(alpha, scale) variable exceeds with probability q; float64, same shape as q in [0, 1].

    T = scale / G with G ~ Gamma(alpha, 1), so P(T > t) = P(G < scale / t); the Gamma quantile is found by
    bisection on log G, for alpha from .05 to 10000. q = 0 gives inf, q = 1 gives 0.
    """
    q = q.to(torch.float64)
    a = torch.full_like(q, alpha)
    # At the lower end G^alpha / Gamma(alpha + 1) is below the smallest q worth telling from 0.
    low = torch.full_like(q, min(-60.0, -60.0 / alpha))
    high = torch.full_like(q, math.log(alpha + 800.0))
    for _ in range(200):
        middle = (low + high) / 2
        below = torch.special.gammainc(a, middle.exp()) < q
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    timescale = scale * torch.exp(-(low + high) / 2)
    return torch.where(q <= 0, torch.inf, torch.where(q >= 1, 0.0, timescale))


def is_number(value: object) -> bool:
    """Whether value is a finite real number (True and False are none)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class Law:
    """A law for the forget bias. `tied`: the input (or refine) gate's bias is set to its negative."""

    tied = True

    def bias(self, n: int) -> Tensor:
        """Forget biases of n units, float64 (n,)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Law):
    """The same bias for every unit; the input gate is left alone (Gu et al. 2020, listing 1: 1.0)."""

    b: float = 1.0
    tied = False

    def __post_init__(self) -> None:
        if not is_number(self.b):
            raise ValueError(f"a constant forget bias must be a finite number, not {self.b!r}")

    def bias(self, n: int) -> Tensor:
        return torch.full((n,), float(self.b), dtype=torch.float64)


@dataclass(frozen=True)
class Chrono(Law):
    """b = log U with U uniform on [1, T_max - 1] (Tallec & Ollivier 2018)."""

    T_max: float

    def __post_init__(self) -> None:
        if not is_number(self.T_max) or not self.T_max > 2:
            raise ValueError(
                f"chrono's T_max must be a number above 2 (the longest time scale in steps), not {self.T_max!r}"
            )

    def bias(self, n: int) -> Tensor:
        return torch.empty(n, dtype=torch.float64).uniform_(1.0, self.T_max - 1.0).log()


@dataclass(frozen=True)
class ChronoUnknown(Law):
    """b = log T with P(T = k) proportional to 1 / (k log2(k + 1)^2), k = 1, 2, ...: chrono without a longest time.

    Source: Tallec & Ollivier 2018; Gu et al. 2020, appendix B.3. The tail is heavy, P(T > k) ~ 1 / log k: about one
    unit in 300 starts beyond T = e^88, where a float32 gate is 1.
    """

    def bias(self, n: int) -> Tensor:
        # 1 / (k ln(k + 1)^2) is summed up to `last`; from there on the sum to infinity is 1 / ln(last + 3/2), to 1e-5
        # of itself, so that T itself, which may exceed every float, is never needed.
        last = 100_000
        k = torch.arange(1, last + 1, dtype=torch.float64)
        table = (1.0 / (k * k.log1p().square())).cumsum(0)
        tail = 1.0 / math.log(last + 1.5)
        left = (table[-1] + tail) * (1.0 - torch.rand(n, dtype=torch.float64))  # the mass of what is longer, above 0
        inside = torch.searchsorted(table, table[-1] + tail - left).clamp(max=last - 1)
        return torch.where(left > tail, k[inside].log(), 1.0 / left)


@dataclass(frozen=True)
class Uniform(Law):
    """Uniform gate init: f uniform on [1/n, 1 - 1/n], b = logit f (Gu et al. 2020, listing 2).

    The cell keeps it as a trainable vector `gate_bias` of its own beside the linear map's bias.
    With one or two units the interval has no width: f = 1/2.
    """

    def bias(self, n: int) -> Tensor:
        edge = 1.0 / max(n, 2)
        return torch.empty(n, dtype=torch.float64).uniform_(edge, 1.0 - edge).logit()


@dataclass(frozen=True)
class InverseGamma(Law):
    """Time scales at the quantiles of InvGamma(alpha, scale), longest first (Mahto et al. 2021, section 2.3).

    `quantiles="interior"`: T_k exceeded with probability k / (n + 1), k = 1..n, both ends of the grid dropped (the
    authors' Dyck-2 code). `"authors"`: k / n (the authors' language model): the last unit has T = 0, so its forget
    bias is -inf and it never remembers.
    """

    alpha: float = 0.56
    scale: float = 1.0
    quantiles: str = "interior"

    def __post_init__(self) -> None:
        if not all(is_number(value) and value > 0 for value in (self.alpha, self.scale)):
            raise ValueError(f"inverse_gamma needs numbers alpha and scale above 0, not {self.alpha!r}, {self.scale!r}")
        if not 0.05 <= self.alpha <= 1e4:  # beyond, quantiles leave float64 or the bracket of inverse_gamma_isf
            raise ValueError(f"inverse_gamma needs an alpha between 0.05 and 10000, not {self.alpha!r}")
        if self.quantiles not in ("interior", "authors"):
            raise ValueError(f"inverse_gamma quantiles must be interior or authors, not {self.quantiles!r}")

    def timescales(self, n: int) -> Tensor:
        """Assigned time scales in steps, float64 (n,), decreasing."""
        q = torch.arange(1, n + 1, dtype=torch.float64) / (n + 1 if self.quantiles == "interior" else n)
        return inverse_gamma_isf(q, self.alpha, self.scale)

    def bias(self, n: int) -> Tensor:
        return bias_of_timescale(self.timescales(n))


@dataclass(frozen=True)
class Assigned(Law):
    """Given time scales (steps), each to an equal share of neighbouring units (Mahto et al. 2021: 3 and 4, half each).

    `form="eq5"` is the paper's Eq. 5; `"log_t_minus_1"` is b = ln(T - 1), which the published run really used.
    """

    timescales: tuple[float, ...] = (3.0, 4.0)
    form: str = "eq5"

    def __post_init__(self) -> None:
        if self.form not in ("eq5", "log_t_minus_1"):
            raise ValueError(f"assigned form must be eq5 or log_t_minus_1, not {self.form!r}")
        least = 1 if self.form == "log_t_minus_1" else 0
        times = self.timescales
        if not isinstance(times, tuple) or not times or not all(is_number(t) and t > least for t in times):
            raise ValueError(f"assigned timescales must be a list of numbers above {least}, not {times!r}")

    def bias(self, n: int) -> Tensor:
        values = torch.tensor(self.timescales, dtype=torch.float64)
        share = torch.arange(n) * len(values) // n
        values = values[share]
        return bias_of_timescale(values) if self.form == "eq5" else torch.log(values - 1.0)


LAWS: dict[str, type[Law]] = {
    "constant": Constant,
    "chrono": Chrono,
    "chrono_unknown": ChronoUnknown,
    "uniform": Uniform,
    "inverse_gamma": InverseGamma,
    "assigned": Assigned,
}


def forget_law(spec: Law | Mapping | str | float | None) -> Law | None:
    """The law that a configuration names (see the module's docstring); None for torch's default bias."""
    if spec is None or spec == "default" or isinstance(spec, Law):
        return None if spec == "default" else spec  # type: ignore[return-value]
    if isinstance(spec, int | float) and not isinstance(spec, bool):
        return Constant(spec)
    arguments = dict(spec) if isinstance(spec, Mapping) else {"law": spec}
    name = arguments.pop("law", None)
    if not isinstance(name, str) or name not in LAWS:
        raise ValueError(f"forget_init must be default, a number, or one of {', '.join(LAWS)}; not {spec!r}")
    law = LAWS[name]
    known = [field.name for field in dataclasses.fields(law)]
    needed = [f.name for f in dataclasses.fields(law) if f.default is dataclasses.MISSING]
    if wrong := [key for key in arguments if key not in known] + [key for key in needed if key not in arguments]:
        raise ValueError(f"forget_init {name} takes {', '.join(known) or 'no argument'}; check {', '.join(wrong)}")
    return law(**{k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()})
