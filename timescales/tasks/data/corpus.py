"""A data set on disk: find it or download it, and check by counting that it is complete."""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from timescales.files import TEMPORARY, cache_dir

LARGEST = 1 << 30  # bytes of a file in an archive; no real one is nearly as large


class MissingData(ValueError):
    """A data set is not on disk and could not be downloaded."""


def data_root(given: str | os.PathLike | None) -> Path:
    """The folder of data sets, which need not exist: `given`, else $TIMESCALES_DATA, else one in the user's cache."""
    if folder := given or os.environ.get("TIMESCALES_DATA"):
        return Path(folder).expanduser()
    return cache_dir() / "data"


@dataclass(frozen=True)
class Corpus:
    """A data set. Its content decides whether it is complete, not the names of its files.

    name: its name for scripts/fetch_data.py. title: its usual name, for messages.
    patterns: glob patterns of its places under the data root; the first match is taken.
    counts: what the complete data set contains, such as {"training images": 60_000}. "digest", if it is known, is the
        `digest` of the whole content, which also detects changes that leave the numbers as they are.
    count: a function that returns the same of the data set at a path.
    url: where it comes from. download: a function that puts it into a folder, where a pattern finds it.
    """

    name: str
    title: str
    patterns: tuple[str, ...]
    counts: dict[str, int | str]
    count: Callable[[Path], dict[str, int | str]]
    url: str
    download: Callable[[Path], None]

    def find(self, base: Path) -> Path | None:
        """The file or folder under base, or None. Empty folders and broken links are ignored."""
        matches = (path for pattern in self.patterns for path in sorted(base.glob(pattern)))
        return next((path for path in matches if path.is_file() or (path.is_dir() and any(path.iterdir()))), None)

    def locate(self, root: str | os.PathLike | None = None) -> Path:
        """The file or folder, downloaded if it is not there. root: see `data_root`.

        Raises MissingData, with the places searched and what to do.
        """
        base = data_root(root)
        if path := self.find(base):
            return path
        try:
            _check_reachable(self.url)
            base.mkdir(parents=True, exist_ok=True)
            self.download(base)
        # RuntimeError: importing torchvision can fail so where torch was built without CUDA.
        except (ImportError, RuntimeError, OSError, ValueError, zipfile.BadZipFile) as error:
            raise MissingData(
                f"{self.title} is not under {base.resolve()} (looked for {', '.join(self.patterns)}) and could not be "
                f"downloaded ({reason(error)}). Where there is a network, `python scripts/fetch_data.py {self.name}` "
                "gets it; data_root=DIR or TIMESCALES_DATA names another place"
            ) from error
        path = self.find(base)
        assert path is not None, "the download reported success but left nothing"
        return path

    def differs(self, counts: Mapping[str, int | str]) -> list[str]:
        """How a copy with these counts differs from the complete data set, in words; empty if it does not."""
        expected = [(what, n) for what, n in self.counts.items() if what != "digest"]
        if different := [f"{counts[what]:,} of {n:,} {what}" for what, n in expected if counts[what] != n]:
            return different
        if self.counts.get("digest") in (None, counts.get("digest")):
            return []
        # Records keep these words, and a run is continued only on data that its record describes: they do not change.
        return [f"as long, with another content (digest {counts['digest']})"]

    def check(self, path: Path, counts: Mapping[str, int | str], allow_partial: bool) -> list[str]:
        """Lines for a run's record that say how the data set at a path is incomplete; none if it is complete.

        Raises ValueError, saying what differs, if it is incomplete and that is not allowed.
        """
        differs = self.differs(counts)
        if differs and not allow_partial:
            raise ValueError(
                f"{path} is not the complete {self.title}: {', '.join(differs)}. Get it with `python "
                f"scripts/fetch_data.py {self.name}`, or accept it, marked in the record, with "
                "task.allow_partial=true"
            )
        return [f"{self.title} subset: {', '.join(differs)}"] if differs else []


def members(path: Path, wanted: Callable[[str], object] = bool) -> Iterator[tuple[str, bytes]]:
    """Name and content of every wanted file in a tar, read into memory. Nothing is unpacked; links are ignored.

    Raises ValueError for a file of more than LARGEST bytes, and OSError, EOFError, zlib.error or tarfile.TarError if
    the tar is damaged.
    """
    with tarfile.open(path) as tar:
        for member in tar:
            if member.isfile() and wanted(member.name):
                if member.size > LARGEST:
                    raise ValueError(f"{member.name} would have {member.size:,} bytes")
                opened = tar.extractfile(member)
                assert opened is not None, "it is a plain file"
                yield member.name, opened.read()
        assert tar.fileobj is not None, "it is open"
        while tar.fileobj.read(1 << 20):  # to the end of the archive, where its checksum is
            pass


def digest(arrays: Iterable[np.ndarray], symbols: Sequence[str] = ()) -> str:
    """Sixteen hex digits: a hash of the content of a data set, the same on every machine."""
    combined = hashlib.sha256("\0".join(symbols).encode())
    for array in arrays:
        combined.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return combined.hexdigest()[:16]


def reason(error: BaseException) -> str:
    """The first line of an error's message, or the name of its class."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def _check_reachable(url: str) -> None:
    """Raise OSError at once if the server cannot be reached; libraries would retry for minutes."""
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() not in ("0", "", "false", "no"):
        raise OSError("HF_HUB_OFFLINE is set")
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=5).close()
    except urllib.error.HTTPError:
        return  # the server can be reached; the download may still succeed


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A temporary folder in which the caller makes a file with target's name; it is moved to target on success."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=TEMPORARY) as folder:
        yield Path(folder)
        os.replace(Path(folder) / target.name, target)
