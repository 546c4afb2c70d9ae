"""Check how data sets are found, downloaded, counted and cached; `scripts/fetch_data.py`; the released arrays."""

import io
import re
import sys
import urllib.request

import numpy as np
import pytest
import released_files
import synthetic
import torch

from timescales.errors import MissingData
from timescales.files import cache_dir
from timescales.paths import ROOT
from timescales.tasks.data import cifar, corpus, glove, imdb, released
from timescales.tasks.data.cache import cached, status_hash
from timescales.tasks.data.corpus import Corpus, whole
from timescales.tasks.data.places import Layout, Named

pytestmark = pytest.mark.usefixtures("cache")


def toy(download=None):
    def offline(base):
        raise OSError("no network")

    return Corpus(
        name="toy",
        title="Toy",
        layouts=(Layout({"toy.txt": r"toy[^/]*\.txt"}),),
        named=Named(folders="toy.*", archives="toy"),
        counts={"lines": 1200, "words": 3},
        count=lambda path: {"lines": len(path.read_text().splitlines()), "words": 3},
        url="https://example.invalid/toy",
        download=download or offline,
    )


def test_a_broken_link_or_a_folder_of_its_name_is_no_corpus(tmp_path):
    (tmp_path / "toy.txt").symlink_to("annexed/and/not/here")
    assert toy().find(tmp_path) is None
    (tmp_path / "toy.txt").unlink()
    (tmp_path / "toy.txt").mkdir()
    assert toy().find(tmp_path) is None
    (tmp_path / "toy.txt" / "toy.txt").touch()
    assert toy().find(tmp_path) == tmp_path / "toy.txt" / "toy.txt"


def test_a_missing_corpus_is_one_clear_line_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    place = tmp_path / "nowhere"
    with pytest.raises(MissingData) as error:
        toy().locate(place)
    text = str(error.value)
    for word in ("Toy", str(place), "looked for toy.txt", "HF_HUB_OFFLINE", "fetch_data.py toy", "data_root=DIR"):
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
    line = r"not the complete Toy: 7 of 1,200 lines\. .*fetch_data.py toy.*allow_partial"
    with pytest.raises(ValueError, match=line):
        toy().check(tmp_path, {"lines": 7, "words": 3}, False)
    words = toy().check(tmp_path, {"lines": 1201, "words": 4}, True)
    assert words == ["Toy subset: 1,201 of 1,200 lines, 4 of 3 words"]


def test_a_file_that_may_not_be_read_is_not_called_damaged():
    with pytest.raises(ValueError, match=r"toy\.txt may not be read: make it readable"), toy().reading("toy.txt"):
        raise PermissionError(13, "Permission denied", "toy.txt")


def test_tables_need_what_can_be_fetched():
    import fetch_data

    lines = [line for path in (ROOT / "conf" / "table").glob("*.yaml") for line in path.read_text().splitlines()]
    found = [re.findall(r"\w+", line.partition(":")[2]) for line in lines if line.strip().startswith("needs:")]
    assert {"ptb", "wt2"} < {name for names in found for name in names} <= set(fetch_data.CORPORA)


def test_fetch_data_looks_counts_and_says_so(tmp_path, monkeypatch, capsys):
    import fetch_data

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    synthetic.write_mnist(tmp_path / "MNIST" / "raw", 30, 10)
    synthetic.write_imdb(tmp_path / "aclImdb.tar.gz", 20, 10)
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"not a tar")

    def status(*words):
        monkeypatch.setattr(sys, "argv", ["fetch_data.py", *words, "--root", str(tmp_path)])
        with pytest.raises(SystemExit) as leaving:
            fetch_data.main()
        return leaving.value.code

    for check in ([], ["--check"]):
        assert status("all", *check) == 1
        lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
        assert "incomplete: 30 of 60,000 training images, 10 of 10,000 test images" in lines["mnist"]
        assert "incomplete: 20 of 25,000 train reviews, 10 of 25,000 test reviews" in lines["imdb"]
        assert "move it elsewhere and fetch it again: `python scripts/fetch_data.py cifar10`" in lines["cifar10"]
        assert f"not under {tmp_path}" in lines["glove"]
        assert ("HF_HUB_OFFLINE is set" in lines["glove"]) is not bool(check)  # a check asks no server
    (tmp_path / "toy.txt").write_text("x\n" * 1200)
    assert fetch_data.check(toy(), str(tmp_path), download=False)
    assert capsys.readouterr().out == f"toy: {tmp_path}/toy.txt: complete: 1,200 lines, 3 words\n"
    monkeypatch.setattr(fetch_data, "CORPORA", {"toy": toy(), "mnist": fetch_data.CORPORA["mnist"]})
    assert [status(*names, "--check") for names in (["toy"], ["toy", "mnist"], ["all"])] == [0, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [imdb, glove, cifar])
def test_counts_of_the_real_data(kind):
    """Whole or in part; the name of a part says how large it is."""
    if (path := synthetic.real(kind.CORPUS)) is None:
        pytest.skip(f"needs {kind.CORPUS.title} under TIMESCALES_DATA")
    part = re.search(r"first(\d+)", path.name)
    expected = [int(part[1])] if part else list(kind.CORPUS.counts.values())
    assert list(kind.CORPUS.count(path).values()) == expected, path


# --- The cache -------------------------------------------------------------------------------------------------------
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
        assert (found["tokens"].tolist(), found["tokens"].dtype) == ([0, 1, 2, 3, 4], torch.int32)
        assert (found["words"], found["n"]) == (["a", "b"], 3)
    assert len(calls) == 1
    cached("toy", {"lower": True, "file": "abc"}, make)
    cached("other", {"lower": True, "file": "abc"}, make)
    assert len(calls) == 3
    assert len(list(cache.glob("*.pt"))) == 3


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: b"", lambda data: b"<html>" + data])
def test_a_damaged_cache_is_made_again(cache, damage):
    make, calls = counting({"x": torch.ones(1000)})
    cached("toy", {}, make)
    (path,) = cache.glob("*")
    path.write_bytes(damage(path.read_bytes()))
    assert torch.equal(cached("toy", {}, make)["x"], torch.ones(1000))
    assert torch.equal(cached("toy", {}, make)["x"], torch.ones(1000))
    assert len(calls) == 2


def test_without_a_place_for_the_cache(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr("timescales.tasks.data.cache.cache_dir", lambda: tmp_path / "file")
    make, calls = counting({"n": 1})
    assert cached("toy", {}, make) == cached("toy", {}, make) == {"n": 1}
    assert len(calls) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_the_hash_of_many_files_is_that_of_their_status(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("one")
    second.write_text("one")
    before = status_hash(tmp_path, [first, second])
    assert before == status_hash(tmp_path, [second, first])
    second.write_text("other")
    assert status_hash(tmp_path, [first, second]) != before


@pytest.mark.parametrize(
    ("said", "place"),
    [
        (None, "/home/me/.cache"),
        ("", "/home/me/.cache"),
        ("~/there", "/home/me/there"),
        ("relative", "relative"),
        ("/absolute", "/absolute"),
    ],
)
def test_the_users_cache_is_never_a_folder_called_tilde(monkeypatch, said, place):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if said is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", said)
    assert str(cache_dir()) == f"{place}/timescales"


# --- The arrays that Mahto et al. 2021 released ----------------------------------------------------------------------
def test_arrays_by_model_and_layer(tmp_path, monkeypatch):
    folder = released_files.real() or released_files.write(tmp_path)
    if released_files.real() is None:
        released_files.accepted(monkeypatch, folder)
    times, ratios = released.time_scales(folder.parent), released.ratios(folder.parent)
    assert list(times) == ["PTB", "PTB-mts", "WT2", "WT2-mts"]
    units = (1150, 1150, 400) if released_files.real() else released_files.UNITS
    assert all([layer.shape for layer in layers] == [(n,) for n in units] for layers in times.values())
    assert ratios.shape == (4, 23)
    second = "estimated_timescales/WT2_timescale_layer_2_output.npy"
    assert np.array_equal(times["WT2"][1], np.load(folder / second))


@pytest.mark.skipif(released_files.real() is None, reason="needs the released arrays under TIMESCALES_DATA")
def test_the_real_arrays():
    times, ratios = released.time_scales(), released.ratios()
    largest = [round(max(float(layer.max()) for layer in times[model]), 1) for model in ("PTB", "WT2")]
    assert largest == [88.8, 205.9]
    # Table 3's perplexities of the multi-timescale model, and table 1's: only the first give two decimals.
    for printed, fits in (([6.79, 26.68, 167.97, 1902.37], True), ([6.84, 27.14, 176.11, 2100.89], False)):
        silenced = ratios * np.array(printed)[:, None]
        assert np.allclose(silenced, silenced.round(2), rtol=0, atol=1e-9) == fits


def test_other_arrays_are_refused(tmp_path):
    folder = released_files.write(tmp_path)
    with pytest.raises(ValueError, match=r"is not what was released \(432 of 10,800 time scales\): move it"):
        released.time_scales(tmp_path)
    (folder / released.FILES[0]).write_bytes(b"\x93NUMPY")
    with pytest.raises(ValueError, match=r"layer_1_output\.npy cannot be read .*: move it elsewhere"):
        released.ratios(tmp_path)


def test_a_download_is_of_one_commit_and_checked(tmp_path, monkeypatch):
    there = released_files.write(tmp_path / "server")
    asked = []

    def urlopen(url, timeout):
        asked.append(url)
        return io.BytesIO((there / url.partition("/results/")[2]).read_bytes())

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    monkeypatch.setattr(corpus, "_check_reachable", lambda url: None)
    with pytest.raises(MissingData, match="differs from the published files"):
        released.time_scales(tmp_path / "mine")
    assert not (tmp_path / "mine" / released.FOLDER).exists()
    assert len(asked) == 16
    assert all(url.startswith(f"{released.URL}/") for url in asked)
    released_files.accepted(monkeypatch, there)
    assert len(released.time_scales(tmp_path / "mine")["PTB"][0]) == released_files.UNITS[0]
    released.ratios(tmp_path / "mine")
    assert len(asked) == 32  # what is there is not fetched again
