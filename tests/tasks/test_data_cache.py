"""The cache of what takes long to compute from a data set."""

import pytest
import torch

from timescales.files import cache_dir
from timescales.tasks.data.cache import cached, content_hash, status_hash

pytestmark = pytest.mark.usefixtures("cache")


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
def test_a_damaged_cache_is_made_again(cache, damage):
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
    before = status_hash(tmp_path, [first, second])
    assert before == status_hash(tmp_path, [second, first])
    second.write_text("other")
    assert content_hash(first) != content_hash(second)
    assert status_hash(tmp_path, [first, second]) != before


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
