"""SequenceModel: encoder + RNN + readout, sized by the task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from timescales.rnn import RNN
from timescales.tasks.task import Batch, Spec


class Output(NamedTuple):
    """logits: (S, B, C) or, for a task that reads the final state, (B, C); state: the RNN's, one entry per layer."""

    logits: Tensor
    state: tuple[Any, ...]


class SequenceModel(nn.Module):
    """Reads a task's batches: one-hot, embedded or real input, an RNN, dropout, a readout with bias."""

    def __init__(self, rnn: RNN, spec: Spec) -> None:
        super().__init__()
        self.rnn = rnn
        if spec.head is None:
            self.readout: nn.Module = nn.Linear(rnn.hidden_size, spec.output_size)
        else:
            hidden, logits = nn.Linear(rnn.hidden_size, spec.head), nn.Linear(spec.head, spec.output_size)
            self.readout = nn.Sequential(hidden, nn.ReLU(), logits)
        if isinstance(spec.embedding, int):
            self.vectors = nn.Parameter(torch.randn(spec.input_size, spec.embedding))
        elif spec.embedding is not None:  # frozen: the task's data, in no checkpoint
            self.register_buffer("vectors", spec.embedding, persistent=False)
        self.spec = spec

    def forward(self, batch: Batch, state: Sequence[Any] | None = None) -> Output:
        """Logits for a batch, from the given state or from zeros."""
        dtype = next(self.readout.parameters()).dtype
        x = batch.x
        if self.spec.input == "one_hot":
            x = F.one_hot(x, self.spec.input_size)
        elif self.spec.input == "tokens":
            x = F.embedding(x, self.vectors)
        output, after = self.rnn(x.to(dtype), state, batch.dt, batch.mask)
        # The final state, never output[-1]: no gradient of the whole sequence, and right wherever padding lies.
        read = output if self.spec.readout == "all" else after[-1].h
        return Output(self.readout(F.dropout(read, self.spec.dropout, self.training)), after)
