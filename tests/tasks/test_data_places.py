"""Data sets as systems and tools pack, unpack and name them; what lies beside them is left out, what is wrong named."""

import contextlib
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


# --- MNIST ----------------------------------------------------------------------------------------------------------


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


# --- CIFAR-10 -------------------------------------------------------------------------------------------------------


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


# --- IMDB -----------------------------------------------------------------------------------------------------------

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


# --- GloVe ----------------------------------------------------------------------------------------------------------


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


# --- All ------------------------------------------------------------------------------------------------------------


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
