"""Who works in a run's directory: one process at a time, on this machine or another that sees the same files.

A claim is a file, `lock`, then `lock.1`, `lock.2`, ... of those who come later; the highest number counts. A file that
must not be there yet is created atomically on shared file systems too: so of several who find the highest one given
back, or its owner dead, one gets the next number. An owner is alive

- while it holds the operating system's lock on its file (flock), which ends with its process, however that ends: on one
  machine nobody waits for the dead. But not every shared file system shows it to other machines;
- else, if it is of another machine, while its file was touched less than SILENCE seconds ago; it is every BEAT seconds.
  Both times are the file system's: clocks of several machines differ.

Imports no torch.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from timescales.errors import ConfigError

BEAT = 30.0  # seconds
SILENCE = 300.0  # ten beats: what a machine knows of a network's files may be a minute old
GIVEN_BACK = "given back"


class Elsewhere(ConfigError):
    """The run is going on in another process."""


class Claim:
    """A run's directory is ours until `release`. Raises Elsewhere if a living process has it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        newest = _newest(directory)
        if words := owner(directory):
            raise Elsewhere(f"{directory} is being run by {words} right now")
        self.number = 0 if newest is None else newest + 1
        self.path = _path(directory, self.number).absolute()
        taken = f"{directory} is being run by another process, which has just taken it"
        try:
            self.file = open(self.path, "x+")  # noqa: SIM115 (it carries the lock, so it stays open)
        except FileExistsError:
            raise Elsewhere(taken) from None
        with contextlib.suppress(OSError):  # a file system without locks: there the beat alone counts
            fcntl.flock(self.file, fcntl.LOCK_EX)
        try:
            self.file.write(json.dumps(_ourselves()))
            self.file.flush()
        except OSError as error:  # a full disk, say: an empty file would be somebody's for SILENCE seconds
            self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.file.close()
            error.filename = str(self.path)
            raise
        if _newest(directory) != self.number:  # we slept since looking, and were overtaken
            self.path.unlink(missing_ok=True)
            self.file.close()
            raise Elsewhere(taken)
        for path in directory.glob("lock*"):
            if _number(path.name) < self.number:
                path.unlink(missing_ok=True)
        self.lost, self.heard, self.ended = False, time.time(), threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def _beat(self) -> None:
        while not self.ended.wait(BEAT):
            self._look()

    def _look(self) -> None:
        with contextlib.suppress(OSError):  # the file system may be away for a while
            self.lost = _newest(self.path.parent) != self.number
            os.utime(self.path)
            self.heard = time.time()

    def check(self) -> None:
        """Raise Elsewhere if another has taken the run, because we were silent for too long: we must not write then."""
        if time.time() - self.heard > 2 * BEAT:  # the machine slept, and our thread may not be awake yet
            self._look()
        if self.lost:
            raise Elsewhere(f"{self.directory} was taken over by another process: nothing was heard of this one")

    def release(self) -> None:
        """Give the directory back, so that the next owner need not wait."""
        self.ended.set()
        self.thread.join()
        with contextlib.suppress(OSError), self.file:
            self.file.seek(0)  # over what is there, which needs no room on a full disk
            self.file.write(GIVEN_BACK)
            self.file.truncate()


def owner(directory: Path) -> str | None:
    """The living process that works in a directory, in words; None if there is none."""
    newest = _newest(directory)
    if newest is None:
        return None
    try:
        with open(_path(directory, newest), errors="replace") as file:
            held = _held(file.fileno())
            content = file.read()
            touched = os.fstat(file.fileno()).st_mtime
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):  # on NFS it may vanish while it is read
            raise
        return "another process"  # which has just taken the next number
    if content.startswith(GIVEN_BACK) and not held:
        return None
    try:
        said = dict(json.loads(content))
    except (ValueError, TypeError):  # empty: is just being written
        said = {}
    words = f"process {said.get('process', '?')} on {said.get('host', '?')}"
    if held:
        return words
    ours = _ourselves()
    if held is False and said.get("machine") == ours["machine"]:
        return None
    if said.get("job") and said["job"] == ours["job"] and said.get("try", 0) < ours["try"]:
        return None  # this very job before it was requeued
    silent = _now(directory) - touched
    return f"{words}, last heard of {silent:.0f} s ago," if silent < SILENCE else None


def _held(file: int) -> bool | None:
    """Whether somebody is seen to hold the operating system's lock on a file; None where the file system has none."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _ourselves() -> dict[str, Any]:
    """This process, for its claim. "machine" is the running kernel: within one, processes see each other's locks."""
    machine = platform.node()
    with contextlib.suppress(OSError):
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    job, tries = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_RESTART_COUNT", "0")
    return {"process": os.getpid(), "host": platform.node(), "machine": machine, "job": job, "try": int(tries)}


def _now(directory: Path) -> float:
    """The file system's time."""
    # Not named like unfinished files: the owner may be removing those just now.
    with tempfile.TemporaryFile(dir=directory, prefix=".now.") as file:
        return os.fstat(file.fileno()).st_mtime


def _newest(directory: Path) -> int | None:
    try:
        names = os.listdir(directory)  # not glob, to which a file system that is away is an empty folder
    except FileNotFoundError:
        return None
    return max((_number(name) for name in names if name.startswith("lock")), default=None)


def _number(name: str) -> int:
    number = name.rpartition(".")[2]
    return int(number) if number.isdigit() else 0


def _path(directory: Path, number: int) -> Path:
    return directory / (f"lock.{number}" if number else "lock")
