"""The multi-timescale LSTM: an LSTM whose time scales are assigned to its units."""

from collections.abc import Sequence
from typing import Any

from timescales.nn.cells.lstm import LSTM, LSTMCell
from timescales.nn.inits import Assigned, InverseGamma


class MTSLSTM(LSTM):
    """Multi-timescale LSTM: an LSTM whose time scales are assigned to its units and not trained. See `LSTMCell`.

    With one layer, the time scales are quantiles of InvGamma(alpha, scale). With three layers, the first has T = 3 and
    T = 4 for half of the units each, the second the quantiles, and the third is a plain LSTM layer. The forget bias
    follows from T by Eq. 5 of the paper, and the input bias is its negative. For another number of layers, give `LSTM`
    lists for forget_init and frozen.

    Arguments: as `LSTM`, with num_layers 1 (default) or 3, and
        alpha, scale: shape and scale of the inverse gamma distribution. Defaults: 0.56 and 1.
        freeze_gates: gates whose biases are not trained: "if" (input and forget, default) or "ifgo" (all).
        layer1_bias: forget bias of the first of three layers, "eq5" (default) or "log_t_minus_1".
        quantiles: "interior" (default) or "authors"; see `timescales.nn.inits.InverseGamma`.
        layer1_timescale, layer3_timescale: time scale (in steps) of all units of the first and third of three layers,
            fixed. Default: None, as above.

    Call: as `LSTM`.
    Forgets: exponentially; every unit has a fixed time scale.
    Source: Mahto et al. 2021.
    Differs: the authors' code freezes the biases of all four gates (freeze_gates="ifgo"; the paper: "if"). The
    published run used ln(T - 1) in layer 1 (layer1_bias="log_t_minus_1"), and T = 0 for the last unit of the quantiles
    (quantiles="authors"). For Dyck-2 their code also sets the cell and output rows of bias_ih to zero before it freezes
    them; here they keep their random values.
    """

    chooses = ("forget_init", "frozen")

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        alpha: float = 0.56,
        scale: float = 1.0,
        freeze_gates: str = "if",
        layer1_bias: str = "eq5",
        quantiles: str = "interior",
        layer1_timescale: float | None = None,
        layer3_timescale: float | None = None,
        **arguments: Any,
    ) -> None:
        self.refuse_chosen(arguments)
        if num_layers not in (1, 3):
            raise ValueError(f"MTSLSTM has 1 or 3 layers, not {num_layers}; for others give LSTM a list of forget_init")
        if num_layers == 1 and (layer1_timescale, layer3_timescale) != (None, None):
            raise ValueError("layer1_timescale and layer3_timescale need num_layers=3")
        if freeze_gates not in ("if", "ifgo"):
            raise ValueError(f"freeze_gates must be if or ifgo, not {freeze_gates!r}")
        quantile = InverseGamma(alpha, scale, quantiles)
        first = Assigned((3.0, 4.0) if layer1_timescale is None else (layer1_timescale,), layer1_bias)
        third = None if layer3_timescale is None else Assigned((layer3_timescale,))
        gates = ("input", "forget") if freeze_gates == "if" else LSTMCell.gates
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            *positional,
            forget_init=[quantile] if num_layers == 1 else [first, quantile, third],
            frozen=[gates] if num_layers == 1 else [gates, gates, gates if third else ()],
            **arguments,
        )
