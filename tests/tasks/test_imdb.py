"""IMDB: tokens, vocabulary, vectors, and runs on incomplete data."""

import collections
import functools
import re
import shutil

import pytest
import synthetic
import torch
from configs import config
from scipy import stats

import timescales
from timescales import LSTM, PLSTM, analysis
from timescales.config.run import Run
from timescales.errors import ConfigError
from timescales.models.sequence import SequenceModel
from timescales.runs import record, weights
from timescales.runs.record import Record
from timescales.tasks import IMDB
from timescales.training import checkpoint


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    root = tmp_path_factory.mktemp("films")
    synthetic.write_imdb(root / "aclImdb_v1.tar.gz", 400, 100)
    synthetic.write_glove(root / ".vector_cache" / "glove.6B.100d.txt")
    return str(root)


def make(films, **more):
    return IMDB(**{"data_root": films, "allow_partial": True, "steps": 20, "valid_size": 40, **more})


@functools.cache
def texts(split):
    each = {"train": 200, "test": 50}[split]
    return sorted(((k, text) for k in (0, 1) for text in synthetic.reviews(split, k, each)), key=lambda r: r[1])


def words_of_training_part(task):
    drawn = torch.randperm(400, generator=task.generator("parts"))[40:].tolist()
    return [word for k in drawn for word in texts("train")[k][1].split()]


def test_imdb_tokens_padding_and_mask(films):
    expected = [text.split() for _, text in texts("test")]
    for pad in ("end", "front"):
        for readout in ("last_step", "true_length"):
            task = make(films, pad=pad, readout=readout)
            number = {word: k + 2 for k, word in enumerate(task.vocabulary)}
            batch = next(task.batches("test"))
            assert batch.x.shape == (20, 100)
            assert task.lengths["test"].tolist() == [len(words) for words in expected]  # before they are cut
            for k, words in enumerate(expected):
                row = [number.get(word, 0) for word in words[:20]]
                fill = [1] * (20 - len(row))
                assert batch.x[:, k].tolist() == (row + fill if pad == "end" else fill + row)
            if readout == "true_length":
                assert torch.equal(batch.mask, batch.x != 1)
            else:
                assert batch.mask is None
            assert batch.target.tolist() == [label for label, _ in texts("test")]


def test_imdb_vocabulary_is_the_training_parts(films):
    """The most frequent first, alphabetical where equal, as torchtext; each validation word that training lacks is
    unknown."""
    task = make(films, vocabulary=13)
    words = [word for _, text in texts("train") for word in text.split()]
    whole = make(films)
    own = [word for word in words if re.fullmatch(r"train\dx\d+", word)]
    assert len(own) == 400  # one a review
    assert sum(word in whole.vocabulary for word in own) == 360  # those of the training part
    part = collections.Counter(words_of_training_part(task))
    by_torchtext = sorted(sorted(part.items()), key=lambda item: -item[1])
    assert task.vocabulary == [word for word, _ in by_torchtext[:13]]
    assert task.spec.input_size == 15


def test_imdb_parts_are_disjoint_and_drawn_by_the_seed(films):
    tasks = [make(films, seed=seed, steps=45) for seed in (0, 0, 1)]
    assert [tasks[0].size(split) for split in ("train", "valid", "test")] == [360, 40, 100]
    parts = [torch.randperm(400, generator=task.generator("parts"))[:40].tolist() for task in tasks]
    assert parts[0] == parts[1] != parts[2]
    names = [[text.split()[-1] for _, text in texts("train")][k] for k in parts[0]]
    assert not set(names) & set(tasks[0].vocabulary)
    labels = [texts("train")[k][0] for k in parts[0]]
    assert next(tasks[0].batches("valid")).target.tolist() == labels


def test_imdb_vectors(films):
    task = make(films)
    table = task.spec.embedding
    assert table.shape == (len(task.vocabulary) + 2, 100)
    assert not table[:2].any()  # unknown, padding
    for k, word in enumerate(task.vocabulary):
        if word in synthetic.GLOVE:
            row = synthetic.GLOVE.index(word)
            torch.testing.assert_close(table[k + 2], row + torch.arange(1, 101) / 100, rtol=0, atol=1e-5)
    others = table[[k + 2 for k, word in enumerate(task.vocabulary) if word not in synthetic.GLOVE]]
    assert {"It", "Never"} < set(task.vocabulary)  # capitalised: no vector of their own
    assert stats.kstest(others.flatten().numpy(), stats.norm(0, 1).cdf).pvalue > 1e-3
    lower = make(films, lower=True)
    assert "It" not in lower.vocabulary
    at = lower.vocabulary.index("it") + 2
    torch.testing.assert_close(lower.spec.embedding[at], 7 + torch.arange(1, 101) / 100, rtol=0, atol=1e-5)


def test_imdb_says_what_is_partial(films):
    task = make(films)
    assert task.partial[0] == "IMDB subset: 400 of 25,000 train reviews, 100 of 25,000 test reviews"
    words = words_of_training_part(task)
    share = sum(word in synthetic.GLOVE for word in words) / len(words)
    assert task.partial[1] == f"GloVe subset: 8 of 400,000 vectors, {share:.0%} of tokens"


@pytest.mark.parametrize(
    ("rnn", "hidden", "outputs", "parameters"),
    [
        (LSTM, 128, 1, 117_889),
        (LSTM, 128, 2, 118_018),
        (PLSTM, 154, 1, 118_119),
        (PLSTM, 154, 2, 118_274),
    ],
)
def test_imdb_parameters_as_printed(films, rnn, hidden, outputs, parameters):
    task = make(films, outputs=outputs)
    model = SequenceModel(rnn(task.spec.width, hidden), task.spec)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert not [key for key in model.state_dict() if "vectors" in key]
    assert task.spec.dropout == 0.2
    assert task.spec.select == ("loss", "min")


def test_imdb_one_logit_is_the_logistic_loss(films):
    task = make(films)
    batch = next(task.batches("test"))
    logits = torch.randn(100, 1, dtype=torch.float64)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], batch.target.double())
    assert task.loss(logits, batch).item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.equal(task.correct(logits, batch), (logits[:, 0] > 0) == batch.target.bool())


def test_imdb_accuracy_by_length(films):
    """What figure 4 needs: which review is right, next to its length."""
    task = make(films)
    right = torch.cat([task.correct(torch.ones(len(b.target), 1), b) for b in task.batches("test")])
    labels = torch.tensor([label for label, _ in texts("test")])
    long = task.lengths["test"] > 20
    assert 20 < long.sum() < 80
    assert right[long].double().mean() == labels[long].double().mean()  # "positive" is right where it is


@pytest.mark.parametrize(("model", "hidden", "lr"), [("lstm", 128, 1e-3), ("chrono", 128, 1e-3), ("plstm", 154, 5e-4)])
def test_imdb_recipes(model, hidden, lr):
    cfg = config("task=imdb", f"model={model}")
    assert (cfg.model.hidden_size, cfg.optimizer.lr, cfg.loop.max_epochs) == (hidden, lr, 20)
    assert model != "chrono" or cfg.model.T_max == 400


def test_a_run_on_a_part_is_marked(films, train, tmp_path):
    small = ["task.steps=8", "task.valid_size=40", "model.hidden_size=3", "loop.max_steps=2", "logger=none"]
    done = train("task=imdb", *small, f"data_root={films}", "run_dir=here", "task.allow_partial=true")
    assert done.status == 0, done
    said = Record.read(tmp_path / "here").partial
    assert len(said) == 2
    assert "GloVe subset: 8 of 400,000 vectors" in said[1]
    refused = train("task=imdb", *small, f"data_root={films}", "run_dir=there")
    assert refused.status == 1
    assert "allow_partial=true" in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    # The same run on the whole data is the same run, but what a part gave is not taken for it.
    again = [*small, f"data_root={films}", "run_dir=here"]
    assert "finished, skipped" in train("task=imdb", *again, "task.allow_partial=true").out
    refused = train("task=imdb", *again)
    assert refused.status == 1
    assert "trained on a part of the data (IMDB subset: 400 of" in refused.err
    swept = train("-m", "task=imdb", *again[:-1], "task.allow_partial=true")
    assert (swept.status, "1 to train" in swept.out) == (0, True)
    assert "on a part of the data" in train("-m", "task=imdb", *again[:-1]).out
    forced = train("-m", "task=imdb", *again[:-1], "force=true")  # gets as far as the data, which are no more today
    assert "1 to train" in forced.out
    assert "force=true trains it on the whole" not in forced.out


def test_a_run_goes_on_only_with_the_data_it_was_begun_on(films, train, tmp_path):
    words = [
        "task=imdb",
        "task.allow_partial=true",
        "task.steps=8",
        "task.valid_size=40",
        "model.hidden_size=3",
        "logger=none",
        "run_dir=here",
        "loop.checkpoint_every=0",
        f"data_root={films}",
    ]
    assert train(*words, "loop.max_steps=2").status == 0
    found = Record.read(tmp_path / "here")
    last = checkpoint.load(tmp_path / "here" / "last.pt")
    assert last["lacks"] == found.partial
    checkpoint.save(tmp_path / "here" / "last.pt", last | {"lacks": []})
    record.update(tmp_path / "here", status="interrupted")
    refused = train(*words, "loop.max_steps=2")
    assert refused.status == 1
    assert "was begun on other data (the whole; now IMDB subset: 400 of" in refused.err
    # Neither a kill before the data are loaded nor a lost record makes another run of it.
    checkpoint.save(tmp_path / "here" / "last.pt", last)
    record.start(tmp_path / "here", Run(found.config, found.id, tmp_path / "here"))
    assert train(*words, "loop.max_steps=2").status == 0
    assert Record.read(tmp_path / "here").metrics == found.metrics
    (tmp_path / "here" / "record.json").unlink()
    assert train(*words, "loop.max_steps=2").status == 0
    again = Record.read(tmp_path / "here")
    assert (again.metrics, again.partial) == (found.metrics, found.partial)


def test_a_run_names_its_word_vectors_and_is_used_with_no_others(films, train, tmp_path, monkeypatch):
    """Continued, extended, analysed and loaded from its weights; what older code wrote names none, and is taken."""
    words = ["task=imdb", "task.allow_partial=true", "task.steps=8", "task.valid_size=40", "model.hidden_size=3"]
    words += ["logger=none", "loop.checkpoint_every=0", "device=cpu", "loop.max_steps=2"]
    root, here = tmp_path / "films", tmp_path / "here"
    shutil.copytree(films, root)
    words += [f"data_root={root}"]
    assert train(*words, "run_dir=here").status == 0
    found, last = Record.read(here), checkpoint.load(here / "last.pt")
    (known,) = found.data.values()
    assert found.data == last["data"] == {"GloVe": known} == make(films, steps=8).data
    assert not found.stale
    (tmp_path / "a.safetensors").write_bytes(weights.packed(*weights.of_run(here)))
    monkeypatch.setenv("TIMESCALES_DATA", str(root))
    assert timescales.load(tmp_path / "a.safetensors").card["data"] == found.data

    path = root / ".vector_cache" / "glove.6B.100d.txt"
    path.write_text(path.read_text().replace("0.01 ", "0.02 ", 1))
    record.update(here, status="interrupted")
    refused = train(*words, "run_dir=here")
    assert (refused.status, "was begun on another GloVe: force=true" in refused.err) == (1, True)
    found.write(here)
    refused = train(f"extend={here}", "loop.max_steps=4", "logger=none", "device=cpu", f"data_root={root}")
    assert (refused.status, "it was trained on other data" in refused.err) == (1, True), refused
    with pytest.raises(ConfigError, match="here was trained on another GloVe: restore the file"):
        analysis.load(here)
    with pytest.raises(ConfigError, match=f"^{found.id} was trained on another GloVe: put it back"):
        timescales.load(tmp_path / "a.safetensors")

    older = Record.read(here)
    older.keys.remove("data")
    older.write(here)
    checkpoint.save(here / "last.pt", last | {"data": {}})
    assert analysis.load(here).record.data == {}
    tensors, about = weights.read(tmp_path / "a.safetensors")
    (tmp_path / "a.safetensors").write_bytes(weights.packed(tensors, {k: v for k, v in about.items() if k != "data"}))
    assert timescales.load(tmp_path / "a.safetensors").card["id"] == found.id
    record.update(here, status="interrupted")
    assert train(*words, "run_dir=here").status == 0
    assert Record.read(here).id == found.id
