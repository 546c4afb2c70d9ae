"""GloVe vectors (Pennington et al. 2014), 6B tokens, 100 numbers each, as the text file everybody has."""

from __future__ import annotations

import gzip
import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from timescales.tasks.data.cache import cached, content_hash
from timescales.tasks.data.corpus import Corpus, reason, whole

SIZE = 100
FILE = "glove.6B.100d.txt"


class Vectors(NamedTuple):
    """rows: which of the words asked for have a vector, (M,); values: (M, 100); partial: see `Corpus.check`."""

    rows: Tensor
    values: Tensor
    partial: list[str]


def vectors(words: list[str], root: str | os.PathLike | None = None, allow_partial: bool = False) -> Vectors:
    """The vectors of those words that have one. root: see `data_root`.

    Raises MissingData if the file is neither there nor to be had, ValueError if it is damaged or not all there.
    """
    path = CORPUS.locate(root)
    asked = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
    found = cached("glove", {"file": content_hash(path), "words": asked, "version": 1}, lambda: _read(path, words))
    partial = CORPUS.check(path, {"vectors": found["vectors"]}, allow_partial)
    return Vectors(found["rows"], found["values"], partial)


def _read(path: Path, words: list[str]) -> dict:
    from tqdm import tqdm

    wanted = {word: row for row, word in enumerate(words)}
    rows, values, n = [], [], 0
    for line in tqdm(_lines(path), desc=f"reading {path.name}", unit=" vectors", disable=None, leave=False):
        n += 1
        word, _, numbers = line.rstrip("\n").partition(" ")
        if word in wanted:
            rows.append(wanted[word])
            try:
                values.append(np.array(numbers.split(" "), np.float32))
            except ValueError as error:
                raise ValueError(_unreadable(path, error)) from error
    if any(len(value) != SIZE for value in values):
        raise ValueError(f"{path} has not {SIZE} numbers a line: delete it and fetch it again")
    matrix = torch.from_numpy(np.stack(values)) if values else torch.empty(0, SIZE)
    return {"rows": torch.tensor(rows), "values": matrix, "vectors": n}


def _lines(path: Path) -> Iterator[str]:
    """A line a vector. Raises ValueError for a file that is damaged."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="\n") as file:
            yield from file
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(_unreadable(path, error)) from error


def _unreadable(path: Path, error: Exception) -> str:
    return f"{path} cannot be read as GloVe ({reason(error)}): delete it and fetch it again"


def _download(base: Path) -> None:
    from torchvision.datasets.utils import download_url

    with whole(base / FILE) as folder:
        download_url(CORPUS.url, str(folder))
        with zipfile.ZipFile(folder / "glove.6B.zip") as archive:  # checks the CRC of what it reads
            archive.extract(FILE, folder)


CORPUS = Corpus(
    name="glove",
    title="GloVe",
    patterns=("glove.6B.100d*.txt*", "*/glove.6B.100d*.txt*"),
    counts={"vectors": 400_000},
    count=lambda path: {"vectors": sum(1 for _ in _lines(path))},
    url="https://nlp.stanford.edu/data/glove.6B.zip",
    download=_download,
)
