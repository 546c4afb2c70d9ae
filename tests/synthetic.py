"""Small files in the formats of the real data sets, so that every test runs without them."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np


def write_idx(path: Path, array: np.ndarray) -> None:
    """An idx file of bytes: 0 0 8 and the number of dimensions, the sizes as big-endian words, the data."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wb") as file:
        file.write(header + array.astype(np.uint8).tobytes())


def write_mnist(root: Path, train: int = 400, test: int = 50, suffix: str = "") -> Path:
    """MNIST's four files under root/MNIST/raw; digit d is a noisy square whose size grows with d."""
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for name, n in (("train", train), ("t10k", test)):
        labels = np.arange(n) % 10
        images = random.integers(0, 40, (n, 28, 28))
        for image, label in zip(images, labels, strict=True):
            image[: 5 + 2 * label, : 5 + 2 * label] = 255
        write_idx(folder / f"{name}-images-idx3-ubyte{suffix}", images)
        write_idx(folder / f"{name}-labels-idx1-ubyte{suffix}", labels)
    return root
