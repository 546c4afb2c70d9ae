"""Initializers for the bias of the forget gate. They set how long each unit remembers before training.

A forget gate with the constant value f keeps the fraction f of the cell at each step, so the cell decays with the time
scale T = -1 / ln f (in steps). At zero input f = sigmoid(b): an initializer for the bias b sets the time scale T.

`forget_initializer` makes an initializer from its description in a configuration:

    "default"                                         None: torch's uniform bias
    1.0                                               Constant(1.0)
    "uniform"                                         Uniform()
    {"law": "chrono", "T_max": 750}                   Chrono(750)
    "chrono_unknown"                                  ChronoUnknown()
    {"law": "inverse_gamma", "alpha": 0.56}           InverseGamma(0.56)
    {"law": "assigned", "timescales": [3, 4]}         Assigned((3, 4))
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard

import torch
from torch import Tensor

INFINITE = 8192.0  # stored instead of an infinite bias: gates are exactly 0 and 1, and averages stay finite


def bias_of_timescale(timescale: Tensor) -> Tensor:
    """Return the forget bias for a given time scale (in steps) at zero input: b = -ln(e^(1/T) - 1).

    T = 0 gives b = -inf (f = 0); T = inf gives b = inf (f = 1). Any shape and floating dtype, which b has too.
    Source: Mahto et al. 2021, Eq. 5.
    """
    return -torch.log(torch.expm1(1.0 / timescale))


def timescale_of_bias(bias: Tensor) -> Tensor:
    """Return the time scale (in steps) of a sigmoid gate at zero input: -1 / ln sigmoid(b).

    It is the inverse of `bias_of_timescale`, and 0 for a bias of -INFINITE or less. Any shape and floating dtype, which
    T has too.
    """
    return torch.where(bias <= -INFINITE, 0.0, 1.0 / torch.nn.functional.softplus(-bias))


def timescale_of_gate(f: Tensor) -> Tensor:
    """Return the time scale (in steps) of a forget gate with the constant value f: -1 / ln f.

    It is 0 at f = 0, and infinite at f = 1, where -1 / ln f would be -inf. Any shape and floating dtype, which T has
    too.
    """
    return 1.0 / f.log().abs()


def inverse_gamma_isf(q: Tensor, alpha: float, scale: float = 1.0) -> Tensor:
    """Return the inverse survival function of InvGamma(alpha, scale): the T that is exceeded with probability q.

    T = scale / G with G ~ Gamma(alpha, 1), so P(T > t) = P(G < scale / t). The quantile of the gamma distribution is
    found by bisection on log G, for alpha from 0.05 to 10000.

    Arguments:
        q: probabilities in [0, 1], any shape. q = 0 gives inf and q = 1 gives 0.
        alpha, scale: shape and scale of the distribution.

    Returns: float64, the shape of q.
    """
    q = q.to(torch.float64)
    a = torch.full_like(q, alpha)
    # At the lower end, G^alpha / Gamma(alpha + 1) is below the smallest q that matters.
    low = torch.full_like(q, min(-60.0, -60.0 / alpha))
    high = torch.full_like(q, math.log(alpha + 800.0))
    for _ in range(200):
        middle = (low + high) / 2
        below = torch.special.gammainc(a, middle.exp()) < q
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    timescale = scale * torch.exp(-(low + high) / 2)
    return torch.where(q <= 0, torch.inf, torch.where(q >= 1, 0.0, timescale))


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether value is a finite real number. True and False are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_whole(**numbers: object) -> None:
    """Raise ValueError for the first argument that is not a whole number of at least 1. The message has its name."""
    for name, n in numbers.items():
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {n!r}")


def check_bool(**values: object) -> None:
    """Raise ValueError for the first argument that is not True or False. The message has its name."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, not {value!r}")


def interval(name: str, value: object, low: float = -math.inf, high: float = math.inf) -> tuple[float, float]:
    """Return two numbers in order, both between low and high. Raises ValueError for anything else."""
    ends = tuple(value) if isinstance(value, Sequence) else ()
    if len(ends) != 2 or not all(map(is_number, ends)) or not low <= ends[0] <= ends[1] <= high:
        least, most = ("" if math.isinf(end) else f"{end:g}" for end in (low, high))
        words = " <= ".join(filter(None, (least, "low", "high", most)))
        raise ValueError(f"{name} must be two numbers {words}, not {value!r}")
    return ends[0], ends[1]


@dataclass(frozen=True)
class Initializer:
    """Base class of the initializers of the forget bias.

    `tied`: whether the bias of the input gate (or the refine gate) is set to the negative of the forget bias.
    """

    tied: ClassVar[bool] = True

    def bias(self, n: int) -> Tensor:
        """Return forget biases of n units, (n,), float64."""
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Initializer):
    """The same bias b for every unit. The input gate keeps its own bias.

    Source: Gu et al. 2020, listing 1 (b = 1).
    """

    b: float = 1.0
    tied: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not is_number(self.b):
            raise ValueError(f"a constant forget bias must be a finite number, not {self.b!r}")

    def bias(self, n: int) -> Tensor:
        return torch.full((n,), float(self.b), dtype=torch.float64)


@dataclass(frozen=True)
class Chrono(Initializer):
    """b = ln U, where U is uniform on [1, T_max - 1]. T_max: the longest expected time scale, in steps.

    Source: Tallec & Ollivier 2018.
    """

    T_max: float

    def __post_init__(self) -> None:
        if not is_number(self.T_max) or not self.T_max > 2:
            raise ValueError(f"chrono's T_max, the longest time scale in steps, must be above 2, not {self.T_max!r}")

    def bias(self, n: int) -> Tensor:
        return torch.empty(n, dtype=torch.float64).uniform_(1.0, self.T_max - 1.0).log()


@dataclass(frozen=True)
class ChronoUnknown(Initializer):
    """Chrono without a longest time scale: b = ln T, where P(T = k) is proportional to 1 / (k log2(k + 1)^2), k >= 1.

    The distribution has a heavy tail, P(T > k) ~ 1 / log k: about one unit in 300 starts with T > e^88, where the gate
    is 1 in float32.
    Source: Tallec & Ollivier 2018; Gu et al. 2020, appendix B.3.
    """

    def bias(self, n: int) -> Tensor:
        # The mass of k = 1, ..., last is summed. The sum from there to infinity is 1 / ln(last + 3/2) to a relative
        # error of 1e-5; it gives ln T directly, since T may be larger than any float.
        last = 100_000
        k = torch.arange(1, last + 1, dtype=torch.float64)
        cumulative = (1.0 / (k * k.log1p().square())).cumsum(0)
        tail = 1.0 / math.log(last + 1.5)
        total = cumulative[-1] + tail
        mass_above = total * (1.0 - torch.rand(n, dtype=torch.float64))  # greater than 0
        index = torch.searchsorted(cumulative, total - mass_above).clamp(max=last - 1)
        return torch.where(mass_above > tail, k[index].log(), 1.0 / mass_above)


@dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform gate initialisation: f is uniform on [1/n, 1 - 1/n] and b = logit f, for n units.

    An LSTM and a gated cell add b as a separate trainable vector, `gate_bias`, to the bias of the linear map. In other
    cells b is the bias. With one or two units the interval is the point f = 1/2.
    Source: Gu et al. 2020, listing 2.
    """

    def bias(self, n: int) -> Tensor:
        edge = 1.0 / max(n, 2)
        return torch.empty(n, dtype=torch.float64).uniform_(edge, 1.0 - edge).logit()


@dataclass(frozen=True)
class InverseGamma(Initializer):
    """Time scales at the quantiles of InvGamma(alpha, scale), the longest first.

    `quantiles`: "interior" uses the probabilities of exceedance k / (n + 1), k = 1..n, without both ends of the grid
    (the authors' Dyck-2 code). "authors" uses k / n (the authors' language model); the last unit then has T = 0 and a
    forget bias of -inf, so it never remembers.
    Source: Mahto et al. 2021, section 2.3.
    """

    alpha: float = 0.56
    scale: float = 1.0
    quantiles: str = "interior"

    def __post_init__(self) -> None:
        if not all(is_number(value) and value > 0 for value in (self.alpha, self.scale)):
            raise ValueError(f"inverse_gamma needs numbers alpha and scale above 0, not {self.alpha!r}, {self.scale!r}")
        # Outside, quantiles leave the range of float64 or the bracket of inverse_gamma_isf.
        if not 0.05 <= self.alpha <= 1e4:
            raise ValueError(f"inverse_gamma needs an alpha between 0.05 and 10000, not {self.alpha!r}")
        if self.quantiles not in ("interior", "authors"):
            raise ValueError(f"inverse_gamma quantiles must be interior or authors, not {self.quantiles!r}")

    def timescales(self, n: int) -> Tensor:
        """Return time scales of n units in steps, (n,), float64, decreasing."""
        q = torch.arange(1, n + 1, dtype=torch.float64) / (n + 1 if self.quantiles == "interior" else n)
        return inverse_gamma_isf(q, self.alpha, self.scale)

    def bias(self, n: int) -> Tensor:
        return bias_of_timescale(self.timescales(n))


@dataclass(frozen=True)
class Assigned(Initializer):
    """Given time scales (in steps). Each is assigned to an equal share of neighbouring units.

    `form`: "eq5" is the paper's Eq. 5; "log_t_minus_1" is b = ln(T - 1), which the published run used.
    Source: Mahto et al. 2021 (T = 3 for the first half of the units, T = 4 for the second half).
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


INITIALIZERS: dict[str, type[Initializer]] = {
    "constant": Constant,
    "chrono": Chrono,
    "chrono_unknown": ChronoUnknown,
    "uniform": Uniform,
    "inverse_gamma": InverseGamma,
    "assigned": Assigned,
}

# The values that the argument `forget_init` of a cell accepts; see the docstring of this module.
ForgetInit = Initializer | Mapping[str, Any] | str | float | None


def forget_initializer(spec: ForgetInit, T_max: float | None = None) -> Initializer | None:
    """Return the initializer that a configuration describes (see the docstring of this module).

    Arguments:
        spec: the description, or None for torch's default bias.
        T_max: short for spec={"law": "chrono", "T_max": T_max}.

    Returns: an initializer, or None for torch's default bias.

    Raises: ValueError for a name or an argument that does not exist, and if both arguments are given.
    """
    if T_max is not None:
        if spec is not None:
            raise ValueError("give forget_init or T_max, which is short for chrono initialisation: not both")
        spec = {"law": "chrono", "T_max": T_max}
    if spec is None or spec == "default":
        return None
    if isinstance(spec, Initializer):
        return spec
    if isinstance(spec, int | float) and not isinstance(spec, bool):
        return Constant(spec)
    arguments = dict(spec) if isinstance(spec, Mapping) else {"law": spec}
    name = arguments.pop("law", None)
    if not isinstance(name, str) or name not in INITIALIZERS:
        raise ValueError(f"forget_init must be default, a number, or one of {', '.join(INITIALIZERS)}; not {spec!r}")
    fields = dataclasses.fields(INITIALIZERS[name])
    known = [field.name for field in fields]
    wrong = [key for key in arguments if key not in known]
    wrong += [field.name for field in fields if field.default is dataclasses.MISSING and field.name not in arguments]
    if wrong:
        raise ValueError(f"forget_init {name} takes {', '.join(known) or 'no argument'}; check {', '.join(wrong)}")
    return INITIALIZERS[name](**{key: tuple(v) if isinstance(v, list) else v for key, v in arguments.items()})
