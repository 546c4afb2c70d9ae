"""The layers that uses are run with, and sets of them that behave alike."""

from dataclasses import dataclass
from typing import Any

import torch
from rnn_cases import KINDS, NO_KERNEL, H, I, build, random_input, with_fields
from torch import nn

import timescales

COLUMNS = ("torch", "fused", "eager")
TORCH: dict[str, type[nn.RNNBase]] = {"LSTM": nn.LSTM, "GRU": nn.GRU}


@dataclass(frozen=True)
class Layer:
    """A layer that uses are run with: one of torch's, or one of ours with an engine."""

    name: str  # a name of KINDS or of TORCH
    column: str  # "torch", "fused" or "eager"

    def make(self, layers: int = 1, seed: int = 0, **arguments: Any) -> nn.Module:
        """A module of I inputs and H units, in float32, with the weights that the seed gives."""
        torch.manual_seed(seed)
        return self.construct(I, H, layers, **arguments)

    def construct(self, *positional: Any, **arguments: Any) -> nn.Module:
        """A module with these arguments and those that the layer always has."""
        if self.column == "torch":
            return TORCH[self.name](*positional, **arguments)
        name, own = KINDS[self.name]
        return getattr(timescales, name)(*positional, **own, **{"engine": self.engine} | arguments)

    @property
    def tolerance(self) -> float:
        """Of float32 where results are compared with float64, or gradients with larger ones.

        ExpRNN has the errors of torch.linalg.matrix_exp: 1e-4, and as much in gradients above 1000. RMC has layer norms
        over five numbers: 8e-4 in gradients of three layers.
        """
        return {"ExpRNN": 5e-3, "RMC": 2e-3}.get(self.name, 1e-4)

    @property
    def roundings(self) -> int:
        """Of a tensor's largest number, in float32, that its small sums may be off. URNN divides by sizes near zero."""
        return {"URNN": 500}.get(self.name, 50)

    @property
    def unread(self) -> int:
        """Number of the first fields of the state that no step reads: the output h of these layers."""
        return 1 if self.name in ("HGRN", "PLScan", "SRU") else 0

    @property
    def engine(self) -> str:
        """The engine's name: "auto" chooses the C++ engine where a layer has a kernel."""
        return "auto" if self.column == "fused" else "eager"

    def __str__(self) -> str:
        return f"{self.name}-{self.column}"


LAYERS = [
    *(Layer(name, "torch") for name in TORCH),
    *(Layer(name, "fused") for name in KINDS if name not in NO_KERNEL),
    *(Layer(name, "eager") for name in KINDS),
]
# The layers whose state is torch's, those with an age, and all whose state has other fields.
LSTMS = frozenset(with_fields("h", "c"))
NAMED = frozenset(KINDS) - LSTMS - {*with_fields("h")}
POWER_LAW = frozenset({*with_fields("h", "c", "age"), *with_fields("h", "age")})
# The layers whose output is bounded, whatever the input: by 1, and by e in JANET.
BOUNDED = frozenset(kind for kind in KINDS if build(kind)(1e3 * random_input()[0])[0].abs().max() < 3)
# The layers whose step is elementwise but for its two products: no matrix that is computed or of its own, no attention.
ELEMENTWISE = frozenset(KINDS) - {"ExpRNN", "GORU"} - NO_KERNEL
# Layers of torch's class; those of them that have its equations and parameters; all others; those whose step has
# parameters or random numbers of its own; those whose step has neither, or that have no kernel.
OF_TORCH = frozenset({"LSTM", "ChronoLSTM", "MTSLSTM", "GRU"})
PLAIN, OTHERS = OF_TORCH - {"MTSLSTM"}, KINDS.keys() - OF_TORCH
WITH_PARAMETERS = {"ExpRNN", "GORU", "IndRNN", "LRU", "LeakyRNN", "PGRU", "PLSTM", "PLSTM_separate", "PLScan"}
WITH_PARAMETERS |= {"ParaGRU", "ParaLSTM", "PhasedLSTM", "RGLRU", "SuRNN"}
WITHOUT_PARAMETERS = KINDS.keys() - WITH_PARAMETERS
# The layers that bias=False leaves nothing to begin the memory from.
FROM_BIAS = frozenset({"ChronoLSTM", "MTSLSTM", "JANET", "ELSTM_separate", "MinGRU"})
LABELS = {"GatedRNN_um_gru": 'GatedRNN(core="gru")'}  # names of layers in the page, where not that of the class
