"""Measure perplexity by the frequency of the predicted word, and compare two models by a bootstrap.

Source: Mahto et al. 2021, section 3.2.2 and table 1; binning and resampling as in the authors' released code.
"""

import io
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from timescales.analysis.needs import needs
from timescales.analysis.study import Answer
from timescales.files import csv_text
from timescales.models.sequence import SequenceModel
from timescales.tasks import Task, Words

NAMES = ("above_10K", "1K_10K", "100_1K", "below_100")
EDGES = (10_000, 1_000, 100)  # a word that occurs exactly so often belongs to the more frequent bin
BLOCK = 100  # consecutive words of the text that are resampled together
RESAMPLES = 10_000

Floats = NDArray[np.float64]


class Blocks(NamedTuple):
    """Sums of losses in nats and numbers of words, by block of 100 words and by bin: (blocks, 4) each.

    Blocks are in the order of the text; the last one may be shorter.
    """

    sums: Floats
    counts: NDArray[np.int64]


def measure(model: SequenceModel, task: Task) -> Answer:
    """Return the test perplexity by bin and of all words.

    Word frequencies are those of all three splits, as in the authors' code; for "train/..." those of the training
    split, as in the paper's text. The blocks are stored as blocks.csv. Raises ConfigError for a task that is not
    language modelling by words.
    """
    task = needs(task, Words)
    losses, words = (values.cpu().numpy() for values in token_losses(model, task))
    blocks: dict[str, Blocks] = {}
    values: dict[str, float] = {}
    for prefix, splits in (("", ("train", "valid", "test")), ("train/", ("train",))):
        bin_of = bins_of(task.counts(splits).cpu().numpy())
        blocks[prefix] = block_sums(losses, bin_of[words])
        of_bins = perplexities(blocks[prefix].sums.sum(0), blocks[prefix].counts.sum(0)).tolist()
        values |= {f"{prefix}{name}": value for name, value in zip((*NAMES, "all"), of_bins, strict=True)}
    return Answer(values, files={"blocks.csv": to_text(blocks[""])})


@torch.no_grad()
def token_losses(model: SequenceModel, task: Words) -> tuple[Tensor, Tensor]:
    """Return the loss in nats of each word of the test text, given all words before it, and the words; (N,) each.

    They are in the order of the text. The first word is missing, because it is not predicted. The model's mode is
    restored.
    """
    training = model.training
    model.eval()
    losses, words, state = [], [], None
    for batch in task.batches("test"):
        assert batch.target.shape[1] == 1, "one stream, so that the words come in the order of the text"
        output = model(batch, state)
        state = output.state
        words.append(batch.target.flatten())
        losses.append(task.losses(output.logits, batch).flatten())
    model.train(training)
    return torch.cat(losses), torch.cat(words)


def bins_of(counts: ArrayLike) -> NDArray[np.int64]:
    """Return the bin of each word, 0 (most frequent) to 3, from its number of occurrences."""
    return (np.asarray(counts)[..., None] < np.array(EDGES)).sum(-1)


def block_sums(losses: ArrayLike, bins: NDArray[np.int64]) -> Blocks:
    """Sum the loss (N,) of each word by block and bin (N,), in the order of the text."""
    n = -(-len(bins) // BLOCK)
    place = np.arange(len(bins)) // BLOCK * len(NAMES) + bins
    sums = np.bincount(place, weights=np.asarray(losses, np.float64), minlength=n * len(NAMES))
    # numpy's stubs ignore that bincount returns floats if it is given weights.
    return Blocks(sums.reshape(n, -1), np.bincount(place, minlength=n * len(NAMES)).reshape(n, -1))  # type: ignore[arg-type]


def perplexities(sums: Floats, counts: NDArray) -> Floats:
    """Return exp of the mean loss of each bin and of all words, (..., 5); nan for a bin without words.

    sums, counts: the sum of losses and the number of words of each bin, (..., 4).
    """
    sums, counts = (np.concatenate([v, v.sum(-1, keepdims=True)], -1) for v in (sums, counts))
    with np.errstate(invalid="ignore"):
        return np.exp(sums / counts)


def weights(n: int) -> NDArray[np.int64]:
    """Return how often each of n blocks occurs in each resample with replacement: (RESAMPLES + 1, n).

    The last row is the original text, with every block once.
    """
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1.0 / n), RESAMPLES)
    return np.concatenate([drawn, np.ones((1, n), np.int64)])


def differences(baseline: Blocks, other: Blocks) -> Floats:
    """Return the perplexity of the baseline minus that of the other model, by bin and of all words: (RESAMPLES + 1, 5).

    Both models have the same resamples. A short last block is dropped. Raises ValueError if the two were not measured
    on the same words.
    """
    if not np.array_equal(baseline.counts, other.counts):
        raise ValueError("the two models were not measured on the same words: compare runs of one corpus")
    full = baseline.counts.sum(1) == BLOCK
    w = weights(int(full.sum())).astype(np.float64)
    counts = w @ baseline.counts[full]
    of_baseline, of_other = (perplexities(w @ blocks.sums[full], counts) for blocks in (baseline, other))
    return of_baseline - of_other


def intervals(differences: Floats) -> list[tuple[float, float, float]]:
    """Return the mean of each column of (n, 5) between the ends of its 95 % interval: low, mean, high.

    Differs: the interval of the authors' code is between the 5th and the 9,996th of 10,001 sorted differences, 99.9 %.
    """
    low, high = np.quantile(differences, [0.025, 0.975], axis=0)
    return list(zip(low.tolist(), differences.mean(0).tolist(), high.tolist(), strict=True))


def to_text(blocks: Blocks) -> str:
    """Write blocks as CSV with all digits: a line per block, the sums, then the counts."""
    columns = [f"{what} {name}" for what in Blocks._fields for name in NAMES]
    lines = zip(blocks.sums.tolist(), blocks.counts.tolist(), strict=True)
    return csv_text([dict(zip(columns, (*sums, *counts), strict=True)) for sums, counts in lines], columns)


def from_text(text: str) -> Blocks:
    """Read blocks from their CSV."""
    values = np.loadtxt(io.StringIO(text), delimiter=",", skiprows=1, ndmin=2)
    return Blocks(values[:, : len(NAMES)], values[:, len(NAMES) :].astype(np.int64))
