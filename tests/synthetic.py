"""Small files in the formats of the real data sets, so that every test runs without them."""

import gzip

import numpy as np


def write_idx(path, array):
    """An idx file of bytes: 0 0 8 and the number of dimensions, the sizes as big-endian words, the data."""
    head = bytes([0, 0, 8, array.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    data = head + array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)


def write_mnist(folder, train=600, test=100, suffix=""):
    """Images that know their own number: pixels 0-2 are it in base 256, and the label is its last digit.

    Test images count from 100,000. The other pixels are noise, the same in every run.
    """
    rng = np.random.default_rng(0)
    for prefix, n, first in (("train", train, 0), ("t10k", test, 100_000)):
        number = np.arange(n) + first
        images = np.tile(rng.integers(0, 256, (min(n, 100), 28, 28), np.uint8), (-(-n // 100), 1, 1))[:n]
        for k in range(3):
            images[:, 0, k] = number // 256**k % 256
        write_idx(folder / f"{prefix}-images-idx3-ubyte{suffix}", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte{suffix}", (number % 10).astype(np.uint8))
    return folder
