"""Write and read files completely, or not at all. This module does not import torch."""

import contextlib
import csv
import errno
import fcntl
import functools
import glob
import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

TEMPORARY = ".unfinished."


def cache_dir() -> Path:
    """Return the user's cache directory: $XDG_CACHE_HOME/timescales or ~/.cache/timescales."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "timescales"


def make_folder(path: Path) -> None:
    """Make a folder and its parents, if they do not exist. Raises OSError with the folder and the reason.

    For a link whose target is missing, the system's reason is "File exists"; the reason here names the target.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        for place in (path, *path.parents):
            if place.is_symlink() and not place.exists():
                reason = f"it is a link to {os.readlink(place)}, which is not there"
                raise FileNotFoundError(errno.ENOENT, reason, str(place)) from error
        raise


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file under a temporary name and rename it, so that a reader sees either the old file or the new one.

    Temporary files of writers that were killed are removed. Raises OSError with the name of the file.
    """
    temporary = ""
    try:
        handle, temporary = _temporary(path)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.umask(umask := os.umask(0))
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        _set_filename(error, path)
        raise
    for abandoned in path.parent.glob(f"{glob.escape(f'{TEMPORARY}{path.name}.')}*"):
        # A writer holds a lock on its file, which ends with its process.
        with contextlib.suppress(OSError), open(abandoned, "rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            abandoned.unlink()


def _temporary(path: Path) -> tuple[int, str]:
    """Make a new, locked temporary file for `path`. Return its handle and name."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{TEMPORARY}{path.name}.")
        with contextlib.suppress(OSError):  # a file system without locks, where nothing is removed as abandoned
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(name):  # else another process removed it as abandoned, between the two lines above
            return handle, name
        os.close(handle)


def append(path: Path, text: str) -> None:
    """Append text to a file. Raises OSError with the name of the file."""
    try:
        with open(path, "a", newline="") as file:
            file.write(text)
    except OSError as error:
        _set_filename(error, path)
        raise


def csv_text(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Write rows as CSV text, with the columns as header. A value that a row does not have is left empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV file by column, as strings. [] if the file does not exist."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _set_filename(error: BaseException, path: Path) -> None:
    """Set the file name of an OSError. Errors of open files, for example on a full disk, have none."""
    if isinstance(error, OSError) and error.errno:
        error.filename = str(path)


def digest_of(path: str | os.PathLike) -> str:
    """Return sixteen hex digits: a hash of a file's content. Raises OSError if the file cannot be read."""
    status = os.stat(path)
    return _digest_of(str(path), status.st_size, status.st_mtime_ns)


@functools.lru_cache(64)  # a sweep calls it for each of its runs
def _digest_of(path: str, size: int, written: int) -> str:
    with open(path, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


def checked(path: Path) -> io.BytesIO:
    """Read a zip archive, such as torch.save writes, and check its checksums. (torch.load does not check them.)

    Raises FileNotFoundError, and ValueError for a file that is not an archive or is damaged.
    """
    data = io.BytesIO(path.read_bytes())
    try:
        with zipfile.ZipFile(data) as archive:
            damaged = archive.testzip()
    except Exception as error:  # a damaged header may raise nearly any exception
        raise ValueError(f"{path} is not an archive ({error})") from error
    if damaged is not None:
        raise ValueError(f"{path}: {damaged} is damaged")
    data.seek(0)
    return data
