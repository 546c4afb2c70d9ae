"""The gated recurrent unit, and the drop-in replacement of torch.nn.GRU."""

from typing import NamedTuple

from torch import Tensor, nn

from timescales.nn.cells.cell import Cell, sigmoid_timescales
from timescales.nn.drop_in import DropIn
from timescales.nn.inits import ForgetInit


class GRUCell(Cell):
    """Gated recurrent unit, with the equations and parameter names of torch.nn.GRU.

        r, f = sigmoid(gx + gh)
        u    = tanh(gx + r gh)          the reset gate after the recurrent product, as in torch and cuDNN
        h'   = f h + (1 - f) u

    gx = weight_ih x + bias_ih and gh = weight_hh h + bias_hh; each gate has its own rows of them. f is torch's
    update gate z. It keeps the old state, so it is called "forget", as in the other cells.

    Arguments:
        input_size, hidden_size: sizes I and H.
        forget_init: initializer of the forget bias (see `timescales.nn.inits`). Default: torch's.

    Init: all parameters U(-1/sqrt(H), 1/sqrt(H)). An initializer writes its bias to the forget rows of bias_hh and
    zeros to the same rows of bias_ih (chrono for a GRU: Tallec & Ollivier 2018, section 2). The uniform initializer is
    no exception here; a GRU with a separate `gate_bias` vector is `GatedGRUCell` with gate="u".
    Source: Cho et al. 2014.
    """

    gates = ("reset", "forget", "cell")
    biases = 2
    _torch_layer = "GRU"

    class State(NamedTuple):
        h: Tensor

    class Act(NamedTuple):
        reset: Tensor
        forget: Tensor
        cell: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, forget_init: ForgetInit = None, bias: bool = True) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        self._set_forget_bias(forget_init)

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        (rx, fx, ux), (rh, fh, uh) = gx.chunk(3, -1), gh.chunk(3, -1)
        r = (rx + rh).sigmoid()
        return self.Act(r, (fx + fh).sigmoid(), (ux + r * uh).tanh())

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        _, f, u = self.act(gx, gh, state, dt)
        return self.State(f * state.h + (1.0 - f) * u)

    timescales = sigmoid_timescales


class GRU(DropIn, nn.GRU):
    """Gated recurrent unit: torch.nn.GRU, with a choice of initializers. `GRUCell` has the equations and the arguments.

    It takes what torch.nn.GRU takes, in the same order, and has the same parameters and outputs.

    Call: `output, h_n = rnn(x, state=None, dt=None, mask=None)` with h_n (num_layers, B, hidden_size), as torch.nn.GRU;
    state is h_0. dt is ignored, so that layers can be swapped. See `RNN.forward`.
    Forgets: exponentially, at a rate that it learns.
    Source: Cho et al. 2014.
    """

    cell_class = plain_cell = GRUCell
    torch_class = nn.GRU
