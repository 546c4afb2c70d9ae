"""Disks that are full, read-only or forbidden, then the same command on a working disk."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from compare import result, same
from harness import RUNS, Case, Fault, FaultTests
from tqdm import tqdm

NAME = "ptb_char, chrono, fused"  # the run that finds something forbidden
# What is forbidden: a path in the working directory and its mode.
FORBIDDEN = {
    "the working directory is read-only": ("", 0o555),
    "the run's directory is read-only": ("out", 0o555),
    "the run's directory is forbidden": ("out", 0o000),
    "the record is forbidden": ("out/record.json", 0o000),
    "the checkpoint is forbidden": ("out/last.pt", 0o000),
    "the curve is forbidden": ("out/curve.csv", 0o000),
    "the lock is forbidden": ("out/lock", 0o000),
    "the data are forbidden": ("data/ptb/ptb.valid.txt", 0o000),
    "the data's folder is forbidden": ("data", 0o000),
    "the cache is read-only": ("cache", 0o555),
}


class Disks(FaultTests):
    """Writes that fail."""

    title = "Disks"
    description = (
        "A random write fails with an error of the system, as Python raises it; files may not grow beyond a limit; the "
        "run's directory is a tmpfs of a few pages; directories and files are read-only or forbidden to the user (a "
        "process without root's rights). *one line*: exit status 1 and one line that begins with `error:`. "
        "*continues, equal*: on a working disk the same command ends with what an undisturbed run leaves; *up to "
        "rounding* where no library could be compiled on the full disk, and the run had said that it took the eager "
        "engine."
    )

    def run(self) -> None:
        """Run all cases."""
        self.failing_writes()
        self.small_file_limits()
        self.full_disks()
        self.forbidden_files()

    def runs(self, n: int, label: str) -> Iterator[tuple[int, str]]:
        """The numbers of n cases and the name of the run of each, in turn."""
        for k in tqdm(range(self.times(n)), desc=label, unit="run"):
            name = list(RUNS)[k % len(RUNS)]
            self.bench.undisturbed(name)
            yield k, name

    def failing_writes(self) -> None:
        """One operation on a file raises an error."""
        for k, name in self.runs(100, "a write fails"):
            rng = self.random("disk", k)
            code = rng.choice(["ENOSPC", "EIO", "EDQUOT", "EROFS"])
            cwd = self.folder / f"disk {k}"
            at = rng.randint(1, self.bench.undisturbed(name).operations)
            case = self.bench.train(name, cwd, fault=Fault(at=at, error=getattr(errno, code)))
            row = f"a write of {case.operation.split(':')[0]} fails"
            label = f"disk {k} ({name}, operation {at}, {code})"
            self.expect_one_line(label, row, case)
            self.expect_equal(label, row, name, cwd)
            shutil.rmtree(cwd)

    def small_file_limits(self) -> None:
        """No file may grow beyond a limit."""
        row = "no file larger than 0.25 to 32 kB (RLIMIT_FSIZE)"
        for k, name in self.runs(30, "small file limit"):
            cwd, size = self.folder / f"limit {k}", int(2 ** self.random("limit", k).uniform(8, 15))
            label = f"limit {k} ({name}, {size} bytes)"
            self.expect_one_line(label, row, self.bench.train(name, cwd, before=limit_file_size(size)))
            self.expect_equal(label, row, name, cwd)
            shutil.rmtree(cwd)

    def full_disks(self) -> None:
        """The run's directory is a small disk in memory, where this user may mount one."""
        row = "a tmpfs of 8 to 64 kB is full"
        for k, name in self.runs(30, "full disk"):
            cwd = self.folder / f"mounted {k}"
            size = 4096 * self.random("mounted", k).randint(2, 16)
            cwd.mkdir()
            if not mount(cwd, size):
                self.report.paragraphs.append("No tmpfs could be mounted on this machine: that part was left out.")
                cwd.rmdir()
                return
            label = f"mounted {k} ({name}, size={size})"
            try:
                case = self.bench.train(name, cwd)
                self.expect_one_line(label, row, case)
                subprocess.run(["mount", "-o", "remount,size=64m", str(cwd)], check=True)
                self.expect_equal(label, row, name, cwd, eager="runs on the eager engine" in case.out)
            finally:
                subprocess.run(["umount", str(cwd)], check=True)
            cwd.rmdir()

    def forbidden_files(self) -> None:
        """The permissions of the file system forbid something to a user who is not root."""
        whole = run_files(self.bench.undisturbed(NAME).result)
        for k, (row, (place, mode)) in enumerate(FORBIDDEN.items()):
            cwd = self.folder / f"forbidden {k}"
            self.prepare(cwd, half_run=place.startswith("out"))
            os.chmod(cwd / place, mode)
            self.expect_one_line(f"forbidden {k} ({row})", row, self.train_in(cwd, before=drop_capabilities))
            os.chmod(cwd / place, 0o755)
            case = self.train_in(cwd)
            equal = case.status == 0 and same(run_files(result(cwd)), whole)
            self.report.count(row, "continues, equal" if equal else "continues, differs")
            if not equal:
                self.report.fault(f"forbidden {k} ({row}), continued", f"status {case.status}", case.out)
            shutil.rmtree(cwd)

    def train_in(self, cwd: Path, fault: Fault | None = None, before: Callable[[], None] | None = None) -> Case:
        """The run of `forbidden_files`, with its data in the working directory."""
        return self.bench.train(NAME, cwd, "data_root=data", fault=fault or Fault(), before=before)

    def prepare(self, cwd: Path, half_run: bool) -> None:
        """A working directory with data and a cache, and half a run if one is wanted."""
        cwd.mkdir()
        shutil.copytree(self.bench.data / "ptb", cwd / "data" / "ptb")
        if half_run:
            operations = self.bench.undisturbed(NAME).operations
            case = self.train_in(cwd, Fault(at=operations // 2))
            assert case.status is None, case.out
        (cwd / "cache").mkdir(exist_ok=True)


def run_files(contents: dict[str, object]) -> dict[str, object]:
    """Those files that lie in the run's directory."""
    return {key: value for key, value in contents.items() if key.startswith("out")}


def limit_file_size(size: int) -> Callable[[], None]:
    """A function that limits the size of files, in bytes, for its process."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def mount(folder: Path, size: int) -> bool:
    """Mount a disk of `size` bytes in memory; whether that is possible."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def drop_capabilities() -> None:
    """Take root's right to ignore permissions from this process (capset, version 3 of its header)."""
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None, use_errno=True).capset(header, none) == 0
