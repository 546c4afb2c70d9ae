"""Corpora of language modelling as whole numbers: Penn Treebank by words and by characters, WikiText-2, text8."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from timescales.data.cache import cached, content_hash
from timescales.data.root import MissingData, data_root
from timescales.files import write_atomic

SPLITS = ("train", "valid", "test")
HUB_SPLITS = ("train", "validation", "test")
EOS = "<eos>"  # what a line's end is, as a word


class Text(NamedTuple):
    """The three splits as whole numbers, (N,) each, and what each number stands for, in order of first sight.

    partial: in words, what is missing of the real corpus; empty if nothing is."""

    train: Tensor
    valid: Tensor
    test: Tensor
    symbols: list[str]
    partial: list[str]

    @property
    def sizes(self) -> dict[str, int]:
        """How long each split is, as train_size and so on."""
        return {f"{split}_size": len(getattr(self, split)) for split in SPLITS}


@dataclass(frozen=True)
class Source:
    """Where a corpus may lie under the data root, where it can be had, and how large it is."""

    title: str
    folders: tuple[str, ...]  # looked through with all that lies in them
    names: tuple[tuple[str, str, str], ...]  # of the three files; the first names are also looked for in the root
    counts: tuple[int, int, int, int]  # tokens of each split, <eos> at every line's end included; types
    hub: tuple[str, str, str, str | None]  # id, configuration, column, revision


PTB = Source(
    "PTB",
    ("ptb*", "PTB*"),
    (("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"),),
    (929_589, 73_760, 82_430, 10_000),
    ("ptb-text-only/ptb_text_only", "penn_treebank", "sentence", "refs/convert/parquet"),
)
WIKITEXT2 = Source(
    "WikiText-2",
    ("wikitext-2*", "wikitext2*"),
    (("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"), ("train.txt", "valid.txt", "test.txt")),
    (2_088_628, 217_646, 245_569, 33_278),
    ("Salesforce/wikitext", "wikitext-2-v1", "text", None),
)
SOURCES = {"ptb": PTB, "wt2": WIKITEXT2}
PTB_CHARACTERS = (5_017_482, 393_042, 442_423, 50)
TEXT8 = 100_000_000
TEXT8_SYMBOLS = " abcdefghijklmnopqrstuvwxyz"
TEXT8_HUB = "afmck/text8"


def words(corpus: str, root: str | os.PathLike | None = None, allow_partial: bool = False) -> Text:
    """ "ptb" or "wt2" by words: a line is what stands between white space, and `<eos>`; numbers are int32.

    The vocabulary is that of all three splits (Merity et al. 2018, authors' code). root: see `data_root`.
    Raises MissingData, saying where it looked, if the files are not there and cannot be downloaded, and ValueError
    for a corpus of another size than the real one's, unless allow_partial.
    """
    source = SOURCES[corpus]
    paths = _paths(source, data_root(root))
    key = {"files": [content_hash(path) for path in paths], "version": 1}
    made = cached(corpus, key, lambda: _tokenise(paths))
    splits, symbols = made["splits"], made["symbols"]
    found = (*map(len, splits), len(symbols))
    partial = _check(source.title, paths[0].parent, "tokens", source.counts, found, allow_partial)
    return Text(*splits, symbols, partial)


def _tokenise(paths: Sequence[Path]) -> dict:
    number: dict[str, int] = {}
    splits = []
    for path in paths:
        read = [number.setdefault(word, len(number)) for line in _lines(path) for word in (*line.split(), EOS)]
        splits.append(torch.from_numpy(np.array(read, np.int32)))
    return {"splits": splits, "symbols": list(number)}


def ptb_characters(root: str | os.PathLike | None = None, allow_partial: bool = False) -> Text:
    r"""PTB by characters, made from the word files: a line's spaces become `_`, and its end is one `\n`; int16.

    This is Mikolov's character corpus, symbol by symbol. Raises as `words` does.
    """
    paths = _paths(PTB, data_root(root))
    texts = ["".join(f"{line.strip().replace(' ', '_')}\n" for line in _lines(path)) for path in paths]
    symbols = list(dict.fromkeys("".join(texts)))
    splits = [_characters(text.encode("utf-32-le"), symbols, "<u4") for text in texts]
    found = (*map(len, texts), len(symbols))
    partial = _check("PTB by characters", paths[0].parent, "characters", PTB_CHARACTERS, found, allow_partial)
    return Text(*splits, symbols, partial)


def text8(root: str | os.PathLike | None = None, allow_partial: bool = False) -> Text:
    """text8 by characters (space and a to z, numbered so), cut into 90, 5 and 5 million; int16.

    A part of it, where allowed, is cut in the same shares. Raises as `words` does.
    """
    base = data_root(root)
    path = _find_text8(base) or _download_text8(base)
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                data = archive.read(archive.namelist()[0])
        else:
            data = path.read_bytes()
    except (OSError, zipfile.BadZipFile, IndexError) as error:
        raise ValueError(f"{path} cannot be read ({error}): delete it and fetch it again") from error
    data = data.rstrip(b"\n")
    if strange := sorted(set(data) - set(TEXT8_SYMBOLS.encode())):
        raise ValueError(f"{path} is not text8: it holds {bytes(strange[:5])!r}; delete it and fetch it again")
    shares = [len(data) * 9 // 10, len(data) // 20]
    parts = (data[: shares[0]], data[shares[0] : sum(shares)], data[sum(shares) :])
    whole = (TEXT8 * 9 // 10, TEXT8 // 20, TEXT8 // 20, len(TEXT8_SYMBOLS))
    found = (*map(len, parts), len(TEXT8_SYMBOLS))
    partial = _check("text8", path, "characters", whole, found, allow_partial)
    return Text(*(_characters(part, list(TEXT8_SYMBOLS), "u1") for part in parts), list(TEXT8_SYMBOLS), partial)


def find(source: Source, base: Path) -> list[Path] | None:
    """The corpus's three files, side by side in one folder under base; None if they are not there."""
    folders = [folder for pattern in source.folders for folder in sorted(base.glob(pattern)) if folder.is_dir()]
    for names in source.names:
        first = [path for folder in folders for path in sorted(folder.rglob(names[0]))]
        first += [base / names[0]] if names == source.names[0] else []
        for path in first:
            if all((path.parent / name).is_file() for name in names):
                return [path.parent / name for name in names]
    return None


def _paths(source: Source, base: Path) -> list[Path]:
    return find(source, base) or _download(source, base)


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): delete it and fetch it again") from error
    return text.removesuffix("\n").split("\n") if text else []


def _characters(data: bytes, symbols: Sequence[str], dtype: str) -> Tensor:
    """Characters, given by their code points in an array of the dtype, as their places in symbols."""
    table = np.zeros(max(map(ord, symbols), default=0) + 1, np.int16)
    table[[ord(symbol) for symbol in symbols]] = np.arange(len(symbols))
    return torch.from_numpy(table[np.frombuffer(data, dtype)])


def _check(
    title: str, place: Path, unit: str, expected: Sequence[int], found: Sequence[int], allow_partial: bool
) -> list[str]:
    """In words, how a corpus differs from the real one. Raises ValueError if it does and may not."""
    names = [f"{unit} in {split}" for split in SPLITS] + ["types"]
    differs = [
        f"{n:,} {name} instead of {right:,}"
        for n, name, right in zip(found, names, expected, strict=True)
        if n != right
    ]
    if differs and not allow_partial:
        raise ValueError(
            f"{place} holds another {title} than the papers': {', '.join(differs)}. Fetch it again, "
            "or use it as it is with task.allow_partial=true: the record then says so"
        )
    if min(found[:3]) < 2:
        raise ValueError(f"{place}: every split of {title} needs at least 2 {unit}")
    return [f"{title}: {', '.join(differs)}"] if differs else []


def _find_text8(base: Path) -> Path | None:
    """The file itself, its zip, or a part of it, in this order."""
    places = [p for top in sorted(base.glob("text8*")) for p in (top, *sorted(top.rglob("text8*"))) if p.is_file()]
    return min(places, key=lambda p: (p.name != "text8", p.suffix != ".zip"), default=None)


def _download(source: Source, base: Path) -> list[Path]:
    """Fetch a corpus of three files from the Hugging Face Hub, a row a line."""
    name, configuration, column, revision = source.hub
    folder = base / source.folders[0].rstrip("*")
    try:
        rows = _hub(name, configuration, revision)
        texts = ["".join(f"{line.rstrip(chr(10))}\n" for line in rows[split][column]) for split in HUB_SPLITS]
        return [_write(folder / file, text) for file, text in zip(source.names[0], texts, strict=True)]
    except (ImportError, OSError, RuntimeError, ValueError, KeyError) as error:
        what = f"{', '.join(source.names[0])} in {base.resolve()} or {'/, '.join(source.folders)}/ there"
        raise _missing(source.title, what, name, error, folder) from error


def _download_text8(base: Path) -> Path:
    try:
        rows = _hub(TEXT8_HUB, None, None)
        return _write(base / "text8" / "text8", "".join(text for split in HUB_SPLITS for text in rows[split]["text"]))
    except (ImportError, OSError, RuntimeError, ValueError, KeyError) as error:
        raise _missing("text8", f"text8* in {base.resolve()}", TEXT8_HUB, error, base / "text8") from error


def _hub(name: str, configuration: str | None, revision: str | None) -> dict:
    from datasets import load_dataset

    return load_dataset(name, configuration, revision=revision)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode())
    return path


def _missing(title: str, looked: str, hub: str, error: Exception, folder: Path) -> MissingData:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return MissingData(
        f"{title} is not there (looked for {looked}) and could not be downloaded from the Hugging Face Hub's {hub} "
        f"({reason}). Put its files into {folder.resolve()}, or give another place with data_root=DIR or TIMESCALES_DATA"
    )
