"""The relational memory core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timescales.nn.cells import RMCCell
from timescales.nn.rnn import RNN, check_arguments, one_cell_per_layer


class RMC(RNN):
    """Relational memory core: memories that attend to each other, each behind a gate. `RMCCell` has the equations.

    Arguments:
        input_size, hidden_size, num_layers, batch_first, dropout: as torch.nn.GRU; hidden_size may be a list with one
            size per layer. It is the number of memories times the size of each.
        memories: number of memories. Default: 2.
        heads: number of heads of the attention. Default: 1.
        memory_size: size of a memory. None (default): hidden_size / memories.
        key_size: size of a key. None (default): memory_size / heads.
        blocks: number of blocks of attention in a step. Default: 1.
        gate: -, c, o, u, r, om, um, or, ur. Default: "-", that of Santoro et al.
        gate_style: "unit" (default), or "memory" for one gate for each memory instead of one for each unit.
        forget_bias, T_max, downsize, train_bias, subtract_bias: see `RMCCell`.
        engine: the time loop; see `RNN`. Attention has no kernel: "auto" is the eager engine.

    Call: as `GRU`. Without a state the memories start as rows of the identity matrix, not as zeros.
    Source: Santoro et al. 2018; the gates: Gu, Gulcehre, Paine, Hoffman & Pascanu 2020.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *positional: Any,
        batch_first: bool = False,
        dropout: float = 0.0,
        memories: int = 2,
        heads: int = 1,
        memory_size: int | None = None,
        key_size: int | None = None,
        blocks: int = 1,
        gate: str = "-",
        gate_style: str = "unit",
        forget_bias: float = 1.0,
        T_max: str | float = "hidden_size",
        downsize: int = 16,
        train_bias: bool = True,
        subtract_bias: bool | None = None,
        engine: str = "auto",
        **unknown: Any,
    ) -> None:
        check_arguments(self, positional, unknown)
        arguments: dict[str, Any] = {"memories": memories, "heads": heads, "memory_size": memory_size}
        arguments |= {"key_size": key_size, "blocks": blocks, "gate": gate, "gate_style": gate_style}
        arguments |= {"forget_bias": forget_bias, "T_max": T_max, "downsize": downsize}
        arguments |= {"train_bias": train_bias, "subtract_bias": subtract_bias}
        cells = one_cell_per_layer(RMCCell, input_size, hidden_size, num_layers, **arguments)
        super().__init__(cells, batch_first=batch_first, dropout=dropout, engine=engine)
