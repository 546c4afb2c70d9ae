"""The scalar LSTM of xLSTM: exponential gates, whose sum normalises the cell."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from timescales.nn.cells.cell import Cell, Weights
from timescales.nn.inits import INFINITE, ForgetInit, check_whole, timescale_of_bias
from timescales.nn.rnn import CellRNN


class SLSTMCell(Cell):
    """sLSTM: an LSTM whose input gate is an exponential. Its cell is the weighted mean of all that was written.

        log f = log sigmoid(.)      or . itself: an exponential forget gate
        log i = .     z = tanh(.)     o = sigmoid(.)                with . = gx + gh
        log n' = log(f n + i)       the sum of all weights so far
        keep = f n / n'
        c' = keep c + (1 - keep) z
        h' = o c'

    gx = weight_ih x + bias and gh = weight_hh h. A unit reads only the units of its own head: weight_hh is
    block-diagonal.

    The paper has the sums n' = f n + i and c' = f c + i z, h' = o c' / n', and, since an exponential overflows, divides
    both by exp(m), m' = max(log f + m, log i). Here the state holds their ratio and ln n, in which nothing overflows:
    with the paper's names, c = c / n and log_n = m + ln n. So `keep` is what a step leaves of the memory: at a constant
    f below 1 it goes to f; at f = 1 the cell is the mean of all steps, and forgets as 1 / t.

    Arguments:
        input_size, hidden_size: sizes I and H.
        heads: number of heads; must divide H. weight_hh is (4 H, H / heads). Default: 1.
        forget: "sigmoid" (default) or "exp".
        forget_init: initializer of the forget bias (see `timescales.nn.inits`). Default: torch's.

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)). An initializer writes its bias b only to the forget rows: a
    constant added to all log i changes nothing. The state starts with c = 0 and log_n = -8192: nothing was written.
    Source: Beck, Pöppel, Spanring, Auer, Prudnikova, Kopp, Klambauer, Brandstetter & Hochreiter 2024
    (arXiv 2405.04517), section 2.2 and appendix A.2.
    Differs: the authors' code starts from recurrent weights of zero and forget biases spread over the units of a head;
    forget_init gives others. Its group norm over each head, its convolution and its projections are not here;
    model.block=residual has norms and a perceptron. dt is ignored.
    """

    gates = ("input", "forget", "cell", "output")
    shown = ("heads", "forget")

    class State(NamedTuple):
        h: Tensor
        c: Tensor
        log_n: Tensor

    class Act(NamedTuple):
        input: Tensor
        forget: Tensor
        cell: Tensor
        output: Tensor
        log_n: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        heads: int = 1,
        forget: str = "sigmoid",
        forget_init: ForgetInit = None,
    ) -> None:
        super().__init__(input_size, hidden_size)
        check_whole(heads=heads)
        if hidden_size % heads:
            raise ValueError(f"hidden_size {hidden_size} must be a multiple of heads {heads}")
        if forget not in ("sigmoid", "exp"):
            raise ValueError(f"forget must be sigmoid or exp, not {forget!r}")
        self.heads, self.forget = heads, forget
        self.weight_hh = nn.Parameter(self.weight_hh.detach()[:, : hidden_size // heads].clone())
        self._set_forget_bias(forget_init)

    def weights(self) -> Weights:
        """Return the weights as `Cell.weights`: hh is (4 H, H), with zeros between the heads."""
        if self.heads == 1:
            return super().weights()
        size = self.hidden_size // self.heads
        blocks = self.weight_hh.unflatten(0, (len(self.gates), self.heads, size)).unsqueeze(-2)
        own_head = torch.eye(self.heads, dtype=blocks.dtype, device=blocks.device).view(self.heads, 1, self.heads, 1)
        hh = (blocks * own_head).flatten(-2).flatten(0, 2)  # (gates, heads, size, heads, size) before
        return super().weights()._replace(hh=hh)

    def initial_state(self, *batch: int) -> State:
        """Return h = c = 0, and the logarithm of n = 0, (*batch, H) each."""
        zeros = self.weight_ih.new_zeros(*batch, self.hidden_size)
        return self.State(zeros, zeros, torch.full_like(zeros, -INFINITE))

    def act(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> Act:
        """Return the shares 1 - keep and keep as `input` and `forget`, z, o, and log n', (..., H) each."""
        log_i, forget, z, o = (gx + gh).chunk(4, -1)
        log_f = logsigmoid(forget) if self.forget == "sigmoid" else forget
        ratio = log_f + state.log_n - log_i
        return self.Act((-ratio).sigmoid(), ratio.sigmoid(), z.tanh(), o.sigmoid(), log_i - logsigmoid(-ratio))

    def step(self, gx: Tensor, gh: Tensor, state: State, dt: Tensor | float = 1.0) -> State:
        i, f, z, o, log_n = self.act(gx, gh, state, dt)
        c = f * state.c + i * z
        return self.State(o * c, c, log_n)

    def timescales(self) -> Tensor:
        """Return -1 / ln f at zero input and state, (H,), once n is constant; infinite where f is 1 or more."""
        b = self.bias_total("forget")
        return timescale_of_bias(b) if self.forget == "sigmoid" else 1.0 / (-b).clamp(min=0.0)


class SLSTM(CellRNN):
    """sLSTM: an LSTM with exponential gates, whose cell is a weighted mean. See `SLSTMCell`.

    Call: as `PLSTM`; the state has h, c and log_n. Without a state log_n starts at -8192, where nothing was written.
    dt is ignored.
    Forgets: exponentially, at a rate that it learns; where its forget gate is 1, as 1 / t.
    Source: Beck et al. 2024.
    """

    cell_class = SLSTMCell
