"""Check that data sets are found as systems and tools pack, unpack and name them, and that what is wrong is named."""

import dataclasses
import gzip
import io
import tarfile

import numpy as np
import pytest
import synthetic
import texts
import torch
from packs import below, contents, pack, renamed, write

from timescales.errors import MissingData
from timescales.tasks.data import cifar, glove, imdb, mnist, text

pytestmark = pytest.mark.usefixtures("cache")
MAC = {".DS_Store": b"\0\0\0\1Bud1", "._0_9.txt": b"\0\5\x16\7", "Thumbs.db": b"\xd0\xcf"}


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("timescales.tasks.data.imdb.tokenizer", lambda: str.split)


@pytest.fixture
def idx(tmp_path):
    return contents(synthetic.write_mnist(tmp_path / "made", 30, 10))


def lay(root, place, files, name=lambda name: name, change=lambda content: content):
    """Write the files below root / place: FOLDER, or ARCHIVE!FOLDER for an archive which has them below a folder."""
    files = {name(old): change(content) for old, content in files.items()}
    archive, _, folder = place.partition("!")
    packed = archive.endswith((".zip", ".tar", ".gz", ".tgz", ".xz"))
    return (pack if packed else write)(root / archive, below(folder, files) if folder else files)


def dotted(name):
    return name.replace("-idx", ".idx")


MNIST_PLACES = {
    "7-Zip": ("mnist", dotted),
    "7-Zip in folders": ("mnist", lambda name: f"{name}/{dotted(name)}"),
    "Kaggle's folders": ("archive", lambda name: f"{name}/{name}"),
    "Kaggle's zip": ("archive (1).zip", dotted),
    "root": (".", dotted),
    "below a folder": ("vision/MNIST/raw",),
    "upper case": ("Mnist/RAW", str.upper),
    "downloaded twice": ("MNIST", lambda name: f"{name} (1).gz", gzip.compress),
    "unpacked by a browser": ("MNIST", lambda name: f"{name}.gz"),
    "tar": ("MNIST.tar.gz!./MNIST/raw",),
    "gz in a zip": ("mnist-dataset.zip!MNIST/raw", lambda name: f"{name}.gz", gzip.compress),
}


@pytest.mark.parametrize("how", MNIST_PLACES)
def test_mnist_is_found(tmp_path, idx, how):
    others = renamed(idx, lambda name: f"FashionMNIST/raw/{name}") | renamed(idx, lambda name: f"fashion-mnist/{name}")
    write(tmp_path / "root", {name: content[:8] for name, content in others.items()} | below("MNIST", MAC))
    place, *change = MNIST_PLACES[how]
    lay(tmp_path / "root", place, idx, *change)
    expected = mnist.load(tmp_path / "made")[:4]
    assert all(map(torch.equal, mnist.load(tmp_path / "root")[:4], expected))
    assert expected[0][:, 0].tolist() == list(range(30))


def test_mnist_of_keras(tmp_path, idx):
    expected = mnist.load(tmp_path / "made")[:4]

    def keras(kind):
        files = {}
        for name, array in zip(("x_train", "y_train", "x_test", "y_test"), expected, strict=True):
            buffer = io.BytesIO()
            np.save(buffer, array.numpy().reshape((-1, 28, 28) if name[0] == "x" else -1).astype(kind))
            files[f"{name}.npy"] = buffer.getvalue()
        pack(tmp_path / "root" / "datasets" / "mnist.npz", files)

    keras(np.uint8)
    assert all(map(torch.equal, mnist.load(tmp_path / "root")[:4], expected))
    keras(np.float32)
    with pytest.raises(ValueError, match=r"mnist\.npz/x_train\.npy cannot .* type float32"):
        mnist.load(tmp_path / "root")


def test_other_images_alone_are_not_mnist(tmp_path, idx):
    write(tmp_path / "root" / "FashionMNIST" / "raw", idx)
    write(tmp_path / "root" / "fashion-mnist", idx)
    write(tmp_path / "root" / "wikitext-103", dict.fromkeys(texts.WIKITEXT2, b""))
    assert mnist.CORPUS.find(tmp_path / "root") is None
    for corpus in (mnist.CORPUS, text.WIKITEXT2):  # nor are their folders pointed at
        with pytest.raises(MissingData) as error:
            corpus.locate(tmp_path / "root")
        assert "call it" not in str(error.value)


@pytest.fixture
def batches(tmp_path):
    with tarfile.open(synthetic.write_cifar(tmp_path / "made.tar.gz", 50, 10)) as tar:
        return {member.name.split("/")[1]: tar.extractfile(member).read() for member in tar}


CIFAR_PLACES = [
    "cifar-10-batches-py",
    "cifar-10-python/cifar-10-batches-py",
    "datasets/cifar-10-batches-py-target/cifar-10-batches-py",  # Keras
    "cifar-10-batches-py.tar.gz!cifar-10-batches-py",
    "archive.zip!cifar-10-batches-py",  # Kaggle
    "cifar10.zip!CIFAR-10-batches-py",
    "cifar-10-python.tar!cifar-10-batches-py",
]


@pytest.mark.parametrize("place", CIFAR_PLACES)
def test_cifar_is_found(tmp_path, batches, place):
    write(tmp_path / "root" / "cifar-100-python", {"train": b"", "test": b""})
    pack(tmp_path / "root" / "cifar-100-python.tar.gz", {"cifar-100-python/train": b""})
    place = lay(tmp_path / "root", place, batches | MAC)
    found = cifar.load(tmp_path / "root", allow_partial=True)
    assert found.train.shape == (50, 3, 1024)
    assert found.train[:, 0, 0].tolist() == list(range(50))
    of_pixel_0 = [[k % 256, k // 256 % 256, k // 65536] for k in range(100_000, 100_010)]  # a file holds whole planes
    assert found.test[:, :, 0].tolist() == of_pixel_0
    assert [found.train_labels.tolist(), found.test_labels.tolist()] == [[k % 10 for k in range(n)] for n in (50, 10)]
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
    **{f"train/pos/0_9{copy}": b"good film" for copy in (" (1).txt", " copy.txt", " - Copy.txt", ".txt~", ".bak.txt")},
    "test/neg/1_2 (2).txt": b"left out",
}
IMDB_PLACES = [
    "aclImdb_v1.tar.gz!aclImdb",
    "aclImdb.tgz!./aclImdb",
    "imdb/aclImdb_v1.tar!aclImdb",  # unpacked by Safari
    "aclImdb",
    "aclImdb_v1/aclImdb",
    "datasets/aclImdb_v1_extracted/aclImdb",  # Keras
    ".data/imdb/aclImdb",  # torchtext
    "IMDB",
    "aclImdb.zip!aclImdb",
]
EXPECTED = {"train": [(0, "bad\nfilm"), (1, "good film")], "test": [(0, ""), (1, "good")]}


@pytest.mark.parametrize("place", IMDB_PLACES)
def test_imdb_is_found_and_what_lies_beside_it_is_left_out(tmp_path, place):
    lay(tmp_path, place, REVIEWS | BESIDE)
    assert imdb.read(imdb.CORPUS.locate(tmp_path)) == EXPECTED


def test_imdb_is_found_in_zips_of_a_mac_and_of_windows(tmp_path):
    files = REVIEWS | BESIDE
    pack(tmp_path / "mac" / "aclImdb.zip", below("aclImdb", files) | below("__MACOSX/aclImdb", files))
    lay(tmp_path / "windows", "archive.zip", files, lambda name: f"aclImdb\\{name}".replace("/", "\\"))
    twice = {name.replace("1_8.txt", "1_8 (1).txt"): content for name, content in REVIEWS.items()}  # and there once
    write(tmp_path / "twice" / "imdb", twice)
    for root in ("mac", "windows", "twice"):
        assert imdb.read(imdb.CORPUS.locate(tmp_path / root)) == EXPECTED


@pytest.mark.parametrize("place", ["aclImdb_v1.tar.gz!aclImdb", "aclImdb", "aclImdb.zip!aclImdb"])
def test_a_review_in_latin_1_is_named(tmp_path, place):
    place = lay(tmp_path, place, REVIEWS | {"train/neg/7_3.txt": "d\xe9j\xe0 vu".encode("latin-1")})
    line = r"/train/neg/7_3\.txt is not UTF-8 \(byte 0xe9 at 1\): save it as UTF-8"
    with pytest.raises(ValueError, match=line) as error:
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


def check_vectors(root):
    found = glove.vectors(["film", "the", "xyzzy", "Film"], root, allow_partial=True)
    values = dict(zip(found.rows.tolist(), found.values, strict=True))
    assert sorted(values) == [0, 1]
    torch.testing.assert_close(values[1], torch.arange(1, 101) / 100)
    torch.testing.assert_close(values[0], 3 + torch.arange(1, 101) / 100)
    assert found.partial == ["GloVe subset: 8 of 400,000 vectors"]
    assert glove.vectors(["xyzzy"], root, allow_partial=True).values.shape == (0, 100)
    with pytest.raises(ValueError, match="8 of 400,000 vectors"):
        glove.vectors(["film"], root)


@pytest.mark.parametrize("how", GLOVE_CONTENTS)
def test_vectors_are_read_and_counted(tmp_path, vectors, how):
    write(tmp_path / "root", {"glove.6B.100d.txt": GLOVE_CONTENTS[how](vectors)})
    for _ in range(2):  # read, then from the cache
        check_vectors(tmp_path / "root")
    assert glove.CORPUS.count(tmp_path / "root" / "glove.6B.100d.txt") == {"vectors": 8}


def test_a_line_of_vectors_without_its_numbers_is_named(tmp_path, vectors):
    lines = vectors.splitlines(keepends=True)
    not_utf8 = lines[0].replace(b"the", b"\xe9")
    for wrong, said in ((b"semicolons;1;2\n", "line 4 does not have 100"), (not_utf8, "line 4 is")):
        write(tmp_path / "root", {"glove.6B.100d.txt": b"".join([*lines[:3], wrong, *lines[3:]])})
        with pytest.raises(ValueError, match=rf"glove\.6B\.100d\.txt cannot be read as GloVe .*{said}"):
            glove.vectors(["film"], tmp_path / "root", allow_partial=True)
        with pytest.raises(ValueError, match=said):
            glove.CORPUS.count(tmp_path / "root" / "glove.6B.100d.txt")


GLOVE_PLACES = {
    "glove.6B.zip": {"glove.6B.50d.txt": b"the 1"},
    "glove.6B": {"glove.6B.300d.txt": b"x"},
    ".vector_cache": {"glove.6B.100d.txt.pt": b"PK"},  # torchtext
    "glove6b100dtxt.zip": {},  # Kaggle
    "GloVe.zip": {"__MACOSX/._glove.6B.100d.txt": b"\0"},
}


@pytest.mark.parametrize("place", GLOVE_PLACES)
def test_glove_is_found(tmp_path, vectors, place):
    lay(tmp_path / "root", place, GLOVE_PLACES[place] | {"glove.6B.100d.txt": vectors})
    check_vectors(tmp_path / "root")


def test_glove_of_gensim_is_found(tmp_path, vectors):
    name = "glove-wiki-gigaword-100"
    write(tmp_path / name, {f"{name}.gz": gzip.compress(b"8 100\n" + vectors)})
    check_vectors(tmp_path)


def test_what_is_wrong_is_named_with_a_fix_that_keeps_it(tmp_path):
    wrong = [(mnist.CORPUS, "MNIST/train-labels-idx1-ubyte"), (cifar.CORPUS, "cifar-10-python.tar.gz")]
    wrong += [(imdb.CORPUS, "aclImdb.zip"), (glove.CORPUS, "glove.6B.100d.txt.gz")]
    wrong += [(text.PTB, "ptb/ptb.valid.txt"), (text.TEXT8, "text8.zip")]
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


def test_a_tar_without_the_data_set_is_named_and_hides_no_part(tmp_path):
    pack(tmp_path / "aclImdb.tar.gz", {"aclImdb/README": b""})
    with pytest.raises(ValueError, match=r"aclImdb\.tar\.gz has no train/pos, .*: put it there, or move it elsewhere"):
        imdb.load(tmp_path, allow_partial=True)
    write(tmp_path, {"aclImdb.zip": b"damaged"})
    write(tmp_path / "imdb" / "aclImdb", REVIEWS)
    assert imdb.read(imdb.CORPUS.locate(tmp_path)) == EXPECTED


@pytest.mark.parametrize(
    ("corpus", "place", "hint"),
    [
        (mnist.CORPUS, "mist/raw", r"if \S+/mist is MNIST, call it mnist"),
        (imdb.CORPUS, "IMBD.zip", r"if \S+/IMBD\.zip is IMDB, call it imdb\.zip"),
        (text.PTB, "pen-treebank/data", r"if \S+/pen-treebank is Penn Treebank, call it ptb"),
    ],
)
def test_a_folder_whose_name_is_nearly_right_is_pointed_at(tmp_path, idx, corpus, place, hint):
    """And what it is told to be called is found."""
    lay(tmp_path / "root", place, {"mnist": idx, "imdb": REVIEWS, "ptb": dict.fromkeys(texts.PTB, b"")}[corpus.name])
    write(tmp_path / "root" / "mits", {"other": b""})  # without the files
    with pytest.raises(MissingData, match=hint) as error:
        corpus.locate(tmp_path / "root")
    told = str(error.value).split("call it ")[1].split(")")[0]
    (tmp_path / "root" / place.split("/")[0]).rename(tmp_path / "root" / told)
    assert corpus.locate(tmp_path / "root").is_relative_to(tmp_path / "root" / told)


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


WORD_PLACES = [
    ("ptb", "penn-treebank.tar.gz!penn-treebank", texts.PTB),
    ("ptb", "simple-examples/data", texts.PTB),
    ("ptb", "archive.zip!ptbdataset", texts.PTB),  # Kaggle
    ("ptb", "archive/ptbdataset", texts.PTB),
    ("ptb", "data/penn", GENERIC),  # AWD-LSTM
    ("ptb", ".data/penn-treebank", texts.PTB),  # torchtext
    ("ptb", "PTB", ("train.txt", "val.txt", "test.txt")),
    ("ptb", ".", texts.PTB),
    ("wt2", "wikitext2.tar.gz!wikitext2", GENERIC),
    ("wt2", "wikitext-2-v1.zip!wikitext-2", texts.WIKITEXT2),
    ("wt2", "wikitext-2-v1/wikitext-2", texts.WIKITEXT2),
    ("wt2", "data/WikiText2", GENERIC),  # PyTorch
    ("wt2", ".", texts.WIKITEXT2),
    ("wt103", "wikitext-103-v1.zip!wikitext-103", texts.WIKITEXT2),
    ("wt103", "wikitext-103-v1/data", GENERIC),
]


def check_words(corpus, root):
    found = text.words(corpus, root, allow_partial=True)
    assert found.symbols == ["a", "b", "<eos>", "<unk>", "N", "c", "d", "e"]
    assert [split.tolist() for split in found[:3]] == list(NUMBERS)
    if corpus == "ptb":
        assert len(text.ptb_characters(root, allow_partial=True).train) == 12


@pytest.mark.parametrize(("corpus", "place", "names"), WORD_PLACES)
def test_words_are_found(tmp_path, corpus, place, names):
    lay(tmp_path, place, splits(names))
    check_words(corpus, tmp_path)


def test_words_are_found_compressed_on_windows_and_in_mikolovs_archive(tmp_path):
    write(tmp_path / "gz", splits([f"{n}.gz" for n in texts.PTB], lambda s: gzip.compress(s.encode())))
    windows = splits([n.upper() for n in texts.PTB], lambda s: b"\xef\xbb\xbf" + s.replace("\n", "\r\n").encode())
    write(tmp_path / "windows" / "PTB", windows)
    others = {"ptb.char.train.txt": b"a _ b", "README": b""}
    lay(tmp_path / "mikolov", "simple-examples.tgz!./simple-examples/data", splits(texts.PTB) | others)
    for root in ("gz", "windows", "mikolov"):
        check_words("ptb", tmp_path / root)


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
    line = r"wikitext-2-v1 has no validation-00000-of-00001.parquet, test-00000-of-00001"
    with pytest.raises(MissingData, match=line):
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
    "text8.zip": lambda data: {"text8": data, "__MACOSX/._text8": b"\0"},
    "text8": lambda data: {"text8.gz": gzip.compress(data), "__init__.py": b"", "text8.vec": b"!"},  # gensim
    "Text8": lambda data: {"Text8.txt": b"\xef\xbb\xbf" + data + b"\r\n"},
    ".data/text8": lambda data: {"text8": data},  # torchtext
    "text8/text8": lambda data: {"text8": data},
    "text8.tar.xz": lambda data: {"./text8": data},
    "./text8": lambda data: {"text8.prefix-2000": data},
    ".": lambda data: {"text8": data},
}


@pytest.mark.parametrize("place", TEXT8_PLACES)
def test_text8_is_found(tmp_path, place):
    data = texts.write_text8(tmp_path / "made", 2000).read_bytes()
    lay(tmp_path / "root", place, TEXT8_PLACES[place](data))
    found = text.text8(tmp_path / "root", allow_partial=True)
    assert "".join(found.symbols[k] for split in found[:3] for k in split) == data.decode()
