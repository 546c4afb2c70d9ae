"""Corpora: found, counted, cached; what is missing, damaged or partial says so."""

import gzip
import io
import os
import pickle
import re
import sys
import tarfile
import types
import zipfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import synthetic
import texts
import torch
from omegaconf import OmegaConf

from timescales.files import cache_dir
from timescales.runs import provenance
from timescales.tasks.data import cifar, glove, imdb, mnist
from timescales.tasks.data.cache import cached, content_hash
from timescales.tasks.data.corpus import Corpus, MissingData, data_root, whole
from timescales.tasks.data.imdb import tokenizer  # taken before the other tests' stand-in replaces it

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts" / "bench")]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("timescales.tasks.data.cache.cache_dir", lambda: folder)
    return folder / "corpora"


# --- the cache ----------------------------------------------------------------------------------------------------


def counting(content):
    calls = []

    def make():
        calls.append(1)
        return content

    return make, calls


def test_made_once_per_key(cache):
    make, calls = counting({"tokens": torch.arange(5, dtype=torch.int32), "words": ["a", "b"], "n": 3})
    for _ in range(2):
        found = cached("toy", {"lower": False, "file": "abc"}, make)
        assert found["tokens"].tolist() == [0, 1, 2, 3, 4]
        assert found["tokens"].dtype == torch.int32
        assert (found["words"], found["n"]) == (["a", "b"], 3)
    assert len(calls) == 1
    cached("toy", {"lower": True, "file": "abc"}, make)
    cached("other", {"lower": True, "file": "abc"}, make)
    assert len(calls) == 3
    assert len(list(cache.glob("*.pt"))) == 3


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: b"", lambda data: b"<html>" + data])
def test_a_damaged_cache_is_made_anew(cache, damage):
    make, calls = counting({"x": torch.ones(1000)})
    cached("toy", {}, make)
    (path,) = cache.glob("*")
    path.write_bytes(damage(path.read_bytes()))
    assert torch.equal(cached("toy", {}, make)["x"], torch.ones(1000))
    assert torch.equal(cached("toy", {}, make)["x"], torch.ones(1000))
    assert len(calls) == 2


def test_what_fails_leaves_nothing(cache):
    def make():
        raise ValueError("no such corpus")

    with pytest.raises(ValueError, match="no such corpus"):
        cached("toy", {}, make)
    assert not list(cache.glob("*"))


def test_without_a_place_for_the_cache(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr("timescales.tasks.data.cache.cache_dir", lambda: tmp_path / "file")
    make, calls = counting({"n": 1})
    assert cached("toy", {}, make) == cached("toy", {}, make) == {"n": 1}
    assert len(calls) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_content_hash_is_the_contents(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("one")
    second.write_text("one")
    assert content_hash(first) == content_hash(second)
    assert content_hash(first) != content_hash(first, second)
    before = content_hash(tmp_path)
    assert before == content_hash(tmp_path)
    second.write_text("other")
    assert content_hash(first) != content_hash(second)
    assert content_hash(tmp_path) != before


def test_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "timescales"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "timescales"


@pytest.mark.parametrize("said", ["", "~/elsewhere", "relative", "/absolute"])
def test_the_users_cache_is_never_a_folder_called_tilde(monkeypatch, tmp_path, said):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", said)
    assert "~" not in str(cache_dir())


# --- finding, downloading, counting -------------------------------------------------------------------------------


def toy(download=None):
    def offline(base):
        raise OSError("no network")

    return Corpus(
        name="toy", title="Toy", patterns=("toy.txt", "*/toy*.txt"), counts={"lines": 1200, "words": 3},
        count=lambda path: {"lines": len(path.read_text().splitlines()), "words": 3},
        url="https://example.invalid/toy", download=download or offline,
    )  # fmt: skip


@pytest.fixture
def online(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: io.BytesIO())


@pytest.mark.parametrize("place", ["toy.txt", "toy/toy.txt", "mine/toy.train.txt"])
def test_what_people_have_is_found(tmp_path, place):
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    assert toy().locate(tmp_path) == path


def test_an_empty_folder_is_no_corpus(tmp_path):
    (tmp_path / "toy.txt").symlink_to("annexed/and/not/here")
    assert toy().find(tmp_path) is None
    (tmp_path / "toy.txt").unlink()
    (tmp_path / "toy.txt").mkdir()
    assert toy().find(tmp_path) is None
    (tmp_path / "toy.txt" / "inside").touch()
    assert toy().find(tmp_path) == tmp_path / "toy.txt"


def test_a_missing_corpus_is_one_clear_line_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    place = tmp_path / "nowhere"
    with pytest.raises(MissingData) as error:
        toy().locate(place)
    text = str(error.value)
    for word in ("Toy", str(place), "toy.txt, */toy*.txt", "HF_HUB_OFFLINE", "fetch_data.py toy", "data_root=DIR"):
        assert word in text
    assert "\n" not in text
    assert not place.exists()


@pytest.mark.parametrize(("said", "offline"), [("1", True), ("on", True), ("", False), ("0", False), ("False", False)])
def test_a_server_is_asked_unless_hf_hub_offline_forbids_it(tmp_path, monkeypatch, online, said, offline):
    monkeypatch.setenv("HF_HUB_OFFLINE", said)
    with pytest.raises(MissingData, match="HF_HUB_OFFLINE is set" if offline else "no network"):
        toy().locate(tmp_path)


def test_a_failed_download_says_why_and_leaves_nothing(tmp_path, online):
    def breaks(base):
        with whole(base / "toy.txt") as folder:
            (folder / "toy.txt").write_text("half")
            raise RuntimeError("connection lost\nTraceback")

    with pytest.raises(MissingData, match=r"could not be downloaded \(connection lost\)"):
        toy(breaks).locate(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_download_is_moved_into_place_whole(tmp_path, online):
    def works(base):
        with whole(base / "toy" / "toy.txt") as folder:
            (folder / "toy.txt").write_text("all")
            (folder / "left.zip").write_text("over")

    path = toy(works).locate(tmp_path)
    assert path == tmp_path / "toy" / "toy.txt"
    assert [p.name for p in path.parent.iterdir()] == ["toy.txt"]


def test_counts_decide(tmp_path):
    assert toy().check(tmp_path, {"lines": 1200, "words": 3, "more": 1}, False) == []
    with pytest.raises(ValueError, match=r"not the complete Toy: 7 of 1,200 lines\. .*fetch_data.py toy.*allow_partial"):
        toy().check(tmp_path, {"lines": 7, "words": 3}, False)
    words = toy().check(tmp_path, {"lines": 1201, "words": 4}, True)
    assert words == ["Toy subset: 1,201 of 1,200 lines, 4 of 3 words"]


def test_tables_need_what_can_be_fetched():
    import fetch_data

    found = [OmegaConf.load(path).table for path in (ROOT / "conf" / "table").glob("*.yaml")]
    needs = {name for table in found for name in table.get("needs", [])}
    assert {"ptb", "wt2"} < needs <= set(fetch_data.CORPORA)


def test_fetch_data_looks_counts_and_says_so(tmp_path, monkeypatch, capsys):
    import fetch_data

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    synthetic.write_mnist(tmp_path / "MNIST" / "raw", 30, 10)
    synthetic.write_imdb(tmp_path / "aclImdb.tar.gz", 20, 10)
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"not a tar")
    for check in ([], ["--check"]):
        monkeypatch.setattr(sys, "argv", ["fetch_data.py", "all", "--root", str(tmp_path), *check])
        with pytest.raises(SystemExit) as leaving:
            fetch_data.main()
        assert leaving.value.code == 1
        lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
        assert "incomplete: 30 of 60,000 training images, 10 of 10,000 test images" in lines["mnist"]
        assert "incomplete: 20 of 25,000 train reviews, 10 of 25,000 test reviews" in lines["imdb"]
        assert "delete it and fetch it again" in lines["cifar10"]
        assert f"not under {tmp_path}" in lines["glove"]
        assert ("HF_HUB_OFFLINE is set" in lines["glove"]) is not bool(check)  # a check asks no server
    (tmp_path / "toy.txt").write_text("x\n" * 1200)
    assert fetch_data.check(toy(), str(tmp_path), download=False)
    assert capsys.readouterr().out == f"toy: {tmp_path}/toy.txt: complete: 1,200 lines, 3 words\n"
    monkeypatch.setattr(fetch_data, "CORPORA", {"toy": toy(), "mnist": fetch_data.CORPORA["mnist"]})
    for names, status in ((["toy"], 0), (["toy", "mnist"], 1), (["all"], 1)):
        monkeypatch.setattr(sys, "argv", ["fetch_data.py", *names, "--check", "--root", str(tmp_path)])
        with pytest.raises(SystemExit) as leaving:
            fetch_data.main()
        assert leaving.value.code == status


def test_a_gpu_pack_is_the_data_and_no_more_than_fits(tmp_path, monkeypatch, script):
    import gpu_pack

    assert sorted(pin.split("==")[0] for pin in gpu_pack.pins()) == sorted(gpu_pack.WHEELS)
    here, pack = tmp_path / "here", tmp_path / "gpu-pack"
    synthetic.write_mnist(here / "MNIST" / "raw", 30, 10)
    synthetic.write_mnist(here / "MNIST" / "raw", 30, 10, ".gz")
    (here / "MNIST" / "raw" / mnist.FILES[0]).unlink()  # one packed, three not
    texts.write_words(here / "ptb", texts.PTB)
    (here / "text8").mkdir()
    (here / "text8" / "text8").write_bytes(os.urandom(200_000))
    for name, value in {"ROOT": tmp_path, "PACK": pack, "LIMIT_MB": 0.15, "wheels": lambda: None}.items():
        monkeypatch.setattr(gpu_pack, name, value)
    monkeypatch.setenv("TIMESCALES_DATA", str(here))
    assert "left out, it does not fit: text8/text8 (0.2 MB)" in script("gpu_pack")
    assert all(map(torch.equal, mnist.load(pack / "data"), mnist.load(here)))
    packed = {path.name: gzip.decompress(path.read_bytes()) for path in (pack / "data" / "ptb").iterdir()}
    assert packed == {f"{name}.gz": (here / "ptb" / name).read_bytes() for name in texts.PTB}
    assert sorted(path.name for path in (pack / "data").iterdir()) == ["MNIST", "ptb"]


# --- CIFAR-10 -----------------------------------------------------------------------------------------------------


def test_cifar_from_tar_and_folder(tmp_path):
    path = synthetic.write_cifar(tmp_path / "cifar-10-python.tar.gz", 50, 10)
    images = cifar.read(path)
    assert images.train.shape == (50, 3, 1024)
    assert images.train.dtype == images.train_labels.dtype == torch.uint8
    assert images.train[:, 0, 0].tolist() == list(range(50))
    assert images.train_labels.tolist() == [k % 10 for k in range(50)]
    assert images.test.shape == (10, 3, 1024)
    of_pixel_0 = [[k % 256, k // 256 % 256, k // 65536] for k in range(100_000, 100_010)]  # a file holds whole planes
    assert images.test[:, :, 0].tolist() == of_pixel_0
    with tarfile.open(path) as tar:
        synthetic.unpack(tar, tmp_path / "mine")
    again = cifar.read(tmp_path / "mine" / "cifar-10-batches-py")
    assert all(map(torch.equal, images, again))
    path.unlink()
    assert cifar.CORPUS.find(tmp_path) == tmp_path / "mine" / "cifar-10-batches-py"
    found, partial = cifar.load(tmp_path, allow_partial=True)
    assert torch.equal(found.train, images.train)
    assert partial == ["CIFAR-10 subset: 50 of 50,000 training images, 10 of 10,000 test images"]


class Evil:
    def __reduce__(self):
        return os.system, ("touch was_here",)


@pytest.mark.parametrize("damage", ["cut", "empty", "a_batch_missing", "code"])
def test_damaged_cifar_is_named_and_never_run(tmp_path, damage, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = synthetic.write_cifar(tmp_path / "cifar-10-python.tar.gz", 50, 10)
    if damage in ("cut", "empty"):
        path.write_bytes(path.read_bytes()[: 2000 if damage == "cut" else 0])
    else:
        with tarfile.open(path) as tar:
            synthetic.unpack(tar, tmp_path)
        path = tmp_path / "cifar-10-batches-py"
        if damage == "code":
            (path / "data_batch_2").write_bytes(pickle.dumps({b"data": Evil(), b"labels": []}))
        else:
            (path / "data_batch_2").unlink()
    with pytest.raises(ValueError, match="fetch it again") as error:
        cifar.read(path)
    assert str(path) in str(error.value)
    assert not (tmp_path / "was_here").exists()


def fake_download_url(monkeypatch, write):
    module = types.ModuleType("torchvision.datasets.utils")
    datasets = types.ModuleType("torchvision.datasets")
    datasets.CIFAR10 = types.SimpleNamespace(url="https://host/cifar", tgz_md5="abc")
    asked = []

    def download_url(url, root, filename=None, md5=None):
        asked.append((url, filename, md5))
        write(Path(root) / (filename or url.rsplit("/", 1)[1]))

    module.download_url = download_url
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", datasets)
    monkeypatch.setitem(sys.modules, "torchvision.datasets.utils", module)
    return asked


def test_cifar_is_downloaded_with_its_checksum(tmp_path, monkeypatch, online):
    asked = fake_download_url(monkeypatch, lambda path: synthetic.write_cifar(path, 50, 10))
    assert cifar.CORPUS.locate(tmp_path) == tmp_path / "cifar-10-python.tar.gz"
    assert asked == [("https://host/cifar", "cifar-10-python.tar.gz", "abc")]


# --- GloVe --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["glove.6B.100d.txt", "glove/glove.6B.100d.first8.txt", "x/glove.6B.100d.txt.gz"])
def test_glove_vectors(tmp_path, place):
    synthetic.write_glove(tmp_path / place)
    for _ in range(2):  # read, then from the cache
        found = glove.vectors(["film", "Film", "xyzzy", "the", ","], tmp_path, allow_partial=True)
        assert sorted(found.rows.tolist()) == [0, 3, 4]
        values = dict(zip(found.rows.tolist(), found.values, strict=True))
        torch.testing.assert_close(values[0], 3 + torch.arange(1, 101) / 100)
        torch.testing.assert_close(values[3], torch.arange(1, 101) / 100)
        assert found.partial == ["GloVe subset: 8 of 400,000 vectors"]
    with pytest.raises(ValueError, match="8 of 400,000 vectors"):
        glove.vectors(["film"], tmp_path)
    assert glove.vectors(["none"], tmp_path, allow_partial=True).values.shape == (0, 100)


def test_a_glove_file_of_another_size_is_named(tmp_path):
    (tmp_path / "glove.6B.100d.txt").write_text("film 1.0 2.0\n")
    with pytest.raises(ValueError, match="does not have 100 numbers per line"):
        glove.vectors(["film"], tmp_path, allow_partial=True)


@pytest.mark.parametrize("change", [lambda data: data[:-20], lambda data: b"<html>moved</html>"])
def test_a_damaged_file_of_vectors_is_named(tmp_path, capsys, change):
    import fetch_data

    path = synthetic.write_glove(tmp_path / "glove.6B.100d.txt.gz")
    path.write_bytes(change(path.read_bytes()))
    said = rf"{re.escape(str(path))} cannot be read as GloVe \(.+\): delete it and fetch it again"
    with pytest.raises(ValueError, match=said):
        glove.vectors(["film"], tmp_path, allow_partial=True)
    assert not fetch_data.check(glove.CORPUS, str(tmp_path), download=False)
    assert re.fullmatch(rf"glove: {said}\n", capsys.readouterr().out)
    path.write_bytes(gzip.compress(b"film 1.0 two\n"))
    with pytest.raises(ValueError, match=said):
        glove.vectors(["film"], tmp_path, allow_partial=True)


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


# --- IMDB ---------------------------------------------------------------------------------------------------------


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


def test_a_review_is_utf_8_and_its_folder_is_its_label(tmp_path):
    for split, folder, words in (("train", "pos", "très bon\n"), ("train", "neg", "déjà vu"), ("test", "pos", "æon")):
        path = tmp_path / "aclImdb" / split / folder / "0_9.txt"
        path.parent.mkdir(parents=True)
        path.write_bytes(words.encode())
    assert imdb.read(tmp_path / "aclImdb") == {"train": [(0, "déjà vu"), (1, "très bon")], "test": [(1, "æon")]}


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
    assert provenance.provenance("cpu")["versions"]["spacy"] == "3.8.1"
    assert types_of("3.8.1", never) == first
    assert types_of("3.8.2", list)[:3] == [" ", "0", "1"]  # letters: rules that changed
    assert types_of("3.8.1", never) == first
    words = types_of(None, lambda text: ["kept", *text.split()])
    assert words == sorted({"kept", *first})
    assert "spacy" not in provenance.provenance("cpu")["versions"]
    key = {"file": content_hash(path), "tokens": "spacy", "version": 2}
    assert cached("imdb", key, lambda: pytest.fail("older caches lie there"))["types"].split("\0") == words


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


# --- the real ones, where TIMESCALES_DATA has them ----------------------------------------------------------------

REAL = bool(os.environ.get("TIMESCALES_DATA"))
SMALL = {
    "imdb": ("aclImdb.tar.gz", synthetic.write_imdb, [600, 100]),
    "glove": ("glove.6B.100d.txt", synthetic.write_glove, [8]),
    "cifar10": ("cifar-10-python.tar.gz", synthetic.write_cifar, [600, 100]),
}


@pytest.mark.parametrize("corpus", [imdb.CORPUS, glove.CORPUS, cifar.CORPUS], ids=lambda c: c.name)
def test_real_counts(corpus, tmp_path):
    """Of the real data where they are, else of small ones."""
    name, write, expected = SMALL[corpus.name]
    if path := corpus.find(data_root(None)) if REAL else None:
        part = re.search(r"first(\d+)", path.name)  # the name of a part says how large it is
        expected = [int(part[1])] if part else list(corpus.counts.values())
    else:
        path = write(tmp_path / name)
    assert list(corpus.count(path).values()) == expected


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
