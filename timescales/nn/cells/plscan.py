"""The power-law scan cell: a power-law LSTM whose gates read only the input."""

from torch import Tensor

from timescales.nn.cells.plstm import PowerLawCell
from timescales.nn.rnn import CellRNN


class PLScanCell(PowerLawCell):
    """Power-law scan cell: the coupled power-law LSTM without recurrent weights. Its gates read only the input.

        r, o = sigmoid(gx)     g = tanh(gx)     p = sigmoid(power), one exponent per unit
        d' = (1 - r)(d + dt)
        L  = max(0, ln((d' + 1) / ((1 - r)(d + 1) + epsilon)))
        f  = exp(-p L)
        c' = f c + (1 - f) g
        h' = o tanh(c')

    gx = weight_ih x + bias; each gate has its own rows of it. The age d is one linear recurrence, and given the ages
    the cell state c is another.

    Arguments:
        input_size, hidden_size: sizes I and H.
        epsilon, power, power_init, epsilon_form: as `PLSTMCell`.

    Init: as `PLSTMCell`.
    Source: defined here, from the gate of Chien et al. 2021: the power law without the recurrent product. `PLSTMCell`
    has the sources of the gate and its precision.
    Differs: from `PLSTMCell`, no recurrent weights, and always coupled.
    """

    gates = ("reset", "cell", "output")
    recurrent = False

    def act(self, gx: Tensor, gh: None, state: PowerLawCell.State, dt: Tensor | float = 1.0) -> PowerLawCell.Act:
        z, g, o = gx.chunk(3, -1)
        r, f, one_minus_f, age = self.forgetting(z, state.age, dt)
        return self.Act(r, one_minus_f, f, g.tanh(), o.sigmoid(), age)


class PLScan(CellRNN):
    """Power-law scan: a power-law LSTM whose gates read only the input. See `PLScanCell`.

    Call: as `PLSTM`; the state has h, c and age.
    Forgets: as in `plstm`.
    Source: none; defined here.
    """

    cell_class = PLScanCell
