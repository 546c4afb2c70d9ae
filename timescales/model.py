"""SequenceModel: encoder + RNN + readout, sized by the task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from timescales.rnn import RNN
from timescales.tasks.task import Batch, Spec


class Output(NamedTuple):
    """logits: (S, B, C) or, for a task that reads the final state, (B, C); state: the RNN's, one entry per layer."""

    logits: Tensor
    state: tuple[Any, ...]


class SequenceModel(nn.Module):
    """Reads a task's batches: one-hot or real input, an RNN, a linear readout with bias."""

    def __init__(self, rnn: RNN, spec: Spec) -> None:
        super().__init__()
        self.rnn = rnn
        self.readout = nn.Linear(rnn.hidden_size, spec.output_size)
        self.spec = spec

    def forward(self, batch: Batch, state: Sequence[Any] | None = None) -> Output:
        """Logits for a batch, from the given state or from zeros."""
        dtype = self.readout.weight.dtype
        x = batch.x
        if self.spec.input == "one_hot":
            x = torch.nn.functional.one_hot(x, self.spec.input_size)
        output, after = self.rnn(x.to(dtype), state, batch.dt, batch.mask)
        # The final state, never output[-1]: no gradient of the whole sequence, and right wherever padding lies.
        return Output(self.readout(output if self.spec.readout == "all" else after[-1].h), after)
