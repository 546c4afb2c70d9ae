"""The orthogonal recurrent network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timescales.nn.cells import ExpRNNCell
from timescales.nn.rnn import RNN, check_arguments, one_cell_per_layer


class ExpRNN(RNN):
    """Orthogonal recurrent network: the recurrent matrix is orthogonal. `ExpRNNCell` has the equations.

    Arguments:
        input_size, hidden_size, num_layers, batch_first, dropout: as torch.nn.RNN; hidden_size may be a list with one
            size per layer.
        skew_init: "cayley" (default) or "henaff", the initialisation of the skew-symmetric matrix.
        engine: the time loop; see `RNN`. Default: "auto".

    Call: as `GRU`.
    Source: Lezcano-Casado & Martinez-Rubio 2019.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
        skew_init: str = "cayley",
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        check_arguments(self, positional, unknown)
        cells = one_cell_per_layer(ExpRNNCell, input_size, hidden_size, num_layers, skew_init=skew_init)
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)
