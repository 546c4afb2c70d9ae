"""Small files in folders and archives, as a data set lies on a disk."""

import io
import tarfile
import zipfile


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
