"""Sequential and permuted MNIST: orders of pixels, scaling, splits."""

import hashlib
import os

import numpy as np
import pytest
import torch
from small_tasks import epoch_of, equal, numbers
from synthetic import write_mnist

from timescales.tasks import Digits
from timescales.tasks.data import mnist
from timescales.tasks.data.corpus import data_root
from timescales.tasks.data.text import SPLITS
from timescales.tasks.digits import bit_reversal, pixel_order


def test_bit_reversal_as_printed():
    order = bit_reversal(784)
    assert order[:16].tolist() == [0, 512, 256, 768, 128, 640, 384, 64, 576, 320, 192, 704, 448, 32, 544, 288]
    assert order[-8:].tolist() == [703, 447, 127, 639, 383, 255, 767, 511]
    assert (torch.arange(784) * order).sum() == 120_707_268
    assert order.sort().values.tolist() == list(range(784))
    assert bit_reversal(8).tolist() == [0, 4, 2, 6, 1, 5, 3, 7]
    for n in (1, 2, 5, 784):  # by strings of bits
        bits = max((n - 1).bit_length(), 1)
        assert [k for k in (int(f"{i:0{bits}b}"[::-1], 2) for i in range(2**bits)) if k < n] == bit_reversal(n).tolist()


@pytest.mark.parametrize("permutation", ["bit_reversal", "random"])
def test_digits_are_permuted_by_x_of_perm(make, permutation):
    plain, permuted = (epoch_of(make("smnist", permutation=p), "test")[0] for p in ("none", permutation))
    order = pixel_order(permutation)
    assert torch.equal(permuted.x, plain.x[order])
    assert order.sort().values.tolist() == list(range(784))
    assert torch.equal(permuted.target, plain.target)


def test_fewer_pixels_are_the_first_of_the_order(make):
    whole, some = (epoch_of(make("pmnist", length=n), "test")[0] for n in (None, 196))
    assert torch.equal(some.x, whole.x[:196])
    assert make("pmnist", length=196).spec.horizon == 196
    assert (bit_reversal(784)[:196] % 4 == 0).all(), "every fourth pixel"


def test_the_random_order_is_one_for_every_run(make):
    def first(**more):
        return epoch_of(make("pmnist_random", **more), "test")[0]

    assert equal(first(seed=0), first(seed=1))
    assert not equal(first(), first(permutation_seed=1))
    assert not torch.equal(pixel_order("random", 0), pixel_order("random", 1))


def test_digits_are_scaled_and_read_row_by_row(make, digits_root):
    batch = epoch_of(make("smnist"), "test")[0]
    raw = mnist.load(digits_root)[2].reshape(-1, 28, 28).numpy()[:30]
    assert batch.x.shape == (784, 30, 1)
    assert batch.x.min() == 0.0
    assert batch.x.max() == 1.0
    for row, column in ((0, 0), (0, 27), (1, 0), (13, 5), (27, 27)):
        expected = torch.from_numpy(raw[:, row, column] / np.float32(255))
        assert torch.equal(batch.x[28 * row + column, :, 0], expected)
    assert batch.target.tolist() == [k % 10 for k in range(100_000, 100_030)]


@pytest.mark.parametrize("name", ["smnist", "pmnist"])
def test_digits_shuffle_is_a_permutation_per_epoch(make, name):
    task = make(name)
    order = pixel_order("bit_reversal" if name == "pmnist" else "none")

    def read(split, epoch):
        batches = epoch_of(task, split, epoch)
        seen = torch.cat([numbers(batch, order) for batch in batches])
        assert torch.equal(torch.cat([b.target for b in batches]), seen % 10)  # labels travel with their images
        return seen.tolist()

    first, second = read("train", 0), read("train", 1)
    assert sorted(first) == sorted(second) == list(range(70))
    assert first != second
    assert first != sorted(first)
    assert read("train", 0) == first
    assert read("valid", 0) == read("valid", 1) == list(range(560, 600))  # the last of the training images
    assert read("test", 0) == list(range(100_000, 100_030))


# First ten labels, mean and standard deviation of a pixel: MNIST's own, known everywhere.
REAL = {"train": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4], "test": [7, 2, 1, 0, 4, 1, 4, 9, 5, 9], "mean": 0.1307, "sd": 0.3081}


@pytest.mark.full
def test_digits_at_full_size(tmp_path):
    """On the real files where TIMESCALES_DATA has them, else on files of the same size made here."""
    real = bool(os.environ.get("TIMESCALES_DATA")) and mnist.CORPUS.find(data_root(None)) is not None
    root = data_root(None) if real else tmp_path
    if not real:
        write_mnist(tmp_path / "MNIST" / "raw", 60_000, 10_000)
    images, labels, test_images, test_labels, partial = mnist.load(root)
    assert images.shape == (60_000, 784)
    assert test_images.shape == (10_000, 784)
    assert images.dtype == labels.dtype == torch.uint8
    data = mnist.CORPUS.files(mnist.CORPUS.find(root))[0].read()
    if real:
        assert hashlib.md5(data).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
        assert images.double().mean().item() / 255 == pytest.approx(REAL["mean"], abs=5.1e-5)
        assert images.double().std().item() / 255 == pytest.approx(REAL["sd"], abs=5.1e-5)
    assert bool(partial) != real
    assert data[16:] == images.numpy().tobytes()
    expected = REAL if real else {k: [n % 10 for n in range(10)] for k in ("train", "test")}
    assert labels[:10].tolist() == expected["train"]
    assert test_labels[:10].tolist() == expected["test"]

    task = Digits(permutation="bit_reversal", data_root=str(root))
    assert [task.size(split) for split in SPLITS] == [50_000, 10_000, 10_000]
    assert task.n_batches("train") == 391
    assert task.spec.horizon == 784
    order = bit_reversal(784)
    valid = next(task.batches("valid"))
    assert torch.equal((valid.x[:, :, 0] * 255).round().byte(), images[50_000:50_500].T[order])
    assert torch.equal(valid.target, labels[50_000:50_500].long())
    test = list(task.batches("test"))[-1]
    assert torch.equal((test.x[:, :, 0] * 255).round().byte(), test_images[-500:].T[order])
    seen = torch.cat([b.target for b in task.batches("test")])
    assert torch.equal(seen, test_labels.long())
    # the best constant predictor: MNIST's classes are not quite equal, .0016 below ln 10
    share = torch.bincount(labels[:50_000].long(), minlength=10).double() / 50_000
    entropy = -(share * share.log()).sum().item()
    assert task.chance() == pytest.approx(entropy, abs=2e-3)
    # the shuffled training images are those before the cut, each once: compared by a hash of their bytes
    weight = torch.arange(1, 785, dtype=torch.float64)
    keys = images[:50_000, order].double() @ weight
    epoch = torch.cat([(b.x[:, :, 0].double() * 255).round().T @ weight for b in task.batches("train")])
    assert torch.equal(epoch.sort().values, keys.sort().values)
