"""Corpora: found, counted, cached; what is missing, damaged or partial says so."""

import pytest
import torch

from timescales.data.cache import cached, content_hash


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "timescales" / "corpora"


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
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
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
