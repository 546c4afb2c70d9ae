"""The LSTM and GRU with the gates of Gu et al. 2020."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timescales.nn.cells import GatedGRUCell, GatedLSTMCell
from timescales.nn.rnn import RNN, check_arguments, one_cell_per_layer


class GatedRNN(RNN):
    """LSTM or GRU with one of the nine gates of Gu et al. 2020. `GatedCell` has the table of gates.

    Arguments:
        input_size, hidden_size, num_layers, batch_first, dropout: as torch.nn.LSTM; hidden_size may be a list with one
            size per layer.
        core: "lstm" (default) or "gru".
        gate: -, c, o, u, r, om, um, or, ur. Default: "ur".
        forget_bias, T_max, downsize, train_bias, subtract_bias, zoneout_h: see `GatedCell`.
        gru_form: "forget" (default) or "update", only for core="gru"; see `GatedGRUCell`.
        zoneout_c: zoneout probability of the cell, only for core="lstm"; see `GatedLSTMCell`. Default: 0.
        engine: the time loop; see `RNN`. Default: "auto".

    Call: as `LSTM`; with core="gru" as `GRU`.
    Source: Gu, Gulcehre, Paine, Hoffman & Pascanu 2020.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
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
        check_arguments(self, positional, unknown)
        if core not in ("lstm", "gru"):
            raise ValueError(f"core must be lstm or gru, not {core!r}")
        if core == "gru" and zoneout_c:
            raise ValueError("zoneout_c is for core=lstm: a GRU has no cell beside its output; use zoneout_h")
        if core == "lstm" and gru_form != "forget":
            raise ValueError(f"gru_form={gru_form} is for core=gru")
        arguments: dict[str, Any] = {"gate": gate, "forget_bias": forget_bias, "T_max": T_max, "downsize": downsize}
        arguments |= {"train_bias": train_bias, "subtract_bias": subtract_bias, "zoneout_h": zoneout_h}
        arguments |= {"zoneout_c": zoneout_c} if core == "lstm" else {"gru_form": gru_form}
        cell = GatedLSTMCell if core == "lstm" else GatedGRUCell
        cells = one_cell_per_layer(cell, input_size, hidden_size, num_layers, **arguments)
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)
