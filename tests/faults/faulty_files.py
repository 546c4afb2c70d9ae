"""A layer between `timescales.files` and the disk that kills the process, or raises an error, at a chosen operation."""

import contextlib
import os
import signal
from collections.abc import Iterator
from ctypes import c_longlong
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


class FaultyFiles:
    """Replaces `os`, `open` and `_temporary` in `timescales.files`. Whatever else is asked of it comes from `os`."""

    def __init__(self, counter: c_longlong, fault: Fault) -> None:
        self.counter, self.fault, self.at, self.since = counter, fault, fault.at, fault.since
        self.file = ""
        self.real_temporary = files._temporary

    def install(self) -> None:
        """Patch `timescales.files` in this process."""
        files.os, files.open, files._temporary = self, self.open, self.temporary  # type: ignore[attr-defined,assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def operate(self, can_fail: bool = True) -> None:
        """Count an operation; if it is the chosen one, kill the process or raise the error.

        An operation that cannot fail passes an error on to the next one.
        """
        if self.file == self.since:
            self.since = ""
        if self.since:
            return
        self.counter.value += 1
        if self.counter.value != self.at:
            return
        if self.fault.error is None:
            os.kill(os.getpid(), signal.SIGKILL)
        elif can_fail:
            raise OSError(self.fault.error, os.strerror(self.fault.error))
        else:
            self.at += 1

    def temporary(self, path: Path) -> tuple[int, str]:
        self.file = path.name
        self.operate()
        return self.real_temporary(path)

    def fdopen(self, handle: int, mode: str) -> Any:
        """Replaces `os.fdopen`; the file is written in two halves."""
        return self.two_halves(os.fdopen(handle, mode))

    def open(self, path: Any, mode: str = "r", **options: Any) -> Any:
        """Replaces `open`; what is appended is written in two halves."""
        file = open(path, mode, **options)  # noqa: SIM115
        self.file = Path(path).name
        return self.two_halves(file) if mode == "a" else file

    def fsync(self, handle: int) -> None:
        self.operate()
        os.fsync(handle)

    def replace(self, old: str, new: Path) -> None:
        self.operate()
        os.replace(old, new)
        self.operate(can_fail=False)

    @contextlib.contextmanager
    def two_halves(self, file: Any) -> Iterator[SimpleNamespace]:
        """An open file whose `write` can be interrupted half-way."""

        def write(data: Any) -> None:
            middle = len(data) // 2
            file.write(data[:middle])
            file.flush()
            self.operate()
            file.write(data[middle:])

        with file:
            yield SimpleNamespace(write=write, flush=file.flush, fileno=file.fileno)
