"""GloVe vectors (Pennington et al. 2014) of 6B tokens, 100 numbers each, read from the usual text file."""

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
    """rows: indices of the words that have a vector, (M,). values: (M, 100). partial: see `Corpus.check`."""

    rows: Tensor
    values: Tensor
    partial: list[str]


def vectors(words: list[str], root: str | os.PathLike | None = None, allow_partial: bool = False) -> Vectors:
    """The vectors of the words that have one. root: see `data_root`.

    Raises MissingData if the file is not there and cannot be downloaded, ValueError if it is damaged or incomplete.
    """
    path = CORPUS.locate(root)
    words_hash = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
    content = cached(
        "glove", {"file": content_hash(path), "words": words_hash, "version": 1}, lambda: _read(path, words)
    )
    partial = CORPUS.check(path, {"vectors": content["vectors"]}, allow_partial)
    return Vectors(content["rows"], content["values"], partial)


def _read(path: Path, words: list[str]) -> dict:
    from tqdm import tqdm

    row_of = {word: row for row, word in enumerate(words)}
    rows, values, n = [], [], 0
    for line in tqdm(_lines(path), desc=f"reading {path.name}", unit=" vectors", disable=None, leave=False):
        n += 1
        word, _, numbers = line.rstrip("\n").partition(" ")
        if word in row_of:
            rows.append(row_of[word])
            try:
                values.append(np.array(numbers.split(" "), np.float32))
            except ValueError as error:
                raise ValueError(_unreadable(path, error)) from error
    if any(len(value) != SIZE for value in values):
        raise ValueError(f"{path} does not have {SIZE} numbers per line: delete it and fetch it again")
    matrix = torch.from_numpy(np.stack(values)) if values else torch.empty(0, SIZE)
    return {"rows": torch.tensor(rows), "values": matrix, "vectors": n}


def _lines(path: Path) -> Iterator[str]:
    """The lines of the file, one per vector. Raises ValueError if it is damaged."""
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
