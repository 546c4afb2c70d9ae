"""The UR-LSTM: uniform gate initialisation and a refine gate."""

from typing import NamedTuple

from torch import Tensor

from timescales.nn.cells.gates import refined
from timescales.nn.cells.lstm import InitsPerLayer, LSTMCell
from timescales.nn.inits import timescale_of_gate


class URLSTMCell(LSTMCell):
    """UR-LSTM: uniform gate initialisation, and a refine gate instead of the input gate.

        f = sigmoid(. + b)    r = sigmoid(. - b)    o = sigmoid(.)    u = tanh(.)         with . = gx + gh
        g = 2 r f + (1 - 2 r) f^2                   between f^2 (r = 0) and 1 - (1 - f)^2 (r = 1)
        c' = g c + (1 - g) u
        h' = o tanh(c')

    gx = weight_ih x + bias and gh = weight_hh h; each gate has its own rows of them.

    Arguments:
        input_size, hidden_size: sizes I and H.
        forget_init: initializer of the forget bias (see `timescales.nn.inits`). Default: "uniform". "default" sets b to
            0; this is the paper's R- gate without a constant bias.
        frozen: names of gates whose biases are not trained. Default: none.

    Init: b = `gate_bias` (H,) = logit U[1/H, 1 - 1/H]; it is trained together with the bias of the linear map.
    Source: Gu, Gulcehre, Paine, Hoffman & Pascanu 2020, listing 2 and Eqs. 10-12.
    """

    gates = ("forget", "refine", "cell", "output")
    biases = 1
    opposite = "refine"
    default_init = "uniform"

    class Act(NamedTuple):
        forget: Tensor  # the effective gate g
        refine: Tensor
        cell: Tensor
        output: Tensor

    def act(self, gx: Tensor, gh: Tensor, state: LSTMCell.State, dt: Tensor | float = 1.0) -> Act:
        f, r, u, o = (gx + gh).chunk(4, -1)
        f, r = f.sigmoid(), r.sigmoid()
        return self.Act(refined(f, r), r, u.tanh(), o.sigmoid())

    def step(self, gx: Tensor, gh: Tensor, state: LSTMCell.State, dt: Tensor | float = 1.0) -> LSTMCell.State:
        g, _, u, o = self.act(gx, gh, state, dt)
        c = g * state.c + (1.0 - g) * u
        return self.State(o * c.tanh(), c)

    def timescales(self) -> Tensor:
        g = refined(self.bias_total("forget").sigmoid(), self.bias_total("refine").sigmoid())
        return timescale_of_gate(g)


class URLSTM(InitsPerLayer):
    """UR-LSTM: an LSTM with uniform gate initialisation and a refine gate. See `URLSTMCell`.

    Arguments: as `LSTM`; forget_init is "uniform" by default.
    Call: as `LSTM`.
    Forgets: exponentially; initial forget gates are uniform between 0 and 1, and a refine gate adjusts the forget gate.
    Source: Gu et al. 2020, listing 2.
    """

    cell_class = URLSTMCell
