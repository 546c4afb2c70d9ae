"""The minimal GRU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timescales.nn.cells import MinGRUCell
from timescales.nn.rnn import RNN, check_arguments, one_cell_per_layer


class MinGRU(RNN):
    """minGRU: a GRU whose gates read the input alone. `MinGRUCell` has the equations.

    Arguments:
        input_size, hidden_size, num_layers, batch_first, dropout: as torch.nn.GRU; hidden_size may be a list with one
            size per layer.
        T_max: the longest expected time scale, in steps, for chrono initialisation, or None for torch's default bias
            (default). In a configuration, T_max="auto" is the task's horizon.
        engine: the time loop; see `RNN`. Default: "auto".

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Source: Feng et al. 2024.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
        T_max: float | None = None,
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        check_arguments(self, positional, unknown)
        chrono = None if T_max is None else {"law": "chrono", "T_max": T_max}
        cells = one_cell_per_layer(MinGRUCell, input_size, hidden_size, num_layers, forget_init=chrono)
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)
