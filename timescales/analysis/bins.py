"""Perplexity by how frequent the predicted word is, and the bootstrap that compares two models.

Source: Mahto et al. 2021, section 3.2.2 and table 1; binning and resampling as in the authors' released code.
"""

from __future__ import annotations

import csv
import functools
import io
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional as F

from timescales.analysis.common import needs_words
from timescales.analysis.study import Answer
from timescales.tasks import Task, Words
from timescales.training.model import SequenceModel

NAMES = ("above_10K", "1K_10K", "100_1K", "below_100")
EDGES = (10_000, 1_000, 100)  # a word that occurs this often belongs above
BLOCK = 100  # words of the text that are resampled together
RESAMPLES = 10_000
AUTHORS = (4, 9995)  # the authors' interval, places in 10,001 sorted differences: 99.9 per cent, not 95

Floats = NDArray[np.float64]


class Blocks(NamedTuple):
    """Losses in nats summed, and words counted, by block of 100 words and by bin: (blocks, 4) each.

    Blocks are in the order of the text; the last one may be shorter. All else here follows from these numbers.
    """

    sums: Floats
    counts: NDArray[np.int64]


def measure(model: SequenceModel, task: Task) -> Answer:
    """Test perplexity by bin and of all words, with words counted in all three splits, as in the authors' code.

    "train/..." are the same with words counted in the training split, as in the paper's text. The blocks are kept as
    blocks.csv. Raises ConfigError for a task that is no language model of words.
    """
    own = needs_words(task)
    losses, words = (found.cpu().numpy() for found in token_losses(model, own))
    everywhere, train = (
        block_sums(losses, bins_of(own.counts(splits).cpu().numpy())[words])
        for splits in (("train", "valid", "test"), ("train",))
    )
    found = named(perplexities(everywhere)) | {f"train/{k}": v for k, v in named(perplexities(train)).items()}
    return Answer(found, files={"blocks.csv": to_text(everywhere)})


@torch.no_grad()
def token_losses(model: SequenceModel, task: Words) -> tuple[Tensor, Tensor]:
    """Losses in nats of the words of the test text, each given all before it, and the words; (N,) each.

    In the order of the text, which is read as one stream; its first word is not predicted. The model's mode stays as
    it was.
    """
    training = model.training
    model.eval()
    losses, words, state = [], [], None
    for batch in task.batches("test"):
        assert batch.target.shape[1] == 1, "one stream: else words would not come in the text's order"
        output = model(batch, state)
        state = output.state
        words.append(batch.target.flatten())
        losses.append(F.cross_entropy(output.logits.flatten(0, 1), words[-1], reduction="none"))
    model.train(training)
    return torch.cat(losses), torch.cat(words)


def named(values: Floats) -> dict[str, float]:
    """Five values, of the bins and of all words, by name."""
    return dict(zip((*NAMES, "all"), values.tolist(), strict=True))


def bins_of(counts: ArrayLike) -> NDArray[np.int64]:
    """The bin, 0 (most frequent) to 3, of each word from how often it occurs."""
    return sum((np.asarray(counts) < edge).astype(np.int64) for edge in EDGES)  # type: ignore[return-value]


def block_sums(losses: ArrayLike, bins: NDArray[np.int64]) -> Blocks:
    """Blocks from each word's loss (N,) and bin (N,), in the order of the text."""
    n = -(-len(bins) // BLOCK)
    place = np.arange(len(bins)) // BLOCK * len(NAMES) + bins
    sums = np.bincount(place, weights=np.asarray(losses, np.float64), minlength=n * len(NAMES))
    # numpy's stubs say that bincount counts whole numbers, whatever its weights.
    return Blocks(sums.reshape(n, -1), np.bincount(place, minlength=n * len(NAMES)).reshape(n, -1))  # type: ignore[arg-type]


def perplexities(blocks: Blocks) -> Floats:
    """exp of the mean loss of each bin and of all words, (5,); nan for a bin without words."""
    return _perplexities(blocks.sums.sum(0), blocks.counts.sum(0))


def _perplexities(sums: Floats, counts: NDArray) -> Floats:
    """From (..., 4) to (..., 5)."""
    sums, counts = (np.concatenate([v, v.sum(-1, keepdims=True)], -1) for v in (sums, counts))
    with np.errstate(invalid="ignore"):
        return np.exp(sums / counts)


def weights(n: int, resamples: int = RESAMPLES, seed: int = 0) -> NDArray[np.int64]:
    """How often each of n blocks is drawn in each resample of n with replacement: (resamples + 1, n).

    The last row is the original text, every block once.
    """
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), resamples)
    return np.concatenate([drawn, np.ones((1, n), np.int64)])


def same_words(a: Blocks, b: Blocks) -> bool:
    """Whether two runs were measured on the same words, as far as their counts tell."""
    return np.array_equal(a.counts, b.counts)


def differences(baseline: Blocks, other: Blocks, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """Perplexity of the baseline minus the other model's, by bin and of all words: (resamples + 1, 5).

    Both models are judged on the same drawn blocks; a short last block is left out. Raises ValueError if the two were
    not measured on the same words.
    """
    if not same_words(baseline, other):
        raise ValueError("the two models were not measured on the same words: compare runs of one corpus")
    whole = baseline.counts.sum(1) == BLOCK
    w = weights(int(whole.sum()), resamples, seed).astype(np.float64)
    counts = w @ baseline.counts[whole]
    of_baseline, of_other = (_perplexities(w @ blocks.sums[whole], counts) for blocks in (baseline, other))
    return of_baseline - of_other


def p_lower(first: str, second: str, name: str) -> float | None:
    """p that the first run's perplexity in a bin (or of "all" words) is not lower than the second's: the share of
    resamples in which it is not.

    Both are blocks.csv texts. None for a bin without words, and for runs that were measured on different words.
    """
    if not same_words(from_text(first), from_text(second)):
        return None
    found = resampled(second, first)[:, (*NAMES, "all").index(name)]
    return float((found <= 0.0).mean()) if np.isfinite(found).all() else None


@functools.lru_cache(maxsize=16)  # a table's claims and its report ask for five bins of the same two runs
def resampled(baseline: str, other: str) -> Floats:
    """`differences` of two blocks.csv texts."""
    return differences(from_text(baseline), from_text(other))


def summary(found: Floats) -> dict[str, Floats]:
    """Of differences (n, 5): mean, standard deviation, the ends of the 95 % interval and of the authors', (5,) each.

    The authors' interval needs their 10,001 differences; of fewer it is nan.
    """
    low, high = np.quantile(found, [0.025, 0.975], axis=0)
    ordered = np.sort(found, axis=0)
    ends = ordered[list(AUTHORS)] if len(found) > AUTHORS[1] else np.full((2, found.shape[1]), np.nan)
    return {
        "mean": found.mean(0), "sd": found.std(0, ddof=1), "low": low, "high": high,
        "authors_low": ends[0], "authors_high": ends[1],
    }  # fmt: skip


def to_text(blocks: Blocks) -> str:
    """Blocks as CSV, in full digits: a line a block, the sums then the counts."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([f"{what} {name}" for what in Blocks._fields for name in NAMES])
    writer.writerows([*map(repr, s), *n] for s, n in zip(blocks.sums.tolist(), blocks.counts.tolist(), strict=True))
    return out.getvalue()


def from_text(text: str) -> Blocks:
    """Blocks from their CSV."""
    values = np.array([[float(v) for v in line] for line in list(csv.reader(io.StringIO(text)))[1:]])
    return Blocks(values[:, : len(NAMES)], values[:, len(NAMES) :].astype(np.int64))
