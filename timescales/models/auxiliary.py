"""A second loss in training: rebuild or predict a part of the sequence from the state at a random step.

Shapes: S steps, B sequences, I numbers that the layers read at a step, C numbers or classes of an input step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from timescales.models.sequence import Output, SequenceModel, State, perceptron
from timescales.nn.rnn import RNN
from timescales.nn.stacked import Linear
from timescales.tasks.task import Batch, Spec, check_choice


class AuxiliaryModel(SequenceModel):
    """A SequenceModel whose state at a random step must tell what came before it, or what comes after: r- and p-LSTM.

        a         a random step, one for all sequences of a batch
        segment   L steps before a to reconstruct, L steps from a on to predict
        decoder   layers like the model's own, with other weights; it begins with the model's state before step a and
                  reads the segment, all but its last step
        loss      at each of its steps, between what its readout says and the segment's next step: cross-entropy of
                  letters and words, mean squared error of real numbers; added to the task's loss

    L is `auxiliary_steps`, or S - 1 if that is less. Steps that do not exist are not scored. Evaluation is that of a
    SequenceModel: the decoder is for training alone, but counts among the parameters.

    Arguments:
        decoder: what rebuilds: layers as `rnn` has them, for input of the width that the model reads.
        auxiliary: "reconstruct" or "predict".
        auxiliary_steps: see above, at least 2. Default: 600, as in the paper's summaries.
        The others are those of SequenceModel; the decoder has a head of the same sizes.

    Source: Trinh, Dai, Luong & Le 2018 (arXiv 1803.00144), of which summaries alone were at hand.
    Differs: theirs are LSTMs, and their decoder has a second layer, which begins with zeros; they train with the second
    loss alone at first, and cut gradients after 300 steps where they say so.
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
        check_choice("auxiliary", auxiliary, ("none", "reconstruct", "predict"))
        if auxiliary_steps < 2:
            raise ValueError(f"auxiliary_steps must be at least 2, not {auxiliary_steps}")
        super().__init__(rnn, spec, head_size, head_dropout, block, gap_input)
        self.auxiliary, self.auxiliary_steps = auxiliary, auxiliary_steps
        self.decoder = decoder
        widths = [decoder.hidden_size, *self.head_sizes]
        self.decoder_readout = nn.Sequential(*perceptron(widths, head_dropout), Linear(widths[-1], spec.input_size))

    def forward(self, batch: Batch, state: State = None) -> Output:
        """Logits for a batch, from the given state or from zeros; in training the auxiliary loss too."""
        length = min(self.auxiliary_steps, len(batch.x) - 1)
        if not self.training or length < 2:
            return super().forward(batch, state)
        if batch.reset is not None:
            raise ValueError(
                f"model.auxiliary={self.auxiliary}: a sequence of this task begins again within a batch, and what came "
                "before is not to be remembered; give model.auxiliary=none"
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
        read, told = slice(segment.start, segment.stop - 1), slice(segment.start + 1, segment.stop)
        output, _ = self.decoder(x[read], state, part(batch.dt, read), part(batch.mask, read))
        said, target = self.decoder_readout(output), batch.x[told]
        if self.spec.input == "real":
            losses = (said - target).square().mean(-1)
        else:
            losses = F.cross_entropy(said.flatten(0, 1), target.flatten(), reduction="none").view(target.shape)
        if batch.mask is None:
            return losses.mean()
        scored = batch.mask[read].bool() & batch.mask[told].bool()
        return losses.masked_fill(~scored, 0.0).sum() / scored.sum().clamp(min=1)


def part(values: Tensor | None, steps: slice) -> Tensor | None:
    """Some steps of what has one number for each, if it is there."""
    return None if values is None else values[steps]
