"""Read MNIST from idx files, raw or gzipped, or from Keras' npz. torchvision downloads them."""

import io
import os
from pathlib import Path

import numpy as np
import torch

from timescales.tasks.data.corpus import Corpus, Images, digest
from timescales.tasks.data.places import Layout, Named

FILES = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]


def load(root: str | os.PathLike | None = None) -> Images:
    """Return the images, (N, 784) each. Other images of digits in MNIST's format are accepted, and marked as partial.

    root: see `data_root`. Raises MissingData, with the places searched, if the files are not found and cannot be
        downloaded, and ValueError for a file that is damaged or not MNIST's.
    """
    path = CORPUS.locate(root)
    images = read(path)
    return images._replace(partial=CORPUS.check(path, _count(images), allow_partial=True))


def read(path: Path) -> Images:
    """Return the images of a folder or archive, complete or not. Raises ValueError for a bad file."""
    files = CORPUS.files(path)
    arrays = []
    for file in files:
        with CORPUS.reading(file.name):
            data = file.read()
            array = np.load(io.BytesIO(data), allow_pickle=False) if data[:6] == b"\x93NUMPY" else _idx(data)
            if array.dtype != np.uint8:
                raise ValueError(f"it has numbers of type {array.dtype}")
            arrays.append(array)
    for images, labels, file in ((arrays[0], arrays[1], files[0]), (arrays[2], arrays[3], files[2])):
        if images.ndim != 3 or images.shape[1:] != (28, 28) or labels.shape != (len(images),):
            wrong = f"{images.shape} images with {labels.shape} labels are not MNIST's"
            raise ValueError(f"{file.name}: {wrong}: {CORPUS.refetch_hint}")
    train, train_labels, test, test_labels = (torch.from_numpy(array) for array in arrays)
    return Images(train.flatten(1), train_labels, test.flatten(1), test_labels, partial=[])


def _idx(data: bytes) -> np.ndarray:
    """Parse the idx format: two zero bytes, type 8, number of dimensions, the sizes, the data."""
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


def _count(images: Images) -> dict[str, int | str]:
    *arrays, _ = images
    content = digest(array.numpy() for array in arrays)
    return {"training images": len(images.train), "test images": len(images.test), "digest": content}


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
