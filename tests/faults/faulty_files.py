"""A layer between `timescales.files` and the disk that kills the process, or raises an error, at a chosen operation."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from timescales import files


@dataclass(frozen=True)
class Fault:
    """What disturbs a command; by default nothing does."""

    at: int | None = None  # the number of the operation on a file, from 1
    since: str = ""  # the file whose first operation is number 1; "": the first file
    error: int | None = None  # the errno that the operation raises; None: it kills the process
    seconds: float | None = None  # the process is killed after this time

    @property
    def kills(self) -> bool:
        """Whether the process may be killed."""
        return self.error is None and (self.at is not None or self.seconds is not None)


class Progress:
    """The latest operation on a file and how many there were, in memory that forked processes share."""

    LENGTH = 80  # bytes of the text; 8 bytes for the count follow

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, self.LENGTH + 8)

    def write(self, operation: str, count: int) -> None:
        """Store the name of an operation and the number of operations so far."""
        self.memory[: self.LENGTH] = operation.encode()[: self.LENGTH].ljust(self.LENGTH)
        self.memory[self.LENGTH :] = count.to_bytes(8, "little")

    @property
    def operation(self) -> str:
        """The latest operation, as "file: operation"."""
        return self.memory[: self.LENGTH].decode().strip()

    @property
    def count(self) -> int:
        """The number of operations so far."""
        return int.from_bytes(self.memory[self.LENGTH :], "little")


class FaultyFiles:
    """Replaces `os`, `open` and `_temporary` in `timescales.files`. Whatever else is asked of it comes from `os`."""

    def __init__(self, progress: Progress, fault: Fault) -> None:
        self.progress, self.error, self.at, self.since = progress, fault.error, fault.at, fault.since
        self.file, self.count = "", 0
        self.real_temporary, self.real_open = files._temporary, open

    def install(self) -> None:
        """Patch `timescales.files` in this process."""
        files.os, files.open, files._temporary = self, self.open, self.temporary  # type: ignore[attr-defined,assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def operate(self, operation: str, can_fail: bool = True) -> None:
        """Count an operation; if it is the chosen one, kill the process or raise the error.

        An operation that cannot fail passes an error on to the next one.
        """
        if self.file == self.since:
            self.since = ""
        if not self.since:
            self.count += 1
        if self.error is not None and self.at is not None and self.count > self.at:
            return  # the progress keeps the name of the operation that failed
        self.progress.write(f"{self.file}: {operation}", self.count)
        if self.count != self.at:
            return
        if self.error is None:
            os.kill(os.getpid(), signal.SIGKILL)
        elif can_fail:
            raise OSError(self.error, os.strerror(self.error))
        else:
            self.at += 1

    def finish(self) -> None:
        """Note that no file is open."""
        if self.error is None:
            self.progress.write("between files", self.count)

    def temporary(self, path: Path) -> tuple[int, str]:
        """Replaces `files._temporary`."""
        self.file = path.suffix if path.parent.name == "corpora" else path.name
        self.operate("created")
        return self.real_temporary(path)

    def fdopen(self, handle: int, mode: str) -> Any:
        """Replaces `os.fdopen`; the file is written in two halves."""
        return self.two_halves(os.fdopen(handle, mode), "half written")

    def open(self, path: Any, mode: str = "r", **options: Any) -> Any:
        """Replaces `open`; what is appended is written in two halves."""
        file = self.real_open(path, mode, **options)
        self.file = Path(path).name
        return self.two_halves(file, "half a row written", self.finish) if mode == "a" else file

    def fsync(self, handle: int) -> None:
        """Replaces `os.fsync`."""
        self.operate("before fsync")
        os.fsync(handle)

    def replace(self, old: str, new: Path) -> None:
        """Replaces `os.replace`."""
        self.operate("before rename")
        os.replace(old, new)
        self.operate("after rename", can_fail=False)
        self.finish()

    @contextlib.contextmanager
    def two_halves(
        self, file: Any, operation: str, at_end: Callable[[], None] = lambda: None
    ) -> Iterator[SimpleNamespace]:
        """An open file whose `write` can be interrupted half-way."""

        def write(data: Any) -> None:
            middle = len(data) // 2
            file.write(data[:middle])
            file.flush()
            self.operate(operation)
            file.write(data[middle:])

        with file:
            yield SimpleNamespace(write=write, flush=file.flush, fileno=file.fileno)
        at_end()
