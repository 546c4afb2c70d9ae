"""Language models over characters: what is read and scored, and the state that is carried between segments."""

import math

import pytest
import texts
import torch
import trainings
from language import characters, model_for
from torch.nn import functional as F

from timescales import LSTM, PLSTM
from timescales.config.schema import LoopSettings
from timescales.tasks import Batch
from timescales.tasks.characters import streams
from timescales.tasks.data.text import SPLITS
from timescales.tasks.task import IGNORED
from timescales.training import loop


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
    model = model_for(task)
    losses = []
    settings = LoopSettings(max_epochs=2, log_every=1)

    def log(values, step):
        losses.append(values["train/loss_nats"])

    trainings.fit(model, task, torch.optim.SGD(model.parameters(), lr=0.0), log, settings, tmp_path)
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
