"""Files that are written whole or not at all, and read whole or not at all. Imports no torch."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import glob
import io
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

TEMPORARY = ".unfinished."


def cache_dir() -> Path:
    """The user's cache: $XDG_CACHE_HOME/timescales or ~/.cache/timescales."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "timescales"


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file under a temporary name beside it and rename: a reader sees the old one or the new one.

    What a kill has left of an earlier try is removed. Raises OSError that names `path`.
    """
    temporary = ""
    try:
        handle, temporary = _temporary(path)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        _name(error, path)
        raise
    for left in path.parent.glob(f"{glob.escape(f'{TEMPORARY}{path.name}.')}*"):
        # Its writer holds a lock on it, which ends with the process.
        with contextlib.suppress(OSError), open(left, "rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _temporary(path: Path) -> tuple[int, str]:
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{TEMPORARY}{path.name}.")
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(name):  # else somebody removed it as a kill's remains, between the two lines above
            return handle, name
        os.close(handle)


def append(path: Path, text: str) -> None:
    """Add text to a file. Raises OSError that names `path`."""
    try:
        with open(path, "a", newline="") as file:
            file.write(text)
    except OSError as error:
        _name(error, path)
        raise


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Rows as CSV below a line of the columns; what a row does not have stays empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def csv_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file by its columns, as text; none if there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _name(error: BaseException, path: Path) -> None:
    """Put the file's name into an error about it: an open file's, of a full disk say, has none."""
    if isinstance(error, OSError) and error.errno:
        error.filename = str(path)


def checked(path: Path) -> io.BytesIO:
    """The bytes of a zip archive, such as torch.save writes, after comparing its checksums, which torch.load does not.

    Raises FileNotFoundError, and ValueError for a file that is no such archive or is damaged.
    """
    data = io.BytesIO(path.read_bytes())
    try:
        with zipfile.ZipFile(data) as archive:
            damaged = archive.testzip()
    except Exception as error:  # of a damaged header nearly any
        raise ValueError(f"{path} is no archive ({error})") from error
    if damaged is not None:
        raise ValueError(f"{path}: {damaged} is not as it was written")
    data.seek(0)
    return data


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
