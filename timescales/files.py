"""Files that are written whole or not at all. Imports no torch."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

TEMPORARY = ".unfinished."


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file under a temporary name beside it and rename: a reader sees the old one or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{TEMPORARY}{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
