"""IMDB: does a film review praise or pan?"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.tasks.data import glove, imdb
from timescales.tasks.task import Batch, Spec, Task, check_choice, sizes_within

UNKNOWN, PAD, FIRST = 0, 1, 2  # the first two rows of the vocabulary


class IMDB(Task):
    """Sentiment of film reviews from frozen GloVe vectors.

    Source: Maas et al. 2011; Chien et al. 2021, section 4.4; tokens, vocabulary and vectors as torchtext makes them.

        input   This  film  is  not  bad  .  <pad> ... <pad>     400 steps of 100 numbers; `This`, capitalised, has no
        target                                              1    GloVe vector; 1: positive, from the state at step 400

    Tokens are spaCy's; lower: in lower case. vocabulary: the most frequent types of the training part; the others are
    unknown. Types without a GloVe vector get one from N(0, 1); that of the unknown and of the padding is zero.
    Longer reviews lose their end. pad: "end" or "front". readout: from the state at the "last_step", padding
    included, or at the review's "true_length". outputs: 1 (logistic) or 2 (softmax). dropout is on the final state.
    valid_size of the 25,000 training reviews are drawn at random for validation; train_size and test_size: null takes
    all. lengths[split]: tokens of each review before it is cut, in the order of the evaluation's batches.
    Raises ValueError naming where it looked when the reviews or vectors are not there and cannot be downloaded, and
    when they are not all there, unless allow_partial=True.
    """

    def __init__(
        self,
        *,
        lower: bool = False,
        vocabulary: int = 25_000,
        steps: int = 400,
        pad: str = "end",
        readout: str = "last_step",
        outputs: int = 1,
        dropout: float = 0.2,
        allow_partial: bool = False,
        batch_size: int = 64,
        train_size: int | None = None,
        valid_size: int = 2_500,
        test_size: int | None = None,
        seed: int = 0,
        device: str = "cpu",
        data_root: str | None = None,
    ) -> None:
        check_choice("pad", pad, ("end", "front"))
        check_choice("readout", readout, ("last_step", "true_length"))
        check_choice("outputs", outputs, (1, 2))
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {dropout}")
        if steps < 1 or vocabulary < 1:
            raise ValueError(f"steps and vocabulary must be at least 1, not {steps} and {vocabulary}")
        types, reviews, partial = imdb.load(data_root, allow_partial)
        n, n_test = len(reviews["train"].labels), len(reviews["test"].labels)
        sizes = sizes_within("IMDB", "reviews", n, n_test, train_size, valid_size, test_size)
        super().__init__(batch_size=batch_size, seed=seed, device=device, **sizes)
        self.steps, self.pad, self.readout = steps, pad, readout
        types, reviews = _lower(types, reviews) if lower else (types, reviews)
        drawn = torch.randperm(n, generator=self.generator("parts"))
        parts = {
            "train": (reviews["train"], drawn[valid_size : valid_size + self.size("train")]),
            "valid": (reviews["train"], drawn[:valid_size]),
            "test": (reviews["test"], torch.arange(self.size("test"))),
        }
        counts = _count(*parts["train"], len(types))
        # As torchtext: the most frequent first, in alphabetical order (which is that of types) where they are equal.
        kept = counts.sort(descending=True, stable=True).indices[: min(vocabulary, int((counts > 0).sum()))]
        self.vocabulary = [types[k] for k in kept.tolist()]
        number = torch.full((len(types),), UNKNOWN, dtype=torch.int32)
        number[kept] = torch.arange(FIRST, FIRST + len(kept), dtype=torch.int32)

        found = glove.vectors(types, data_root, allow_partial)
        self.partial = partial
        if found.partial:
            share = float(counts[found.rows].sum() / counts.sum())
            self.partial = [*partial, f"{found.partial[0]}, {share:.0%} of tokens"]
        table = self._table(number, found)
        self.lengths = {split: reviews.lengths[rows] for split, (reviews, rows) in parts.items()}
        self._splits = {
            split: (self._cut(number, *part).to(self.device), part[0].labels[part[1]].long().to(self.device))
            for split, part in parts.items()
        }
        self.spec = Spec(
            "tokens", len(table), outputs, "last", horizon=steps, select=("loss", "min"),
            embedding=table.to(self.device), dropout=dropout,
        )  # fmt: skip

    def _table(self, number: Tensor, found: glove.Vectors) -> Tensor:
        """The vector of every number of the vocabulary, (V, 100); number: that of each type, UNKNOWN for most."""
        table = torch.randn(FIRST + len(self.vocabulary), glove.SIZE, generator=self.generator("vectors"))
        known = number[found.rows] >= FIRST
        table[number[found.rows[known]]] = found.values[known]
        table[:FIRST] = 0.0
        return table

    def _cut(self, number: Tensor, reviews: imdb.Reviews, rows: Tensor) -> Tensor:
        """The reviews of these rows as numbers of the vocabulary, (N, steps), padded."""
        lengths = reviews.lengths[rows].clamp(max=self.steps).unsqueeze(1)
        starts = (reviews.lengths.cumsum(0) - reviews.lengths)[rows].unsqueeze(1)
        at = torch.arange(self.steps) - (self.steps - lengths if self.pad == "front" else 0)
        exists = (at >= 0) & (at < lengths)
        tokens = number[reviews.tokens[torch.where(exists, starts + at, 0)]]
        return torch.where(exists, tokens, PAD)

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        tokens, labels = self._splits[split]
        index = slice(first, end) if split != "train" else self.moved(self.shuffled(epoch)[first:end])
        x = tokens[index].T.contiguous()
        return Batch(x, labels[index], x != PAD if self.readout == "true_length" else None)

    def exists(self, batch: Batch) -> Tensor:
        """The steps of the reviews, (S, B) bool, whatever the model reads."""
        return batch.x != PAD

    def words(self, x: Tensor) -> list[str]:
        """The words that tokens (S,) stand for."""
        return [("<unk>", "<pad>")[k] if k < FIRST else self.vocabulary[k - FIRST] for k in x.tolist()]

    @staticmethod
    def _both(logits: Tensor) -> Tensor:
        """Logits of both classes, (B, 2): a single one is that of "positive", next to 0."""
        return F.pad(logits, (2 - logits.shape[-1], 0))

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(self._both(logits), batch)

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().correct(self._both(logits), batch)

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        return super().metrics(self._both(logits), batch)

    def chance(self) -> float:
        return math.log(2)


def _lower(types: list[str], reviews: dict[str, imdb.Reviews]) -> tuple[list[str], dict[str, imdb.Reviews]]:
    """The same in lower case, types in alphabetical order again."""
    lowered = [word.lower() for word in types]
    fewer = sorted(set(lowered))
    row = {word: k for k, word in enumerate(fewer)}
    number = torch.tensor([row[word] for word in lowered], dtype=torch.int32)
    return fewer, {split: r._replace(tokens=number[r.tokens]) for split, r in reviews.items()}


def _count(reviews: imdb.Reviews, rows: Tensor, n_types: int) -> Tensor:
    """How often each type occurs in the reviews of these rows, (n_types,)."""
    counted = torch.zeros(len(reviews.lengths), dtype=torch.bool).index_fill_(0, rows, True)
    return torch.bincount(reviews.tokens[counted.repeat_interleave(reviews.lengths)], minlength=n_types)
