"""MNIST's idx files: found, damaged, missing, downloaded."""

import dataclasses
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from synthetic import write_idx, write_mnist

from timescales.errors import MissingData
from timescales.tasks import Digits
from timescales.tasks.data import mnist
from timescales.tasks.data.corpus import data_root


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("folder", ["MNIST/raw", "mnist/raw", "mnist", "MNIST", "."])
def test_idx_files_are_found_raw_or_gzipped(tmp_path, folder, suffix):
    write_mnist(tmp_path / folder, 30, 10, suffix)
    images, labels, test_images, test_labels, partial = mnist.load(tmp_path)
    assert (images.shape, labels.shape, test_images.shape, test_labels.shape) == ((30, 784), (30,), (10, 784), (10,))
    assert labels.tolist() == [k % 10 for k in range(30)]
    assert "30 of 60,000 training images" in partial[0]
    assert images[:, 0].tolist() == list(range(30))


def spoil(path, change):
    path.write_bytes(change(path.read_bytes()))


DAMAGE = {
    "truncated": lambda data: data[:-5],
    "too_long": lambda data: data + b"\0",
    "empty": lambda data: b"",
    "head_only": lambda data: data[:6],
    "wrong_magic": lambda data: b"\1" + data[1:],
    "other_type": lambda data: data[:2] + b"\x0d" + data[3:],
    "a_web_page": lambda data: b"<!DOCTYPE html><html>moved</html>",
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("number", range(4))
def test_damaged_idx_files_are_named(tmp_path, how, number):
    path = write_mnist(tmp_path / "mnist", 30, 10) / mnist.FILES[number]
    spoil(path, DAMAGE[how])
    with pytest.raises(ValueError, match="fetch it again") as error:
        mnist.load(tmp_path)
    assert str(path) in str(error.value)
    assert not isinstance(error.value, MissingData)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-3],
        lambda data: b"",
        lambda data: b"not gzip at all",
        lambda data: data[:200] + bytes(255 - b for b in data[200:240]) + data[240:],
        lambda data: data[:10] + b"\7" + data[11:],  # a block of a type that deflate does not have
        lambda data: data[:-8] + bytes(8),
    ],
    ids=["half", "tail_lost", "empty", "not_gzip", "flipped_bytes", "wrong_block", "wrong_checksum"],
)
def test_damaged_gzip_files_are_named(tmp_path, change):
    path = write_mnist(tmp_path / "mnist", 30, 10, ".gz") / (mnist.FILES[0] + ".gz")
    spoil(path, change)
    with pytest.raises(ValueError, match="fetch it again") as error:
        mnist.load(tmp_path)
    assert str(path) in str(error.value)


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
    folder = write_mnist(tmp_path / "mnist", 30, 10)
    write_idx(folder / mnist.FILES[1], np.zeros(29, np.uint8))
    with pytest.raises(ValueError, match="are not MNIST's"):
        mnist.load(tmp_path)
    write_mnist(folder, 30, 10)
    write_idx(folder / mnist.FILES[2], np.zeros((10, 32, 32), np.uint8))
    with pytest.raises(ValueError, match="are not MNIST's"):
        mnist.load(tmp_path)


@pytest.mark.parametrize("how", ["nothing", "one_missing", "no_folder"])
def test_missing_data_names_the_place(tmp_path, no_download, how):
    root = tmp_path / "somewhere" if how == "no_folder" else tmp_path
    if how == "one_missing":
        (write_mnist(tmp_path / "mnist", 30, 10) / mnist.FILES[3]).unlink()
    with pytest.raises(MissingData) as error:
        Digits(data_root=str(root))
    assert isinstance(error.value, ValueError)
    for word in (str(root), "t10k-labels-idx1-ubyte", "data_root", "TIMESCALES_DATA"):
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def fake_torchvision(monkeypatch, MNIST):
    module = types.ModuleType("torchvision.datasets")
    module.MNIST = MNIST
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", module)
    monkeypatch.setattr("timescales.tasks.data.corpus._check_reachable", lambda url: None)


def test_without_network_nothing_is_tried(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(MissingData, match=r"\(HF_HUB_OFFLINE is set\)\. .* `python scripts/fetch_data\.py mnist`"):
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


def test_a_failed_download_says_why(tmp_path, monkeypatch):
    def MNIST(root, train, download):
        raise RuntimeError("Error downloading train-images-idx3-ubyte.gz:\nTried mirrors")

    fake_torchvision(monkeypatch, MNIST)
    with pytest.raises(MissingData, match=r"Error downloading train-images-idx3-ubyte\.gz") as error:
        mnist.load(tmp_path)
    assert "\n" not in str(error.value)


def test_a_download_is_read(tmp_path, monkeypatch):
    def MNIST(root, train, download):
        assert download
        write_mnist(tmp_path.__class__(root) / "MNIST" / "raw", 30, 10)

    fake_torchvision(monkeypatch, MNIST)
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
