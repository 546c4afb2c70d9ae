"""What takes long to make from a corpus (tokens, vectors) is made once and kept in the user's cache."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from timescales.files import cache_dir, checked, write_atomic


def cached(name: str, key: dict[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What make() returns: tensors, plain numbers, words, lists and dicts of these; kept in the user's cache.

    key: all that the content depends on, as plain values: the files' `content_hash`, the settings, and a number to
    raise when the code of `make` changes. A damaged file is made anew; if it cannot be written, a line says so.
    """
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = cache_dir() / "corpora" / f"{name}-{digest}.pt"
    try:
        return torch.load(checked(path), weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError):
        content = make()  # not there, or damaged
    buffer = io.BytesIO()
    torch.save(content, buffer)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, buffer.getvalue())
    except OSError as error:
        print(f"{path} cannot be written ({error.strerror}): it is made anew every time", file=sys.stderr)
    return content


def content_hash(*paths: Path) -> str:
    """Sixteen hex digits of what files hold; of a folder, the names, sizes and times of the files in it."""
    whole = hashlib.sha256()
    for path in paths:
        if path.is_dir():
            for file in sorted(p for p in path.rglob("*") if p.is_file()):
                found = file.stat()
                whole.update(f"{file.relative_to(path)}/{found.st_size}/{found.st_mtime_ns}\n".encode())
        else:
            with open(path, "rb") as opened:
                whole.update(hashlib.file_digest(opened, "sha256").digest())
    return whole.hexdigest()[:16]
