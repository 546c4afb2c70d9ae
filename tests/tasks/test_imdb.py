"""Check IMDB: reviews, tokens, vocabulary, vectors, beside torchtext; and runs on incomplete or other data."""

import collections
import functools
import re
import shutil
import sys
import types
import zipfile
from importlib.metadata import PackageNotFoundError

import pytest
import synthetic
import torch
from packs import fake_download_url, pack, write
from quick import change_record
from scipy import stats

import timescales
from timescales import LSTM, PLSTM, analysis
from timescales.config.run import Run
from timescales.errors import ConfigError
from timescales.files import cache_dir
from timescales.models.sequence import SequenceModel
from timescales.runs import provenance, record, weights
from timescales.runs.record import Record
from timescales.tasks import IMDB
from timescales.tasks.data import glove, imdb
from timescales.tasks.data.cache import cached, content_hash
from timescales.tasks.data.imdb import tokenizer  # taken before the other tests' stand-in replaces it
from timescales.training.run import load_checkpoint, save_checkpoint


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
    [(LSTM, 128, 1, 117_889), (LSTM, 128, 2, 118_018), (PLSTM, 154, 1, 118_119), (PLSTM, 154, 2, 118_274)],
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


PART = ["task=imdb", "task.steps=8", "task.valid_size=40", "model.hidden_size=3", "loop.max_steps=2", "logger=none"]


@pytest.mark.slow
def test_a_run_on_a_part_is_marked(films, train, tmp_path):
    here = [*PART, f"data_root={films}", "run_dir=here"]
    assert train(*here, "task.allow_partial=true").status == 0
    said = Record.read(tmp_path / "here").partial
    assert len(said) == 2
    assert "GloVe subset: 8 of 400,000 vectors" in said[1]
    refused = train(*here[:-1], "run_dir=there")
    assert (refused.status, len(refused.err.strip().splitlines())) == (1, 1)
    assert "allow_partial=true" in refused.err
    # The same run on the whole data is the same run, but what a part gave is not taken for it.
    assert "finished, skipped" in train(*here, "task.allow_partial=true").out
    refused = train(*here)
    assert refused.status == 1
    assert "trained on incomplete data (IMDB subset: 400 of" in refused.err
    swept = train("-m", *here[:-1], "task.allow_partial=true")
    assert (swept.status, "1 to train" in swept.out) == (0, True)
    assert "on incomplete data" in train("-m", *here[:-1]).out
    forced = train("-m", *here[:-1], "force=true")  # gets as far as the data, which are no more today
    assert "1 to train" in forced.out
    assert "retrain it on the complete data" not in forced.out


@pytest.mark.slow
def test_a_run_goes_on_only_with_the_data_it_was_begun_on(films, train, tmp_path):
    words = [*PART, "task.allow_partial=true", "run_dir=here", "loop.checkpoint_every=0", f"data_root={films}"]
    assert train(*words).status == 0
    found = Record.read(tmp_path / "here")
    last = load_checkpoint(tmp_path / "here" / "last.pt")
    assert last["lacks"] == found.partial
    save_checkpoint(tmp_path / "here" / "last.pt", last | {"lacks": []})
    change_record(tmp_path / "here", status="interrupted")
    refused = train(*words)
    assert refused.status == 1
    assert "was begun on other data (the whole; now IMDB subset: 400 of" in refused.err
    # Neither a kill before the data are loaded nor a lost record makes another run of it.
    save_checkpoint(tmp_path / "here" / "last.pt", last)
    record.start(tmp_path / "here", Run(found.config, found.id, tmp_path / "here"))
    assert train(*words).status == 0
    assert Record.read(tmp_path / "here").metrics == found.metrics
    (tmp_path / "here" / "record.json").unlink()
    assert train(*words).status == 0
    again = Record.read(tmp_path / "here")
    assert (again.metrics, again.partial) == (found.metrics, found.partial)


def test_a_run_names_its_word_vectors_and_is_used_with_no_others(films, train, tmp_path, monkeypatch):
    """Continued, extended, analysed and loaded from its weights; what older code wrote names none, and is taken."""
    words = [*PART, "task.allow_partial=true", "loop.checkpoint_every=0", "device=cpu"]
    root, here = tmp_path / "films", tmp_path / "here"
    shutil.copytree(films, root)
    words += [f"data_root={root}"]
    assert train(*words, "run_dir=here").status == 0
    found, last = Record.read(here), load_checkpoint(here / "last.pt")
    (known,) = found.data.values()
    assert found.data == last["data"] == {"GloVe": known} == make(films, steps=8).data
    assert not found.stale
    (tmp_path / "a.safetensors").write_bytes(weights.packed(*weights.of_run(here)))
    monkeypatch.setenv("TIMESCALES_DATA", str(root))
    assert timescales.load(tmp_path / "a.safetensors").card["data"] == found.data

    path = root / ".vector_cache" / "glove.6B.100d.txt"
    path.write_text(path.read_text().replace("0.01 ", "0.02 ", 1))
    change_record(here, status="interrupted")
    refused = train(*words, "run_dir=here")
    assert (refused.status, "was begun on another GloVe: restart it" in refused.err) == (1, True)
    found.write(here)
    refused = train(f"extend={here}", "loop.max_steps=4", "logger=none", "device=cpu", f"data_root={root}")
    assert (refused.status, "it was trained on other data" in refused.err) == (1, True), refused
    with pytest.raises(ConfigError, match="here was trained on another GloVe: restore it"):
        analysis.load(here)
    with pytest.raises(ConfigError, match=f"^{found.id} was trained on another GloVe: restore that one"):
        timescales.load(tmp_path / "a.safetensors")

    older = Record.read(here)
    older.keys.remove("data")
    older.write(here)
    save_checkpoint(here / "last.pt", last | {"data": {}})
    assert analysis.load(here).record.data == {}
    tensors, about = weights.read(tmp_path / "a.safetensors")
    (tmp_path / "a.safetensors").write_bytes(weights.packed(tensors, {k: v for k, v in about.items() if k != "data"}))
    assert timescales.load(tmp_path / "a.safetensors").card["id"] == found.id
    change_record(here, status="interrupted")
    assert train(*words, "run_dir=here").status == 0
    assert Record.read(here).id == found.id


# --- Reviews from tar, folder and hub --------------------------------------------------------------------------------
pytestmark = pytest.mark.usefixtures("cache")


def test_reviews_are_the_same_from_tar_and_hub(tmp_path, monkeypatch, online):
    path = synthetic.write_imdb(tmp_path / "tar" / "aclImdb_v1.tar.gz", 40, 20)
    from_tar = imdb.read(path)
    assert {split: len(found) for split, found in from_tar.items()} == {"train": 40, "test": 20}  # unsup is left out
    labels = [label for label, _ in from_tar["test"]]
    assert sum(labels) == 10
    assert 0 < sum(labels[:10]) < 10  # a part of them is no single class

    hub = types.ModuleType("datasets")
    rows = {split: [{"label": label, "text": text} for label, text in found] for split, found in from_tar.items()}
    hub.load_dataset = lambda name, split: rows[split]
    monkeypatch.setitem(sys.modules, "datasets", hub)
    assert imdb.read(imdb.CORPUS.locate(tmp_path / "hub")) == from_tar
    words, reviews, partial = imdb.load(tmp_path / "hub", allow_partial=True)
    assert words == sorted(words)
    start = reviews["test"].lengths[:3].sum()
    fourth = reviews["test"].tokens[start : start + reviews["test"].lengths[3]]
    assert [words[k] for k in fourth] == from_tar["test"][3][1].split()
    assert reviews["test"].labels.tolist() == labels
    assert partial == ["IMDB subset: 40 of 25,000 train reviews, 20 of 25,000 test reviews"]


@pytest.mark.parametrize("place", ["imdb/plain_text", "datasets--stanfordnlp--imdb/snapshots/e/plain_text", "imdb.zip"])
def test_the_parquet_of_the_hub_has_the_same_reviews(tmp_path, monkeypatch, place):
    import pyarrow
    from pyarrow import parquet

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    expected = imdb.read(synthetic.write_imdb(tmp_path / "tar" / "aclImdb_v1.tar.gz", 40, 20))
    files = {}
    for split, pairs in (*expected.items(), ("unsupervised", [(-1, "a review without a label")])):
        labels, texts = zip(*pairs, strict=True)
        written = pyarrow.BufferOutputStream()
        parquet.write_table(pyarrow.table({"text": texts, "label": labels}), written)
        files[f"{split}-00000-of-00001.parquet"] = written.getvalue().to_pybytes()
    (pack if place.endswith(".zip") else write)(tmp_path / "root" / place, files)
    write(tmp_path / "root" / "cifar10" / "plain_text", dict.fromkeys(files, b""))  # another data set's
    assert imdb.read(imdb.CORPUS.find(tmp_path / "root")) == expected
    tokens = imdb.load(tmp_path / "root", allow_partial=True)
    assert tokens.partial == ["IMDB subset: 40 of 25,000 train reviews, 20 of 25,000 test reviews"]
    assert tokens.reviews["test"].labels.tolist() == [label for label, _ in expected["test"]]


def test_another_spacy_makes_its_own_tokens(tmp_path, monkeypatch):
    """Without spaCy what was made before is still read: so is what was kept without a version."""
    path = synthetic.write_imdb(tmp_path / "aclImdb_v1.tar.gz", 40, 20)

    def types_of(version, tokens):
        def installed(name):
            if version is None:
                raise PackageNotFoundError(name)
            return version

        monkeypatch.setattr("importlib.metadata.version", installed)
        monkeypatch.setattr(imdb, "tokenizer", lambda: tokens)
        return imdb.load(tmp_path, allow_partial=True)[0]

    def never(text):
        pytest.fail("the tokens of this version were made before")

    first = types_of("3.8.1", str.split)
    assert "good" in first
    assert provenance.provenance("cpu").versions["spacy"] == "3.8.1"
    assert types_of("3.8.1", never) == first
    assert types_of("3.8.2", list)[:3] == [" ", "0", "1"]  # letters: rules that changed
    assert types_of("3.8.1", never) == first
    words = types_of(None, lambda text: ["kept", *text.split()])
    assert words == sorted({"kept", *first})
    assert "spacy" not in provenance.provenance("cpu").versions
    key = {"file": content_hash(path), "tokens": "spacy", "version": 4}
    assert cached("imdb", key, lambda: pytest.fail("older caches lie there"))["types"] == words


def test_without_spacy_the_mend_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ValueError, match="pip install"):
        tokenizer()


@pytest.mark.slow
def test_tokens_are_spacys():
    pytest.importorskip("spacy", reason="tokens of IMDB: pip install spacy")
    words = tokenizer()
    assert words("It's not bad, really: don't!") == ["It", "'s", "not", "bad", ",", "really", ":", "do", "n't", "!"]
    assert all(words(text) == text.split() for text in synthetic.reviews("train", 1, 50))  # the stand-in's assumption


@pytest.mark.slow
@pytest.mark.skipif(synthetic.real(imdb.CORPUS) is None, reason="needs the real reviews under TIMESCALES_DATA")
def test_lengths_of_reviews_as_printed(monkeypatch):
    """Chien et al. 2021: median 202, shortest 5, longest 2789."""
    monkeypatch.setattr("timescales.tasks.data.imdb.tokenizer", tokenizer)
    monkeypatch.setattr("timescales.tasks.data.cache.cache_dir", cache_dir)  # the user's: a minute the first time
    _, reviews, partial = imdb.load()
    lengths = torch.cat([reviews[split].lengths for split in reviews])
    assert (int(lengths.median()), int(lengths.min()), int(lengths.max())) == (202, 5, 2789)
    assert [int(reviews[split].labels.sum()) for split in reviews] == [12_500, 12_500]
    assert partial == []


# --- GloVe -----------------------------------------------------------------------------------------------------------
def test_the_digest_is_of_the_vectors_that_are_read(tmp_path):
    """Not of the format or the order of the file, nor of vectors of other words."""
    words = ["film", "Film", "the"]

    def digest_of(place, change=lambda lines: lines, read=words):
        path = synthetic.write_glove(tmp_path / place / "glove.6B.100d.txt")
        path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
        return glove.vectors(read, tmp_path / place, allow_partial=True).digest

    def changed(word):
        return lambda rows: [row.replace(".50 ", ".51 ", 1) if row.startswith(f"{word} ") else row for row in rows]

    known = digest_of("as it is")
    assert len(known) == 16
    assert digest_of("backwards", lambda lines: lines[::-1]) == known
    synthetic.write_glove(tmp_path / "packed" / "glove.6B.100d.txt.gz")
    assert glove.vectors(words, tmp_path / "packed", allow_partial=True).digest == known
    assert digest_of("other word", changed("it")) == known
    assert digest_of("one number", changed("the")) != known
    assert digest_of("fewer words", read=["film"]) != known


def test_glove_is_unpacked_from_its_zip(tmp_path, monkeypatch, online):
    def write(path):
        synthetic.write_glove(path.parent / "other.txt")
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(path.parent / "other.txt", "glove.6B.100d.txt")
            archive.writestr("glove.6B.50d.txt", "too small")

    fake_download_url(monkeypatch, write)
    assert glove.CORPUS.locate(tmp_path) == tmp_path / "glove.6B.100d.txt"
    assert [p.name for p in tmp_path.iterdir()] == ["glove.6B.100d.txt"]
    assert glove.CORPUS.count(tmp_path / "glove.6B.100d.txt") == {"vectors": 8}
