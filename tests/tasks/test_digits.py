"""Check sequential MNIST and CIFAR-10: their files, found, damaged, downloaded; orders of pixels, scaling, splits."""

import dataclasses
import hashlib
import os
import pickle
import sys
import tarfile
import types
from pathlib import Path

import numpy as np
import pytest
import synthetic
import torch
from packs import fake_download_url
from small_tasks import epoch_of, equal, numbers
from synthetic import write_idx, write_mnist

from timescales.errors import MissingData
from timescales.tasks import SCIFAR, Digits
from timescales.tasks.data import cifar, mnist
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
    assert (batch.x.min(), batch.x.max()) == (0.0, 1.0)
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


@pytest.mark.slow
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
    assert (task.n_batches("train"), task.spec.horizon) == (391, 784)
    order = bit_reversal(784)
    valid = next(task.batches("valid"))
    assert torch.equal((valid.x[:, :, 0] * 255).round().byte(), images[50_000:50_500].T[order])
    assert torch.equal(valid.target, labels[50_000:50_500].long())
    # the best constant predictor: MNIST's classes are not quite equal, .0016 below ln 10
    share = torch.bincount(labels[:50_000].long(), minlength=10).double() / 50_000
    assert task.chance() == pytest.approx(-(share * share.log()).sum().item(), abs=2e-3)


# --- Sequential CIFAR-10 ---------------------------------------------------------------------------------------------
def test_scifar_is_normalised_and_read_row_by_row(tmp_path):
    synthetic.write_cifar(tmp_path / "cifar-10-python.tar.gz", 40, 20)
    sizes = {"valid_size": 5, "allow_partial": True, "data_root": str(tmp_path)}
    task = SCIFAR(**sizes)
    assert [task.size(split) for split in ("train", "valid", "test")] == [35, 5, 20]
    raw = cifar.read(tmp_path / "cifar-10-python.tar.gz")
    batch = next(task.batches("test"))
    assert batch.x.shape == (1024, 20, 3)
    mean, sd = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)
    for pixel in (0, 31, 32, 1023):
        for channel in range(3):
            expected = (raw.test[:, channel, pixel].double() / 255 - mean[channel]) / sd[channel]
            torch.testing.assert_close(batch.x[pixel, :, channel].double(), expected, rtol=0, atol=1e-6)
    assert batch.target.tolist() == [k % 10 for k in range(100_000, 100_020)]
    numbers = [int(n) for n in raw.train[35:, 0, 0]]
    valid = next(task.batches("valid"))
    assert ((valid.x[0, :, 0] * sd[0] + mean[0]) * 255).round().int().tolist() == numbers  # the last ones
    assert task.partial == ["CIFAR-10 subset: 40 of 50,000 training images, 20 of 10,000 test images"]


# --- Files of MNIST --------------------------------------------------------------------------------------------------
DAMAGE = {
    "truncated": lambda data: data[:-5],
    "too_long": lambda data: data + b"\0",
    "empty": lambda data: b"",
    "head_only": lambda data: data[:6],
    "wrong_magic": lambda data: b"\1" + data[1:],
    "other_type": lambda data: data[:2] + b"\x0d" + data[3:],
    "a_web_page": lambda data: b"<!DOCTYPE html><html>moved</html>",
}


@pytest.mark.parametrize(("how", "number"), list(zip(DAMAGE, (0, 1, 2, 3, 0, 1, 2), strict=True)))
def test_damaged_idx_files_are_named(tmp_path, how, number):
    path = write_mnist(tmp_path / "mnist", 30, 10) / mnist.FILES[number]
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    with pytest.raises(ValueError, match=f"{path}.*fetch it again") as error:
        mnist.load(tmp_path)
    assert not isinstance(error.value, MissingData)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"not gzip at all",
        lambda data: data[:200] + bytes(255 - b for b in data[200:240]) + data[240:],
        lambda data: data[:10] + b"\7" + data[11:],  # a block of a type that deflate does not have
        lambda data: data[:-8] + bytes(8),
    ],
    ids=["half", "not_gzip", "flipped_bytes", "wrong_block", "wrong_checksum"],
)
def test_damaged_gzip_files_are_named(tmp_path, change):
    path = write_mnist(tmp_path / "mnist", 30, 10, ".gz") / (mnist.FILES[0] + ".gz")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=f"{path}.*fetch it again"):
        mnist.load(tmp_path)


def test_other_images_than_mnists_are_marked(tmp_path, monkeypatch):
    folder = write_mnist(tmp_path / "mnist", 30, 10)
    *arrays, _ = mnist.load(tmp_path)
    held = mnist.digest(array.numpy() for array in arrays)
    counts = {"training images": 30, "test images": 10, "digest": held}
    monkeypatch.setattr(mnist, "CORPUS", dataclasses.replace(mnist.CORPUS, counts=counts))
    assert mnist.load(tmp_path).partial == []
    labels = arrays[1].numpy()
    labels[29] += 1
    write_idx(folder / mnist.FILES[1], labels)
    (words,) = mnist.load(tmp_path).partial
    assert words.startswith("MNIST subset: as long, with another content")


def test_files_that_do_not_belong_together(tmp_path):
    for number, shape in ((1, 29), (2, (10, 32, 32))):
        folder = write_mnist(tmp_path / "mnist", 30, 10)
        write_idx(folder / mnist.FILES[number], np.zeros(shape, np.uint8))
        with pytest.raises(ValueError, match="are not MNIST's"):
            mnist.load(tmp_path)


def test_idx_files_lie_in_one_folder(tmp_path):
    """torchvision leaves both kinds: one of each will do, and what is not there is missed."""
    folder = write_mnist(tmp_path / "mnist", 30, 10)
    write_mnist(folder, 30, 10, ".gz")
    (folder / mnist.FILES[0]).unlink()
    found = [Path(file.name).name for file in mnist.CORPUS.files(mnist.CORPUS.find(tmp_path))]
    assert found == [f"{mnist.FILES[0]}.gz", *mnist.FILES[1:]]
    for suffix in ("", ".gz"):
        (folder / f"{mnist.FILES[1]}{suffix}").unlink()
    with pytest.raises(ValueError, match=f"mnist has no {mnist.FILES[1]}"):
        mnist.load(tmp_path)


def test_a_download_is_read_and_a_failed_one_says_why(tmp_path, monkeypatch):
    def MNIST(root, train, download):
        assert download
        if fails:
            raise RuntimeError("Error downloading train-images-idx3-ubyte.gz:\nTried mirrors")
        write_mnist(Path(root) / "MNIST" / "raw", 30, 10)

    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", types.SimpleNamespace(MNIST=MNIST))
    monkeypatch.setattr("timescales.tasks.data.corpus._check_reachable", lambda url: None)
    fails = True
    with pytest.raises(MissingData, match=r"Error downloading train-images-idx3-ubyte\.gz") as error:
        mnist.load(tmp_path)
    assert "\n" not in str(error.value)
    fails = False
    assert mnist.load(tmp_path)[0].shape == (30, 784)


def test_data_root_given_then_environment_then_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TIMESCALES_DATA", str(tmp_path / "env"))
    assert data_root(tmp_path / "given") == tmp_path / "given"
    assert data_root(None) == tmp_path / "env"
    monkeypatch.delenv("TIMESCALES_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root(None) == tmp_path / "cache" / "timescales" / "data"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root("~/x") == tmp_path / "x"


# --- Files of CIFAR-10 -----------------------------------------------------------------------------------------------
pytestmark = pytest.mark.usefixtures("cache")


class Evil:
    def __reduce__(self):
        return os.system, ("touch was_here",)


@pytest.mark.parametrize("damage", ["cut", "empty", "a_batch_missing", "code"])
def test_damaged_cifar_is_named_and_never_run(tmp_path, damage, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = synthetic.write_cifar(tmp_path / "cifar-10-python.tar.gz", 50, 10)
    if damage in ("cut", "empty"):
        path.write_bytes(path.read_bytes()[: 2000 if damage == "cut" else 0])
    else:
        with tarfile.open(path) as tar:
            synthetic.unpack(tar, tmp_path)
        path = tmp_path / "cifar-10-batches-py"
        if damage == "code":
            (path / "data_batch_2").write_bytes(pickle.dumps({b"data": Evil(), b"labels": []}))
        else:
            (path / "data_batch_2").unlink()
    with pytest.raises(ValueError, match="fetch it again") as error:
        cifar.read(path)
    assert str(path) in str(error.value)
    assert not (tmp_path / "was_here").exists()


def test_cifar_is_downloaded_with_its_checksum(tmp_path, monkeypatch, online):
    asked = fake_download_url(monkeypatch, lambda path: synthetic.write_cifar(path, 50, 10))
    assert cifar.CORPUS.locate(tmp_path) == tmp_path / "cifar-10-python.tar.gz"
    assert asked == [("https://host/cifar", "cifar-10-python.tar.gz", "abc")]
