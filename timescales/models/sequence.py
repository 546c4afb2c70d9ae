"""SequenceModel: encoder + RNN + readout, sized by the task."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from timescales.models.baselines import Baseline
from timescales.models.blocks import ResidualBlocks, last_existing
from timescales.nn.rnn import RNN
from timescales.tasks.task import Batch, Spec, check_choice
from timescales.torch_private import tree_map_only

State = Any  # of an RNN, as `RNN.forward` returns it; None: zeros


class Output(NamedTuple):
    """logits: (S, B, C) or, for a task that reads the final state, (B, C); of an adaptive softmax the logarithms of the
    targets' probabilities, (S, B); state: the RNN's;
    raw, dropped: the last layer's output (S, B, H) without and with dropout, which `AWDModel` alone gives, for the word
    task's penalty; auxiliary: a loss that training adds to the task's, which `AuxiliaryModel` alone gives."""

    logits: Tensor
    state: State
    raw: Tensor | None = None
    dropped: Tensor | None = None
    auxiliary: Tensor | float = 0.0


def detached(state: State) -> State:
    """The state without its past: what the next segment begins with."""
    return tree_map_only(Tensor, Tensor.detach, state)


class SequenceModel(nn.Module):
    """Reads a task's batches: one-hot, embedded or real input, an RNN, dropout, a readout with bias.

    head_size: units of a ReLU layer between the RNN and the readout, a list for several, or None for none;
    head_dropout: on each of these layers (Gu et al. 2020, appendix D.2: 256, and .5 together with zoneout).
    block: "plain", or "residual" for `ResidualBlocks` around the layers of the RNN.
    gap_input: whether the time since the previous step, dt, is an input channel, the last one.
    card: what is said of trained weights (`timescales.load`).
    Raises ValueError for values out of range.
    """

    card: dict[str, Any] | None = None

    def __init__(
        self,
        rnn: RNN | Baseline,
        spec: Spec,
        # Settings of the model, because a paper chooses them with the model.
        head_size: int | Sequence[int] | None = None,
        head_dropout: float = 0.0,
        block: str = "plain",
        gap_input: bool = False,
    ) -> None:
        super().__init__()
        check_choice("block", block, ("plain", "residual"))
        sizes = [head_size] if isinstance(head_size, int) else list(head_size or ())
        if min(sizes, default=1) < 1:
            raise ValueError(f"head_size must be at least 1, or null for no head; not {head_size}")
        if not 0.0 <= head_dropout < 1.0:
            raise ValueError(f"head_dropout must be at least 0 and below 1, not {head_dropout}")
        if head_dropout and not sizes:
            raise ValueError("head_dropout is for the head: give head_size too")
        if getattr(rnn, "bidirectional", False) and (block != "plain" or spec.readout == "all"):
            raise ValueError(
                "bidirectional is for block=plain and a task that reads the final state alone: leave out bidirectional"
            )
        self.rnn = cast(RNN, rnn)  # a Baseline has all of it that this class needs
        self.head_sizes = sizes
        widths = [rnn.hidden_size, *sizes]
        self.head: nn.Module = nn.Sequential(*perceptron(widths, head_dropout)) if sizes else nn.Identity()
        self.readout: Any = self.make_readout(widths[-1], spec)
        if isinstance(spec.embedding, int):
            self.vectors = nn.Parameter(torch.randn(spec.input_size, spec.embedding))
        elif spec.embedding is not None:  # frozen: the task's data, in no checkpoint
            self.register_buffer("vectors", spec.embedding, persistent=False)
        self.spec, self.gap_input = spec, gap_input
        self.blocks = ResidualBlocks(self.rnn, spec.width + gap_input) if block == "residual" else None

    def make_readout(self, width: int, spec: Spec) -> nn.Module:
        """The last layer, which reads `width` numbers a step."""
        return nn.Linear(width, spec.output_size)

    def forward(self, batch: Batch, state: State = None) -> Output:
        """Logits for a batch, from the given state or from zeros."""
        output, after = self.recurrent(self.encoded(batch), state, batch.dt, batch.mask, batch.reset)
        return Output(self.logits(output, after, batch.mask), after)

    def encoded(self, batch: Batch) -> Tensor:
        """What the layers read, (S, B, I)."""
        dtype = self.readout.weight.dtype
        x = batch.x
        if self.spec.input == "one_hot":
            x = F.one_hot(x, self.spec.input_size)
        elif self.spec.input == "tokens":
            x = F.embedding(x, self.vectors)
        x = x.to(dtype)
        if self.gap_input:
            if batch.dt is None:
                raise ValueError("gap_input=true is for batches with dt: this one has none")
            x = torch.cat([x, batch.dt.unsqueeze(-1).to(dtype)], -1)
        return x

    def recurrent(
        self, x: Tensor, state: State, dt: Tensor | None, mask: Tensor | None, reset: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """The layers' output for x (S, B, I), and the state after it."""
        if self.blocks is None:
            return self.rnn(x, state, dt, mask, reset=reset)
        return self.blocks(self.rnn, x, state, dt, mask, reset)

    def logits(self, output: Tensor, after: State, mask: Tensor | None) -> Tensor:
        """What the readout says of the layers' output (S, B, H), or of the state after it."""
        if self.spec.readout == "all":
            read = output
        elif self.blocks is None and isinstance(self.rnn, RNN):
            # The final state, never output[-1]: no gradient of the whole sequence, and right wherever padding lies.
            read = self.rnn.split_state(after)[-1].h
        else:
            read = last_existing(output, mask)
        return self.readout(self.head(F.dropout(read, self.spec.dropout, self.training)))


def perceptron(widths: Sequence[int], dropout: float) -> Iterator[nn.Module]:
    """Layers from each width to the next, each with a ReLU and dropout."""
    for pair in itertools.pairwise(widths):
        yield from (nn.Linear(*pair), nn.ReLU(), nn.Dropout(dropout))
