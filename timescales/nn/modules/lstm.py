"""The LSTM, and LSTMs with assigned time scales or a refine gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from timescales.nn import convert
from timescales.nn.cells import LSTMCell, URLSTMCell
from timescales.nn.inits import ForgetInit
from timescales.nn.rnn import RNN, check_arguments, layer_sizes, per_layer


class LSTM(RNN):
    """Long short-term memory with a choice of initializers for the forget bias. `LSTMCell` has the equations.

    With the default arguments it equals torch.nn.LSTM.

    Arguments:
        input_size, hidden_size, num_layers, batch_first, dropout: as torch.nn.LSTM; hidden_size may be a list with one
            size per layer.
        forget_init: initializer of the forget bias: "default" (torch's), a number, "uniform", or a mapping such as
            {"law": "chrono", "T_max": 750}; see `timescales.nn.inits`. A list has one initializer per layer.
        frozen: names of the gates whose biases are not trained, such as ("input", "forget"). A list of such lists has
            one per layer. Default: none.
        engine: the time loop; see `RNN`. Default: "auto".

    Call: `output, (h_n, c_n) = rnn(x, state=None, dt=None, mask=None)` with x (S, B, input_size), output
    (S, B, hidden_size), and h_n and c_n (num_layers, B, hidden_size), as torch.nn.LSTM; state is (h_0, c_0). If the
    layers differ in size, the state is an `RNNState`: state.h and state.c have one tensor per layer. dt is ignored, so
    that layers can be swapped. See `RNN.forward`.
    """

    cell_class: type[LSTMCell] = LSTMCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
        forget_init: ForgetInit | Sequence[ForgetInit] = None,
        frozen: Sequence[Any] = (),
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        check_arguments(self, positional, unknown)
        sizes = layer_sizes(input_size, hidden_size, num_layers)
        inits = per_layer("forget_init", forget_init, num_layers, isinstance(forget_init, list | tuple))
        nested = not isinstance(frozen, str) and any(not isinstance(entry, str) for entry in frozen)
        frozen = per_layer("frozen", frozen, num_layers, nested)
        cells = [
            self.cell_class(inputs, hidden, forget_init=init, frozen=gates)
            for (inputs, hidden), init, gates in zip(sizes, inits, frozen, strict=True)
        ]
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)
        self.register_load_state_dict_pre_hook(convert.rename_torchs_weights)

    @classmethod
    def from_torch(cls, module: nn.LSTM) -> LSTM:
        """An LSTM with the weights of a torch.nn.LSTM. Both give the same outputs.

        Raises ValueError for a module that is bidirectional, has a projection or has no biases.
        """
        if cls is not LSTM:
            raise ValueError(f"torch.nn.LSTM converts to timescales.LSTM, not to {cls.__name__}")
        return convert.from_torch(cls, nn.LSTM, module)

    def to_torch(self) -> nn.LSTM:
        """A torch.nn.LSTM that gives the same outputs. Raises ValueError if the layers differ in size."""
        if self.cell_class is not LSTMCell:
            raise ValueError("only LSTM cells convert to torch.nn.LSTM")
        return convert.to_torch(self, nn.LSTM)


class ChronoLSTM(LSTM):
    """LSTM with chrono initialisation: forget bias ln U[1, T_max - 1], input bias its negative. See `LSTMCell`.

    Arguments:
        input_size, hidden_size, num_layers, batch_first, dropout: as torch.nn.LSTM.
        T_max: the longest expected time scale, in steps. In a configuration, T_max="auto" is the task's horizon.
        frozen, engine: see `LSTM`.

    Call: as `LSTM`.
    Source: Tallec & Ollivier 2018.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
        T_max: float,
        frozen: Sequence[Any] = (),
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        check_arguments(self, positional, unknown)
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            batch_first=batch_first,
            dropout=dropout,
            forget_init={"law": "chrono", "T_max": T_max},
            frozen=frozen,
            engine=engine,
        )


class MTSLSTM(LSTM):
    """Multi-timescale LSTM: an LSTM whose time scales are assigned to its units and not trained. See `LSTMCell`.

    With one layer, the time scales are quantiles of InvGamma(alpha, scale). With three layers, the first has T = 3 and
    T = 4 for half of the units each, the second the quantiles, and the third is a plain LSTM layer. The forget bias
    follows from T by Eq. 5 of the paper, and the input bias is its negative. For another number of layers, give `LSTM`
    lists for forget_init and frozen.

    Arguments:
        input_size, hidden_size, batch_first, dropout: as torch.nn.LSTM.
        num_layers: 1 (default) or 3.
        alpha, scale: shape and scale of the inverse gamma distribution. Defaults: 0.56 and 1.
        freeze_gates: gates whose biases are not trained: "if" (input and forget, default) or "ifgo" (all).
        layer1_bias: forget bias of the first of three layers, "eq5" (default) or "log_t_minus_1".
        quantiles: "interior" (default) or "authors"; see `timescales.nn.inits.InverseGamma`.
        layer1_timescale, layer3_timescale: time scale (in steps) of all units of the first and third of three layers,
            fixed. Default: None, as above.
        engine: see `RNN`.

    Call: as `LSTM`.
    Source: Mahto, Vo, Turek & Huth 2021.
    Differs: the authors' code freezes the biases of all four gates (freeze_gates="ifgo"; the paper: "if"). The
    published run used ln(T - 1) in layer 1 (layer1_bias="log_t_minus_1"), and T = 0 for the last unit of the quantiles
    (quantiles="authors"). For Dyck-2 their code also sets the cell and output rows of bias_ih to zero before it freezes
    them; here they keep their random values.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
        alpha: float = 0.56,
        scale: float = 1.0,
        freeze_gates: str = "if",
        layer1_bias: str = "eq5",
        quantiles: str = "interior",
        layer1_timescale: float | None = None,
        layer3_timescale: float | None = None,
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        check_arguments(self, positional, unknown)
        if num_layers not in (1, 3):
            raise ValueError(f"MTSLSTM has 1 or 3 layers, not {num_layers}; for others give LSTM a list of forget_init")
        if num_layers == 1 and (layer1_timescale, layer3_timescale) != (None, None):
            raise ValueError("layer1_timescale and layer3_timescale need num_layers=3")
        if freeze_gates not in ("if", "ifgo"):
            raise ValueError(f"freeze_gates must be if or ifgo, not {freeze_gates!r}")
        quantile = {"law": "inverse_gamma", "alpha": alpha, "scale": scale, "quantiles": quantiles}
        times = (3.0, 4.0) if layer1_timescale is None else (layer1_timescale,)
        first = {"law": "assigned", "timescales": times, "form": layer1_bias}
        free = layer3_timescale is None
        third = "default" if free else {"law": "assigned", "timescales": (layer3_timescale,)}
        gates = ("input", "forget") if freeze_gates == "if" else LSTMCell.gates
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            batch_first=batch_first,
            dropout=dropout,
            forget_init=[quantile] if num_layers == 1 else [first, quantile, third],
            frozen=[gates] if num_layers == 1 else [gates, gates, () if free else gates],
            engine=engine,
        )


class URLSTM(LSTM):
    """UR-LSTM: an LSTM with uniform gate initialisation and a refine gate. `URLSTMCell` has the equations.

    Arguments: as `LSTM`; forget_init is "uniform" by default.
    Call: as `LSTM`.
    Source: Gu et al. 2020, listing 2.
    """

    cell_class = URLSTMCell
