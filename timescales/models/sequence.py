"""SequenceModel: encoder, RNN and readout, with the sizes of a task."""

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
    """The results of a model for a batch.

    logits: (S, B, C), or (B, C) for a task that reads the final state. For an adaptive softmax, the logarithms of the
        targets' probabilities, (S, B).
    state: the RNN's state after the batch.
    raw, dropped: the last layer's output (S, B, H) without and with dropout, for the word task's penalty. Only from
        `AWDModel`.
    auxiliary: a loss that training adds to the task's. Only from `AuxiliaryModel`.
    """

    logits: Tensor
    state: State
    raw: Tensor | None = None
    dropped: Tensor | None = None
    auxiliary: Tensor | float = 0.0


def detached(state: State) -> State:
    """Return the state detached from the graph: the next segment starts from it."""
    return tree_map_only(Tensor, Tensor.detach, state)


class SequenceModel(nn.Module):
    """A model for a task's batches: one-hot, embedded or real input, an RNN, dropout, and a readout with bias.

    Arguments:
        rnn: the recurrent layers, or a baseline.
        spec: what the task says about its data.
        head_size: units of a ReLU layer between the RNN and the readout, a list for several layers, or None for none.
        head_dropout: dropout rate after each of these layers (Gu et al. 2020, appendix D.2: 256 units, and .5 together
            with zoneout).
        block: "plain", or "residual" for `ResidualBlocks` around the layers of the RNN.
        gap_input: whether the time since the previous step, dt, is an additional input, the last one.

    Attributes:
        card: the description of trained weights, set by `timescales.load`.

    Raises: ValueError for values out of range.
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
            fix = "leave out bidirectional"
            raise ValueError(f"bidirectional is for block=plain and tasks that read only the final state: {fix}")
        self.rnn = cast(RNN, rnn)  # a Baseline has everything that this class needs
        self.head_sizes = sizes
        widths = [rnn.hidden_size, *sizes]
        self.head: nn.Module = nn.Sequential(*perceptron(widths, head_dropout)) if sizes else nn.Identity()
        self.readout: Any = self.make_readout(widths[-1], spec)
        if isinstance(spec.embedding, int):
            self.vectors = nn.Parameter(torch.randn(spec.input_size, spec.embedding))
        elif spec.embedding is not None:  # frozen: part of the task's data, so not in checkpoints
            self.register_buffer("vectors", spec.embedding, persistent=False)
        self.spec, self.gap_input = spec, gap_input
        self.blocks = ResidualBlocks(self.rnn, spec.width + gap_input) if block == "residual" else None

    def make_readout(self, width: int, spec: Spec) -> nn.Module:
        """Return the last layer, which reads `width` numbers a step."""
        return nn.Linear(width, spec.output_size)

    def forward(self, batch: Batch, state: State = None) -> Output:
        """Return logits for a batch, from the given state or from zeros."""
        output, after = self.recurrent(self.encoded(batch), state, batch.dt, batch.mask, batch.reset)
        return Output(self.logits(output, after, batch.mask), after)

    def encoded(self, batch: Batch) -> Tensor:
        """Return the input of the layers, (S, B, I)."""
        dtype = self.readout.weight.dtype
        x = batch.x
        if self.spec.input == "one_hot":
            zeros = torch.zeros(*x.shape, self.spec.input_size, dtype=dtype, device=x.device)
            x = zeros.scatter_(-1, x.unsqueeze(-1), 1.0)  # F.one_hot makes 64-bit numbers and takes longer
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
        """Return the layers' output for x (S, B, I), and the state after it."""
        if self.blocks is None:
            return self.rnn(x, state, dt, mask, reset=reset)
        return self.blocks(self.rnn, x, state, dt, mask, reset)

    def logits(self, output: Tensor, after: State, mask: Tensor | None) -> Tensor:
        """Return the readout of the layers' output (S, B, H), or of the state after it."""
        if self.spec.readout == "all":
            read = output
        elif self.blocks is None and isinstance(self.rnn, RNN):
            # The final state is right wherever the padding is, unlike output[-1], which also has a larger gradient.
            read = self.rnn.split_state(after)[-1].h
        else:
            read = last_existing(output, mask)
        return self.readout(self.head(F.dropout(read, self.spec.dropout, self.training)))


def perceptron(widths: Sequence[int], dropout: float) -> Iterator[nn.Module]:
    """Make layers from each width to the next, each with a ReLU and dropout."""
    for pair in itertools.pairwise(widths):
        yield from (nn.Linear(*pair), nn.ReLU(), nn.Dropout(dropout))
