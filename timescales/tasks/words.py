"""Language modelling by words, by the protocol of AWD-LSTM."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.tasks.data import text
from timescales.tasks.task import AWD, Batch, Spec, Task, check_choice, check_positive

SPREAD, SHORTEST, HALVED = 5.0, 5, 0.05  # of the windows' lengths: deviation, least, how often the mean is halved
STREAMS = {"valid": 10, "test": 1}


class Words(Task):
    """Penn Treebank and WikiText-2 by words.

    Source: Mahto et al. 2021, section 3.1.1, whose code is that of Merity, Keskar & Socher 2018 (AWD-LSTM).

        input   no  it  was  n't  black  monday  <eos>  but  while
        target  it  was  n't  black  monday  <eos>  but  while  the       every position is scored

    corpus: "ptb", "wt2", or "markov_ptb": the control of section 3.2.1, drawn from PTB's bigrams (`data.text.markov`).
    A split is cut into batch_size streams of equal length (what is left over is left out) that are read side by side.
    Training reads them in windows of random length: normal with deviation 5 around `length`, one time in twenty around
    half of it, at least 5; the learning rate is multiplied by the drawn length / `length`. Validation (10 streams) and
    test (1) read windows of `length`. The state is carried from window to window, without its gradient, and is zero
    at the start of an epoch or split.
    Regularisation: dropouts of the embedding (whole words), its output, the layers' and the last layer's outputs (one
    mask for all steps of a window), and of recurrent weights (weight_drop); to the loss are added
    ar * mean(h'^2), h' the last layer's output with dropout, and tar * mean((h_t+1 - h_t)^2), h without.
    recurrent: "frozen" leaves the recurrent weights as initialised but for their dropout, as Mahto et al.'s code does
    with torch >= 1.2 and thus, it seems, their tables 1 and 2; "trained" is the paper's text.
    tied: the readout's weights are the embedding's; the last layer must then have `embedding` units.
    Metrics: perplexity, exp of the loss per word.
    Differs: the authors divide the summed loss by a stream's length, one more than the words predicted, which makes
    perplexity on PTB .03 (validation) and .003 (test) lower. Lengths are drawn by our own generator, not NumPy's, and
    are a function of seed and epoch alone. Raises as `timescales.tasks.data.text` does.
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
        check_choice("corpus", corpus, text.OF_WORDS)
        check_positive(length=length, embedding=embedding)
        awd = AWD(dropout_embedding, dropout_input, dropout_hidden, dropout_output, weight_drop, recurrent, tied)
        found = text.words(corpus, data_root, allow_partial)
        super().__init__(batch_size=batch_size, seed=seed, device=device, **found.sizes)
        self.length, self.ar, self.tar = length, ar, tar
        self.vocabulary, self.partial = found.symbols, found.partial
        self.tokens = {split: getattr(found, split).to(self.device) for split in text.SPLITS}
        self.streams = {
            split: batchify(tokens, STREAMS.get(split, batch_size)) for split, tokens in self.tokens.items()
        }
        if short := [split for split, read in self.streams.items() if len(read) < 3]:
            raise ValueError(
                f"{', '.join(short)}: {len(self.tokens[short[0]])} words are too few for "
                f"{STREAMS.get(short[0], batch_size)} streams; give a smaller task.batch_size or a larger corpus"
            )
        types = len(found.symbols)
        self.spec = Spec(
            "tokens", types, types, "all", horizon=length, select=("perplexity", "min"),
            embedding=embedding, carried=True, awd=awd,
        )  # fmt: skip
        self._starts = [0]  # the steps before each epoch, as far as they are known

    def windows(self, epoch: int) -> list[tuple[int, int]]:
        """Where each training window of an epoch begins in its stream, and the length drawn for it.

        The last one ends with the stream, however much was drawn.
        """
        rows, generator = len(self.streams["train"]), self.generator("train", epoch)
        drawn = torch.empty(0, dtype=torch.long)
        while drawn.sum() < rows:
            halved = torch.rand(rows // self.length + 1, generator=generator) < HALVED
            mean = torch.where(halved, self.length / 2, float(self.length))
            more = torch.normal(mean, SPREAD, generator=generator).long().clamp(min=SHORTEST)
            drawn = torch.cat([drawn, more])
        first = drawn.cumsum(0) - drawn
        used = int((first < rows - 2).sum())
        return list(zip(first[:used].tolist(), drawn[:used].tolist(), strict=True))

    def n_batches(self, split: str) -> int:
        """Windows of a split. Raises NotImplementedError for "train": no number is that of every epoch."""
        if split == "train":
            why = "epochs have different numbers of windows: ask start_of(epoch + 1) - start_of(epoch)"
            raise NotImplementedError(why)
        return -(-(len(self.streams[split]) - 1) // self.length)

    def start_of(self, epoch: int) -> int:
        """Training steps before an epoch; epochs have different numbers of windows."""
        while len(self._starts) <= epoch:
            self._starts.append(self._starts[-1] + len(self.windows(len(self._starts) - 1)))
        return self._starts[epoch]

    def position(self, step: int) -> tuple[int, int]:
        """The epoch that training is in after so many steps, and how many of them belong to it."""
        while self._starts[-1] <= step:
            self.start_of(len(self._starts))
        epoch = bisect.bisect_right(self._starts, step) - 1
        return epoch, step - self._starts[epoch]

    def batches(self, split: str, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Windows of all streams of a split, from window `start` on."""
        read = self.streams[split]
        if split == "train":
            windows, scaled = self.windows(epoch), True
        else:
            windows, scaled = [(first, self.length) for first in range(0, len(read) - 1, self.length)], False
        for first, drawn in windows[start:]:
            part = read[first : first + drawn + 1].long()
            yield Batch(part[:-1], part[1:], lr_scale=drawn / self.length if scaled else None)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), batch.target.flatten())

    def penalty(self, output: Any) -> Tensor | float:
        """Of the last layer's activations (AR) and of their changes from step to step (TAR)."""
        change = output.raw.diff(dim=0)
        return self.ar * output.dropped.square().mean() + self.tar * change.square().mean()

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        n = batch.target.numel()
        return {"loss": (self.loss(logits, batch) * n, n)}

    def derived(self, metrics: dict[str, float]) -> dict[str, float]:
        """With the perplexity."""
        return metrics | {"perplexity": math.exp(min(metrics["loss"], 700.0))}

    def chance(self) -> float:
        frequency = self.counts(("train",)).cpu().double() / len(self.tokens["train"])
        return float(torch.special.entr(frequency).sum())

    def words(self, x: Tensor) -> list[str]:
        """The words that tokens (S,) stand for."""
        return [self.vocabulary[k] for k in x.tolist()]

    def counts(self, splits: Sequence[str] = text.SPLITS) -> Tensor:
        """How often each word of the vocabulary occurs in the splits, (V,)."""
        return sum(torch.bincount(self.tokens[split], minlength=len(self.vocabulary)) for split in splits)  # type: ignore[return-value]


def batchify(tokens: Tensor, n: int) -> Tensor:
    """A text as n streams of equal length side by side, (rows, n); what is left over is left out."""
    rows = len(tokens) // n
    return tokens[: rows * n].view(n, rows).T.contiguous()
