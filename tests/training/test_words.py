"""Language models over words: windows, evaluation, the losses of single words, penalties."""

import math

import pytest
import torch
from language import model_for, words
from torch.nn import functional as F

from timescales.analysis import bins
from timescales.tasks import Batch
from timescales.tasks.data.text import SPLITS
from timescales.tasks.words import batchify
from timescales.training import loop


def test_batchify_by_hand():
    assert batchify(torch.arange(11), 3).tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert batchify(torch.arange(4), 1).tolist() == [[0], [1], [2], [3]]


@pytest.mark.parametrize("epoch", range(4))
def test_windows_read_every_word_once(text_root, epoch):
    task = words(text_root)
    rows, batches = len(task.streams["train"]), list(task.batches("train", epoch))
    x, target = (torch.cat([getattr(b, name) for b in batches]) for name in ("x", "target"))
    # The authors' code ends when only one word is left to predict.
    assert rows - 2 <= len(x) <= rows - 1
    assert torch.equal(x, task.streams["train"][: len(x)])
    assert torch.equal(target, task.streams["train"][1 : len(x) + 1])
    for batch, (_, drawn) in zip(batches, task.windows(epoch), strict=True):
        assert batch.lr_scale == drawn / 12
        assert len(batch.x) == drawn or batch is batches[-1]
    assert [len(b.x) for b in task.batches("train", epoch, 3)] == [len(b.x) for b in batches[3:]]


def test_the_last_window_has_more_than_one_word_to_predict(text_root):
    task = words(text_root)
    last = {task.windows(epoch)[-1][0] for epoch in range(100)}
    assert max(last) == len(task.streams["train"]) - 3


def test_windows_lengths(text_root):
    task = words(text_root, length=70, batch_size=1)
    drawn = torch.tensor([n for epoch in range(300) for _, n in task.windows(epoch)], dtype=torch.float64)
    assert len(drawn) > 2500
    halved = drawn < 52
    assert halved.double().mean().item() == pytest.approx(0.05, abs=0.015)
    # int() of a normal variable is lower by half a word on average.
    assert drawn[~halved].mean().item() == pytest.approx(69.5, abs=0.4)
    assert drawn[halved].mean().item() == pytest.approx(34.5, abs=2.0)
    assert drawn[~halved].std().item() == pytest.approx(5.0, abs=0.3)
    assert min(n for epoch in range(50) for _, n in words(text_root, length=6).windows(epoch)) == 5
    assert task.windows(3) == words(text_root, length=70, batch_size=1).windows(3)
    assert task.windows(3) != task.windows(4)
    assert task.windows(3) != words(text_root, length=70, batch_size=1, seed=1).windows(3)


def test_steps_of_epochs_of_different_lengths(text_root):
    task, other = words(text_root), words(text_root)
    counts = [len(task.windows(epoch)) for epoch in range(30)]
    assert len(set(counts)) > 2
    expected = [(epoch, k) for epoch, n in enumerate(counts) for k in range(n)]
    assert [other.position(step) for step in range(len(expected))] == expected
    assert [task.start_of(epoch) for epoch in range(31)] == [sum(counts[:epoch]) for epoch in range(31)]
    with pytest.raises(NotImplementedError, match="start_of"):
        task.n_batches("train")


def test_evaluation_reads_windows_of_one_length(text_root):
    task = words(text_root)
    for split, n in (("valid", 10), ("test", 1)):
        batches = list(task.batches(split))
        rows = task.size(split) // n
        assert [len(b.x) for b in batches] == [12] * ((rows - 1) // 12) + [(rows - 1) % 12] * ((rows - 1) % 12 > 0)
        assert all(b.x.shape[1] == n and b.lr_scale is None for b in batches)
    model, other = model_for(task).double(), words(text_root, batch_size=5, length=7)
    metrics, again = loop.evaluate(model, task, "test"), loop.evaluate(model, other, "test")
    assert metrics["loss"] == pytest.approx(again["loss"], rel=1e-12)
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]), rel=1e-12)


def test_losses_of_single_words(text_root):
    task = words(text_root)
    model = model_for(task, layers=2).double()
    losses, targets = bins.token_losses(model, task)
    assert torch.equal(targets, task.tokens["test"][1:].long())  # one stream: the text as it is
    assert len(losses) == task.size("test") - 1
    assert losses.mean().item() == pytest.approx(loop.evaluate(model, task, "test")["loss"], rel=1e-12)
    # The loss of the fifth word, given the first four.
    read = task.streams["test"][:5].long()
    assert model.training
    logits = model.eval()(Batch(read[:-1], read[1:])).logits
    assert losses[3].item() == pytest.approx(F.cross_entropy(logits[-1], read[4]).item(), rel=1e-12)
    counts = task.counts()
    assert counts.sum() == sum(task.size(split) for split in SPLITS)
    assert counts[task.vocabulary.index("<eos>")] == 60 + 9 + 8
    assert task.counts(("test",)).sum() == task.size("test")


def test_losses_are_in_the_order_of_the_words(text_root):
    task = words(text_root)
    model = model_for(task).double().eval()
    read = task.streams["test"][:31].long()  # more than two windows
    logits = model(Batch(read[:-1], read[1:])).logits[:, 0]
    losses, targets = bins.token_losses(model, task)
    torch.testing.assert_close(losses[:30], F.cross_entropy(logits, read[1:, 0], reduction="none"))
    assert torch.equal(targets[:30], read[1:, 0])


def test_penalties_by_hand(text_root):
    task = words(text_root, ar=2.0, tar=1.0)
    model = model_for(task)
    output = model(next(task.batches("train")))
    raw, dropped = output.raw.detach(), output.dropped.detach()
    by_hand = 2.0 * sum(float(v) ** 2 for v in dropped.flatten()) / dropped.numel()
    steps = raw.flatten(1).tolist()
    changes = [(steps[t + 1][k] - steps[t][k]) ** 2 for t in range(len(steps) - 1) for k in range(len(steps[0]))]
    assert task.penalty(output).item() == pytest.approx(by_hand + sum(changes) / len(changes), rel=1e-5)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], raw[kept] / 0.6)
    assert kept.double().mean().item() == pytest.approx(0.6, abs=0.3)
    assert words(text_root, ar=0.0, tar=0.0).penalty(output) == 0.0
