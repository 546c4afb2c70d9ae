"""Read GloVe vectors (Pennington et al. 2014) of 6B tokens, 100 numbers each, from the usual text file or zip."""

import codecs
import hashlib
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from timescales.tasks.data.cache import cached
from timescales.tasks.data.corpus import Corpus, digest, whole
from timescales.tasks.data.places import Layout, Named

SIZE = 100
FILE = "glove.6B.100d.txt"


class Vectors(NamedTuple):
    """The vectors of some words.

    rows: indices of the words that have a vector, (M,).
    values: (M, 100).
    partial: see `Corpus.check`.
    digest: hash of the words that have a vector and of their vectors, for any order and format of the file.
    """

    rows: Tensor
    values: Tensor
    partial: list[str]
    digest: str


def vectors(words: list[str], root: str | os.PathLike | None = None, allow_partial: bool = False) -> Vectors:
    """Return the vectors of the words that have one. root: see `data_root`.

    Raises: MissingData if the file is not found and cannot be downloaded, ValueError if it is damaged or incomplete.
    """
    path = CORPUS.locate(root)
    words_hash = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]
    key = {"file": CORPUS.content_hash(path), "words": words_hash, "version": 2}
    content = cached("glove", key, lambda: _read(path, words))
    partial = CORPUS.check(path, {"vectors": content["vectors"]}, allow_partial)
    rows, order = content["rows"].sort()
    found = digest([content["values"][order].numpy()], [words[k] for k in rows.tolist()])
    return Vectors(content["rows"], content["values"], partial, found)


def _read(path: Path, words: list[str]) -> dict:
    row_of = {word: row for row, word in enumerate(words)}
    values: dict[int, np.ndarray] = {}
    found = set()
    for word, numbers in _vectors(path):
        found.add(word)
        if word in row_of:
            with CORPUS.reading(f"{path} at {word!r}"):
                values[row_of[word]] = np.array([number.decode() for number in numbers], np.float32)
    matrix = torch.from_numpy(np.stack(list(values.values()))) if values else torch.empty(0, SIZE)
    return {"rows": torch.tensor(list(values), dtype=torch.long), "values": matrix, "vectors": len(found)}


def _vectors(path: Path) -> Iterator[tuple[str, list[bytes]]]:
    """Yield each word of the file and its SIZE numbers, not yet parsed. Raises ValueError if the file is damaged."""
    from tqdm import tqdm

    (file,) = CORPUS.files(path)
    with CORPUS.reading(file.name), file.open() as lines:
        for k, line in enumerate(tqdm(lines, f"reading {path.name}", unit=" vectors", disable=None, leave=False), 1):
            fields = line.removeprefix(codecs.BOM_UTF8 if k == 1 else b"").split()  # words may have other white space
            if not fields or (k == 1 and len(fields) == 2):  # word2vec's format begins with the numbers of both
                continue
            if len(fields) != 1 + SIZE:
                raise ValueError(f"line {k:,} does not have {SIZE} numbers")
            try:
                yield fields[0].decode(), fields[1:]
            except UnicodeDecodeError as error:
                raise ValueError(f"line {k:,} is not UTF-8") from error


def _download(base: Path) -> None:
    from torchvision.datasets.utils import download_url

    with whole(base / FILE) as folder:
        download_url(CORPUS.url, str(folder))
        with zipfile.ZipFile(folder / "glove.6B.zip") as archive:  # checks the CRC of what it reads
            archive.extract(FILE, folder)


CORPUS = Corpus(
    name="glove",
    title="GloVe",
    layouts=(Layout({FILE: r"glove\.6b\.100d[^/]*\.txt|glove-wiki-gigaword-100(?:\.txt)?"}),),
    named=Named(folders=r"glove.*", archives=r"glove\.6b"),
    counts={"vectors": 400_000},
    count=lambda path: {"vectors": len({word for word, _ in _vectors(path)})},
    url="https://nlp.stanford.edu/data/glove.6B.zip",
    download=_download,
)
