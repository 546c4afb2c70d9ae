"""Small files in folders and archives, as a data set lies on a disk, and a stand-in for their download."""

import io
import sys
import tarfile
import types
import zipfile
from pathlib import Path


def write(folder, files):
    """Write files, {name: bytes}, into a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def pack(path, files):
    """Write files into a zip, or a tar compressed as its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".zip", ".npz"):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path
    with tarfile.open(path, {".tar": "w", ".bz2": "w:bz2", ".xz": "w:xz"}.get(path.suffix, "w:gz")) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def below(folder, files):
    """The files with a folder before their names."""
    return {f"{folder}/{name}": content for name, content in files.items()}


def contents(folder):
    """The files in a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def renamed(files, change):
    """The files under other names."""
    return {change(name): content for name, content in files.items()}


# --- A stand-in for torchvision's download_url ------------------------------------------------------------------------
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
