"""MNIST as idx files, raw or gzipped, or as Keras' npz. torchvision downloads them."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from timescales.tasks.data.corpus import Corpus, digest
from timescales.tasks.data.places import File, Layout, Named

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def load(root: str | os.PathLike | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images (N, 784) and labels (N,), then test images and labels, all uint8.

    root: see `data_root`. Raises MissingData, with the places searched, if the files are not there and cannot be
    downloaded, and ValueError for a file that is damaged or not MNIST's.
    """
    return read(CORPUS.locate(root))


def read(path: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `load` returns, from a folder or archive. Raises ValueError for a bad file."""
    files = CORPUS.files(path)
    arrays = [read_bytes(file) for file in files]
    for images, labels, file in ((arrays[0], arrays[1], files[0]), (arrays[2], arrays[3], files[2])):
        if images.ndim != 3 or images.shape[1:] != (28, 28) or labels.shape != (len(images),):
            wrong = f"{images.shape} images with {labels.shape} labels are not MNIST's"
            raise ValueError(f"{file.name}: {wrong}: {CORPUS.again}")
    train, train_labels, test, test_labels = (torch.from_numpy(array) for array in arrays)
    return train.flatten(1), train_labels, test.flatten(1), test_labels


def read_bytes(file: File) -> np.ndarray:
    """An idx or npy file of bytes as an array. Raises ValueError for another file, or a damaged one."""
    with CORPUS.reading(file.name):
        data = file.read()
        array = np.load(io.BytesIO(data), allow_pickle=False) if data[:6] == b"\x93NUMPY" else _idx(data)
        if array.dtype != np.uint8:
            raise ValueError(f"it has numbers of type {array.dtype}")
        return array


def _idx(data: bytes) -> np.ndarray:
    """Format: two zero bytes, type 8, number of dimensions, the sizes, the data."""
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise ValueError("it is not an idx file of bytes")
    shape = np.frombuffer(data, ">i4", data[3], 4) if len(data) >= 4 + 4 * data[3] else np.array([-1])
    body = np.frombuffer(data, np.uint8, offset=min(len(data), 4 + 4 * data[3]))
    if shape.prod(dtype=np.int64) != len(body):
        raise ValueError("it is cut short or damaged")
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
    layouts=(
        # Unpacked from some archives it is train-images.idx3-ubyte, or in a folder of its own name.
        Layout({name: rf"(?:{(dotted := name.replace('-idx', '[-.]idx'))}/)?{dotted}" for name in FILES}),
        Layout({f"{name}.npy": rf"{name}\.npy" for name in ("x_train", "y_train", "x_test", "y_test")}),
    ),
    named=Named(folders=r"mnist.*", archives=r"mnist"),
    counts={"training images": 60_000, "test images": 10_000, "digest": "06b0d1f124c4e5fa"},
    count=lambda path: _count(read(path)),
    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    download=_download,
)
