"""The power-law scan cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timescales.nn.cells import PLScanCell
from timescales.nn.rnn import RNN, check_arguments, one_cell_per_layer


class PLScan(RNN):
    """Power-law scan: a power-law LSTM whose gates read the input alone. `PLScanCell` has the equations.

    Arguments:
        input_size, hidden_size, num_layers, batch_first, dropout: as torch.nn.LSTM; hidden_size may be a list with one
            size per layer.
        epsilon, power, power_init, engine: see `PLSTM`.

    Call: as `PLSTM`; the state has h, c and age.
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
            PLScanCell, input_size, hidden_size, num_layers, epsilon=epsilon, power=power, power_init=power_init
        )
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)
