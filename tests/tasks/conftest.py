"""Fixtures of the tests of tasks and data sets."""

import io

import pytest
import torch
from small_tasks import SMALL, TASKS
from synthetic import write_cifar, write_glove, write_imdb, write_mnist

from timescales.tasks import IMDB, SCIFAR, Digits, Task


@pytest.fixture(scope="session")
def digits_root(tmp_path_factory):
    """A data root with small images, reviews and vectors."""
    root = tmp_path_factory.mktemp("data")
    write_mnist(root / "MNIST" / "raw")
    write_cifar(root / "cifar-10-python.tar.gz")
    write_imdb(root / "imdb" / "aclImdb.tar.gz", train=800)
    write_glove(root / "glove" / "glove.6B.100d.txt")
    return root


@pytest.fixture
def make(digits_root):
    """Call make(NAME of TASKS, ...): the task, small, with some arguments changed."""

    def build(name, **more) -> Task:
        kind, arguments = TASKS[name]
        place = {"data_root": str(digits_root)} if kind in (Digits, SCIFAR, IMDB) else {}
        return kind(**{**arguments, **SMALL, **place, **more})

    return build


@pytest.fixture
def float64_default():
    """Tasks make float64 tensors."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def cache(tmp_path_factory, monkeypatch):
    """A new, empty cache of corpora; its folder."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("timescales.tasks.data.cache.cache_dir", lambda: folder)
    return folder / "corpora"


@pytest.fixture
def online(monkeypatch):
    """Every server answers."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: io.BytesIO())
