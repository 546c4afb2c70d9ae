"""Add a second loss in training: reconstruct or predict a part of the sequence from the state at a random step.

Shapes: S steps, B sequences, I numbers that the layers read at a step, C numbers or classes of an input step.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from timescales.models.sequence import Output, SequenceModel, State, perceptron
from timescales.nn.rnn import RNN
from timescales.tasks.task import IGNORED, Batch, Spec, check_at_least, check_choice


class AuxiliaryModel(SequenceModel):
    """A SequenceModel whose state at a random step is also used to reconstruct the past or to predict the future.

    Source: Trinh, Dai, Luong & Le 2018 (arXiv 1803.00144), r-LSTM and p-LSTM. Only summaries of the paper were
    available.

        a         a random step, the same for all sequences of a batch
        segment   the L steps before a to reconstruct, or the L steps from a on to predict
        decoder   layers like the model's own, with other weights and no block around them; they start from the model's
                  state before step a and read the segment except its last step
        loss      at each of these steps, between the decoder's readout and the segment's next step: cross-entropy of
                  letters and words, mean squared error of real numbers; added to the task's loss

    L is `auxiliary_steps`, but at most four fifths of the sequence, so that sequences of six steps or more have several
    possible steps a. A sequence of two steps has no second loss. If a batch has a mask, missing steps are not scored,
    nor is a step after a missing one. Evaluation is that of a SequenceModel. The decoder is used only in training, but
    counts among the parameters. The readout of words has one row per word: with a long batch of words the second loss
    needs gigabytes.

    Arguments:
        decoder: layers like `rnn`, for input of the width that the model reads.
        auxiliary: "reconstruct" or "predict".
        auxiliary_steps: L above, at least 2. Default: 600, as in the paper's summaries.
        The others are those of SequenceModel; the decoder has a head of the same sizes.

    Raises: ValueError for layers that also read a sequence backwards, and for a batch with resets.
    Differs: the paper's models are LSTMs, and the decoder has a second layer, which starts from zeros. It reconstructs
    a segment anywhere before a, and may leave out the decoder's input. To predict, it puts the decoder on top of the
    model. It first trains only with the second loss, and cuts gradients after 300 steps where it says so.
    """

    def __init__(
        self,
        rnn: RNN,
        spec: Spec,
        decoder: RNN,
        auxiliary: str,
        auxiliary_steps: int = 600,
        head_size: int | Sequence[int] | None = None,
        head_dropout: float = 0.0,
        block: str = "plain",
        gap_input: bool = False,
    ) -> None:
        check_choice("auxiliary", auxiliary, ("reconstruct", "predict"))
        check_at_least(2, auxiliary_steps=auxiliary_steps)
        if rnn.bidirectional:
            raise ValueError(f"auxiliary={auxiliary} is for layers that read forwards: leave out bidirectional")
        super().__init__(rnn, spec, head_size, head_dropout, block, gap_input)
        self.auxiliary, self.auxiliary_steps = auxiliary, auxiliary_steps
        self.decoder = decoder
        widths = [decoder.hidden_size, *self.head_sizes]
        self.decoder_readout = nn.Sequential(*perceptron(widths, head_dropout), nn.Linear(widths[-1], spec.input_size))

    def forward(self, batch: Batch, state: State = None) -> Output:
        """Return logits for a batch, from the given state or from zeros; in training also the auxiliary loss."""
        length = min(self.auxiliary_steps, 4 * len(batch.x) // 5)
        if not self.training or length < 2:
            return super().forward(batch, state)
        if batch.reset is not None:
            raise ValueError(
                f"auxiliary={self.auxiliary} needs batches without resets, across which nothing is remembered: leave "
                "out auxiliary, or use a task without resets"
            )
        x, dt, mask = self.encoded(batch), batch.dt, batch.mask
        reconstruct = self.auxiliary == "reconstruct"
        first, last = (length, len(x) - 1) if reconstruct else (1, len(x) - length)
        at = int(torch.randint(first, last + 1, ()))
        before, middle = self.recurrent(x[:at], state, part(dt, slice(at)), part(mask, slice(at)))
        after, end = self.recurrent(x[at:], middle, part(dt, slice(at, None)), part(mask, slice(at, None)))
        begin = at - length if reconstruct else at
        loss = self.segment_loss(x, batch, middle, slice(begin, begin + length))
        return Output(self.logits(torch.cat([before, after]), end, mask), end, auxiliary=loss)

    def segment_loss(self, x: Tensor, batch: Batch, state: State, segment: slice) -> Tensor:
        """Return the decoder's mean loss over the steps of the segment that exist.

        Arguments:
            x: the input of the layers, (S, B, I).
            state: the model's state, from which the decoder starts.
        """
        input_steps, target_steps = slice(segment.start, segment.stop - 1), slice(segment.start + 1, segment.stop)
        output, _ = self.decoder(x[input_steps], state, part(batch.dt, input_steps), part(batch.mask, input_steps))
        output, target, mask = self.decoder_readout(output), batch.x[target_steps], batch.mask
        scored = None if mask is None else mask[input_steps].bool() & mask[target_steps].bool()
        if self.spec.input == "real":
            difference = output - target
            if scored is not None:
                difference = difference.masked_fill(~scored.unsqueeze(-1), 0.0)
            losses = difference.square().mean(-1)
        else:
            target = target.long() if scored is None else target.long().masked_fill(~scored, IGNORED)
            losses = F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=IGNORED, reduction="none")
        return losses.mean() if scored is None else losses.sum() / scored.sum().clamp(min=1)


def part(values: Tensor | None, steps: slice) -> Tensor | None:
    """Return some steps of a tensor with one entry per step, or None for None."""
    return None if values is None else values[steps]
