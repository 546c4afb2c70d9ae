"""Find a data set on disk or download it, and check by counting that it is complete."""

import contextlib
import hashlib
import os
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from timescales.errors import MissingData, nearest
from timescales.files import TEMPORARY, cache_dir, make_folder
from timescales.tasks.data import places
from timescales.tasks.data.cache import content_hash, status_hash
from timescales.tasks.data.places import File, Layout, Named


def data_root(given: str | os.PathLike | None) -> Path:
    """Return the folder of data sets, which need not exist: `given`, else $TIMESCALES_DATA, else one in the cache."""
    if folder := given or os.environ.get("TIMESCALES_DATA"):
        return Path(os.path.expanduser(folder))
    return cache_dir() / "data"


@dataclass(frozen=True)
class Corpus:
    """A data set. Its content decides whether it is complete, not the names of its files.

    name: its name for scripts/fetch_data.py.
    title: its usual name, for messages.
    layouts: the possible names of its files.
    named: the possible names of folders and archives with it.
    counts: what the complete data set contains, such as {"training images": 60_000}. "digest", if it is known, is the
        `digest` of the whole content, which also detects changes that leave the numbers unchanged.
    count: a function that returns the same for the copy at a place.
    url: where it comes from.
    download: a function that puts it into a folder, where `find` finds it.
    """

    name: str
    title: str
    layouts: tuple[Layout, ...]
    named: Named
    counts: dict[str, int | str]
    count: Callable[[Path], dict[str, int | str]]
    url: str
    download: Callable[[Path], None]

    def find(self, base: Path) -> Path | None:
        """Return the folder, archive or file under base that has the data set, or None.

        Among several, it returns the complete one, else one that can be read; among these, the one at the smallest
        depth.
        """
        found, _ = places.places(base, self.layouts, self.named)
        if len(found) < 2:
            return found[0] if found else None
        readable = []
        for place in found:
            with contextlib.suppress(ValueError):  # damaged
                if not self.differs(self.count(place)):
                    return place
                readable.append(place)
        return (readable or found)[0]

    def present(self, base: Path) -> bool:
        """Return whether `find` would find anything, without counting."""
        return bool(places.places(base, self.layouts, self.named)[0])

    def locate(self, root: str | os.PathLike | None = None) -> Path:
        """Return the place of the data set. Download it if it is not found.

        root: see `data_root`.

        Raises: MissingData, which says where and for which files it searched, and what to do.
        """
        base = data_root(root)
        if path := self.find(base):
            return path
        hints = self._hints(base)
        try:
            _check_reachable(self.url)
            make_folder(base)
            self.download(base)
        # Importing torchvision can raise RuntimeError if torch was built without CUDA.
        except (ImportError, RuntimeError, OSError, ValueError, zipfile.BadZipFile) as error:
            lines = "".join(f"; {line}" for line in [*places.places(base, self.layouts, self.named)[1], *hints])
            raise MissingData(
                f"{self.title} is not under {base.resolve()} (looked for {', '.join(self.layouts[0].parts)}"
                f"{lines}) and could not be downloaded ({reason(error)}). On a machine with a network, "
                f"`python scripts/fetch_data.py {self.name}` downloads it; data_root=DIR or TIMESCALES_DATA names "
                "another place"
            ) from error
        path = self.find(base)
        assert path is not None, "the download reported success but left nothing"
        return path

    def _hints(self, base: Path) -> list[str]:
        """Say what to do if the data set, or the folder of data sets, exists under a slightly wrong name."""
        if not base.is_dir():
            beside = [entry.name for entry in places.entries(base.parent) if entry.is_dir()]
            return [f"there is no such folder{nearest(base.name, beside)}"]
        right = next(name for name in (self.name, self.title) if self.named.folder(name))
        lines = [
            f"if {path} is {self.title}, call it {right}{''.join(path.suffixes) if path.is_file() else ''}"
            for path in places.misnamed(base, self.layouts, (self.name, self.title))
        ]
        if any(places.PARQUET in part for layout in self.layouts for part in layout.parts):
            return lines
        unread = places.with_parquet(base, self.named)
        return [
            *(f"{path} has parquet, from which {self.title} is not read: write these files from it" for path in unread),
            *lines,
        ]

    def files(self, place: Path) -> list[File]:
        """Return the files of the copy at a place, in the order of the layout's parts.

        Raises: ValueError if the place cannot be read or a file is missing.
        """
        with self.reading(place):
            found, missing = places.files(place, self.layouts)
        if missing:
            raise ValueError(f"{place} has no {', '.join(missing)}: put it there, or {self.refetch_hint}")
        return [file for part in found.values() for file in (part if self._has_many_files else part[:1])]

    @property
    def _has_many_files(self) -> bool:
        return any(layout.many for layout in self.layouts)

    def content_hash(self, place: Path) -> str:
        """Return a hash of the files of the copy at a place, for `cached`. Raises ValueError if they cannot be read."""
        paths = [Path(file.name) for file in self.files(place)] if place.is_dir() else [place]
        with self.reading(place):
            return status_hash(place, paths) if place.is_dir() and self._has_many_files else content_hash(*paths)

    @property
    def refetch_hint(self) -> str:
        """Say what to do about a damaged copy."""
        return f"move it elsewhere and fetch it again: `python scripts/fetch_data.py {self.name}`"

    @contextlib.contextmanager
    def reading(self, name: str | os.PathLike) -> Iterator[None]:
        """Turn errors of reading a file of this name into a ValueError of one line, with the name and what to do."""
        try:
            yield
        except UnicodeDecodeError as error:
            wrong = f"byte {error.object[error.start]:#x} at {error.start:,}"
            raise ValueError(f"{name} is not UTF-8 ({wrong}): save it as UTF-8, or {self.refetch_hint}") from error
        except PermissionError as error:
            raise ValueError(f"{name} may not be read: make it readable") from error
        except places.DAMAGE as error:
            raise ValueError(f"{name} cannot be read as {self.title} ({reason(error)}): {self.refetch_hint}") from error

    def differs(self, counts: Mapping[str, int | str]) -> list[str]:
        """Describe how a copy with these counts differs from the complete data set; empty if it does not."""
        expected = [(what, n) for what, n in self.counts.items() if what != "digest"]
        if different := [f"{counts[what]:,} of {n:,} {what}" for what, n in expected if counts[what] != n]:
            return different
        if self.counts.get("digest") in (None, counts.get("digest")):
            return []
        # Records keep these words, and a run is continued only on data that its record describes: they do not change.
        return [f"as long, with another content (digest {counts['digest']})"]

    def check(self, path: Path, counts: Mapping[str, int | str], allow_partial: bool) -> list[str]:
        """Return lines for a run's record that say how the data set at a path is incomplete; none if it is complete.

        Raises: ValueError, which says what differs, if it is incomplete and that is not allowed.
        """
        differs = self.differs(counts)
        if differs and not allow_partial:
            raise ValueError(
                f"{path} is not the complete {self.title}: {', '.join(differs)}. {self.refetch_hint[0].upper()}"
                f"{self.refetch_hint[1:]}; or accept it, marked in the record, with task.allow_partial=true"
            )
        return [f"{self.title} subset: {', '.join(differs)}"] if differs else []


class Images(NamedTuple):
    """All images (N, ...) and labels (N,) of a data set, uint8. partial: see `Corpus.check`."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    partial: list[str]


def digest(arrays: Iterable[np.ndarray], symbols: Sequence[str] = ()) -> str:
    """Return a hash of the content of a data set, sixteen hex digits, the same on every machine."""
    combined = hashlib.sha256("\0".join(symbols).encode())
    for array in arrays:
        combined.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return combined.hexdigest()[:16]


def reason(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def _check_reachable(url: str) -> None:
    """Raise OSError at once if the server cannot be reached; libraries would retry for minutes."""
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() not in ("0", "", "false", "no"):
        raise OSError("HF_HUB_OFFLINE is set")
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=5).close()
    except urllib.error.HTTPError:
        return  # the server can be reached; the download may still succeed


@contextlib.contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Yield a temporary folder in which the caller makes a file with target's name; on success it becomes target."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=TEMPORARY) as folder:
        yield Path(folder)
        os.replace(Path(folder) / target.name, target)
