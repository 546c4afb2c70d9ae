"""The power-law LSTM and GRU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timescales.nn.cells import PGRUCell, PLSTMCell
from timescales.nn.rnn import RNN, check_arguments, one_cell_per_layer


class PLSTM(RNN):
    """Power-law LSTM: a unit forgets as a power of the time since its last reset. `PLSTMCell` has the equations.

    Arguments:
        input_size, hidden_size, num_layers, batch_first, dropout: as torch.nn.LSTM; hidden_size may be a list with one
            size per layer.
        coupled: whether the input gate is 1 - f. Default: True.
        epsilon: between 0 and 1. Default: 0.001.
        power: exponent of the power law, "learned" (default, one per unit) or a number above 0.
        power_init: (low, high), the interval of the initial exponents. Default: (0, 1).
        epsilon_form: "paper" (default), or "authors" for the released code.
        engine: the time loop; see `RNN`. Default: "auto".

    Call: `output, state = rnn(x, state=None, dt=None, mask=None)` with x (S, B, input_size), output
    (S, B, hidden_size) and dt (S, B), the time since the previous step (default: 1). The state is an `RNNState`:
    state.h, state.c and state.age, each (num_layers, B, hidden_size). See `RNN.forward`.
    Source: Chien et al. 2021.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
        coupled: bool = True,
        epsilon: float = 1e-3,
        power: str | float = "learned",
        power_init: Sequence[float] = (0.0, 1.0),
        epsilon_form: str = "paper",
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        check_arguments(self, positional, unknown)
        cells = one_cell_per_layer(
            PLSTMCell,
            input_size,
            hidden_size,
            num_layers,
            coupled=coupled,
            epsilon=epsilon,
            power=power,
            power_init=power_init,
            epsilon_form=epsilon_form,
        )
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)


class PGRU(RNN):
    """Power-law GRU: a GRU with the power-law gate of `PLSTM`. `PGRUCell` has the equations.

    Arguments:
        input_size, hidden_size, num_layers, batch_first, dropout: as torch.nn.GRU; hidden_size may be a list with one
            size per layer.
        epsilon, power, power_init, engine: see `PLSTM`. (For epsilon_form="authors", make an `RNN` of `PGRUCell`s.)

    Call: as `PLSTM`; the state has h and age.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
        epsilon: float = 1e-3,
        power: str | float = "learned",
        power_init: Sequence[float] = (0.0, 1.0),
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        check_arguments(self, positional, unknown)
        cells = one_cell_per_layer(
            PGRUCell, input_size, hidden_size, num_layers, epsilon=epsilon, power=power, power_init=power_init
        )
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)
