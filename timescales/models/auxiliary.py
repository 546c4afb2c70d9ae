"""A second loss in training: reconstruct or predict a part of the sequence from the state at a random step.

Shapes: S steps, B sequences, I numbers that the layers read at a step, C numbers or classes of an input step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from timescales.models.sequence import Output, SequenceModel, State, perceptron
from timescales.nn.rnn import RNN
from timescales.tasks.task import IGNORED, Batch, Spec, check_choice


class AuxiliaryModel(SequenceModel):
    """A SequenceModel whose state at a random step must tell what came before it, or what comes after: r- and p-LSTM.

        a         a random step, one for all sequences of a batch
        segment   the L steps before a to reconstruct, the L steps from a on to predict
        decoder   layers like the model's own, with other weights and no block around them; they begin with the model's
                  state before step a and read the segment, all but its last step
        loss      at each of its steps, between what its readout says and the segment's next step: cross-entropy of
                  letters and words, mean squared error of real numbers; added to the task's loss

    L is `auxiliary_steps`, but at most four fifths of the sequence, so that from six steps on there are several steps
    a; a sequence of two steps has no second loss. Where a batch has a mask, steps that do not exist are not scored, nor
    is a step behind such a one. Evaluation is that of a SequenceModel: the decoder is for training alone, but counts
    among the parameters. The readout of words has as many rows as there are words: with a long batch of them the second
    loss takes gigabytes.

    Arguments:
        decoder: layers as `rnn` has them, for input of the width that the model reads.
        auxiliary: "reconstruct" or "predict".
        auxiliary_steps: see above, at least 2. Default: 600, as in the paper's summaries.
        The others are those of SequenceModel; the decoder has a head of the same sizes.

    Raises ValueError for layers that read a sequence backwards too, and for a batch whose sequences begin again.
    Source: Trinh, Dai, Luong & Le 2018 (arXiv 1803.00144), of which summaries alone were at hand.
    Differs: theirs are LSTMs, and their decoder has a second layer, which begins with zeros; what they reconstruct is
    anywhere before a, and they may leave out what the decoder reads; to predict they put the decoder on top of the
    model. They train with the second loss alone at first, and cut gradients after 300 steps where they say so.
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
        if auxiliary_steps < 2:
            raise ValueError(f"auxiliary_steps must be at least 2, not {auxiliary_steps}")
        if rnn.bidirectional:
            raise ValueError(f"auxiliary={auxiliary} is for layers that read forwards: leave out bidirectional")
        super().__init__(rnn, spec, head_size, head_dropout, block, gap_input)
        self.auxiliary, self.auxiliary_steps = auxiliary, auxiliary_steps
        self.decoder = decoder
        widths = [decoder.hidden_size, *self.head_sizes]
        self.decoder_readout = nn.Sequential(*perceptron(widths, head_dropout), nn.Linear(widths[-1], spec.input_size))

    def forward(self, batch: Batch, state: State = None) -> Output:
        """Logits for a batch, from the given state or from zeros; in training the auxiliary loss too."""
        length = min(self.auxiliary_steps, 4 * len(batch.x) // 5)
        if not self.training or length < 2:
            return super().forward(batch, state)
        if batch.reset is not None:
            raise ValueError(
                f"auxiliary={self.auxiliary} is for sequences that do not begin again within a batch: what came before "
                "is not to be remembered"
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
        """The decoder's mean loss over the segment's steps that exist.

        x: what the layers read, (S, B, I). state: of the model, with which the decoder begins.
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
    """Some steps of what has one number for each, if it is there."""
    return None if values is None else values[steps]
