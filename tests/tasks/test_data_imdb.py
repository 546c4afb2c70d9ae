"""IMDB reviews: the same from tar, folder and hub; their tokens."""

import os
import sys
import tarfile
import types
from importlib.metadata import PackageNotFoundError

import pytest
import synthetic
import torch
from packs import pack, write

from timescales.files import cache_dir
from timescales.runs import provenance
from timescales.tasks.data import imdb
from timescales.tasks.data.cache import cached, content_hash
from timescales.tasks.data.imdb import tokenizer  # taken before the other tests' stand-in replaces it

pytestmark = pytest.mark.usefixtures("cache")

REAL = bool(os.environ.get("TIMESCALES_DATA"))


def test_reviews_are_the_same_from_tar_folder_and_hub(tmp_path, monkeypatch, online):
    path = synthetic.write_imdb(tmp_path / "tar" / "aclImdb_v1.tar.gz", 40, 20)
    from_tar = imdb.read(path)
    assert {split: len(found) for split, found in from_tar.items()} == {"train": 40, "test": 20}  # unsup is left out
    labels = [label for label, _ in from_tar["test"]]
    assert sum(labels) == 10
    assert 0 < sum(labels[:10]) < 10  # a part of them is no single class
    with tarfile.open(path) as tar:
        synthetic.unpack(tar, tmp_path / "folder")
    assert imdb.read(imdb.CORPUS.find(tmp_path / "folder")) == from_tar

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


@pytest.mark.parametrize(
    "folder", ["imdb/plain_text", "datasets--stanfordnlp--imdb/snapshots/e61/plain_text", "imdb.zip"]
)
def test_the_parquet_of_the_hub_has_the_same_reviews(tmp_path, monkeypatch, folder):
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
    (pack if folder.endswith(".zip") else write)(tmp_path / "root" / folder, files)
    write(tmp_path / "root" / "cifar10" / "plain_text", dict.fromkeys(files, b""))  # another data set's
    assert imdb.read(imdb.CORPUS.find(tmp_path / "root")) == expected
    tokens = imdb.load(tmp_path / "root", allow_partial=True)
    assert tokens.partial == ["IMDB subset: 40 of 25,000 train reviews, 20 of 25,000 test reviews"]
    assert tokens.reviews["test"].labels.tolist() == [label for label, _ in expected["test"]]


def test_a_damaged_parquet_of_reviews_is_named(tmp_path):
    names = [f"{split}-00000-of-00001.parquet" for split in ("train", "test")]
    write(tmp_path / "imdb", dict.fromkeys(names, b"version https://git-lfs.github.com/spec/v1\n"))
    with pytest.raises(ValueError, match=r"imdb/train-00000-of-00001.parquet cannot be read as IMDB"):
        imdb.read(imdb.CORPUS.find(tmp_path))


def test_a_review_is_utf_8_and_its_folder_is_its_label(tmp_path):
    for split, folder, words in (("train", "pos", "très bon\n"), ("train", "neg", "déjà vu"), ("test", "pos", "æon")):
        path = tmp_path / "aclImdb" / split / folder / "0_9.txt"
        path.parent.mkdir(parents=True)
        path.write_bytes(words.encode())
    assert imdb.read(tmp_path / "aclImdb") == {"train": [(0, "déjà vu"), (1, "très bon")], "test": [(1, "æon")]}


def test_a_copy_of_a_review_beside_it_is_no_review(tmp_path):
    synthetic.write_imdb(tmp_path / "aclImdb_v1.tar.gz", 4, 4)
    with tarfile.open(tmp_path / "aclImdb_v1.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    folder = tmp_path / "aclImdb" / "test" / "pos"
    for name in ("0_9 copy.txt", "0_9 - Copy.txt", "0_9.txt~", "0_9.bak.txt"):
        (folder / name).write_text("a copy")
    assert [len(reviews) for reviews in imdb.read(tmp_path / "aclImdb").values()] == [4, 4]


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


@pytest.mark.parametrize("change", [lambda data: data[:500], lambda data: b"", lambda data: b"<html>moved</html>"])
def test_a_damaged_tar_of_reviews_is_named(tmp_path, change):
    path = synthetic.write_imdb(tmp_path / "aclImdb_v1.tar.gz", 40, 20)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match="fetch it again") as error:
        imdb.read(path)
    assert str(path) in str(error.value)


def test_without_spacy_the_mend_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ValueError, match="pip install"):
        tokenizer()


def test_tokens_are_spacys():
    pytest.importorskip("spacy", reason="tokens of IMDB: pip install spacy")
    words = tokenizer()
    assert words("It's not bad, really: don't!") == ["It", "'s", "not", "bad", ",", "really", ":", "do", "n't", "!"]
    assert all(words(text) == text.split() for text in synthetic.reviews("train", 1, 50))  # the stand-in's assumption


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="needs the real reviews: TIMESCALES_DATA")
def test_lengths_of_reviews_as_printed(monkeypatch):
    """Chien et al. 2021: median 202, shortest 5, longest 2789."""
    monkeypatch.setattr("timescales.tasks.data.imdb.tokenizer", tokenizer)
    monkeypatch.setattr("timescales.tasks.data.cache.cache_dir", cache_dir)  # the user's: a minute the first time
    _, reviews, partial = imdb.load()
    lengths = torch.cat([reviews[split].lengths for split in reviews])
    assert (int(lengths.median()), int(lengths.min()), int(lengths.max())) == (202, 5, 2789)
    assert [int(reviews[split].labels.sum()) for split in reviews] == [12_500, 12_500]
    assert partial == []
