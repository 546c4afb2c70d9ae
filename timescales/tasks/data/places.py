"""Find copies of data sets: folders, zips, tars and single files, as systems and tools name and pack them.

Names are compared in lower case, without `.gz` and without the ` (1)` that browsers and file managers add. Hidden files
and folders and macOS's `__MACOSX` are never read.
"""

import difflib
import functools
import gzip
import io
import lzma
import os
import pickle
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

LARGEST = 1 << 30  # bytes; files in an archive that claim to be larger are not read
ZIPS = (".zip", ".npz")
TARS = (".tar", ".tgz", ".tar.bz2", ".tbz", ".tbz2", ".tar.xz", ".txz")  # .tar.gz: `_plain` removes the .gz
GENERIC_FOLDERS = r"archive.*|datasets--.*"  # Kaggle calls every zip "archive"; the Hub's cache has datasets--...
PARQUET = ".parquet"
# Errors that reading a damaged or encrypted file can raise.
DAMAGE = (
    *(OSError, EOFError, ValueError, LookupError, RuntimeError, OverflowError, struct.error, pickle.UnpicklingError),
    *(zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile),
)


class File(NamedTuple):
    """A file of a data set. name: its path, for messages. raw: opens it for reading bytes."""

    name: str
    raw: Callable[[], IO[bytes]]

    def open(self) -> IO[bytes]:
        """Open the file. Decompress it if its content is gzipped: browsers unpack some files and keep their names."""
        opened = self.raw()
        start = opened.read(2)
        opened.seek(0)
        return cast(IO[bytes], gzip.GzipFile(fileobj=opened)) if start == b"\x1f\x8b" else opened

    def read(self) -> bytes:
        """Return the content."""
        with self.open() as opened:
            return opened.read()

    def text(self) -> str:
        r"""Return the content as UTF-8, without a byte order mark, with `\n` at the end of lines."""
        return plain_text(self.read().decode("utf-8"))

    @property
    def parquet(self) -> bool:
        """Return whether it is a parquet file, by its name."""
        return _is(self.name, (PARQUET,))

    def columns(self, *names: str) -> list[list[Any]]:
        """Return these columns of a parquet file. Raises LookupError if it has no such column."""
        from pyarrow import parquet

        table = parquet.read_table(io.BytesIO(self.read()))
        return [table.column(name).to_pylist() for name in names]


def plain_text(text: str) -> str:
    r"""Return a string without a byte order mark, with all lines ending in `\n`."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def parquet_parts(*splits: str) -> dict[str, str]:
    """Return the parts of a layout of the Hugging Face Hub: a parquet file for each split."""
    return {f"{split}-00000-of-00001{PARQUET}": rf"{split}(?:-\d+-of-\d+|/\d+)\{PARQUET}" for split in splits}


class Layout(NamedTuple):
    """The possible names of the files of a data set.

    parts: the usual name of each file, and a regular expression for it, or for the end of its path. The folder above is
        the folder of the copy.
    many: each part has many files; else one, and a copy of one part is the file itself.
    needs_named_folder: the names do not tell which data set it is (`train.txt`), so that a folder above them must.
    """

    parts: dict[str, str]
    many: bool = False
    needs_named_folder: bool = False

    def copies(self, paths: Iterable[str]) -> dict[str, dict[str, list[str]]]:
        """Return the paths of each part, by the folder of the copy. A part's shortest name comes first.

        If a part has many files, duplicates such as `1_7 (1).txt` beside `1_7.txt` are left out.
        """
        found: dict[str, dict[str, list[str]]] = {}
        names = list(self.parts)
        pattern = _any_of(tuple(self.parts.values()))
        for path in paths:
            if match := pattern.search(_plain(path)):
                folder = "/".join(path.split("/")[: -1 - match[0].count("/")])
                part = names[int(str(match.lastgroup).removeprefix("part"))]
                found.setdefault(folder, {}).setdefault(part, []).append(path)
        for parts in found.values():
            for files in parts.values():
                files.sort(key=lambda path: (len(path), path))
                if self.many:
                    first = {_plain(path): path for path in reversed(files)}
                    files[:] = [path for path in files if first[_plain(path)] == path]
        return found


class Named(NamedTuple):
    """The possible names of folders and archives with a data set, as regular expressions without their ending.

    In a folder `datasets--OWNER--NAME` of the Hub's cache, NAME is compared.

    folders: folders, zips and files. archives: tars, which would take long to look into, and damaged zips.
    """

    folders: str
    archives: str

    def folder(self, name: str) -> bool:
        """Return whether a folder, a zip or a file has such a name."""
        return re.fullmatch(self.folders, _stem(name.rpartition("--")[2])) is not None

    def archive(self, name: str) -> bool:
        """Return whether an archive has such a name."""
        return re.fullmatch(self.archives, _stem(name)) is not None


def places(base: Path, layouts: Sequence[Layout], named: Named) -> tuple[list[Path], list[str]]:
    """Return folders, archives and files under base that have all parts of a data set, the shallowest first.

    Also return a line for each folder or zip that has only some parts. The search covers base, the folders in it, and
    below those everything that is named like the data set or like the folders of Kaggle's zips.
    """
    paths, zips, archives = _under(base, named)
    found, incomplete = set(archives), []
    for layout in layouts:
        for folder, parts in layout.copies(paths).items():
            if not _belongs(base, folder, parts, layout, named):
                continue
            packed = next((path for path in zips if f"{folder}/".startswith(f"{path}/")), None)
            if missing := [part for part in layout.parts if part not in parts]:
                incomplete.append(f"{base / (packed or folder)} has no {', '.join(missing)}")
            elif len(layout.parts) == 1 and not layout.many and packed is None:  # a copy is one file
                found.update(path for files in parts.values() for path in files)
            else:
                found.add(folder if packed is None else packed)
    return [base / path for path in sorted(found, key=lambda path: (path.count("/") + bool(path), path))], incomplete


def misnamed(base: Path, layouts: Sequence[Layout], names: Sequence[str]) -> list[Path]:
    """Return the folders and archives in base that have a data set, and whose name is nearly one of these names."""

    def near(stem: str) -> bool:
        """Return whether a name is nearly one of them. With another number it is another data set: wikitext-103."""
        alike = difflib.get_close_matches(stem, [name.lower() for name in names])
        return any(re.findall(r"\d+", name) == re.findall(r"\d+", stem) for name in alike)

    stems = {_stem(entry.name) for entry in entries(base)}
    any_of_them = "|".join(re.escape(stem) for stem in stems if near(stem))
    found = places(base, layouts, Named(any_of_them, any_of_them))[0] if any_of_them else []
    return sorted({base / path.relative_to(base).parts[0] for path in found})


def with_parquet(base: Path, named: Named) -> list[Path]:
    """Return folders under base with parquet files that are named like the data set, or are in a folder that is."""
    own = named.folder(base.resolve().name)
    paths = [path.split("/")[:-1] for path in _under(base, named)[0] if _is(path, (PARQUET,))]
    return sorted({base.joinpath(*above) for above in paths if own or any(map(named.folder, above))})


def files(place: Path, layouts: Sequence[Layout]) -> tuple[dict[str, list[File]], list[str]]:
    """Return the files of each part of the copy at a place, and the parts that are missing.

    If an archive has several copies, the most complete one is used; among these, the shallowest. Raises DAMAGE for an
    archive that cannot be read.
    """
    if place.is_dir():
        depth = max(pattern.count("/") for layout in layouts for pattern in layout.parts.values())
        opened = {path: _on_disk(place / path) for path in _tree(place, depth)}
    elif _is(place.name, ZIPS):
        opened = dict(_zipped(place))
    elif _is(place.name, TARS):
        wanted = [_any_of(tuple(layout.parts.values())) for layout in layouts]
        opened = dict(_tarred(place, lambda path: any(pattern.search(_plain(path)) for pattern in wanted)))
    else:
        return {part: [_on_disk(place)] for part in layouts[0].parts}, []
    copies = [
        (layout, folder, parts)
        for layout in layouts
        for folder, parts in layout.copies(opened).items()
        if not (folder and place.is_dir())
    ]
    if not copies:
        return {}, list(layouts[0].parts)
    layout, _, parts = min(copies, key=_rank)
    existing = {part: [opened[path] for path in parts[part]] for part in layout.parts if part in parts}
    return existing, [part for part in layout.parts if part not in parts]


def _rank(copy: tuple[Layout, str, dict[str, list[str]]]) -> tuple[int, int, int]:
    """Return the rank of a copy among those of an archive: the most complete is first, then the shallowest."""
    layout, folder, parts = copy
    number = sum(map(len, parts.values())) if layout.many else 0
    return len(layout.parts) - len(parts), -number, folder.count("/") + bool(folder)


def _under(base: Path, named: Named) -> tuple[list[str], list[str], list[str]]:
    """Return paths relative to base: of files, also those within zips; of zips; and of archives with the right name."""
    paths, zips, archives = [], [], []
    ours = named.folder(base.resolve().name)

    def enter(path: str) -> bool:
        """Return whether to look into a folder or zip."""
        above = path.split("/")
        return ours or any(named.folder(name) or re.fullmatch(GENERIC_FOLDERS, _stem(name)) for name in above)

    for path in _tree(base, 6, lambda path: "/" not in path or enter(path)):
        paths.append(path)
        if _is(path, TARS) and named.archive(Path(path).name):
            archives.append(path)
        elif _is(path, ZIPS) and enter(path):
            try:
                paths.extend(f"{path}/{name}" for name, _ in _zipped(base / path))
                zips.append(path)
            except DAMAGE:
                archives.extend([path] * named.archive(Path(path).name))
    return paths, zips, archives


def _belongs(base: Path, folder: str, parts: dict[str, list[str]], layout: Layout, named: Named) -> bool:
    """Return whether files in a folder are named like this data set and no other."""
    above = folder.split("/")
    if any(map(named.folder, (base.resolve().name, *above))):
        return True
    first = next(iter(parts.values()))[0]
    unnamed = folder == "" or re.fullmatch(GENERIC_FOLDERS, _stem(above[-1]))
    return not layout.needs_named_folder and bool(unnamed or named.folder(Path(first).name))


def _tree(folder: Path, depth: int, enter: Callable[[str], bool] = bool, above: str = "") -> Iterator[str]:
    """Yield paths, relative to a folder, of the files in it and in folders down to a depth, without hidden ones."""
    for entry in entries(folder):
        path = f"{above}{entry.name}"
        if _hidden(entry.name):
            continue
        if entry.is_file():  # false for a broken link
            yield path
        elif depth and entry.is_dir() and enter(path):
            yield from _tree(Path(entry.path), depth - 1, enter, f"{path}/")


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the content of a folder, by name; nothing for a folder that may not be read."""
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []


def _on_disk(path: Path) -> File:
    return File(str(path), lambda: path.open("rb"))


def _zipped(path: Path) -> Iterator[tuple[str, File]]:
    """Yield the files in a zip by their names. Nothing is unpacked."""
    archive = zipfile.ZipFile(path)  # open as long as one of its files is in use
    for info in archive.infolist():
        name = info.filename.replace("\\", "/").removeprefix("./")
        if not info.is_dir() and not _hidden(name):
            yield name, File(f"{path}/{name}", functools.partial(_open_zipped, archive, info))


def _open_zipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    _check_size(info.filename, info.file_size)
    return archive.open(info)


def _tarred(path: Path, wanted: Callable[[str], object]) -> Iterator[tuple[str, File]]:
    """Yield the wanted files in a tar by their names, read into memory. Nothing is unpacked; links are ignored."""
    from tqdm import tqdm

    with tarfile.open(path) as tar:
        for member in tqdm(tar, f"reading {path.name}", unit=" files", delay=1, disable=None, leave=False):
            name = member.name.removeprefix("./")
            if member.isfile() and wanted(name) and not _hidden(name):
                _check_size(member.name, member.size)
                opened = tar.extractfile(member)
                assert opened is not None, "it is a plain file"
                yield name, File(f"{path}/{name}", functools.partial(io.BytesIO, opened.read()))
        assert tar.fileobj is not None, "it is open"
        while tar.fileobj.read(1 << 20):  # to the end of the archive, where its checksum is
            pass


def _check_size(name: str, size: int) -> None:
    if size > LARGEST:
        raise ValueError(f"{name} would have {size:,} bytes")


def _hidden(path: str) -> bool:
    """Return whether a path is hidden: `.DS_Store`, `._name`, `.ipynb_checkpoints/name`, `__MACOSX/name`."""
    shown, names = ("..", ".data", ".vector_cache"), path.split("/")  # the last two are the folders of torchtext
    return any((name.startswith(".") and name not in shown) or name.lower() == "__macosx" for name in names)


def _plain(path: str) -> str:
    return re.sub(r" ?\(\d+\)(?=[./]|$)", "", path.lower()).removesuffix(".gz")


def _stem(name: str) -> str:
    """Return a plain name without the ending of an archive."""
    plain = _plain(name)
    return next((plain.removesuffix(ending) for ending in (*ZIPS, *TARS) if plain.endswith(ending)), plain)


def _is(name: str, endings: tuple[str, ...]) -> bool:
    return _plain(name).endswith(endings)


@functools.cache
def _any_of(parts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("(?:^|(?<=/))(?:" + "|".join(f"(?P<part{k}>{part})" for k, part in enumerate(parts)) + ")$")
