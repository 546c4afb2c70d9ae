"""The GRU, and JANET."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from timescales.nn import convert
from timescales.nn.cells import GRUCell, JANETCell
from timescales.nn.inits import ForgetInit
from timescales.nn.rnn import RNN, check_arguments, one_cell_per_layer


class GRU(RNN):
    """Gated recurrent unit. It equals torch.nn.GRU. `GRUCell` has the equations.

    Arguments:
        input_size, hidden_size, num_layers, batch_first, dropout: as torch.nn.GRU; hidden_size may be a list with one
            size per layer.
        forget_init: initializer of the forget (update) bias of all layers: "default" (torch's), a number, or a mapping
            such as {"law": "chrono", "T_max": 750}; see `timescales.nn.inits`.
        engine: the time loop; see `RNN`. Default: "auto".

    Call: `output, h_n = rnn(x, state=None, dt=None, mask=None)` with h_n (num_layers, B, hidden_size), as torch.nn.GRU;
    state is h_0. dt is ignored, so that layers can be swapped. See `RNN.forward`.
    Source: Cho et al. 2014.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
        forget_init: ForgetInit = None,
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        check_arguments(self, positional, unknown)
        cells = one_cell_per_layer(GRUCell, input_size, hidden_size, num_layers, forget_init=forget_init)
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)
        self.register_load_state_dict_pre_hook(convert.rename_torchs_weights)

    @classmethod
    def from_torch(cls, module: nn.GRU) -> GRU:
        """A GRU with the weights of a torch.nn.GRU. Both give the same outputs.

        Raises ValueError for a module that is bidirectional or has no biases.
        """
        return convert.from_torch(cls, nn.GRU, module)

    def to_torch(self) -> nn.GRU:
        """A torch.nn.GRU that gives the same outputs. Raises ValueError if the layers differ in size."""
        return convert.to_torch(self, nn.GRU)


class JANET(RNN):
    """JANET: an LSTM with only a forget gate. `JANETCell` has the equations.

    Arguments:
        input_size, hidden_size, num_layers, batch_first, dropout: as torch.nn.LSTM; hidden_size may be a list with one
            size per layer.
        T_max: the longest expected time scale, in steps, for chrono initialisation, or None for torch's default bias
            (default). In a configuration, T_max="auto" is the task's horizon.
        beta: offset of the input. Default: 1.
        engine: the time loop; see `RNN`. Default: "auto".

    Call: as `GRU`.
    Source: van der Westhuizen & Lasenby 2018.
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
        beta: float = 1.0,
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        check_arguments(self, positional, unknown)
        chrono = None if T_max is None else {"law": "chrono", "T_max": T_max}
        cells = one_cell_per_layer(JANETCell, input_size, hidden_size, num_layers, forget_init=chrono, beta=beta)
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)
