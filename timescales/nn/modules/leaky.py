"""The leaky RNN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timescales.nn.cells import LeakyRNNCell
from timescales.nn.rnn import RNN, check_arguments, one_cell_per_layer


class LeakyRNN(RNN):
    """Leaky RNN: leaky integrators, each with a learned time constant. `LeakyRNNCell` has the equations.

    Arguments:
        input_size, hidden_size, num_layers, batch_first, dropout: as torch.nn.RNN; hidden_size may be a list with one
            size per layer.
        T_max: the longest initial time constant, in steps. Default: 10. In a configuration, T_max="auto" is the task's
            horizon.
        engine: the time loop; see `RNN`. Default: "auto".

    Call: as `GRU`, with dt (S, B), the time since the previous step (default: 1).
    Source: Khajehabdollahi et al. 2024.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
        T_max: float = 10.0,
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        check_arguments(self, positional, unknown)
        cells = one_cell_per_layer(LeakyRNNCell, input_size, hidden_size, num_layers, T_max=T_max)
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)
