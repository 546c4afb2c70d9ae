"""Perplexity by word frequency, and its bootstrap."""

import math
import os
import statistics
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from analysed import copy_task

from timescales.analysis import bins
from timescales.errors import ConfigError
from timescales.tasks import Words

# Words of the Penn Treebank test text by bin, as counted over all three splits and over the training split.
EVERYWHERE, TRAIN = [27361, 18744, 22311, 14013], [24844, 19790, 22411, 15384]
TABLE = {  # Mahto et al. 2021, tables 1 and 3: perplexity by bin, and of all words
    "table 1, baseline": ([6.82, 27.77, 184.19, 2252.50], 61.40),
    "table 1, multi-timescale": ([6.84, 27.14, 176.11, 2100.89], 59.69),
    "table 3, baseline": ([6.59, 27.04, 178.62, 2069.81], 58.98),
    "table 3, multi-timescale": ([6.79, 26.68, 167.97, 1902.37], 57.58),
}


@pytest.mark.parametrize(("row", "whole"), list(zip(TABLE, [61.39, 59.68, 58.98, 57.57], strict=True)))
def test_printed_perplexities_agree_with_counts_over_all_splits(row, whole):
    printed, of_all = TABLE[row]
    counts = np.array(EVERYWHERE)
    found = bins.perplexities(bins.Blocks((counts * np.log(printed))[None], counts[None]))
    assert found[:4] == pytest.approx(printed)
    assert round(float(found[4]), 2) == whole
    assert float(found[4]) == pytest.approx(of_all, abs=0.02)
    counts = np.array(TRAIN)
    by_train = bins.perplexities(bins.Blocks((counts * np.log(printed))[None], counts[None]))[4]
    assert by_train > of_all + 6  # so the authors did not count in the training split alone


@pytest.mark.skipif(not os.environ.get("TIMESCALES_DATA"), reason="needs the Penn Treebank under TIMESCALES_DATA/ptb")
def test_the_penn_treebanks_bins_are_the_published_ones():
    folder = Path(os.environ["TIMESCALES_DATA"]) / "ptb"
    text = {
        split: [
            word for line in (folder / f"ptb.{split}.txt").read_text().splitlines() for word in (*line.split(), "<eos>")
        ]
        for split in ("train", "valid", "test")
    }
    assert [len(words) for words in text.values()] == [929_589, 73_760, 82_430]
    targets = text["test"][1:]
    for splits, expected in ((tuple(text), EVERYWHERE), (("train",), TRAIN)):
        count = Counter(word for split in splits for word in text[split])
        which = bins.bins_of([count[word] for word in targets])
        found = bins.block_sums(np.ones(len(targets)), which)
        assert found.counts.sum(0).tolist() == expected
        assert found.counts.shape == (825, 4)
        assert bins.weights(int((found.counts.sum(1) == 100).sum()), resamples=1).shape == (2, 824)
    everywhere = Counter(word for words in text.values() for word in words)
    assert np.bincount(bins.bins_of(list(everywhere.values()))).tolist() == [12, 93, 1118, 8777]


def test_edges_belong_to_the_more_frequent_bin():
    assert bins.bins_of([10_000, 9_999, 1_000, 999, 100, 99, 0]).tolist() == [0, 1, 1, 2, 2, 3, 3]


def corpus(n=1234, seed=0):
    """Bins and two models' losses of n words."""
    rng = np.random.default_rng(seed)
    which = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    baseline = rng.gamma(2.0, 1.0 + which)
    return which, baseline, baseline - rng.normal(0.05 * which, 0.3)


def slow_perplexities(which, losses):
    """By bin, then of all words."""
    lists = [[loss for loss, own in zip(losses, which, strict=True) if own == k] for k in range(4)]
    return [math.exp(math.fsum(values) / len(values)) for values in (*lists, list(losses))]


def test_blocks_hold_the_text_and_a_short_end():
    which, losses, _ = corpus()
    found = bins.block_sums(losses, which)
    assert found.counts.shape == (13, 4)
    assert found.counts.sum(1).tolist() == [100] * 12 + [34]
    for block in (0, 7, 12):
        here = slice(100 * block, 100 * block + 100)
        for k in range(4):
            mine = losses[here][which[here] == k]
            assert found.counts[block, k] == len(mine)
            assert found.sums[block, k] == pytest.approx(math.fsum(mine), abs=1e-10)
    assert bins.perplexities(found) == pytest.approx(slow_perplexities(which, losses), rel=1e-12)


def test_the_bootstrap_is_the_slow_one():
    which, baseline, other = corpus()
    drawn = bins.weights(12, resamples=20, seed=5)
    found = bins.differences(bins.block_sums(baseline, which), bins.block_sums(other, which), resamples=20, seed=5)
    assert found.shape == (21, 5)
    for row in range(21):
        blocks = [block for block, times in enumerate(drawn[row]) for _ in range(times)]
        assert len(blocks) == 12
        if row == 20:
            assert blocks == list(range(12))  # the text as it is
        words = [word for block in blocks for word in range(100 * block, 100 * block + 100)]
        slow = [slow_perplexities(which[words], losses[words]) for losses in (baseline, other)]
        assert found[row] == pytest.approx(np.subtract(*slow), abs=1e-9)


def test_blocks_are_drawn_with_replacement_and_alike():
    drawn = bins.weights(50, resamples=4000)
    assert (drawn.sum(1) == 50).all()
    # A block is drawn Binomial(50, 1/50) times: left out with probability .98^50.
    assert (drawn[:-1] == 0).mean() == pytest.approx(0.98**50, abs=0.005)
    assert drawn[:-1].var() == pytest.approx(0.98, abs=0.02)
    assert (bins.weights(50, 10) == bins.weights(50, 10)).all()
    assert (bins.weights(50, 10) != bins.weights(50, 10, seed=1)).any()


def test_intervals_of_ten_thousand_resamples():
    which, baseline, other = corpus(n=2000)
    blocks = [bins.block_sums(losses, which) for losses in (baseline, other)]
    found = bins.differences(*blocks)
    assert found.shape == (10_001, 5)
    summary = bins.summary(found)
    ordered = [sorted(found[:, k].tolist()) for k in range(5)]
    for k in range(5):
        assert summary["authors_low"][k] == ordered[k][4]
        assert summary["authors_high"][k] == ordered[k][9995]
        assert summary["low"][k] == pytest.approx(ordered[k][250])
        assert summary["high"][k] == pytest.approx(ordered[k][9750])
        assert summary["mean"][k] == pytest.approx(statistics.fmean(ordered[k]))
        assert summary["sd"][k] == pytest.approx(statistics.stdev(ordered[k]))
        assert summary["authors_low"][k] < summary["low"][k] < summary["mean"][k] < summary["high"][k]
    whole = np.subtract(*(bins.perplexities(b) for b in blocks))
    assert found[-1] == pytest.approx(whole)
    assert np.isnan(bins.summary(found[:500])["authors_low"]).all()


def test_models_on_other_words_are_not_compared():
    a, b = (bins.block_sums(corpus(seed=seed)[1], corpus(seed=seed)[0]) for seed in (0, 1))
    with pytest.raises(ValueError, match="not measured on the same words"):
        bins.differences(a, b)


def test_perplexities_of_a_language_models_run(monkeypatch):
    which, losses, _ = corpus(n=250)
    everywhere, train = torch.tensor([20_000, 5_000, 500, 50]), torch.tensor([9_999, 5_000, 500, 50])
    task = object.__new__(Words)  # without a corpus
    task.counts = lambda splits: everywhere if set(splits) == {"train", "valid", "test"} else train
    monkeypatch.setattr(bins, "token_losses", lambda model, task: (torch.tensor(losses), torch.tensor(which)))
    found = bins.measure(None, task)
    assert list(found.values())[:5] == pytest.approx(slow_perplexities(which, losses))
    assert list(found)[:5] == ["above_10K", "1K_10K", "100_1K", "below_100", "all"]
    assert math.isnan(found["train/above_10K"])  # no word is so frequent there
    assert found["train/1K_10K"] == pytest.approx(math.exp(losses[which <= 1].mean()))
    assert found["train/all"] == pytest.approx(found["all"])
    assert found.files["blocks.csv"].startswith("sums above_10K,sums 1K_10K,")
    kept, blocks = bins.from_text(found.files["blocks.csv"]), bins.block_sums(losses, which)
    assert (kept.sums == blocks.sums).all()  # to the last bit
    assert (kept.counts == blocks.counts).all()
    with pytest.raises(ConfigError, match="language models of words, not for Copy"):
        bins.measure(None, copy_task())
