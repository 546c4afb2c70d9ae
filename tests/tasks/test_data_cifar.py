"""CIFAR-10: read from tar and folder; damaged files are named and never run."""

import os
import pickle
import tarfile

import pytest
import synthetic
import torch
from downloads import fake_download_url

from timescales.tasks.data import cifar

pytestmark = pytest.mark.usefixtures("cache")


def test_cifar_from_tar_and_folder(tmp_path):
    path = synthetic.write_cifar(tmp_path / "cifar-10-python.tar.gz", 50, 10)
    images = cifar.read(path)
    assert images.train.shape == (50, 3, 1024)
    assert images.train.dtype == images.train_labels.dtype == torch.uint8
    assert images.train[:, 0, 0].tolist() == list(range(50))
    assert images.train_labels.tolist() == [k % 10 for k in range(50)]
    assert images.test.shape == (10, 3, 1024)
    of_pixel_0 = [[k % 256, k // 256 % 256, k // 65536] for k in range(100_000, 100_010)]  # a file holds whole planes
    assert images.test[:, :, 0].tolist() == of_pixel_0
    with tarfile.open(path) as tar:
        synthetic.unpack(tar, tmp_path / "mine")
    again = cifar.read(tmp_path / "mine" / "cifar-10-batches-py")
    assert all(map(torch.equal, images[:4], again[:4]))
    path.unlink()
    assert cifar.CORPUS.find(tmp_path) == tmp_path / "mine" / "cifar-10-batches-py"
    found = cifar.load(tmp_path, allow_partial=True)
    assert torch.equal(found.train, images.train)
    assert found.partial == ["CIFAR-10 subset: 50 of 50,000 training images, 10 of 10,000 test images"]


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
