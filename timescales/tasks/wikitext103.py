"""WikiText-103 by words: a large vocabulary, an adaptive softmax, and a state that restarts with each article."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from timescales.tasks.data import text
from timescales.tasks.task import Batch, check_choice
from timescales.tasks.words import Words, batchify


class WikiText103(Words):
    """WikiText-103 by words: at every step the model predicts the next word, by an adaptive softmax.

    Source: Gu et al. 2020, appendix D.3; the corpus is that of Merity et al. 2017.

        input    = Title =  <eos> the  unit that forgets slowly  <eos> = Other =
        target   Title =  <eos> the  unit that forgets slowly  <eos> = Other = ...      every position is scored
        reset    1 0 0 0 0 0 0 0 0 0 1 0 0                          a line of the form = Title = begins an article

    Loss: cross-entropy per word; at chance, the entropy of the word frequencies of the training text.
    Metric: perplexity, exp of the loss.

    Splits are cut into streams as by `Words`. All windows have `length` steps. A window begins with the final state of
    the one before it (no gradient passes), and an epoch or split begins with zeros. Words are numbered by their
    frequency in the training text, the most frequent one first.

    The output of the model is not the logits of all words but the logarithm of the probability of each target, (S, B):
    torch's `AdaptiveLogSoftmaxWithLoss` computes only the clusters that have a target in the batch.

    corpus: "wt103", or a corpus of `Words` for small runs.
    embedding: size of the learned embedding, whose weights the readout does not share.
    cutoffs: the numbers of the words (by frequency) at which the second, third, ... cluster of the softmax begins.
    articles: "reset", the state is zero where an article begins, also within a window; "carried", it is not.
    dropout_embedding, dropout_input, dropout_hidden, dropout_output: as in `Words`.
    allow_partial: accept an incomplete corpus.
    Raises what `timescales.tasks.data.text` raises.

    Differs: Gu et al. chose a full or shared softmax, dropout and layer norm by validation, and do not state what they
    chose; an adaptive softmax is our choice. Further assumptions are listed in conf/table/gu_table3.yaml.
    """

    def __init__(
        self,
        *,
        corpus: str = "wt103",
        embedding: int = 1024,
        length: int = 128,
        batch_size: int = 128,
        cutoffs: Sequence[int] = (10_000, 20_000, 200_000),
        articles: str = "reset",
        dropout_embedding: float = 0.3,
        dropout_input: float = 0.0,
        dropout_hidden: float = 0.0,
        dropout_output: float = 0.0,
        allow_partial: bool = False,
        seed: int = 0,
        device: str = "cpu",
        data_root: str | None = None,
    ) -> None:
        check_choice("articles", articles, ("reset", "carried"))
        super().__init__(
            corpus=corpus,
            embedding=embedding,
            tied=False,
            length=length,
            batch_size=batch_size,
            dropout_embedding=dropout_embedding,
            dropout_input=dropout_input,
            dropout_hidden=dropout_hidden,
            dropout_output=dropout_output,
            weight_drop=0.0,
            ar=0.0,
            tar=0.0,
            allow_partial=allow_partial,
            seed=seed,
            device=device,
            data_root=data_root,
        )
        assert self.spec.awd is not None
        self.spec = dataclasses.replace(self.spec, awd=dataclasses.replace(self.spec.awd, cutoffs=tuple(cutoffs)))
        by_frequency = self.counts(("train",)).argsort(descending=True, stable=True)
        rank = by_frequency.argsort().int()
        self.vocabulary = [self.vocabulary[k] for k in by_frequency.tolist()]
        self.tokens = {split: rank[tokens] for split, tokens in self.tokens.items()}
        self.streams = {split: self._stream(split) for split in text.SPLITS}
        self.resets: dict[str, Tensor] = {}
        self.beginning: dict[str, set[int]] = {}  # the windows in which an article begins, known without the device
        if articles == "reset":
            for split, tokens in self.tokens.items():
                begins = text.article_begins(tokens, self.vocabulary)
                self.resets[split] = batchify(begins, self.streams[split].shape[1])
                rows = self.resets[split][:-1].any(1).nonzero().flatten()  # the last row is only a target
                self.beginning[split] = set((rows // self.length).tolist())
            self.has_resets = any(self.beginning.values())

    def windows(self, epoch: int) -> list[tuple[int, int]]:
        """Return the training windows, the same in every epoch: where each begins in its stream, and `length`."""
        return [(first, self.length) for first in range(0, len(self.streams["train"]) - 1, self.length)]

    def batches(self, split: str, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Yield windows of all streams of a split from window `start` on. A reset marks an article in a window."""
        for k, batch in enumerate(super().batches(split, epoch, start), start):
            first = k * self.length
            begins = k in self.beginning.get(split, ())
            reset = self.resets[split][first : first + len(batch.x)] if begins else None
            yield batch._replace(lr_scale=None, reset=reset)

    def losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each word, (S, B)."""
        # The model returns log probabilities of the targets: logits of 267,735 words would take 17 GB a window.
        return -logits

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return self.losses(logits, batch).mean()

    def penalty(self, output: Any) -> Tensor | float:
        """Return 0: this task has no penalty."""
        return 0.0
