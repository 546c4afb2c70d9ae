"""Check that data sets are found as systems and tools pack, unpack and name them, and that what is wrong is named."""

import contextlib
import dataclasses
import gzip
import hashlib
import io
import shutil
import tarfile
from importlib import metadata

import numpy as np
import pytest
import synthetic
import texts
import torch
from packs import below, contents, pack, renamed, write

from timescales.errors import MissingData
from timescales.tasks.data import cifar, glove, imdb, mnist, text
from timescales.tasks.data.cache import cached, content_hash, status_hash

pytestmark = pytest.mark.usefixtures("cache")
MAC = {".DS_Store": b"\0\0\0\1Bud1", "._0_9.txt": b"\0\5\x16\7", "Thumbs.db": b"\xd0\xcf"}


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("timescales.tasks.data.imdb.tokenizer", lambda: str.split)


@pytest.fixture
def idx(tmp_path):
    return contents(synthetic.write_mnist(tmp_path / "made", 30, 10))


def dotted(name):
    return name.replace("-idx", ".idx")


def npz(images):
    def npy(array):
        buffer = io.BytesIO()
        np.save(buffer, array)
        return buffer.getvalue()

    names = ("x_train", "y_train", "x_test", "y_test")
    shapes = (-1, 28, 28), (-1,), (-1, 28, 28), (-1,)
    return {f"{name}.npy": npy(a.numpy().reshape(s)) for name, a, s in zip(names, images, shapes, strict=True)}


MNIST_PLACES = {
    "7-Zip": lambda root, idx: write(root / "mnist", renamed(idx, dotted)),
    "7-Zip in folders": lambda root, idx: write(root / "mnist", renamed(idx, lambda name: f"{name}/{dotted(name)}")),
    "Kaggle's folders": lambda root, idx: write(root / "archive", renamed(idx, lambda name: f"{name}/{name}")),
    "Kaggle's zip": lambda root, idx: pack(root / "archive (1).zip", renamed(idx, dotted) | {"__MACOSX/._a": b""}),
    "root": lambda root, idx: write(root, renamed(idx, dotted)),
    "below a folder": lambda root, idx: write(root / "vision" / "MNIST" / "raw", idx),
    "upper case": lambda root, idx: write(root / "Mnist" / "RAW", renamed(idx, str.upper)),
    "downloaded twice": lambda root, idx: write(
        root / "MNIST", {f"{name} (1).gz": gzip.compress(content) for name, content in idx.items()}
    ),
    "unpacked by a browser": lambda root, idx: write(root / "MNIST", renamed(idx, lambda name: f"{name}.gz")),
    "tar": lambda root, idx: pack(root / "MNIST.tar.gz", below("./MNIST/raw", idx)),
    "gz in a zip": lambda root, idx: pack(
        root / "mnist-dataset.zip", {f"MNIST/raw/{name}.gz": gzip.compress(content) for name, content in idx.items()}
    ),
}


@pytest.mark.parametrize("how", MNIST_PLACES)
def test_mnist_is_found(tmp_path, idx, how):
    others = renamed(idx, lambda name: f"FashionMNIST/raw/{name}") | renamed(idx, lambda name: f"fashion-mnist/{name}")
    write(tmp_path / "root", {name: content[:8] for name, content in others.items()} | below("MNIST", MAC))
    MNIST_PLACES[how](tmp_path / "root", idx)
    expected = mnist.load(tmp_path / "made")[:4]
    assert all(map(torch.equal, mnist.load(tmp_path / "root")[:4], expected))
    assert expected[0][:, 0].tolist() == list(range(30))


def test_mnist_of_keras(tmp_path, idx):
    expected = mnist.load(tmp_path / "made")[:4]
    pack(tmp_path / "root" / "datasets" / "mnist.npz", npz(expected))
    assert all(map(torch.equal, mnist.load(tmp_path / "root")[:4], expected))
    pack(tmp_path / "root" / "datasets" / "mnist.npz", npz([array.float() for array in expected]))
    with pytest.raises(ValueError, match=r"mnist\.npz/x_train\.npy cannot .* type float32"):
        mnist.load(tmp_path / "root")


def test_other_images_alone_are_not_mnist(tmp_path, idx):
    write(tmp_path / "root" / "FashionMNIST" / "raw", idx)
    write(tmp_path / "root" / "fashion-mnist", idx)
    assert mnist.CORPUS.find(tmp_path / "root") is None


@pytest.fixture
def batches(tmp_path):
    with tarfile.open(synthetic.write_cifar(tmp_path / "made.tar.gz", 50, 10)) as tar:
        return {member.name.split("/")[1]: tar.extractfile(member).read() for member in tar}


CIFAR_PLACES = {
    "folder": lambda root, files: write(root / "cifar-10-batches-py", files),
    "folder in a folder of its own": lambda root, files: write(
        root / "cifar-10-python", below("cifar-10-batches-py", files)
    ),
    "Keras": lambda root, files: write(
        root / "datasets/cifar-10-batches-py-target", below("cifar-10-batches-py", files)
    ),
    "Keras, tar": lambda root, files: pack(root / "cifar-10-batches-py.tar.gz", below("cifar-10-batches-py", files)),
    "Kaggle's zip": lambda root, files: pack(root / "archive.zip", below("cifar-10-batches-py", files)),
    "Mac": lambda root, files: pack(
        root / "cifar10.zip", below("CIFAR-10-batches-py", files) | {"__MACOSX/cifar/._data_batch_1": b"\0\5"}
    ),
    "tar, unpacked once": lambda root, files: pack(root / "cifar-10-python.tar", below("cifar-10-batches-py", files)),
}


@pytest.mark.parametrize("how", CIFAR_PLACES)
def test_cifar_is_found(tmp_path, batches, how):
    write(tmp_path / "root" / "cifar-100-python", {"train": b"", "test": b""})
    pack(tmp_path / "root" / "cifar-100-python.tar.gz", {"cifar-100-python/train": b""})
    place = CIFAR_PLACES[how](tmp_path / "root", batches | MAC)
    found = cifar.load(tmp_path / "root", allow_partial=True)
    assert found.train[:, 0, 0].tolist() == list(range(50))
    assert found.test_labels.tolist() == list(range(10))
    assert found.partial == ["CIFAR-10 subset: 50 of 50,000 training images, 10 of 10,000 test images"]
    if place.is_dir():
        (batch,) = place.rglob("data_batch_3")
        batch.write_bytes(batch.read_bytes()[:500])
        with pytest.raises(ValueError, match=rf"{batch} cannot be read .*move it elsewhere and fetch it again"):
            cifar.load(tmp_path / "root", allow_partial=True)


REVIEWS = {
    "train/pos/0_9.txt": b"good film",
    "train/neg/0_1.txt": b"\xef\xbb\xbfbad\r\nfilm\r\n",  # Windows' byte order mark and line ends
    "test/pos/1_8.txt": b"good",
    "test/neg/1_2.txt": b"",
}
BESIDE = {
    "train/pos/._0_9.txt": b"\0\5\x16\7\xa3",
    "train/pos/.DS_Store": b"\0",
    "train/unsup/0_0.txt": b"left out",
    "train/.ipynb_checkpoints/pos/0_9.txt": b"left out",
    "imdb.vocab": b"the",
    "train/pos/README.txt": b"left out",
    "train/urls_pos.txt": b"left out",
    "train/pos/0_9 (1).txt": b"good film",  # duplicated by a file manager
    "test/neg/1_2 (2).txt": b"left out",
}
IMDB_PLACES = {
    "tar": lambda root, files: pack(root / "aclImdb_v1.tar.gz", below("aclImdb", files)),
    "tar of a Mac": lambda root, files: pack(root / "aclImdb.tgz", below("./aclImdb", files) | {"./._aclImdb": b"\0"}),
    "unpacked by Safari": lambda root, files: pack(root / "imdb" / "aclImdb_v1.tar", below("aclImdb", files)),
    "folder": lambda root, files: write(root / "aclImdb", files),
    "folder twice": lambda root, files: write(root / "aclImdb_v1" / "aclImdb", files),
    "Keras": lambda root, files: write(root / "datasets" / "aclImdb_v1_extracted" / "aclImdb", files),
    "torchtext": lambda root, files: write(root / ".data" / "imdb" / "aclImdb", files),
    "renamed": lambda root, files: write(root / "IMDB", files),
    "Mac's zip": lambda root, files: pack(
        root / "aclImdb.zip", below("aclImdb", files) | below("__MACOSX/aclImdb", files)
    ),
    "Windows' zip": lambda root, files: pack(
        root / "archive.zip", renamed(files, lambda name: f"aclImdb\\{name}".replace("/", "\\"))
    ),
}
EXPECTED = {"train": [(0, "bad\nfilm"), (1, "good film")], "test": [(0, ""), (1, "good")]}


@pytest.mark.parametrize("how", IMDB_PLACES)
def test_imdb_is_found_and_what_lies_beside_it_is_left_out(tmp_path, how):
    IMDB_PLACES[how](tmp_path, REVIEWS | BESIDE)
    assert imdb.read(imdb.CORPUS.locate(tmp_path)) == EXPECTED


def test_a_review_that_was_downloaded_twice_and_is_there_once_counts(tmp_path):
    files = {name.replace("1_8.txt", "1_8 (1).txt"): content for name, content in REVIEWS.items()}
    write(tmp_path / "imdb", files)
    assert imdb.read(imdb.CORPUS.locate(tmp_path)) == EXPECTED


@pytest.mark.parametrize("how", ["tar", "folder", "Mac's zip"])
def test_a_review_in_latin_1_is_named(tmp_path, how):
    place = IMDB_PLACES[how](tmp_path, REVIEWS | {"train/neg/7_3.txt": "d\xe9j\xe0 vu".encode("latin-1")})
    with pytest.raises(
        ValueError, match=r"/train/neg/7_3\.txt is not UTF-8 \(byte 0xe9 at 1\): save it as UTF-8"
    ) as error:
        imdb.load(tmp_path, allow_partial=True)
    assert str(error.value).startswith(str(place))
    assert "delete" not in str(error.value)


def test_a_zero_byte_in_a_review_stays_in_its_word(tmp_path):
    write(tmp_path / "aclImdb", REVIEWS | {"train/pos/2_9.txt": b"a\0b zoo"})
    for _ in range(2):  # made, then from the cache
        types, reviews, _ = imdb.load(tmp_path, allow_partial=True)
        assert types == ["a\0b", "bad", "film", "good", "zoo"]
        words = [types[k] for k in reviews["train"].tokens.tolist()]
        assert words == ["a\0b", "zoo", "bad", "film", "good", "film"]


def test_a_new_file_of_the_system_does_not_tokenise_again(tmp_path, monkeypatch):
    write(tmp_path / "aclImdb", REVIEWS)
    first = imdb.load(tmp_path, allow_partial=True)
    monkeypatch.setattr("timescales.tasks.data.imdb._tokens", lambda path: pytest.fail("again"))
    write(tmp_path / "aclImdb", BESIDE)
    assert imdb.load(tmp_path, allow_partial=True)[0] == first[0]


@pytest.fixture
def vectors(tmp_path):
    return synthetic.write_glove(tmp_path / "made" / "glove.6B.100d.txt").read_bytes()


GLOVE_CONTENTS = {
    "as it is": lambda data: data,
    "tabs": lambda data: data.replace(b" ", b"\t"),
    "byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "Windows' line ends": lambda data: data.replace(b"\n", b"\r\n"),
    "spaces at the ends": lambda data: data.replace(b"\n", b" \n"),
    "word2vec's first line": lambda data: b"8 100\n" + data,
    "an empty line": lambda data: data + b"\n",
    "a word twice": lambda data: data + data[: data.index(b"\n") + 1],
}


@pytest.mark.parametrize("how", GLOVE_CONTENTS)
def test_vectors_are_found_and_counted(tmp_path, vectors, how):
    path = tmp_path / "root" / "glove.6B.100d.txt"
    write(path.parent, {path.name: GLOVE_CONTENTS[how](vectors)})
    found = glove.vectors(["film", "the", "xyzzy"], path.parent, allow_partial=True)
    assert sorted(found.rows.tolist()) == [0, 1]
    values = dict(zip(found.rows.tolist(), found.values, strict=True))
    torch.testing.assert_close(values[1], torch.arange(1, 101) / 100)
    torch.testing.assert_close(values[0], 3 + torch.arange(1, 101) / 100)
    assert found.partial == ["GloVe subset: 8 of 400,000 vectors"]
    assert glove.CORPUS.count(path) == {"vectors": 8}


def test_a_line_of_vectors_without_its_numbers_is_named(tmp_path, vectors):
    lines = vectors.splitlines(keepends=True)
    for wrong, said in (
        (b"semicolons;1;2\n", "line 4 does not have 100"),
        (lines[0].replace(b"the", b"\xe9"), "line 4 is"),
    ):
        write(tmp_path / "root", {"glove.6B.100d.txt": b"".join([*lines[:3], wrong, *lines[3:]])})
        with pytest.raises(ValueError, match=said) as error:
            glove.vectors(["film"], tmp_path / "root", allow_partial=True)
        assert "glove.6B.100d.txt cannot be read as GloVe" in str(error.value)
        with pytest.raises(ValueError, match=said):
            glove.CORPUS.count(tmp_path / "root" / "glove.6B.100d.txt")


GLOVE_PLACES = {
    "zip": lambda root, data: pack(root / "glove.6B.zip", {"glove.6B.50d.txt": b"the 1", "glove.6B.100d.txt": data}),
    "unpacked": lambda root, data: write(root / "glove.6B", {"glove.6B.300d.txt": b"x", "glove.6B.100d.txt": data}),
    "torchtext": lambda root, data: write(
        root / ".vector_cache", {"glove.6B.100d.txt": data, "glove.6B.100d.txt.pt": b"PK"}
    ),
    "Kaggle": lambda root, data: pack(root / "glove6b100dtxt.zip", {"glove.6B.100d.txt": data}),
    "gensim": lambda root, data: write(
        root / "glove-wiki-gigaword-100", {"glove-wiki-gigaword-100.gz": gzip.compress(b"8 100\n" + data)}
    ),
    "Mac": lambda root, data: pack(
        root / "GloVe.zip", {"__MACOSX/._glove.6B.100d.txt": b"\0", "glove.6B.100d.txt": data}
    ),
}


@pytest.mark.parametrize("how", GLOVE_PLACES)
def test_glove_is_found(tmp_path, vectors, how):
    GLOVE_PLACES[how](tmp_path / "root", vectors)
    found = glove.vectors(["film", "the", "xyzzy"], tmp_path / "root", allow_partial=True)
    assert sorted(found.rows.tolist()) == [0, 1]
    assert found.partial == ["GloVe subset: 8 of 400,000 vectors"]


def test_words_that_join_to_the_same_text_have_their_own_vectors(tmp_path, vectors):
    write(tmp_path / "root", {"glove.6B.100d.txt": vectors})
    first = glove.vectors(["the\0x", "film"], tmp_path / "root", allow_partial=True)
    second = glove.vectors(["the", "x\0film"], tmp_path / "root", allow_partial=True)
    assert (first.rows.tolist(), second.rows.tolist()) == ([1], [0])


def test_what_is_wrong_is_named_with_a_fix_that_keeps_it(tmp_path):
    wrong = [
        (mnist.CORPUS, "MNIST/train-labels-idx1-ubyte"),
        (cifar.CORPUS, "cifar-10-python.tar.gz"),
        (imdb.CORPUS, "aclImdb.zip"),
        (glove.CORPUS, "glove.6B.100d.txt.gz"),
        (text.PTB, "ptb/ptb.valid.txt"),
        (text.TEXT8, "text8.zip"),
    ]
    synthetic.write_mnist(tmp_path / "MNIST", 30, 10)
    texts.write_words(tmp_path / "ptb", texts.PTB)
    write(tmp_path, {name: b"\xff<html>moved</html>" for _, name in wrong})
    for corpus, name in wrong:
        place = corpus.find(tmp_path)
        assert corpus.present(tmp_path)
        with pytest.raises(ValueError, match=f"move it elsewhere and fetch it again: .*{corpus.name}") as error:
            corpus.count(place)
        assert str(tmp_path / name) in str(error.value)
        assert "delete" not in str(error.value)
        assert "\n" not in str(error.value)


def test_a_tar_without_the_data_set_is_named(tmp_path):
    pack(tmp_path / "aclImdb.tar.gz", {"aclImdb/README": b""})
    with pytest.raises(ValueError, match=r"aclImdb\.tar\.gz has no train/pos, .*: put it there, or move it elsewhere"):
        imdb.load(tmp_path, allow_partial=True)


def test_a_damaged_copy_does_not_hide_a_part(tmp_path):
    pack(tmp_path / "aclImdb.tar.gz", {"aclImdb/README": b""})
    write(tmp_path, {"aclImdb.zip": b"damaged"})
    write(tmp_path / "imdb" / "aclImdb", REVIEWS)
    assert imdb.read(imdb.CORPUS.locate(tmp_path)) == EXPECTED


def test_folders_that_are_called_otherwise_are_not_searched(tmp_path, monkeypatch):
    write(tmp_path / "imagenet" / "train" / "n01", {"ptb.train.txt": b"", "x.jpg": b""})
    seen = []
    scandir = shutil.os.scandir
    monkeypatch.setattr("os.scandir", lambda folder: (seen.append(folder), scandir(folder))[1])
    assert text.PTB.find(tmp_path) is None
    assert seen == [tmp_path, tmp_path / "imagenet"]


def test_what_earlier_versions_kept_is_not_read(tmp_path, vectors):
    """They counted duplicated reviews, and vectors that they had not found."""
    write(tmp_path, {"glove.6B.100d.txt": vectors} | below("aclImdb", REVIEWS))
    texts.write_words(tmp_path / "ptb", texts.PTB)
    files = [content_hash(tmp_path / "ptb" / name) for name in texts.PTB]
    names = sorted(path for path in (tmp_path / "aclImdb").rglob("*") if path.is_file())
    old = {
        "glove": {"file": content_hash(tmp_path / "glove.6B.100d.txt"), "words": "", "version": 1},
        "words": {"files": files, "version": 1},
        "imdb": {"file": status_hash(tmp_path / "aclImdb", names), "tokens": "spacy", "version": 3},
    }
    with contextlib.suppress(metadata.PackageNotFoundError):
        old["imdb"]["spacy"] = metadata.version("spacy")
    old["glove"]["words"] = hashlib.sha256(b"film").hexdigest()[:16]
    for name, key in old.items():
        cached(name, key, lambda: {"wrong": 0})
    assert text.words("ptb", tmp_path, allow_partial=True).sizes["train_size"] == 660
    assert imdb.load(tmp_path, allow_partial=True)[0] == ["bad", "film", "good"]
    assert glove.vectors(["film"], tmp_path, allow_partial=True).rows.tolist() == [0]


@pytest.mark.parametrize(
    ("corpus", "place", "hint"),
    [
        (mnist.CORPUS, "mist/raw", r"if \S+/mist is MNIST, call it mnist"),
        (imdb.CORPUS, "imbd", r"if \S+/imbd is IMDB, call it imdb"),
        (imdb.CORPUS, "IMBD.zip", r"if \S+/IMBD\.zip is IMDB, call it imdb\.zip"),
        (text.PTB, "pen-treebank/data", r"if \S+/pen-treebank is Penn Treebank, call it ptb"),
        (text.WIKITEXT2, "wiki-text-2", r"if \S+/wiki-text-2 is WikiText-2, call it WikiText-2"),
    ],
)
def test_a_folder_whose_name_is_nearly_right_is_pointed_at(tmp_path, idx, corpus, place, hint):
    """And what it is told to be called is found."""
    sets = {
        "mnist": idx,
        "imdb": REVIEWS,
        "ptb": dict.fromkeys(texts.PTB, b""),
        "wt2": dict.fromkeys(texts.WIKITEXT2, b""),
    }
    (pack if place.endswith(".zip") else write)(tmp_path / "root" / place, sets[corpus.name])
    write(tmp_path / "root" / "mits", {"other": b""})  # without the files
    with pytest.raises(MissingData, match=hint) as error:
        corpus.locate(tmp_path / "root")
    told = str(error.value).split("call it ")[1].split(")")[0]
    top = place.split("/")[0]
    (tmp_path / "root" / top).rename(tmp_path / "root" / told)
    assert corpus.locate(tmp_path / "root").is_relative_to(tmp_path / "root" / told)


def test_what_is_another_data_sets_is_not_pointed_at(tmp_path, idx):
    write(tmp_path / "fashion-mnist", idx)
    write(tmp_path / "wikitext-103", dict.fromkeys(texts.WIKITEXT2, b""))
    for corpus in (mnist.CORPUS, text.WIKITEXT2):
        with pytest.raises(MissingData) as error:
            corpus.locate(tmp_path)
        assert "call it" not in str(error.value)


def test_a_root_that_is_not_there_is_said_with_the_one_beside_it(tmp_path, idx):
    write(tmp_path / "datasets" / "mnist", idx)
    with pytest.raises(MissingData, match=r"there is no such folder; did you mean datasets\?\)"):
        mnist.CORPUS.locate(tmp_path / "datsets")
    with pytest.raises(MissingData, match=r"there is no such folder\)"):
        mnist.CORPUS.locate(tmp_path / "elsewhere" / "data")


# --- Texts -----------------------------------------------------------------------------------------------------------

GENERIC = ("train.txt", "valid.txt", "test.txt")
LINES = "a b\n<unk> N\n", "c d\n", "a e\n"
NUMBERS = [0, 1, 2, 3, 4, 2], [5, 6, 2], [0, 7, 2]  # <eos> is 2


def splits(names, change=str.encode):
    return {name: change(content) for name, content in zip(names, LINES, strict=True)}


WORD_PLACES = {
    "Mikolov's archive": (
        "ptb",
        lambda root: pack(
            root / "simple-examples.tgz",
            below("./simple-examples/data", splits(texts.PTB) | {"ptb.char.train.txt": b"a _ b", "README": b""}),
        ),
    ),
    "another tar": (
        "ptb",
        lambda root: pack(root / "penn-treebank.tar.gz", below("penn-treebank", splits(texts.PTB))),
    ),
    "wt2, tar": ("wt2", lambda root: pack(root / "wikitext2.tar.gz", below("wikitext2", splits(GENERIC)))),
    "its folder": ("ptb", lambda root: write(root / "simple-examples" / "data", splits(texts.PTB))),
    "Kaggle": ("ptb", lambda root: pack(root / "archive.zip", below("ptbdataset", splits(texts.PTB)))),
    "Kaggle, unpacked": ("ptb", lambda root: write(root / "archive" / "ptbdataset", splits(texts.PTB))),
    "awd-lstm": ("ptb", lambda root: write(root / "data" / "penn", splits(GENERIC))),
    "torchtext": ("ptb", lambda root: write(root / ".data" / "penn-treebank", splits(texts.PTB))),
    "valid is val": ("ptb", lambda root: write(root / "PTB", splits(("train.txt", "val.txt", "test.txt")))),
    "gzipped": (
        "ptb",
        lambda root: write(root, splits([f"{n}.gz" for n in texts.PTB], lambda s: gzip.compress(s.encode()))),
    ),
    "Windows": (
        "ptb",
        lambda root: write(
            root / "PTB",
            splits([n.upper() for n in texts.PTB], lambda s: b"\xef\xbb\xbf" + s.replace("\n", "\r\n").encode()),
        ),
    ),
    "wt2, zip": ("wt2", lambda root: pack(root / "wikitext-2-v1.zip", below("wikitext-2", splits(texts.WIKITEXT2)))),
    "wt2, twice": ("wt2", lambda root: write(root / "wikitext-2-v1" / "wikitext-2", splits(texts.WIKITEXT2))),
    "wt2, PyTorch": ("wt2", lambda root: write(root / "data" / "WikiText2", splits(GENERIC))),
    "wt103, zip": (
        "wt103",
        lambda root: pack(root / "wikitext-103-v1.zip", below("wikitext-103", splits(texts.WIKITEXT2))),
    ),
}


@pytest.mark.parametrize("how", WORD_PLACES)
def test_words_are_found(tmp_path, how):
    corpus, place = WORD_PLACES[how]
    place(tmp_path)
    found = text.words(corpus, tmp_path, allow_partial=True)
    assert found.symbols == ["a", "b", "<eos>", "<unk>", "N", "c", "d", "e"]
    assert [split.tolist() for split in found[:3]] == list(NUMBERS)
    if corpus == "ptb":
        assert len(text.ptb_characters(tmp_path, allow_partial=True).train) == 12


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("wikitext/wikitext-2-v1", "{}-00000-of-00001.parquet"),  # a clone
        ("wikitext-2-v1", "{}/0000.parquet"),  # as the Hub converts what has another form
        ("datasets--Salesforce--wikitext/snapshots/b08/wikitext-2-v1", "{}-00000-of-00001.parquet"),  # its cache
    ],
)
def test_the_parquet_of_the_hub_has_the_same_words(tmp_path, folder, names):
    """A row for each line, with its line feed; of an empty line nothing."""
    import pyarrow
    from pyarrow import parquet

    rows = ["", " = A title = \n", " a <unk> N \n"], ["", " b a \n"], [" a \n"]
    for split, lines in zip(("train", "validation", "test"), rows, strict=True):
        path = tmp_path / folder / names.format(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.table({"text": lines}), path)
    found = text.words("wt2", tmp_path, allow_partial=True)
    assert found.symbols == ["<eos>", "=", "A", "title", "a", "<unk>", "N", "b"]
    assert [split.tolist() for split in found[:3]] == [[0, 1, 2, 3, 1, 0, 4, 5, 6, 0], [0, 7, 4, 0], [4, 0]]


def test_a_parquet_that_is_not_read_is_pointed_at(tmp_path):
    write(tmp_path / "wikitext" / "wikitext-103-v1", {"train-00000-of-00002.parquet": b"", "test.parquet": b""})
    write(tmp_path / "wikitext" / "wikitext-2-v1", {"train-00000-of-00001.parquet": b""})
    line = r"wikitext/wikitext-103-v1 has parquet, from which WikiText-103 is not read: write these files from it"
    with pytest.raises(MissingData, match=line) as error:
        text.words("wt103", tmp_path)
    assert "wikitext-2" not in str(error.value)
    with pytest.raises(
        MissingData, match=r"wikitext-2-v1 has no validation-00000-of-00001.parquet, test-00000-of-00001"
    ):
        text.words("wt2", tmp_path)


def test_names_that_several_texts_have_need_a_folder_that_says_which(tmp_path):
    write(tmp_path / "wikitext-103", splits(texts.WIKITEXT2))
    write(tmp_path / "archive" / "wikitext-103", splits(texts.WIKITEXT2))
    write(tmp_path / "wikitext-2-raw-v1", splits(("wiki.train.raw", "wiki.valid.raw", "wiki.test.raw")))
    write(tmp_path / "mine", splits(GENERIC))
    write(tmp_path, splits(GENERIC))
    assert text.WIKITEXT2.find(tmp_path) is None
    assert text.PTB.find(tmp_path) is None
    assert text.WIKITEXT103.find(tmp_path) == tmp_path / "wikitext-103"
    assert text.WIKITEXT103.find(tmp_path / "wikitext-103") == tmp_path / "wikitext-103"  # as the root itself


REAL_PTB = text.PTB


@pytest.fixture
def complete(monkeypatch):
    """LINES are the complete Penn Treebank."""
    counts = dict(zip(text.PTB.counts, (6, 3, 3, 8, None), strict=True))
    corpus = dataclasses.replace(text.PTB, counts=counts)
    monkeypatch.setattr(text, "PTB", corpus)
    monkeypatch.setitem(text.WORDS, "ptb", corpus)


@pytest.mark.parametrize("other", ["ptb/.ipynb_checkpoints", "ptb/backup", "ptb/char", "PTB", "ptb-old", "archive/ptb"])
def test_the_complete_copy_is_taken(tmp_path, complete, other):
    write(tmp_path / other, {name: content[:2] for name, content in splits(texts.PTB).items()})
    write(tmp_path / "ptb", splits(texts.PTB))
    found = text.words("ptb", tmp_path)
    assert [split.tolist() for split in found[:3]] == list(NUMBERS)
    assert found.partial == []


def test_a_deeper_complete_copy_is_taken_before_a_shallower_part(tmp_path, complete):
    write(tmp_path / "ptb", splits(texts.PTB) | {"ptb.train.txt": b"a part\n"})
    write(tmp_path / "ptb" / "original" / "data", splits(texts.PTB))
    assert REAL_PTB.find(tmp_path) == tmp_path / "ptb"  # of the real corpus neither is complete: the shallowest
    assert text.PTB.find(tmp_path) == tmp_path / "ptb" / "original" / "data"
    pack(tmp_path / "ptb.zip", splits(texts.PTB))
    assert text.PTB.find(tmp_path) == tmp_path / "ptb.zip"
    pack(tmp_path / "ptb.zip", splits(texts.PTB)).write_bytes(b"damaged")
    assert text.PTB.find(tmp_path) == tmp_path / "ptb" / "original" / "data"


def test_hidden_folders_alone_hold_nothing(tmp_path):
    for folder in ("ptb/.ipynb_checkpoints", ".Trash/ptb", "__MACOSX/ptb", "ptb/.unfinished.x"):
        write(tmp_path / folder, splits(texts.PTB))
    assert text.PTB.find(tmp_path) is None


def test_a_missing_split_is_named_and_nothing_is_replaced(tmp_path, monkeypatch, online):
    mine = splits(texts.PTB) | {"ptb.valid.txt": b"mine\n"}
    del mine["ptb.test.txt"]
    write(tmp_path / "ptb", mine)
    rows = [[line] for line in LINES]
    monkeypatch.setattr(text, "_rows", lambda *arguments, **keywords: rows)
    with pytest.raises(MissingData, match=r"ptb has no ptb\.test\.txt") as error:
        text.words("ptb", tmp_path, allow_partial=True)
    assert f"{tmp_path}/ptb/ptb.valid.txt is there and differs from the download: move it elsewhere" in str(error.value)
    assert {name: contents(tmp_path / "ptb")[name] for name in mine} == mine
    (tmp_path / "ptb" / "ptb.valid.txt").rename(tmp_path / "mine.txt")
    assert text.words("ptb", tmp_path, allow_partial=True).valid.tolist() == [5, 6, 2]


TEXT8_PLACES = {
    "zip": lambda root, data: pack(root / "text8.zip", {"text8": data, "__MACOSX/._text8": b"\0"}),
    "gensim": lambda root, data: write(
        root / "text8", {"text8.gz": gzip.compress(data), "__init__.py": b"", "text8.vec": b"!"}
    ),
    "Windows": lambda root, data: write(root / "Text8", {"Text8.txt": b"\xef\xbb\xbf" + data + b"\r\n"}),
    "torchtext": lambda root, data: write(root / ".data" / "text8", {"text8": data}),
    "in a folder of its own": lambda root, data: write(root / "text8" / "text8", {"text8": data}),
    "tar": lambda root, data: pack(root / "text8.tar.xz", {"./text8": data}),
}


@pytest.mark.parametrize("how", TEXT8_PLACES)
def test_text8_is_found(tmp_path, how):
    data = texts.write_text8(tmp_path / "made", 2000).read_bytes()
    TEXT8_PLACES[how](tmp_path / "root", data)
    found = text.text8(tmp_path / "root", allow_partial=True)
    assert "".join(found.symbols[k] for split in found[:3] for k in split) == data.decode()
