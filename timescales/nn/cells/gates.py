"""The gates of Gu et al. 2020: their formulas, and the nine mechanisms by name.

gated.py has the cells that accept any of the nine mechanisms, ur.py the UR-LSTM as a separate cell.
"""

from typing import NamedTuple

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary


def cumax(z: Tensor) -> Tensor:
    """Return an ordered gate: the cumulative sum of softmax(z) over the units, increasing to 1 (Shen et al. 2018).

    z: pre-activations, (..., H). Returns: (..., H).
    """
    if has_torch_function_unary(z):  # the engines, which trace a step, have special code for it
        return handle_torch_function(cumax, (z,), z)
    return z.softmax(-1).cumsum(-1).clamp(max=1.0)  # rounding may give slightly more than 1


def refined(f: Tensor, r: Tensor) -> Tensor:
    """Return the forget gate f adjusted by the refine gate r: 2 r f + (1 - 2 r) f^2 (Gu et al. 2020, Eq. 10).

    It equals r (1 - (1 - f)^2) + (1 - r) f^2. f, r and the result: (..., H).
    """
    return f * (2.0 * r + (1.0 - 2.0 * r) * f)


def with_master_gates(f_master: Tensor, i_master: Tensor, f: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    """Return the forget and the input gate from master and fine gates (Shen et al. 2018; Gu et al. 2020, Eqs. 18-20).

    All gates, also the two that are returned, are (..., H): rows of master gates are already repeated.
    """
    overlap = f_master * i_master
    return f * overlap + (f_master - overlap), i * overlap + (i_master - overlap)


class Mechanism(NamedTuple):
    """A gating mechanism.

    main: activation of the main gate, "sigmoid" or "cumax".
    init: initializer of the main gate's bias, "constant", "chrono", "uniform" or None (a constant would not change a
        cumax).
    auxiliary: the gate that modifies the main gate, "none", "refine" or "master".
    """

    main: str
    init: str | None
    auxiliary: str


MECHANISMS = {
    "-": Mechanism("sigmoid", "constant", "none"),
    "c": Mechanism("sigmoid", "chrono", "none"),
    "o": Mechanism("cumax", None, "none"),
    "u": Mechanism("sigmoid", "uniform", "none"),
    "r": Mechanism("sigmoid", "constant", "refine"),
    "om": Mechanism("cumax", None, "master"),
    "um": Mechanism("sigmoid", "uniform", "master"),
    "or": Mechanism("cumax", None, "refine"),
    "ur": Mechanism("sigmoid", "uniform", "refine"),
}
