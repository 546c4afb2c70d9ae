"""Drop-in classes of the gates of Gu et al. 2020 and of the cells that the papers compare with; called as in rnn.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from timescales import convert
from timescales.cells import ExpRNNCell, GatedGRUCell, GatedLSTMCell, GRUCell, JANETCell, PGRUCell
from timescales.rnn import RNN, one_cell_per_layer, refuse


class GatedRNN(RNN):
    """LSTM or GRU with one of the nine gates of Gu et al. 2020; see `GatedCell` for the table and each argument.

    core: "lstm" or "gru"; gate: -, c, o, u, r, om, um, or, ur. zoneout_c is an LSTM's alone, gru_form a GRU's.
    Raises ValueError, with the mend in the text, for values out of range and for what only torch's modules have.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        core: str = "lstm",
        gate: str = "ur",
        forget_bias: float = 1.0,
        T_max: str | float = "hidden_size",
        downsize: int = 16,
        train_bias: bool = True,
        subtract_bias: bool | None = None,
        gru_form: str = "forget",
        zoneout_c: float = 0.0,
        zoneout_h: float = 0.0,
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        refuse(self, unknown)
        if core not in ("lstm", "gru"):
            raise ValueError(f"core must be lstm or gru, not {core!r}")
        if core == "gru" and zoneout_c:
            raise ValueError("zoneout_c is for core=lstm: a GRU has no cell beside its output; use zoneout_h")
        if core == "lstm" and gru_form != "forget":
            raise ValueError(f"gru_form={gru_form} is for core=gru")
        own: dict[str, Any] = {"zoneout_c": zoneout_c} if core == "lstm" else {"gru_form": gru_form}
        cells = one_cell_per_layer(
            GatedLSTMCell if core == "lstm" else GatedGRUCell, input_size, hidden_size, num_layers,
            gate=gate, forget_bias=forget_bias, T_max=T_max, downsize=downsize, train_bias=train_bias,
            subtract_bias=subtract_bias, zoneout_h=zoneout_h, **own,
        )  # fmt: skip
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)


class GRU(RNN):
    """Gated recurrent unit, equal to torch.nn.GRU; see `GRUCell`.

    forget_init: "default" (torch's), a number, or a law such as {"law": "chrono", "T_max": 750}, for all layers.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        forget_init: Any = None,
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        refuse(self, unknown)
        cells = one_cell_per_layer(GRUCell, input_size, hidden_size, num_layers, forget_init=forget_init)
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)

    @classmethod
    def from_torch(cls, other: nn.GRU) -> GRU:
        """A GRU with the weights of a torch.nn.GRU; the two give equal outputs."""
        return convert.from_torch(cls, nn.GRU, other)

    def to_torch(self) -> nn.GRU:
        """A torch.nn.GRU that gives equal outputs; needs layers of one size."""
        return convert.to_torch(self, nn.GRU)


class PGRU(RNN):
    """Power-law GRU; see `PGRUCell` for the equations and `PLSTMCell` for the meaning of each argument.

    epsilon_form is always "paper"; for "authors" make an RNN of PGRUCells.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        epsilon: float = 1e-3,
        power: str | float = "learned",
        power_init: Sequence[float] = (0.0, 1.0),
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        refuse(self, unknown)
        cells = one_cell_per_layer(
            PGRUCell, input_size, hidden_size, num_layers, epsilon=epsilon, power=power, power_init=power_init
        )
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)


class JANET(RNN):
    """JANET with chrono initialisation (van der Westhuizen & Lasenby 2018); see `JANETCell`.

    T_max: the longest time scale expected, in steps, or None for torch's default bias. `T_max="auto"` in a
    configuration is filled from the task's horizon.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        T_max: float | None,
        beta: float = 1.0,
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        refuse(self, unknown)
        law = None if T_max is None else {"law": "chrono", "T_max": T_max}
        cells = one_cell_per_layer(JANETCell, input_size, hidden_size, num_layers, forget_init=law, beta=beta)
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)


class ExpRNN(RNN):
    """Orthogonal recurrent network (Lezcano-Casado & Martinez-Rubio 2019); see `ExpRNNCell`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        skew_init: str = "cayley",
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        refuse(self, unknown)
        cells = one_cell_per_layer(ExpRNNCell, input_size, hidden_size, num_layers, skew_init=skew_init)
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)
