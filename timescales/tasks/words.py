"""Language modelling by words, with the protocol of AWD-LSTM."""

import bisect
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from timescales.tasks.data import text
from timescales.tasks.task import AWD, Batch, Spec, StepTask, check_at_least, check_choice, entropy, loss_of_steps

STREAMS = {"valid": 10, "test": 1}


class Words(StepTask):
    """Penn Treebank or WikiText-2 by words: at every step the model predicts the next word.

    Source: Mahto et al. 2021, section 3.1.1, whose code is that of Merity, Keskar & Socher 2018 (AWD-LSTM).

        input   no  it  was  n't  black  monday  <eos>  but  while
        target  it  was  n't  black  monday  <eos>  but  while  the       every position is scored

    Loss: cross-entropy per word; at chance, the entropy of the word frequencies of the training text.
    Metric: perplexity, exp of the loss.

    A split is cut into streams of equal length that are read in parallel, batch_size for training, 10 for validation,
    1 for the test; words that do not fill a row are left out. Training reads windows of random length: normal with
    standard deviation 5 around `length`, with probability 1/20 around half of it, at least 5; the learning rate is
    multiplied by the drawn length / `length`. Validation and test read windows of `length`. Each window begins with
    the final state of the one before it (no gradient passes), and an epoch or split begins with zeros.

    corpus: "ptb", "wt2", or "markov_ptb", the control of section 3.2.1, drawn from PTB's bigrams (`data.text.markov`).
    embedding: size of the learned embedding.
    tied: whether the readout uses the embedding's weights; the last layer then has `embedding` units. With several
        layers, a single number in model.hidden_size is that of the others.
    dropout_embedding (of whole words), dropout_input (the embedding's output), dropout_hidden (outputs of the layers),
        dropout_output (of the last layer): dropout rates, with one mask for all steps of a window.
    weight_drop: dropout rate of the recurrent weights.
    ar, tar: weights of two penalties that are added to the loss: ar * mean(h'^2), h' the last layer's output with
        dropout, and tar * mean((h_t+1 - h_t)^2), h without dropout.
    recurrent: "trained" (the paper's text), or "frozen" for recurrent weights that stay as initialised except for their
        dropout, as with Mahto et al.'s code under torch >= 1.2 and thus, it seems, in their tables 1 and 2.
    allow_partial: accept an incomplete corpus.
    Raises what `timescales.tasks.data.text` raises.

    Differs from the authors' code: they divide the summed loss by the length of a stream, one more than the number of
    words predicted, which lowers the perplexity on PTB by .03 (validation) and .003 (test). Window lengths are drawn
    with another generator than NumPy's, and depend only on seed and epoch.
    """

    def __init__(
        self,
        *,
        corpus: str = "ptb",
        embedding: int = 400,
        tied: bool = True,
        length: int = 70,
        batch_size: int = 20,
        dropout_embedding: float = 0.1,
        dropout_input: float = 0.4,
        dropout_hidden: float = 0.25,
        dropout_output: float = 0.4,
        weight_drop: float = 0.5,
        ar: float = 2.0,
        tar: float = 1.0,
        recurrent: str = "trained",
        allow_partial: bool = False,
        seed: int = 0,
        device: str = "cpu",
        data_root: str | None = None,
    ) -> None:
        check_choice("corpus", corpus, (*text.WORDS, "markov_ptb"))
        check_at_least(1, length=length, embedding=embedding)
        # Settings of the task although the network uses them: a new place would change the ids of all runs.
        awd = AWD(dropout_embedding, dropout_input, dropout_hidden, dropout_output, weight_drop, recurrent, tied)
        words = text.words(corpus, data_root, allow_partial)
        super().__init__(batch_size=batch_size, seed=seed, device=device, **words.sizes)
        self.length, self.ar, self.tar = length, ar, tar
        self.vocabulary, self.partial = words.symbols, words.partial
        self.tokens = {split: getattr(words, split).to(self.device) for split in text.SPLITS}
        self.streams = {split: self._stream(split) for split in text.SPLITS}
        self.spec = Spec(
            "tokens",
            input_size=len(self.vocabulary),
            output_size=len(self.vocabulary),
            readout="all",
            horizon=length,
            select=("perplexity", "min"),
            embedding=embedding,
            carried=True,
            awd=awd,
        )
        self._starts = [0]  # training steps before each epoch, for the epochs computed so far

    def _stream(self, split: str) -> Tensor:
        """Return the parallel streams of a split, (rows, streams). Raises ValueError for fewer than three rows."""
        n = STREAMS.get(split, self.batch_size)
        words = len(self.tokens[split])
        if words < 3 * n:
            fewer = f"a batch_size of at most {words // 3} or " if split == "train" and words >= 3 else ""
            raise ValueError(f"{split}: {words} words are too few, {3 * n} are needed; give {fewer}a larger corpus")
        return batchify(self.tokens[split], n)

    def windows(self, epoch: int) -> list[tuple[int, int]]:
        """Return the training windows of an epoch: where each begins in its stream, and the length drawn for it.

        The last window ends with the stream, whatever length was drawn.
        """
        rows, generator = len(self.streams["train"]), self.generator("train", epoch)
        lengths = torch.empty(0, dtype=torch.long)
        while lengths.sum() < rows:
            halved = torch.rand(rows // self.length + 1, generator=generator) < 0.05
            mean = torch.where(halved, self.length / 2, float(self.length))
            more = torch.normal(mean, 5.0, generator=generator).long().clamp(min=5)
            lengths = torch.cat([lengths, more])
        first = lengths.cumsum(0) - lengths
        n = int((first < rows - 2).sum())
        return list(zip(first[:n].tolist(), lengths[:n].tolist(), strict=True))

    def n_batches(self, split: str) -> int:
        """Return the number of windows of a split. Raises NotImplementedError for "train", where epochs differ."""
        if split == "train":
            raise NotImplementedError("epochs differ in their number of windows: start_of(epoch + 1) - start_of(epoch)")
        return -(-(len(self.streams[split]) - 1) // self.length)

    def start_of(self, epoch: int) -> int:
        while len(self._starts) <= epoch:
            self._starts.append(self._starts[-1] + len(self.windows(len(self._starts) - 1)))
        return self._starts[epoch]

    def position(self, step: int) -> tuple[int, int]:
        while self._starts[-1] <= step:
            self.start_of(len(self._starts))
        epoch = bisect.bisect_right(self._starts, step) - 1
        return epoch, step - self._starts[epoch]

    def batches(self, split: str, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Yield windows of all streams of a split, from window `start` on."""
        stream = self.streams[split]
        training = split == "train"
        windows = (
            self.windows(epoch) if training else [(k, self.length) for k in range(0, len(stream) - 1, self.length)]
        )
        for first, length in windows[start:]:
            window = stream[first : first + length + 1].long()
            yield Batch(window[:-1], window[1:], lr_scale=length / self.length if training else None)

    def losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each word, (S, B)."""
        return loss_of_steps(logits, batch.target, "none").view_as(batch.target)

    def penalty(self, output: Any) -> Tensor | float:
        """Return the penalty of the last layer's activations (AR) and of their changes from step to step (TAR)."""
        change = output.raw.diff(dim=0)
        return self.ar * output.dropped.square().mean() + self.tar * change.square().mean()

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        n = batch.target.numel()
        return {"loss": (self.loss(logits, batch) * n, n)}

    def derived(self, metrics: dict[str, float]) -> dict[str, float]:
        return metrics | {"perplexity": math.exp(min(metrics["loss"], 700.0))}

    def chance(self) -> float:
        return entropy(self.counts(("train",)).cpu())

    def words(self, x: Tensor) -> list[str]:
        return [self.vocabulary[k] for k in x.tolist()]

    def counts(self, splits: Sequence[str] = text.SPLITS) -> Tensor:
        """Count how often each word of the vocabulary occurs in the splits together, (V,)."""
        tokens = torch.cat([self.tokens[split] for split in splits])
        return torch.bincount(tokens, minlength=len(self.vocabulary))


def batchify(tokens: Tensor, n: int) -> Tensor:
    """Return a text as n parallel streams of equal length, (rows, n). Tokens that do not fill a row are left out."""
    rows = len(tokens) // n
    return tokens[: rows * n].view(n, rows).T.contiguous()
