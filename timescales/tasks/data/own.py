"""Find the user's file, read its text, and say in one line what is wrong with it. `series` reads tables."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from timescales.tasks.data.corpus import data_root
from timescales.tasks.data.places import plain_text
from timescales.tasks.data.text import EOS, Text

UNKNOWN = "<unk>"  # the symbol for all that are rare in the training part, or not in it


def locate(data: str | None, root: str | os.PathLike | None, example: str) -> Path:
    """Return the absolute path of the user's file: the path as given, or else within the folder of data sets.

    example: a name for the message.

    Raises: ValueError, with what to do, if there is no such file.
    """
    if not data:
        raise ValueError(f"this task reads your own file: give task.data={example}")
    place = Path(os.path.expanduser(data))  # a name such as ~a.txt stays as it is, unlike with Path.expanduser
    tried = [place.absolute(), (data_root(root) / place).absolute()]
    path = next((p for p in tried if p.is_file()), None)
    if path is None:
        if folder := next((p for p in tried if p.is_dir()), None):
            raise ValueError(f"{folder} is a folder: give task.data the file in it")
        places = " and not at ".join(dict.fromkeys(map(str, tried)))
        raise ValueError(f"there is no file at {places}: give its path, task.data={example}")
    return path.resolve()


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file. Lines end in a line feed, and a byte order mark is left out.

    Raises: ValueError for a file that is empty, not UTF-8 or not readable.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): make it readable") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {line:,}: byte {content[error.start]:#04x} at {error.start:,} is not UTF-8; save the file "
            "as UTF-8 (iconv -f latin1 -t utf-8 does it for Latin-1)"
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(f"{path}, line {line:,} has a zero byte, so it is no plain text: save it as UTF-8 text")
    if not text.strip():
        raise ValueError(f"{path} has no text: give a file with more")
    return plain_text(text)


def tokens(text: str, unit: str) -> list[str]:
    """Return the symbols of a text: its characters, or its words between white space, with `EOS` after each line.

    unit: "characters" or "words".
    """
    if unit == "characters":
        return list(text)
    return [word for line in text.removesuffix("\n").split("\n") for word in (*line.split(), EOS)]


def numbered(symbols: Sequence[str], cuts: tuple[int, int], min_count: int) -> Text:
    """Return a text as numbers, int32, with the vocabulary of its training part.

    Number 0 is `UNKNOWN`; the others are the symbols that occur at least min_count times before the first cut, the most
    frequent ones first. cuts: where the validation and the test part begin.
    """
    counts: dict[str, int] = {}
    for symbol in symbols[: cuts[0]]:
        counts[symbol] = counts.get(symbol, 0) + 1
    frequent = sorted((s for s, n in counts.items() if n >= min_count and s != UNKNOWN), key=lambda s: (-counts[s], s))
    vocabulary = [UNKNOWN, *frequent]
    number = {symbol: k for k, symbol in enumerate(vocabulary)}
    all_numbers = torch.from_numpy(np.fromiter((number.get(s, 0) for s in symbols), np.int32, len(symbols)))
    train, valid, test = (part.clone() for part in all_numbers.tensor_split(cuts))
    return Text(train, valid, test, vocabulary, [])


def cuts(n: int, valid_fraction: float, test_fraction: float) -> tuple[int, int]:
    """Return where the validation and the test part of n items begin. Raises ValueError for fractions out of range."""
    check_fractions(valid_fraction, test_fraction)
    end = n - max(1, round(test_fraction * n))
    return max(1, end - max(1, round(valid_fraction * n))), end


def check_fractions(valid_fraction: float, test_fraction: float) -> None:
    """Raise ValueError if the parts for validation and test leave nothing to train on."""
    for name, value in (("valid_fraction", valid_fraction), ("test_fraction", test_fraction)):
        if not 0.0 < value < 1.0:
            raise ValueError(f"{name} must be above 0 and below 1, not {value}")
    if valid_fraction + test_fraction >= 1.0:
        raise ValueError(
            f"valid_fraction {valid_fraction} and test_fraction {test_fraction} leave nothing to train on: "
            "their sum must be below 1"
        )
