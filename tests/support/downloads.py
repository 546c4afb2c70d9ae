"""A stand-in for torchvision's download_url."""

import sys
import types
from pathlib import Path


def fake_download_url(monkeypatch, write):
    module = types.ModuleType("torchvision.datasets.utils")
    datasets = types.ModuleType("torchvision.datasets")
    datasets.CIFAR10 = types.SimpleNamespace(url="https://host/cifar", tgz_md5="abc")
    asked = []

    def download_url(url, root, filename=None, md5=None):
        asked.append((url, filename, md5))
        write(Path(root) / (filename or url.rsplit("/", 1)[1]))

    module.download_url = download_url
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", datasets)
    monkeypatch.setitem(sys.modules, "torchvision.datasets.utils", module)
    return asked
