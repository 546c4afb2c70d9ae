"""Lock a run's directory, so that only one process trains the run, on this machine or on others that share the files.

The lock is a file: `lock`, then `lock.1`, `lock.2`, ... of later owners. The highest number counts. A process may only
create a file that does not exist, which is atomic on shared file systems too. So if several processes find that the
newest lock was released, or that its owner is dead, only one of them gets the next number. An owner counts as alive

- while it holds the operating system's lock on its file (flock). This lock ends with the process, however it ends, so
  on one machine nobody waits for a dead process. Not every shared file system shows it to other machines;
- or, if it is on another machine, while its file was touched less than TIMEOUT seconds ago. Owners touch their file
  every HEARTBEAT seconds. Both times are those of the file system, because the clocks of machines differ.
"""

import contextlib
import errno
import fcntl
import json
import os
import platform
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypedDict, cast

from timescales.errors import ConfigError
from timescales.files import TEMPORARY, make_folder

HEARTBEAT = 30.0  # seconds
TIMEOUT = 300.0  # ten heartbeats: what a machine knows about files on a network may be a minute old
RELEASED = "given back"
PAUSE = 1.0  # seconds in which an owner has written who it is


# Who holds a lock, as its file says; {} if the file is damaged. try: how often SLURM has requeued the job.
Holder = TypedDict("Holder", {"process": int, "host": str, "machine": str, "job": str | None, "try": int}, total=False)


class RunningElsewhere(ConfigError):
    """Another process trains the run."""


class Lock:
    """Hold the lock of a run's directory until `release`. Raises RunningElsewhere if a living process holds it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        make_folder(directory)
        newest = _newest(directory)
        if holder := owner(directory):
            raise RunningElsewhere(f"{directory} is being run by {holder} right now")
        self.number = 0 if newest is None else newest + 1
        self.path = (directory / (f"lock.{self.number}" if self.number else "lock")).absolute()
        self.file = self._create()
        for number, path in paths(directory).items():
            if number < self.number:
                path.unlink(missing_ok=True)
        self.lost, self.last_beat, self.released = False, time.time(), threading.Event()
        self.thread = threading.Thread(target=self._keep_alive, daemon=True)
        self.thread.start()

    def _create(self) -> IO[str]:
        """Create the lock's file and write who holds it. While the file is open, this process has flock's lock."""
        message = f"{self.directory} is being run by another process, which has just taken it"
        try:
            file = open(self.path, "x+")  # noqa: SIM115 (stays open)
        except FileExistsError:
            raise RunningElsewhere(message) from None
        with contextlib.suppress(OSError):  # a file system without locks, where only the heartbeat counts
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            file.write(json.dumps(_this_process()))
            file.flush()
            os.fsync(file.fileno())  # so that other machines see it
        except OSError as error:  # such as a full disk: a part of it would count as a lock for TIMEOUT seconds
            self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                file.close()
            error.filename = str(self.path)
            raise
        if _newest(self.directory) != self.number:  # another process was faster while this one slept
            self.path.unlink(missing_ok=True)
            file.close()
            raise RunningElsewhere(message)
        return file

    def _keep_alive(self) -> None:
        while not self.released.wait(HEARTBEAT):
            self._beat()

    def _beat(self) -> None:
        with contextlib.suppress(OSError):  # the file system may be unreachable for a while
            self.lost = _newest(self.path.parent) != self.number
            os.utime(self.path)
            self.last_beat = time.time()

    def check(self) -> None:
        """Raise RunningElsewhere if another process has taken over, because this one was silent: do not write then."""
        if time.time() - self.last_beat > 2 * HEARTBEAT:  # the machine slept, and the thread may not be awake yet
            self._beat()
        if self.lost:
            raise RunningElsewhere(
                f"{self.directory} was taken over by another process, because this one was silent for {TIMEOUT:.0f} s"
            )

    def release(self) -> None:
        """Release the lock, so that the next owner need not wait."""
        self.released.set()
        self.thread.join()
        try:
            with self.file:
                self.file.seek(0)
                self.file.write(RELEASED)
                self.file.truncate()
        except OSError:  # on a full disk with copy-on-write (btrfs, ZFS), overwriting needs space, a time stamp not
            with contextlib.suppress(OSError):
                os.utime(self.path, (0, 0))  # other machines see an owner that has been silent for years


@contextlib.contextmanager
def hold(directory: Path) -> Iterator[Lock]:
    """Hold the lock of a run's directory. Raises RunningElsewhere if another process holds it."""
    lock = Lock(directory)
    try:
        for left_by_a_kill in directory.glob(f"{TEMPORARY}*"):
            left_by_a_kill.unlink(missing_ok=True)
        yield lock
    finally:
        lock.release()


def owner(directory: Path) -> str | None:
    """Name the living process that holds the lock of a directory; None if there is none."""
    found = paths(directory)
    if not found:
        return None
    try:
        content, held, touched = _read(found[max(found)])
        if not content and not held:  # it is just being written, or its owner was killed before it could
            time.sleep(PAUSE)
            content, held, touched = _read(found[max(found)])
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):  # on NFS it may vanish while it is read
            raise
        return "another process"  # which has just taken the next number
    if not held and (not content or content.startswith(RELEASED)):
        return None
    try:
        holder = cast(Holder, dict(json.loads(content)))
    except (ValueError, TypeError):  # it is damaged
        holder = {}
    words = f"process {holder.get('process', '?')} on {holder.get('host', '?')}"
    if held:
        return words
    this = _this_process()
    if held is False and holder.get("machine") == this["machine"]:
        return None
    if holder.get("job") and holder["job"] == this["job"] and holder.get("try", 0) < this["try"]:
        return None  # it was this same job, before SLURM put it back into the queue
    # The time of the file system. The name is not that of a temporary file, because the owner may be removing those.
    with tempfile.TemporaryFile(dir=directory, prefix=".now.") as file:
        silence = os.fstat(file.fileno()).st_mtime - touched
    return f"{words}, last heard of {silence:.0f} s ago," if silence < TIMEOUT else None


def _read(path: Path) -> tuple[str, bool | None, float]:
    """Return the content of a lock's file, whether it is held (`_is_held`), and when it was touched."""
    with open(path, errors="replace") as file:
        held = _is_held(file.fileno())
        return file.read(), held, os.fstat(file.fileno()).st_mtime


def _is_held(file: int) -> bool | None:
    """Return whether a process holds the operating system's lock on a file; None if the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _this_process() -> Holder:
    """Describe this process for its lock. "machine" is the running kernel, whose processes see each other's locks."""
    machine = platform.node()
    with contextlib.suppress(OSError):
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    job, tries = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_RESTART_COUNT", "0")
    return {"process": os.getpid(), "host": platform.node(), "machine": machine, "job": job, "try": int(tries)}


def paths(directory: Path) -> dict[int, Path]:
    """Return the lock files of a directory, by number."""
    try:
        names = os.listdir(directory)  # not glob, which returns nothing if the file system is unreachable
    except FileNotFoundError:
        return {}
    found = filter(None, (re.fullmatch(r"lock(?:\.([1-9][0-9]*))?", name) for name in names))
    return {int(match[1] or 0): directory / match[0] for match in found}


def _newest(directory: Path) -> int | None:
    """Return the highest number of a directory's locks; None if there is no lock."""
    return max(paths(directory), default=None)
