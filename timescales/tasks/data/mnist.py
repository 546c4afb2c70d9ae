"""MNIST as idx files, raw or gzipped. torchvision downloads them."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from timescales.tasks.data.corpus import Corpus, digest

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
FOLDERS = ("MNIST/raw", "mnist/raw", "mnist", "MNIST", ".")


def load(root: str | os.PathLike | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images (N, 784) and labels (N,), then test images and labels, all uint8.

    root: see `data_root`. Raises MissingData, with the places searched, if the files are not there and cannot be
    downloaded, and ValueError for a file that is damaged or not MNIST's.
    """
    return read(CORPUS.locate(root))


def read(path: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `load` returns, from the four files beside a path (itself one of them). Raises ValueError for a bad file."""
    paths = files(path)
    arrays = [read_idx(path) for path in paths]
    for images, labels, path in ((arrays[0], arrays[1], paths[0]), (arrays[2], arrays[3], paths[2])):
        if images.ndim != 3 or images.shape[1:] != (28, 28) or labels.shape != (len(images),):
            raise ValueError(f"{path}: {images.shape} images with {labels.shape} labels are not MNIST's")
    train, train_labels, test, test_labels = (torch.from_numpy(array) for array in arrays)
    return train.flatten(1), train_labels, test.flatten(1), test_labels


def files(path: Path) -> list[Path]:
    """The four files, raw or .gz, of which one is given. Raises ValueError if one is missing."""
    existing: list[Path] = []
    for name in FILES:
        existing += [p for p in (path.with_name(name), path.with_name(f"{name}.gz")) if p.is_file()][:1]
    if len(existing) < len(FILES):
        raise ValueError(f"{path.parent} has {len(existing)} of MNIST's four idx files: put the others beside them")
    return existing


def read_idx(path: Path) -> np.ndarray:
    """An idx file of bytes as an array. Format: two zero bytes, type 8, number of dimensions, the sizes, the data."""
    try:
        data = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read ({error}): delete it and fetch it again") from error
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is not an idx file of bytes: delete it and fetch it again")
    shape = np.frombuffer(data, ">i4", data[3], 4) if len(data) >= 4 + 4 * data[3] else np.array([-1])
    body = np.frombuffer(data, np.uint8, offset=min(len(data), 4 + 4 * data[3]))
    if shape.prod(dtype=np.int64) != len(body):
        raise ValueError(f"{path} is cut short or damaged: delete it and fetch it again")
    return body.reshape(shape).copy()


def _download(base: Path) -> None:
    from torchvision.datasets import MNIST  # checks md5 sums

    MNIST(str(base), train=True, download=True)


def partial(arrays: tuple[Tensor, ...]) -> list[str]:
    """What `Corpus.check` says of images and labels as `load` returns them; nothing if they are MNIST's."""
    return CORPUS.check(Path(), _count(arrays), allow_partial=True)


def _count(arrays: tuple[Tensor, ...]) -> dict[str, int | str]:
    images, _, test_images, _ = arrays
    content = digest(array.numpy() for array in arrays)
    return {"training images": len(images), "test images": len(test_images), "digest": content}


CORPUS = Corpus(
    name="mnist",
    title="MNIST",
    patterns=tuple(f"{folder}/{FILES[-1]}*" for folder in FOLDERS),  # the file that is downloaded last
    counts={"training images": 60_000, "test images": 10_000, "digest": "06b0d1f124c4e5fa"},
    count=lambda path: _count(read(path)),
    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    download=_download,
)
