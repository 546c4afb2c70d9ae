"""The chrono LSTM: an LSTM whose initial time scales cover the range up to a longest delay."""

from collections.abc import Sequence
from typing import Any

from timescales.nn.cells.lstm import LSTM


class ChronoLSTM(LSTM):
    """LSTM with chrono initialisation: forget bias ln U[1, T_max - 1], input bias its negative. See `LSTMCell`.

    Arguments: as `LSTM`, and
        T_max: the longest expected time scale, in steps. In a configuration, T_max="auto" is the task's horizon.

    Call: as `LSTM`.
    Forgets: exponentially; the initial time scales cover the range up to a longest delay.
    Source: Tallec & Ollivier 2018.
    """

    chooses = ("forget_init",)

    def __init__(self, *sizes: Any, T_max: float, frozen: Sequence[Any] = (), **arguments: Any) -> None:
        self.refuse_chosen(arguments)
        super().__init__(*sizes, forget_init={"law": "chrono", "T_max": T_max}, frozen=frozen, **arguments)
