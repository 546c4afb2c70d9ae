"""A data set on disk: found where people have it already, else downloaded; and what it holds is counted."""

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

LARGEST = 1 << 30  # bytes of a file in an archive; of the real ones none is near it


class MissingData(ValueError):
    """A data set is not where it was looked for and could not be had."""


def data_root(given: str | os.PathLike | None) -> Path:
    """The folder that holds data sets, which need not exist yet: `given`, else $TIMESCALES_DATA, else in the cache."""
    if folder := given or os.environ.get("TIMESCALES_DATA"):
        return Path(folder).expanduser()
    return cache_dir() / "data"


@dataclass(frozen=True)
class Corpus:
    """One data set. Whether it is complete is judged by what it holds, never by what its files are called.

    name: what scripts/fetch_data.py calls it; title: what people call it.
    patterns: where it may lie under the data root, as glob patterns; the first that matches is taken.
    counts: what the complete one holds, in words and numbers; count: the same of the one at a path. "digest", where a
    complete one was at hand, is `digest` of all that it holds: a changed letter changes no number of words.
    url: where it comes from; download: puts it under the folder it is given, where a pattern finds it.
    """

    name: str
    title: str
    patterns: tuple[str, ...]
    counts: dict[str, int | str]
    count: Callable[[Path], dict[str, int | str]]
    url: str
    download: Callable[[Path], None]

    def find(self, base: Path) -> Path | None:
        """The file or folder under base, or None; empty folders and links to nothing do not count."""
        found = (path for pattern in self.patterns for path in sorted(base.glob(pattern)))
        return next((path for path in found if path.is_file() or (path.is_dir() and any(path.iterdir()))), None)

    def locate(self, root: str | os.PathLike | None = None) -> Path:
        """The file or folder, downloaded if need be. root: see `data_root`.

        Raises MissingData, which says where it looked and what to do.
        """
        base = data_root(root)
        if found := self.find(base):
            return found
        try:
            _ask(self.url)
            base.mkdir(parents=True, exist_ok=True)
            self.download(base)
        # torchvision beside a torch built without CUDA fails to import with a RuntimeError.
        except (ImportError, RuntimeError, OSError, ValueError, zipfile.BadZipFile) as error:
            raise MissingData(
                f"{self.title} is not under {base.resolve()} (looked for {', '.join(self.patterns)}) and could not be "
                f"downloaded ({reason(error)}). Where there is a network, `python scripts/fetch_data.py {self.name}` "
                "gets it; data_root=DIR or TIMESCALES_DATA names another place"
            ) from error
        found = self.find(base)
        assert found is not None, "the download reported success but left nothing"
        return found

    def differs(self, found: Mapping[str, int | str]) -> list[str]:
        """In which counts a copy differs from the whole data set, in words; if in none, whether its content does."""
        numbers = [(what, n) for what, n in self.counts.items() if what != "digest"]
        if few := [f"{found[what]:,} of {n:,} {what}" for what, n in numbers if found[what] != n]:
            return few
        known = self.counts.get("digest")
        return (
            [f"as long, with another content (digest {found['digest']})"]
            if known not in (None, found.get("digest"))
            else []
        )

    def check(self, path: Path, found: Mapping[str, int | str], allow_partial: bool) -> list[str]:
        """The words for the record of a run on a part of the data set; none if it is whole.

        Raises ValueError, saying what differs, for a part that is not allowed.
        """
        differs = self.differs(found)
        if differs and not allow_partial:
            raise ValueError(
                f"{path} is not the whole {self.title}: {', '.join(differs)}. Get it with `python "
                f"scripts/fetch_data.py {self.name}`, or accept a part, marked in the record, with "
                "task.allow_partial=true"
            )
        return [f"{self.title} subset: {', '.join(differs)}"] if differs else []


def members(path: Path, wanted: Callable[[str], object] = bool) -> Iterator[tuple[str, bytes]]:
    """Name and content of every wanted file in a tar, read in memory: nothing is unpacked, and links are left out.

    Raises ValueError for a file of more than LARGEST bytes, OSError, EOFError, zlib.error and tarfile.TarError for
    damage.
    """
    with tarfile.open(path) as tar:
        for member in tar:
            if member.isfile() and wanted(member.name):
                if member.size > LARGEST:
                    raise ValueError(f"{member.name} would have {member.size:,} bytes")
                opened = tar.extractfile(member)
                assert opened is not None, "a plain file"
                yield member.name, opened.read()
        assert tar.fileobj is not None, "it is open"
        while tar.fileobj.read(1 << 20):  # to the end, where the archive's checksum is
            pass


def digest(arrays: Iterable[np.ndarray], symbols: Sequence[str] = ()) -> str:
    """Sixteen hex digits of what a data set holds, the same on every machine."""
    whole = hashlib.sha256("\0".join(symbols).encode())
    for array in arrays:
        whole.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return whole.hexdigest()[:16]


def reason(error: BaseException) -> str:
    """What an error says, in one line."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def _ask(url: str) -> None:
    """Raise OSError at once if the server cannot be reached, instead of after the libraries' many tries."""
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() not in ("0", "", "false", "no"):
        raise OSError("HF_HUB_OFFLINE is set")
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=5).close()
    except urllib.error.HTTPError:
        return  # it answers; the download itself decides


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A temporary folder in which to make a file of target's name, which is moved to target when that has worked."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=TEMPORARY) as folder:
        yield Path(folder)
        os.replace(Path(folder) / target.name, target)
