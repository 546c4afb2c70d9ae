"""The gates of Gu et al. 2020: the parts they are made of, the nine mechanisms by name, and UR-LSTM by itself.

The cells that take any of the nine are in gated.py.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from timescales.nn.cells.lstm import LSTMCell


def cumax(z: Tensor) -> Tensor:
    """Ordered gates: the running sum of softmax(z) over the units, from near 0 to 1 (Shen et al. 2018)."""
    return z.softmax(-1).cumsum(-1).clamp(max=1.0)  # rounding may lead a little above 1


def refined(f: Tensor, r: Tensor) -> Tensor:
    """The effective gate 2 r f + (1 - 2 r) f^2 = r (1 - (1 - f)^2) + (1 - r) f^2 (Gu et al. 2020, Eq. 10)."""
    return f * (2.0 * r + (1.0 - 2.0 * r) * f)


def mastered(f_master: Tensor, i_master: Tensor, f: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    """Effective forget and input gates of master and fine gates (Shen et al. 2018; Gu et al. 2020, Eqs. 18-20)."""
    both = f_master * i_master
    return f * both + (f_master - both), i * both + (i_master - both)


class Mechanism(NamedTuple):
    """A gating mechanism: `main` sigmoid or cumax; `law` of the main gate's bias: constant, chrono, uniform, or None
    (a constant would not change a cumax); `auxiliary` gate: none, refine or master."""

    main: str
    law: str | None
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


class URLSTMCell(LSTMCell):
    """UR-LSTM: uniform gate init and a refine gate in the place of the input gate.

    Source: Gu, Gulcehre, Paine, Hoffman & Pascanu 2020, listing 2 and Eqs. 10-12.

        f = sigmoid(. + b)    r = sigmoid(. - b)    o = sigmoid(.)    u = tanh(.)         . = gx + gh
        g = 2 r f + (1 - 2 r) f^2                   (between f^2 at r = 0 and 1 - (1 - f)^2 at r = 1)
        c' = g c + (1 - g) u
        h' = o tanh c'

    Init: b = `gate_bias` = logit U[1/H, 1 - 1/H], trainable, beside the linear map's own bias.
    forget_init takes any other law too: "default" with no law is the paper's R- gate without offsets.
    """

    gates = ("forget", "refine", "cell", "output")
    biases = 1
    counter = "refine"
    default_init = "uniform"

    class Act(NamedTuple):
        forget: Tensor  # the effective gate g
        refine: Tensor
        cell: Tensor
        output: Tensor

    def act(self, gx: Tensor, gh: Tensor, state: LSTMCell.State, dt: Tensor | float = 1.0) -> Act:  # type: ignore[override]
        f, r, u, o = (gx + gh).chunk(4, -1)
        f, r = f.sigmoid(), r.sigmoid()
        return self.Act(refined(f, r), r, u.tanh(), o.sigmoid())

    def step(self, gx: Tensor, gh: Tensor, state: LSTMCell.State, dt: Tensor | float = 1.0) -> LSTMCell.State:
        g, _, u, o = self.act(gx, gh, state, dt)
        c = g * state.c + (1.0 - g) * u
        return self.State(o * c.tanh(), c)

    def timescales(self) -> Tensor:
        g = refined(self.bias_total("forget").sigmoid(), self.bias_total("refine").sigmoid())
        return 1.0 / g.log().abs()  # a g that rounds to 1 never forgets: inf, not the -inf of -1 / log 1
