"""GloVe vectors: read, downloaded; damaged files are named."""

import gzip
import re
import zipfile

import pytest
import synthetic
import torch
from downloads import fake_download_url

from timescales.tasks.data import glove

pytestmark = pytest.mark.usefixtures("cache")


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


def test_the_digest_is_of_the_vectors_that_are_read(tmp_path):
    """Not of the format or the order of the file, nor of vectors of other words."""
    words = ["film", "Film", "the"]

    def digest_of(place, change=lambda lines: lines, read=words):
        path = synthetic.write_glove(tmp_path / place / "glove.6B.100d.txt")
        path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
        return glove.vectors(read, tmp_path / place, allow_partial=True).digest

    def changed(word):
        return lambda lines: [
            line.replace(".50 ", ".51 ", 1) if line.startswith(f"{word} ") else line for line in lines
        ]

    known = digest_of("as it is")
    assert len(known) == 16
    assert digest_of("backwards", lambda lines: lines[::-1]) == known
    synthetic.write_glove(tmp_path / "packed" / "glove.6B.100d.txt.gz")
    assert glove.vectors(words, tmp_path / "packed", allow_partial=True).digest == known
    assert digest_of("other word", changed("it")) == known
    assert digest_of("one number", changed("the")) != known
    assert digest_of("fewer words", read=["film"]) != known


def test_a_glove_file_of_another_size_is_named(tmp_path):
    (tmp_path / "glove.6B.100d.txt").write_text("film 1.0 2.0\n")
    with pytest.raises(ValueError, match="line 1 does not have 100 numbers"):
        glove.vectors(["film"], tmp_path, allow_partial=True)


@pytest.mark.parametrize("change", [lambda data: data[:-20], lambda data: b"<html>moved</html>"])
def test_a_damaged_file_of_vectors_is_named(tmp_path, capsys, change):
    import fetch_data

    path = synthetic.write_glove(tmp_path / "glove.6B.100d.txt.gz")
    path.write_bytes(change(path.read_bytes()))
    said = rf"{re.escape(str(path))} cannot be read as GloVe \(.+\): move it elsewhere and fetch it again: .*`"
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
