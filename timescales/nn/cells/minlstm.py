"""The minimal LSTM: an LSTM whose gates read only the input and add up to 1."""

from torch import Tensor
from torch.nn.functional import softplus

from timescales.nn.cells.mingru import MinGRUCell, retained
from timescales.nn.inits import timescale_of_bias
from timescales.nn.rnn import CellRNN


class MinLSTMCell(MinGRUCell):
    """minLSTM: an LSTM without recurrent weights and output gate. Its gates read only the input and add up to 1.

        a, b = sigmoid(gx)          the forget and the input gate before they are normalised
        f  = (a / (a + b))^dt
        u  = gx                     linear: no tanh
        h' = f h + (1 - f) u        with dt = 1, 1 - f is b / (a + b)

    gx = weight_ih x + bias; each gate has its own rows of it. A step after dt = 0 forgets nothing and writes nothing.

    Arguments:
        input_size, hidden_size: sizes I and H.
        forget_init: initializer of the forget bias (see `timescales.nn.inits`). Default: torch's.
        T_max: the longest expected time scale, in steps: short for forget_init={"law": "chrono", "T_max": T_max}. In a
            configuration, "auto" is the task's horizon. Default: None.

    Init: weights and bias U(-1/sqrt(H), 1/sqrt(H)), so that a unit begins with a time scale of about 1.4. An
    initializer writes its bias b to the forget rows and, if it is tied, -b to the input rows; then f is sigmoid(b)
    at zero input.
    Source: Feng, Tung, Ahmed, Bengio & Hajimirsadeghi 2024 (arXiv 2410.01201): the minLSTM with normalised gates and a
    linear candidate.
    Differs: the paper's version in log space, which takes a positive function g of the candidate, is not offered: only
    a parallel scan needs it. dt is an addition.
    """

    gates = ("forget", "input", "cell")
    opposite = "input"

    def act(self, gx: Tensor, gh: None, state: MinGRUCell.State, dt: Tensor | float = 1.0) -> MinGRUCell.Act:
        forget, write, u = gx.chunk(3, -1)
        f, one_minus_f = retained(log_ratio(forget, write), dt)
        return self.Act(one_minus_f, f, u)

    def timescales(self) -> Tensor:
        """Return -1 / ln(a / (a + b)) at zero input and dt = 1, (H,)."""
        return timescale_of_bias(log_ratio(self.bias_total("forget"), self.bias_total("input")))


class MinLSTM(CellRNN):
    """minLSTM: an LSTM whose gates read only the input and add up to 1. See `MinLSTMCell`.

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Forgets: exponentially; forget and input gate are divided by their sum.
    Source: Feng et al. 2024.
    """

    cell_class = MinLSTMCell


def log_ratio(forget: Tensor, write: Tensor) -> Tensor:
    """Return ln(a / b) of the gates a = sigmoid(forget) and b = sigmoid(write). a / (a + b) is its sigmoid.

    forget, write and the result are (..., H).
    """
    return softplus(-write) - softplus(-forget)
