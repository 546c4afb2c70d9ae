"""MNIST as idx files, raw or gzipped: found under the data root, or downloaded by torchvision."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from timescales.data.corpus import Corpus, digest
from timescales.data.root import MissingData, data_root

FILES = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
)  # fmt: skip
FOLDERS = ("MNIST/raw", "mnist/raw", "mnist", "MNIST", ".")


def load(root: str | os.PathLike | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images (N, 784) and labels (N,), then test images and labels, all uint8.

    root: see `data_root`. Raises MissingData, saying where it looked, if the files are not there and cannot be
    downloaded, and ValueError for a file that is not what its name says.
    """
    base = data_root(root)
    paths = find(base) or _download(base)
    arrays = [read_idx(path) for path in paths]
    for images, labels, path in ((arrays[0], arrays[1], paths[0]), (arrays[2], arrays[3], paths[2])):
        if images.ndim != 3 or images.shape[1:] != (28, 28) or labels.shape != (len(images),):
            raise ValueError(f"{path}: {images.shape} images with {labels.shape} labels are not MNIST's")
    train, train_labels, test, test_labels = (torch.from_numpy(array) for array in arrays)
    return train.flatten(1), train_labels, test.flatten(1), test_labels


def find(base: Path) -> list[Path] | None:
    """The four files in one of the usual folders under base, raw or .gz; None if any is missing."""
    for folder in FOLDERS:
        found = [p for name in FILES for p in (base / folder / name, base / folder / f"{name}.gz") if p.is_file()]
        names = [p.name.removesuffix(".gz") for p in found]
        if set(names) == set(FILES):
            return [found[names.index(name)] for name in FILES]
    return None


def read_idx(path: Path) -> np.ndarray:
    """An idx file of bytes as an array; two zero bytes, type 8, the number of dimensions, each size, the data."""
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


def _fetch(base: Path) -> None:
    from torchvision.datasets import MNIST

    MNIST(str(base), train=True, download=True)


def _download(base: Path) -> list[Path]:
    """Fetch MNIST into base with torchvision, which checks md5 sums."""
    try:
        _fetch(base)
    # torchvision beside a torch built without CUDA fails to import with a RuntimeError.
    except (ImportError, RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise MissingData(
            f"MNIST is not under {base.resolve()} (looked in {', '.join(FOLDERS)}) and could not be downloaded "
            f"({reason}). Put the four idx files (raw or .gz) into {base.resolve() / FOLDERS[0]}, "
            "or give another place with data_root=DIR or TIMESCALES_DATA"
        ) from error
    found = find(base)
    assert found is not None, "torchvision reported success but left no files"
    return found


def partial(arrays: tuple[Tensor, ...]) -> list[str]:
    """The words for the record of a run on other images than MNIST's, as `Corpus.check` gives them; none on MNIST."""
    return CORPUS.check(Path(), _counted(arrays), allow_partial=True)


def _counted(arrays: tuple[Tensor, ...]) -> dict[str, int | str]:
    images, _, test_images, _ = arrays
    held = digest(array.numpy() for array in arrays)
    return {"training images": len(images), "test images": len(test_images), "digest": held}


def _count(path: Path) -> dict[str, int | str]:
    paths = [p for name in FILES for p in (path.parent / name, path.parent / f"{name}.gz") if p.is_file()]
    if len(paths) < len(FILES):
        raise ValueError(f"{path.parent} has {len(paths)} of MNIST's four idx files: put the others beside them")
    return _counted(load(path.parent))


CORPUS = Corpus(
    name="mnist",
    title="MNIST",
    patterns=tuple(f"{folder}/{FILES[0]}*" for folder in FOLDERS),
    counts={"training images": 60_000, "test images": 10_000, "digest": "06b0d1f124c4e5fa"},
    count=_count,
    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    download=_fetch,
)
