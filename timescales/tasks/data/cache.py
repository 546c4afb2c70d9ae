"""Cache results that take long to compute from a data set (tokens, vectors) in the user's cache directory."""

import hashlib
import io
import json
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import torch

from timescales.files import cache_dir, checked, write_atomic

Content = TypeVar("Content")


def cached(name: str, key: Mapping[str, object], make: Callable[[], Content]) -> Content:
    """Return the result of make(), read from the user's cache if possible.

    The result consists of tensors, numbers, strings, lists and dicts. If the file in the cache is damaged, it is
    computed again; if the cache cannot be written, a message says so.

    name: prefix of the file name.
    key: everything that the result depends on, as JSON values: the `content_hash` of the files, the settings, and a
        version number to raise when the code of `make` changes.
    """
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = cache_dir() / "corpora" / f"{name}-{digest}.pt"
    try:
        return torch.load(checked(path), weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError):
        content = make()  # the file is missing or damaged
    buffer = io.BytesIO()
    torch.save(content, buffer)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, buffer.getvalue())
    except OSError as error:
        print(f"{path} cannot be written ({error.strerror}): it is computed again every time", file=sys.stderr)
    return content


def content_hash(*paths: Path) -> str:
    """Return a hash of the content of files, sixteen hex digits."""
    combined = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as opened:
            combined.update(hashlib.file_digest(opened, "sha256").digest())
    return combined.hexdigest()[:16]


def status_hash(folder: Path, paths: Iterable[Path]) -> str:
    """Return a hash of the names, sizes and times of many files in a folder, sixteen hex digits."""
    combined = hashlib.sha256()
    for path in sorted(paths):
        status = path.stat()
        combined.update(f"{path.relative_to(folder)}/{status.st_size}/{status.st_mtime_ns}\n".encode())
    return combined.hexdigest()[:16]
