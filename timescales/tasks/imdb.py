"""IMDB: is a film review positive or negative?"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.tasks.data import glove, imdb
from timescales.tasks.task import Batch, Spec, Task, check_at_least, check_choice, sizes_within

UNKNOWN, PAD, FIRST = 0, 1, 2  # tokens: unknown word, padding, the first word of the vocabulary


class IMDB(Task):
    """Sentiment of film reviews: the model reads a review as frozen GloVe vectors and decides whether it is positive.

    Source: Maas et al. 2011; Chien et al. 2021, section 4.4; tokens, vocabulary and vectors as torchtext makes them.

        input   This  film  is  not  bad  .  <pad> ... <pad>     400 steps of 100 numbers; GloVe has no vector for
        target                                              1    `This`, which is capitalised; 1: positive

    Output: one or two logits, from the final state. Loss: cross-entropy; ln 2 at chance. Metric: accuracy; 50 % at
    chance. valid_size of the 25,000 training reviews, drawn at random, are for validation. Training reviews are
    shuffled in every epoch. Tokens are spaCy's; reviews longer than `steps` are cut at the end. Words of the
    vocabulary without a GloVe vector get a random one from N(0, 1); the vectors of unknown words and of padding are
    zero.

    lower: whether tokens are converted to lower case, as GloVe's words are.
    vocabulary: number of words, the most frequent ones of the training part. All others are unknown.
    pad: short reviews are padded at the "end" (torchtext's default) or at the "front".
    readout: the state that is read: at the "last_step", padding included, or at the review's "true_length".
    outputs: 1 logit (logistic) or 2 (softmax).
    dropout: rate on the final state.
    train_size, test_size: None uses all reviews.
    allow_partial: accept incomplete reviews or vectors.
    The attribute lengths[split] has the number of tokens of each review before it is cut, (N,), in evaluation order.
    Raises MissingData, with the places searched, if the reviews or vectors are not found and cannot be downloaded, and
    ValueError if they are incomplete, unless allow_partial=True.
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
        check_at_least(1, steps=steps, vocabulary=vocabulary)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {dropout}")
        types, reviews, partial = imdb.load(data_root, allow_partial)
        n, n_test = len(reviews["train"].labels), len(reviews["test"].labels)
        sizes = sizes_within("IMDB", "reviews", n, n_test, train_size, valid_size, test_size)
        super().__init__(batch_size=batch_size, seed=seed, device=device, **sizes)
        self.steps, self.pad, self.readout = steps, pad, readout
        if lower:  # the types in lower case, sorted, and the reviews with the new numbers of their tokens
            lowered = [word.lower() for word in types]
            types = sorted(set(lowered))
            row = {word: k for k, word in enumerate(types)}
            number = torch.tensor([row[word] for word in lowered], dtype=torch.int32)
            reviews = {split: part._replace(tokens=number[part.tokens]) for split, part in reviews.items()}
        parts = self._parts(reviews)
        self.lengths = {split: part.lengths[rows] for split, (part, rows) in parts.items()}

        counts = _count(*parts["train"], len(types))
        # The most frequent types that occur, in the order of torchtext: by frequency, then alphabetically.
        frequent = counts.sort(descending=True, stable=True).indices[: min(vocabulary, int((counts > 0).sum()))]
        self.vocabulary = [types[k] for k in frequent.tolist()]
        token_of = torch.full((len(types),), UNKNOWN, dtype=torch.int32)
        token_of[frequent] = torch.arange(FIRST, FIRST + len(frequent), dtype=torch.int32)
        self._splits = {split: self._encoded(token_of, *part) for split, part in parts.items()}

        vectors = glove.vectors(types, data_root, allow_partial)
        share = float(counts[vectors.rows].sum() / counts.sum())
        self.partial = [*partial, *(f"{line}, {share:.0%} of tokens" for line in vectors.partial)]
        self.data = {glove.CORPUS.title: vectors.digest}
        table = self._table(token_of, vectors).to(self.device)
        self.spec = Spec(
            "tokens", len(table), outputs, "last", steps, select=("loss", "min"), embedding=table, dropout=dropout
        )

    def _parts(self, reviews: dict[str, imdb.Reviews]) -> dict[str, tuple[imdb.Reviews, Tensor]]:
        """Return the reviews of each split, and the rows that belong to it."""
        shuffled = torch.randperm(len(reviews["train"].labels), generator=self.generator("parts"))
        valid, train = shuffled.tensor_split([self.size("valid")])
        return {
            "train": (reviews["train"], train[: self.size("train")]),
            "valid": (reviews["train"], valid),
            "test": (reviews["test"], torch.arange(self.size("test"))),
        }

    def _encoded(self, token_of: Tensor, reviews: imdb.Reviews, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the reviews of these rows as padded tokens, (N, steps), and their labels, (N,), on the task's device.

        token_of: the token of each type, (n_types,).
        """
        lengths = reviews.lengths[rows].clamp(max=self.steps).unsqueeze(1)
        starts = (reviews.lengths.cumsum(0) - reviews.lengths)[rows].unsqueeze(1)
        position = torch.arange(self.steps) - (self.steps - lengths if self.pad == "front" else 0)
        exists = (position >= 0) & (position < lengths)
        tokens = token_of[reviews.tokens[torch.where(exists, starts + position, 0)]]
        return torch.where(exists, tokens, PAD).to(self.device), reviews.labels[rows].long().to(self.device)

    def _table(self, token_of: Tensor, vectors: glove.Vectors) -> Tensor:
        """Return the vector of every token, (2 + words of the vocabulary, 100)."""
        table = torch.randn(FIRST + len(self.vocabulary), glove.SIZE, generator=self.generator("vectors"))
        known = token_of[vectors.rows] >= FIRST
        table[token_of[vectors.rows[known]]] = vectors.values[known]
        table[:FIRST] = 0.0
        return table

    def batch(self, split: str, epoch: int, step: int, first: int, end: int) -> Batch:
        tokens, labels = self._splits[split]
        index = slice(first, end) if split != "train" else self.moved(self.shuffled(epoch)[first:end])
        x = tokens[index].T.contiguous()
        return Batch(x, labels[index], x != PAD if self.readout == "true_length" else None)

    def exists(self, batch: Batch) -> Tensor:
        """Return the steps that hold a word of the review, (S, B) bool, also if the model reads padding."""
        return batch.x != PAD

    def words(self, x: Tensor) -> list[str]:
        return [("<unk>", "<pad>")[k] if k < FIRST else self.vocabulary[k - FIRST] for k in x.tolist()]

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(_two_logits(logits), batch)

    def correct(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().correct(_two_logits(logits), batch)

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        return super().metrics(_two_logits(logits), batch)

    def chance(self) -> float:
        return math.log(2)


def _two_logits(logits: Tensor) -> Tensor:
    """Return logits of both classes, (B, 2). A single logit is the logit of "positive", and the other one is 0."""
    return F.pad(logits, (2 - logits.shape[-1], 0))


def _count(reviews: imdb.Reviews, rows: Tensor, n_types: int) -> Tensor:
    """Count how often each type occurs in the reviews of these rows, (n_types,)."""
    counted = torch.zeros(len(reviews.lengths), dtype=torch.bool).index_fill_(0, rows, True)
    return torch.bincount(reviews.tokens[counted.repeat_interleave(reviews.lengths)], minlength=n_types)
