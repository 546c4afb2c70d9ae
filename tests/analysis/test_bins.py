"""Perplexity by word frequency, and its bootstrap."""

import itertools
import math
import statistics
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import synthetic
import texts
import torch
from matplotlib.figure import Figure
from torch.nn import functional as F

from timescales import LSTM, PLSTM, analysis
from timescales.analysis import bins, cold_start
from timescales.analysis.groups import Line
from timescales.analysis.run import load
from timescales.analysis.study import write
from timescales.errors import ConfigError
from timescales.models.awd import AWDModel
from timescales.models.sequence import Output, SequenceModel
from timescales.tasks import Characters, Copy, Words
from timescales.tasks.data.text import PTB
from timescales.tasks.task import Batch

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
    found = bins.perplexities(counts * np.log(printed), counts)
    assert (found[:4], round(float(found[4]), 2)) == (pytest.approx(printed), whole)
    assert float(found[4]) == pytest.approx(of_all, abs=0.02)
    counts = np.array(TRAIN)
    by_train = bins.perplexities(counts * np.log(printed), counts)[4]
    assert by_train > of_all + 6  # so the authors did not count in the training split alone


@pytest.mark.skipif(synthetic.real(PTB) is None, reason="needs the Penn Treebank under TIMESCALES_DATA")
def test_the_penn_treebanks_bins_are_the_published_ones(monkeypatch):
    monkeypatch.setattr(bins, "RESAMPLES", 1)
    folder = synthetic.real(PTB)
    text = {}
    for split in ("train", "valid", "test"):
        lines = (folder / f"ptb.{split}.txt").read_text().splitlines()
        text[split] = [word for line in lines for word in (*line.split(), "<eos>")]
    assert [len(words) for words in text.values()] == [929_589, 73_760, 82_430]
    targets = text["test"][1:]
    for splits, expected in ((tuple(text), EVERYWHERE), (("train",), TRAIN)):
        count = Counter(word for split in splits for word in text[split])
        which = bins.bins_of([count[word] for word in targets])
        found = bins.block_sums(np.ones(len(targets)), which)
        assert found.counts.sum(0).tolist() == expected
        assert found.counts.shape == (825, 4)
        assert bins.weights(int((found.counts.sum(1) == 100).sum())).shape == (2, 824)
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
    whole = bins.perplexities(found.sums.sum(0), found.counts.sum(0))
    assert whole == pytest.approx(slow_perplexities(which, losses), rel=1e-12)


def test_the_bootstrap_is_the_slow_one(monkeypatch):
    monkeypatch.setattr(bins, "RESAMPLES", 20)
    which, baseline, other = corpus()
    drawn = bins.weights(12)
    found = bins.differences(bins.block_sums(baseline, which), bins.block_sums(other, which))
    assert found.shape == (21, 5)
    for row in range(21):
        blocks = [block for block, times in enumerate(drawn[row]) for _ in range(times)]
        assert len(blocks) == 12
        if row == 20:
            assert blocks == list(range(12))  # the text as it is
        words = [word for block in blocks for word in range(100 * block, 100 * block + 100)]
        slow = [slow_perplexities(which[words], losses[words]) for losses in (baseline, other)]
        assert found[row] == pytest.approx(np.subtract(*slow), abs=1e-9)


def test_intervals_of_ten_thousand_resamples():
    which, baseline, other = corpus(n=2000)
    blocks = [bins.block_sums(losses, which) for losses in (baseline, other)]
    found = bins.differences(*blocks)
    assert found.shape == (10_001, 5)
    for k, (low, mean, high) in enumerate(bins.intervals(found)):
        values = sorted(found[:, k].tolist())
        assert (low, mean, high) == pytest.approx((values[250], statistics.fmean(values), values[9750]))
        assert low < mean < high
    whole = np.subtract(*(bins.perplexities(b.sums.sum(0), b.counts.sum(0)) for b in blocks))
    assert found[-1] == pytest.approx(whole)


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


# Starts from zeros in the middle of a text: against one piece at a time, and a model that is led astray on purpose


class Mood(NamedTuple):
    h: torch.Tensor


class Moody:
    """Knows that 0 1 2 3 4 0 ... is counting, but for ever guesses if the first symbol it sees from zeros is a 0."""

    spec = SimpleNamespace(output_size=5, awd=None)
    rnn = SimpleNamespace(split_state=list)

    def __call__(self, batch, state=None):
        mood = torch.zeros(batch.x.shape[1], 1) if state is None else state[0].h
        mood = torch.where(mood == 0, torch.where(batch.x[0] == 0, -2.0, 1.0).unsqueeze(1), mood)
        logits = 100.0 * F.one_hot((batch.x + 1) % 5, 5) * (mood > 0)
        return Output(logits, (Mood(mood),))


@pytest.fixture
def counting():
    """Ten streams that count, two from each symbol on: (1 + 361, 10), three pieces each."""
    streams = (torch.arange(362).unsqueeze(1) + torch.arange(10)) % 5
    return SimpleNamespace(spec=SimpleNamespace(carried=True), streams={"valid": streams})


def line(name, starts):
    return Line(name, "black", "", starts)


def test_pieces_led_astray_are_counted(counting):
    found = cold_start.study_of([line("", cold_start.starts(Moody(), counting))])
    guess = math.log(5)
    expected = {"pieces": 30.0, "lost": 0.2, "cold": 0.2 * guess, "found": 0.0, "warm": 0.0}
    expected |= {"least_activity_of_found": 1.0, "greatest_activity_of_lost": 2.0}
    assert found.values == pytest.approx(expected)
    steps, each = ([row for row in found.rows if row["what"] == what] for what in ("step", "piece"))
    assert [row["at"] for row in steps] == list(range(1, 121))
    assert all(row["cold"] == round(0.2 * guess, 4) for row in steps)
    # Three pieces of stream 0, then those of stream 1, ...: of streams 0 and 5 each begins with a 0.
    assert [row["at"] for row in each if row["lost"]] == [1, 2, 3, 16, 17, 18]
    assert [row["cold"] for row in each[:4]] == [round(guess, 4)] * 3 + [0.0]
    found.draw(figure := Figure())
    left, right = figure.axes
    assert [line.get_label() for line in left.lines] == ["from zeros", "from a warm state"]
    assert [line.get_label() for line in right.lines] == ["6 of 30 lost"]
    assert len(right.lines[0].get_xdata()) == 30


def test_lost_is_what_is_read_better_from_a_warm_state(monkeypatch):
    """Five pieces of four steps, of which the last two are judged; the last piece is NaN from zeros."""
    monkeypatch.setattr(cold_start, "STEPS", 4)
    cold = torch.tensor([[9, 1, 1, 3, 3], [1, 9, 1, 1, 1], [2, 3.25, 7, 1, 1], [2, 2.75, 7, 1, math.nan]])
    warm = torch.tensor([[1.0, 1, 1, 1, 1], [9, 9, 9, 9, 9], [1.5, 1, 6, 2, 1], [1.5, 2.75, 6.5, 2, 1]])
    activity = torch.tensor([0.5, 0.1, 0.3, 0.4, 0.2])
    found = cold_start.study_of([line("a", cold_start.Starts(cold, warm, activity))])
    each = [row for row in found.rows if row["what"] == "piece"]
    assert [row["lost"] for row in each] == [0, 1, 0, 0, 1]  # by .5, 1.125, .75, -1 and NaN
    assert [row["cold"] for row in each[:4]] == [2, 3, 7, 1]
    assert [row["warm"] for row in each] == [1.5, 1.875, 6.25, 2, 1]
    steps = [row for row in found.rows if row["what"] == "step"]
    assert [row["found"] for row in steps] == [round(x / 3, 4) for x in (13, 3, 10, 10)]
    assert [row["warm"] for row in steps] == [1.0, 9.0, 2.3, 2.75]
    values = {"pieces": 5, "lost": 0.4, "found": 3.0, "warm": 3.7625, "least_activity_of_found": 0.3}
    values |= {"greatest_activity_of_lost": 0.2}
    assert math.isnan(found.values.pop("a/cold"))
    assert found.values == pytest.approx({f"a/{key}": value for key, value in values.items()})
    none = cold_start.study_of([line("", cold_start.Starts(cold[:, 1:2], warm[:, 1:2], activity[1:2]))])
    assert set(none.values) == {"pieces", "lost", "cold", "warm", "greatest_activity_of_lost"}
    assert not any("found" in row for row in none.rows)
    for study in (found, none):
        study.draw(Figure())


def test_pieces_lie_evenly_over_the_streams_and_leave_fillings_out(counting, monkeypatch):
    read = counting.streams["valid"]
    assert cold_start.pieces(counting)[:, 1].tolist() == read[120:241, 0].tolist()
    monkeypatch.setattr(cold_start, "PIECES", 4)
    expected = [read[120 * k : 120 * k + 121, stream].tolist() for k, stream in ((0, 0), (0, 3), (1, 6), (2, 9))]
    assert cold_start.pieces(counting).T.tolist() == expected
    monkeypatch.setattr(cold_start, "PIECES", 1280)
    read[300:, 9] = -100
    assert cold_start.pieces(counting).shape == (121, 29)
    counting.streams["valid"] = read[:240, :1]
    with pytest.raises(ConfigError, match="validation streams of 239 symbols do not have two pieces of 120"):
        cold_start.pieces(counting)


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_losses_are_those_of_one_piece_at_a_time(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(cold_start, "STEPS", 6)
    monkeypatch.setattr(cold_start, "PIECES", 20)
    monkeypatch.setattr(cold_start, "LOGITS", 6 * 50 * 7)  # several batches
    texts.write_words(tmp_path / "ptb", texts.PTB, types=30, lengths=(600, 400, 115))
    common = {"data_root": str(tmp_path), "embedding": 5, "batch_size": 3, "length": 9, "allow_partial": True}
    task = (Characters if kind == "characters" else Words)(**common)
    torch.manual_seed(0)
    if kind == "characters":
        model = SequenceModel(PLSTM(5, 8), task.spec)
    else:
        model = AWDModel(LSTM(5, [6, 5], num_layers=2), task.spec)
    model = model.double().eval()
    cold, warm, activity = cold_start.starts(model, task)
    found = cold_start.pieces(task)
    assert cold.shape == warm.shape == (6, found.shape[1])

    def slowly(piece, state=None):
        losses = []
        for x, y in itertools.pairwise(piece):
            output = model(Batch(x.view(1, 1), y.view(1, 1)), state)
            losses.append(F.cross_entropy(output.logits[0], y.view(1)))
            state = output.state
        return torch.stack(losses), state

    with torch.no_grad():
        slow = [slowly(piece) for piece in found.T]
        torch.testing.assert_close(cold, torch.stack([losses for losses, _ in slow], 1))
        means = [model.rnn.split_state(state)[-1].h.abs().mean() for _, state in slow]
        torch.testing.assert_close(activity, torch.stack(means))
        best = min(range(len(slow)), key=lambda k: float(slow[k][0][3:].mean()))
        again = [slowly(piece, slow[best][1])[0] for piece in found.T]
        torch.testing.assert_close(warm, torch.stack(again, 1))


def test_a_run_two_runs_and_other_tasks(tmp_path, monkeypatch, train, script):
    monkeypatch.setenv("TIMESCALES_DATA", str(tmp_path))
    monkeypatch.setattr(cold_start, "STEPS", 20)
    monkeypatch.setattr(cold_start, "PIECES", 40)
    texts.write_words(tmp_path / "ptb", texts.PTB, types=30, lengths=(3000, 900, 300))
    runs = [tmp_path / name for name in ("lstm", "plstm")]
    for run in runs:
        more = ["task.allow_partial=true", "model.hidden_size=8", "loop.max_steps=2", "logger=none", f"run_dir={run}"]
        assert train("task=ptb_char", f"model={run.name}", *more).status == 0
    said = script("analyse", runs[0], "--only=cold_start")
    assert "cold_start/lost" in said
    loaded = [load(run) for run in runs]
    one, both = analysis.study_run(loaded[0], "cold_start"), analysis.compare_runs(loaded, "cold_start")
    assert {key: both.values[f"lstm/{key}"] for key in one.values} == one.values
    assert [row for row in both.rows if row["run"] == "lstm"] == [{**row, "run": "lstm"} for row in one.rows]
    assert write(both, tmp_path / "both", "cold_start")[1].is_file()
    reset = Characters(data_root=str(tmp_path), state="reset", allow_partial=True, batch_size=8)
    copy = Copy(T=5, train_size=1, valid_size=1, test_size=1)
    carried = Copy(T=6, train_size=1, valid_size=1, test_size=1)  # as a user's task may be, which is no text
    carried.spec = replace(carried.spec, carried=True)
    for task, name in ((copy, "Copy"), (carried, "Copy"), (reset, "Characters with state=")):
        with pytest.raises(ConfigError, match=f"with a carried state, not for {name}"):
            cold_start.pieces(task)
