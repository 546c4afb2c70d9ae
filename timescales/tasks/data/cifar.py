"""Read CIFAR-10 from its Python pickles, in their tar, a zip or a folder."""

import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from timescales.tasks.data.corpus import Corpus, Images, whole
from timescales.tasks.data.places import Layout, Named

ARCHIVE = "cifar-10-python.tar.gz"
FILES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")


def load(root: str | os.PathLike | None = None, allow_partial: bool = False) -> Images:
    """Return the images, (N, 3, 1024): the channels red, green and blue, pixels row by row from the top.

    root: see `data_root`. Raises MissingData if they are not found and cannot be downloaded, ValueError if they are
        damaged or incomplete.
    """
    path = CORPUS.locate(root)
    images = read(path)
    return images._replace(partial=CORPUS.check(path, _count(images), allow_partial))


def read(path: Path) -> Images:
    """Return the images of an archive or folder, complete or not. Raises ValueError if it is damaged."""
    images, labels = [], []
    for file in CORPUS.files(path):
        with CORPUS.reading(file.name):
            content = _Plain(io.BytesIO(file.read()), encoding="bytes").load()
            if not isinstance(content, dict) or not isinstance(content.get(b"data"), np.ndarray):
                raise ValueError("it has no images")
            images.append(torch.from_numpy(content[b"data"].reshape(-1, 3, 1024)))
            labels.append(torch.tensor(content[b"labels"], dtype=torch.uint8))
    return Images(torch.cat(images[:-1]), torch.cat(labels[:-1]), images[-1], labels[-1], partial=[])


class _Plain(pickle.Unpickler):
    """Load only arrays and plain values, so that a pickle from elsewhere cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        raise pickle.UnpicklingError(f"it contains {module}.{name}")


def _count(images: Images) -> dict[str, int | str]:
    return {"training images": len(images.train), "test images": len(images.test)}


def _download(base: Path) -> None:
    from torchvision.datasets import CIFAR10
    from torchvision.datasets.utils import download_url

    with whole(base / ARCHIVE) as folder:
        download_url(CIFAR10.url, str(folder), ARCHIVE, CIFAR10.tgz_md5)


CORPUS = Corpus(
    name="cifar10",
    title="CIFAR-10",
    layouts=(Layout({name: name for name in FILES}),),
    named=Named(folders=r"cifar[-_ ]?10(?!\d).*", archives=r"cifar-10-(?:python|batches-py).*"),
    counts={"training images": 50_000, "test images": 10_000},
    count=lambda path: _count(read(path)),
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    download=_download,
)
