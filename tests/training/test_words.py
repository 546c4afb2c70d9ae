"""Train on words and characters: windows, resets, dropout, and runs that are interrupted and resumed."""

import math
import signal

import pytest
import texts
import torch
import trainings
from language import characters, model_for, parts, words
from torch.nn import functional as F

from timescales import LSTM, PLSTM
from timescales.analysis import bins
from timescales.config.schema import LoopSettings
from timescales.optim import NTASGD
from timescales.tasks import Batch
from timescales.tasks.characters import streams
from timescales.tasks.data.text import SPLITS
from timescales.tasks.task import IGNORED
from timescales.tasks.words import batchify
from timescales.training import loop
from timescales.training.outcome import outcome
from timescales.training.run import load_checkpoint


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


def test_windows_lengths(text_root):
    task = words(text_root)
    last = {task.windows(epoch)[-1][0] for epoch in range(100)}
    assert max(last) == len(task.streams["train"]) - 3, "the last window has more than one word to predict"
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


# --- Language models over characters: what is read and scored, and the state that is carried between segments ---------
def test_streams_by_hand():
    text = torch.arange(10, 21, dtype=torch.int16)  # 11 symbols
    filled = streams(text, 3, before=99, whole=True)
    assert filled.T.tolist() == [[99, 10, 11, 12, 13], [13, 14, 15, 16, 17], [17, 18, 19, 20, IGNORED]]
    assert streams(text, 3, before=99, whole=False).T.tolist() == [[99, 10, 11, 12], [12, 13, 14, 15], [15, 16, 17, 18]]
    assert streams(text[:2], 4, 99, True).T.tolist() == [[99, 10], [10, 11], [11, IGNORED], [IGNORED, IGNORED]]


@pytest.mark.parametrize("corpus", ["ptb", "text8"])
@pytest.mark.parametrize("split", SPLITS)
def test_every_character_is_scored_once_and_follows_its_input(text_root, corpus, split):
    task = characters(text_root, corpus=corpus)
    batches = list(task.batches(split))
    x, target = (torch.cat([getattr(b, name) for b in batches]).T for name in ("x", "target"))
    real = target != IGNORED
    read = "".join(task.symbols[k] for k in target[real])
    before = "\n" if corpus == "ptb" else " "
    assert "".join(task.symbols[k] for k in x[real]) == (before + read)[:-1]
    left_over = task.size(split) - len(read)
    assert left_over == (task.size(split) % 7 if split == "train" else 0)
    assert {len(b.x) for b in batches[:-1]} <= {25}
    assert x.min() >= 0
    if split == "train":
        assert len(batches) == task.n_batches("train")
        assert all(torch.equal(a.x, b.x) for a, b in zip(task.batches(split, 3, 4), batches[4:], strict=True))


def test_bits_per_character_of_uniform_predictions(text_root):
    task = characters(text_root, corpus="text8", embedding=None)
    model = model_for(task)
    for p in model.readout.parameters():
        torch.nn.init.zeros_(p)
    for split in ("valid", "test"):
        metrics = loop.evaluate(model, task, split)
        assert metrics["bpc"] == pytest.approx(math.log2(27), rel=1e-6)
        assert metrics["loss"] == pytest.approx(math.log(27), rel=1e-6)
    assert math.log(26) < task.chance() < math.log(27)


def whole_streams(model, task, split):
    """The mean loss over a split, each stream read in one piece."""
    read = task.streams[split].long()
    logits = model(Batch(read[:-1].clamp(min=0), read[1:])).logits
    return F.cross_entropy(logits.flatten(0, 1), read[1:].flatten(), ignore_index=IGNORED).item()


@pytest.mark.parametrize("rnn", [LSTM, PLSTM])
def test_segments_with_a_carried_state_equal_one_long_sequence(text_root, rnn):
    task = characters(text_root, embedding=5, length=1)
    model = model_for(task, rnn, layers=2).double()
    carried = loop.evaluate(model, task, "valid")
    assert carried["loss"] == pytest.approx(whole_streams(model, task, "valid"), rel=1e-12)
    reset = loop.evaluate(model, characters(text_root, embedding=5, length=1, state="reset"), "valid")
    assert abs(reset["loss"] - carried["loss"]) > 1e-6
    other = loop.evaluate(model, characters(text_root, embedding=5, length=2, batch_size=3), "valid")
    assert other["loss"] == pytest.approx(carried["loss"], rel=1e-12)  # for any size of batch and segment


def test_training_carries_the_state_between_segments(text_root, tmp_path):
    """With a learning rate of 0, one epoch's losses are those of each stream in one piece, without dropout."""
    task = characters(text_root, embedding=5)
    model, rows = model_for(task), []
    optimizer, settings = torch.optim.SGD(model.parameters(), lr=0.0), LoopSettings(max_epochs=2, log_every=1)
    trainings.fit(model, task, optimizer, lambda values, step: rows.append(values), settings, tmp_path)
    losses = [values["train/loss_nats"] for values in rows]
    lengths = torch.tensor([len(b.x) for b in task.batches("train")], dtype=torch.float64)
    assert len(losses) == 2 * len(lengths)
    epochs = torch.tensor(losses, dtype=torch.float64).view(2, -1)
    assert torch.equal(epochs[0], epochs[1])  # the second epoch starts with a state of zeros again
    mean = (epochs[0] * lengths).sum() / lengths.sum()
    assert mean.item() == pytest.approx(whole_streams(model, task, "train"), rel=1e-5)


PARAMETERS = [
    ("ptb", 20, LSTM, 716, 1, 2_150_482),
    ("ptb", 20, PLSTM, 828, 1, 2_152_194),
    ("text8", None, LSTM, 512, 2, 3_223_067),
    ("text8", None, PLSTM, 592, 2, 3_222_875),
]


@pytest.mark.parametrize(("corpus", "embedding", "rnn", "hidden", "layers", "count"), PARAMETERS)
def test_the_papers_parameter_counts(tmp_path, corpus, embedding, rnn, hidden, layers, count):
    texts.write_words(tmp_path / "ptb", texts.PTB, types=60)
    texts.write_text8(tmp_path / "text8")
    task = characters(tmp_path, corpus=corpus, embedding=embedding)
    assert len(task.symbols) == (50 if corpus == "ptb" else 27)
    assert sum(p.numel() for p in model_for(task, rnn, hidden, layers).parameters()) == count


# --- Language models that are interrupted and resumed, and averaged weights -------------------------------------------
@pytest.mark.parametrize(("name", "stops"), [("characters", (5, 20, 33)), ("words", (3, 25, 50))])
def test_interrupted_and_resumed_is_bitwise_equal_to_undisturbed(text_root, tmp_path, name, stops):
    settings = LoopSettings(max_epochs=3, log_every=4, eval_every=7, checkpoint_every=1e9, clip_norm=0.25)

    def fit(place, log):
        return trainings.fit(*parts(text_root, name), log, settings, place)

    whole, resumed, _ = trainings.interrupted_and_resumed(fit, tmp_path, *stops)
    if name == "words":
        assert whole.optimizer.param_groups[0]["averaging"]
        assert 0 < whole.optimizer.param_groups[0]["averaged"] < whole.progress.step
    assert all(whole.task.position(stop)[1] for stop in stops), "in the middle of an epoch"
    outcomes = [outcome(whole), outcome(resumed)]
    assert (outcomes[0].metrics, outcomes[0].last) == (outcomes[1].metrics, outcomes[1].last)


@pytest.mark.parametrize(("name", "stops"), [("characters", (1, 3)), ("words", (2, 6))])
def test_interrupted_in_a_validation_and_resumed_is_bitwise_equal(text_root, tmp_path, name, stops):
    """With the state that is carried on and, for words, with averaged weights in use."""
    settings = LoopSettings(max_epochs=3, log_every=4, eval_every=7, checkpoint_every=1e9, clip_norm=0.25)

    def fit(place, stop=None):
        model, task, optimizer = parts(text_root, name)
        original, validations = task.batches, []

        def batches(split, *position):
            validations.extend([1] * (split == "valid"))
            if len(validations) == stop:
                signal.raise_signal(signal.SIGTERM)
            return original(split, *position)

        task.batches = batches

        def log(values, step):
            logged.append((step, values))

        return trainings.fit(model, task, optimizer, log, settings, place)

    logged = []
    whole = fit(tmp_path / "whole")
    undisturbed, logged = logged, []
    for stop in stops:
        with pytest.raises(KeyboardInterrupt, match="before its validation"):
            fit(tmp_path / "parts", stop)
    (group,) = load_checkpoint(tmp_path / "parts" / "last.pt")["optimizer"]["param_groups"]
    assert group.get("averaging", True)
    resumed = fit(tmp_path / "parts")
    assert logged == undisturbed
    assert resumed.progress.curve == whole.progress.curve
    assert trainings.same_weights(whole.model, resumed.model)


def test_averaged_weights_are_validated_saved_and_tested(text_root, tmp_path):
    task = words(text_root)
    model = model_for(task)
    optimizer = NTASGD(model.parameters(), lr=5.0)
    optimizer.param_groups[0]["averaging"] = True
    settings = LoopSettings(max_epochs=1, clip_norm=0.25)
    run = trainings.fit(model, task, optimizer, trainings.quiet, settings, tmp_path)
    raw = {key: value.clone() for key, value in model.state_dict().items()}
    with optimizer.eval_weights():
        averages = {key: value.clone() for key, value in model.state_dict().items()}
        expected = {split: loop.evaluate(model, task, split) for split in ("valid", "test")}
    assert not torch.equal(raw["vectors"], averages["vectors"])
    assert run.progress.curve[-1]["valid/perplexity"] == expected["valid"]["perplexity"]
    result = outcome(run)
    assert result.metrics["test/perplexity"] == result.last["test/perplexity"] == expected["test"]["perplexity"]
    assert all(torch.equal(value, averages[key]) for key, value in model.state_dict().items())
