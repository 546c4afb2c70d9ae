"""The linear recurrent unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from timescales.nn.cells import LRUCell
from timescales.nn.rnn import RNN, check_arguments, one_cell_per_layer


class LRU(RNN):
    """Linear recurrent unit: damped oscillators that the input drives, without gates. `LRUCell` has the equations.

    Arguments:
        input_size, hidden_size, num_layers, batch_first, dropout: as torch.nn.RNN; hidden_size may be a list with one
            size per layer. It is the number of complex units, whose real parts are the output.
        r_min, r_max: the ring of the initial |lambda|. Default: 0 and 1.
        max_phase: the largest initial phase, at most 2 pi. Default: 2 pi.
        engine: the time loop; see `RNN`. Default: "auto".

    Call: as `PLSTM`; the state has h, the real part, and `imaginary`.
    Source: Orvieto et al. 2023.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 2.0 * math.pi,
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        check_arguments(self, positional, unknown)
        cells = one_cell_per_layer(
            LRUCell, input_size, hidden_size, num_layers, r_min=r_min, r_max=r_max, max_phase=max_phase
        )
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)
