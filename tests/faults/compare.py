"""What a run leaves on disk, compared with what an undisturbed run leaves."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from timescales import files
from timescales.runs import record
from timescales.training import checkpoint

# The keys of a record that an interruption must not change.
RECORD_KEYS = (
    "id",
    "status",
    "stopped",
    "steps",
    "metrics",
    "last",
    "best",
    "curve",
    "timescales",
    "parameters",
    "partial",
    "diverged_at",
)


def result(folder: Path) -> dict[str, Any]:
    """The contents of all files under a folder, by path.

    Raises ValueError if a file cannot be read or a temporary file was left behind.
    """
    contents = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        key = str(path.relative_to(folder))
        if files.TEMPORARY in key or ".tmp" in key or ".build" in key:
            raise ValueError(f"{key} was left behind")
        content = _content(path, key)
        if content is not None:
            contents[key] = content
    return contents


def _content(path: Path, key: str) -> Any:
    """What is compared of a file; None: nothing."""
    if path.name == "record.json":
        values = record.Record.read(path.parent)
        assert values is not None
        return {name: values.content()[name] for name in RECORD_KEYS}
    if path.suffix == ".pt":
        cached = "corpora" in key
        return plain(torch.load(files.checked(path), weights_only=True) if cached else checkpoint.load(path))
    if path.suffix == ".csv":
        text = path.read_text()
        if len({len(row) for row in _rows(text)}) != 1:
            raise ValueError(f"{key} has rows of different lengths")
        return text
    return None


def plain(content: Any) -> Any:
    """A checkpoint's content with arrays for tensors, without the seconds."""
    if isinstance(content, dict):
        return {key: plain(value) for key, value in content.items() if key != "seconds"}
    if isinstance(content, list | tuple):
        return [plain(value) for value in content]
    return content.numpy() if isinstance(content, torch.Tensor) else content


def same(a: Any, b: Any, tolerance: float = 0.0) -> bool:
    """Whether two results are equal: bit by bit, or within a tolerance.

    With a tolerance the checksums in curve.csv and the states of random generators are not compared.
    """
    if tolerance and isinstance(a, str) and isinstance(b, str) and "," in a:
        a, b = _numbers(a), _numbers(b)
    if isinstance(a, dict) and isinstance(b, dict):
        keys = {*a, *b} - ({"rng"} if tolerance else set())
        return all(key in a and key in b and same(a[key], b[key], tolerance) for key in keys)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return _same_array(a, b, tolerance)
    if tolerance and isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, tolerance, tolerance))
    return repr(a) == repr(b)


def _same_array(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    if tolerance and a.dtype.kind == "f":
        return a.shape == b.shape and bool(np.allclose(a, b, tolerance, tolerance))
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _rows(curve: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(curve)))


def _numbers(curve: str) -> list[list[Any]]:
    """The rows of a curve.csv without the last column, which holds the checksums."""
    return [[_number(value) for value in row[:-1]] for row in _rows(curve)]


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def part_of(curve: str, whole: str) -> bool:
    """Whether all values of a curve.csv, apart from the checksums of its rows, stand in another one."""
    return _values(curve) <= _values(whole)


def _values(curve: str) -> set[tuple[str, str, str]]:
    """Each value of a curve.csv as (step, column, value)."""
    rows = csv.DictReader(io.StringIO(curve))
    return {(row["step"], key, value) for row in rows for key, value in row.items() if value and key != "crc32"}


ROUNDING = 1e-3  # how far the numbers of a run may differ whose sums are in another order


def differences(status: int | None, folder: Path, whole: dict[str, Any], tolerance: float = 0.0) -> str:
    """In which files a finished run differs from an undisturbed one, or why it cannot be compared; "": in none."""
    if status != 0:
        return f"exit status {status}"
    try:
        found = result(folder)
    except (ValueError, AssertionError) as error:
        return str(error)
    keys = sorted({*found, *whole})
    return ", ".join(key for key in keys if not same(found.get(key), whole.get(key), tolerance))


def spoil(path: Path, rng: random.Random) -> str:
    """Cut a file at a random length, or change 1 to 8 random bytes; returns which, "cut" or "bytes changed"."""
    data = bytearray(path.read_bytes())
    if rng.random() < 0.5 and data:
        path.write_bytes(data[: rng.randrange(len(data))])
        return "cut"
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= rng.randint(1, 255)
    path.write_bytes(data)
    return "bytes changed"
