"""The LSTM family, to be used like torch.nn.LSTM: LSTM, chrono, MTS, UR and power-law LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from timescales.nn import convert
from timescales.nn.cells import (
    ExpRNNCell,
    GatedGRUCell,
    GatedLSTMCell,
    GRUCell,
    JANETCell,
    LSTMCell,
    PGRUCell,
    PLSTMCell,
    URLSTMCell,
)
from timescales.nn.rnn import RNN, layer_sizes, one_cell_per_layer, per_layer, refuse


class LSTM(RNN):
    """Long short-term memory with a chosen law for the forget bias; see `LSTMCell`.

    hidden_size, forget_init and frozen are one value for all layers or a list with one per layer.
    forget_init: "default" (torch's), a number, "uniform", or a mapping such as {"law": "chrono", "T_max": 750}
    (see `timescales.nn.inits`). frozen: names of the gates whose biases are not trained, e.g. ("input", "forget").
    Raises ValueError, with the mend in the text, for values out of range and for what only torch.nn.LSTM has.
    """

    cell_class: type[LSTMCell] = LSTMCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        forget_init: Any = None,
        frozen: Sequence[Any] = (),
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        refuse(self, unknown)
        sizes = layer_sizes(input_size, hidden_size, num_layers)
        inits = per_layer("forget_init", forget_init, num_layers, isinstance(forget_init, list | tuple))
        nested = not isinstance(frozen, str) and any(not isinstance(entry, str) for entry in frozen)
        frozen = per_layer("frozen", frozen, num_layers, nested)
        cells = [
            self.cell_class(i, h, forget_init=init, frozen=gates)
            for (i, h), init, gates in zip(sizes, inits, frozen, strict=True)
        ]
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)

    @classmethod
    def from_torch(cls, other: nn.LSTM) -> LSTM:
        """An LSTM with the weights of a torch.nn.LSTM; the two give equal outputs."""
        if cls is not LSTM:
            raise ValueError(f"torch.nn.LSTM converts to timescales.LSTM, not to {cls.__name__}")
        return convert.from_torch(cls, nn.LSTM, other)

    def to_torch(self) -> nn.LSTM:
        """A torch.nn.LSTM that gives equal outputs; needs layers of one size and the LSTM's own gates."""
        if self.cell_class is not LSTMCell:
            raise ValueError("only LSTM cells convert to torch.nn.LSTM")
        return convert.to_torch(self, nn.LSTM)


class ChronoLSTM(LSTM):
    """LSTM with chrono initialisation: forget bias log U[1, T_max - 1], input bias its negative.

    Source: Tallec & Ollivier 2018. T_max: the longest time scale expected, in steps. `T_max="auto"` in a configuration
    is filled from the task's horizon.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        T_max: float,
        frozen: Sequence[Any] = (),
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        refuse(self, unknown)
        super().__init__(
            input_size, hidden_size, num_layers, batch_first, dropout,
            forget_init={"law": "chrono", "T_max": T_max}, frozen=frozen, engine=engine,
        )  # fmt: skip


class MTSLSTM(LSTM):
    """Multi-timescale LSTM: assigned time scales, held fixed (Mahto, Vo, Turek & Huth 2021).

    One layer: InvGamma(alpha, scale) quantiles. Three layers: T = 3 and T = 4, half the units each; InvGamma
    quantiles; a free layer. The forget bias is Eq. 5, the input bias its negative.

    Differs: the authors' code freezes all four gates' biases (`freeze_gates="ifgo"`; the paper, and the default here,
    "if"); the published run had ln(T - 1) in layer 1 (`layer1_bias="log_t_minus_1"`); its last quantile unit has T = 0
    (`quantiles="authors"`); for Dyck-2 their code also zeroes bias_ih's cell and output rows before it freezes them,
    here they stay as drawn. For other numbers of layers, give `LSTM` a list of forget_init and frozen.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        alpha: float = 0.56,
        scale: float = 1.0,
        freeze_gates: str = "if",
        layer1_bias: str = "eq5",
        quantiles: str = "interior",
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        refuse(self, unknown)
        if num_layers not in (1, 3):
            raise ValueError(f"MTSLSTM has 1 or 3 layers, not {num_layers}; for others give LSTM a list of forget_init")
        if freeze_gates not in ("if", "ifgo"):
            raise ValueError(f"freeze_gates must be if or ifgo, not {freeze_gates!r}")
        quantile = {"law": "inverse_gamma", "alpha": alpha, "scale": scale, "quantiles": quantiles}
        short = {"law": "assigned", "timescales": (3.0, 4.0), "form": layer1_bias}
        gates = ("input", "forget") if freeze_gates == "if" else LSTMCell.gates
        super().__init__(
            input_size, hidden_size, num_layers, batch_first, dropout,
            forget_init=[quantile] if num_layers == 1 else [short, quantile, "default"],
            frozen=[gates] if num_layers == 1 else [gates, gates, ()],
            engine=engine,
        )  # fmt: skip


class URLSTM(LSTM):
    """UR-LSTM: uniform gate init and refine gate (Gu et al. 2020, listing 2); see `URLSTMCell`."""

    cell_class = URLSTMCell


class PLSTM(RNN):
    """Power-law LSTM (Chien et al. 2021); see `PLSTMCell` for the equations and the meaning of each argument."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        coupled: bool = True,
        epsilon: float = 1e-3,
        power: str | float = "learned",
        power_init: Sequence[float] = (0.0, 1.0),
        epsilon_form: str = "paper",
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        refuse(self, unknown)
        cells = one_cell_per_layer(
            PLSTMCell, input_size, hidden_size, num_layers,
            coupled=coupled, epsilon=epsilon, power=power, power_init=power_init, epsilon_form=epsilon_form,
        )  # fmt: skip
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)


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
