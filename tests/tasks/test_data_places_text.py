"""Texts as systems and tools pack, unpack and name them; of several copies the complete one is taken."""

import dataclasses
import gzip

import pytest
import texts
from packs import below, contents, pack, write

from timescales.errors import MissingData
from timescales.tasks.data import text

pytestmark = pytest.mark.usefixtures("cache")

GENERIC = ("train.txt", "valid.txt", "test.txt")
LINES = "a b\n<unk> N\n", "c d\n", "a e\n"
NUMBERS = [0, 1, 2, 3, 4, 2], [5, 6, 2], [0, 7, 2]  # <eos> is 2


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


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
