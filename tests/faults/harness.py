"""What tests/faults/run.py works with: commands in forks, a disk that fails or kills, and what runs leave, compared."""

from __future__ import annotations

import contextlib
import csv
import io
import mmap
import os
import random
import re
import runpy
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402
import synthetic  # noqa: E402
import torch  # noqa: E402
from tqdm import tqdm  # noqa: E402

from timescales import files  # noqa: E402
from timescales.runs import record  # noqa: E402
from timescales.training import checkpoint, run, seeds  # noqa: E402, F401 (seeds: loaded once)

SMALL = ["logger=csv", "device=cpu", "model.hidden_size=5", "loop.log_every=3", "loop.checkpoint_every=0"]
STEPS = ["loop.max_steps=24", "loop.eval_every=8"]
LIMIT = 120.0  # seconds after which a command hangs


def command(*words: str) -> list[str]:
    """A small training: the trunk's keys that all share, then its own."""
    task = next(word.removeprefix("task=") for word in words if word.startswith("task="))
    own = ["task.batch_size=4", *synthetic.sizes(task, 40, 8, 8), *synthetic.SMALL.get(task, [])]
    return [*SMALL, *STEPS, *own, *words]


# Every kind of task (drawn, images, texts with a carried state, reviews), both engines, stacked seeds.
RUNS = {
    "copy, pLSTM, fused": command("task=copy", "model=plstm", "engine=fused"),
    "copy, LSTM, eager": command("task=copy", "model=lstm", "engine=eager"),
    "adding, UR, fused, dropout": command("task=adding", "model=ur", "model.num_layers=2", "model.dropout=0.3"),
    "frequency, pLSTM, eager": command("task=frequency", "model=plstm", "engine=eager"),
    "smnist, gated GRU, eager": command("task=smnist", "task.length=40", "model=gated", "model.core=gru",
                                        "model.hidden_size=16"),
    "ptb_char, chrono, fused": command("task=ptb_char", "model=chrono", "engine=fused"),
    "ptb_word, MTS, NT-ASGD": command("task=ptb_word", "model=mts", "task.dropout_hidden=0.3"),
    "imdb, JANET, eager": command("task=imdb", "model=janet"),
    "copy, GRU, three seeds stacked": command("task=copy", "model=gru", "seeds=3"),
}  # fmt: skip


class Case(NamedTuple):
    """What became of one command."""

    status: int | None  # None: killed by us; below 0: by another signal
    out: str
    place: str  # of a kill: the file and the operation, or what else was going on

    @property
    def clear(self) -> bool:
        """One line that says what is wrong, and nothing else of an error."""
        lines = self.out.strip().splitlines()
        return (
            self.status == 1 and sum(line.startswith("error: ") for line in lines) == 1 and "Traceback" not in self.out
        )


class Files:
    """Stands between `timescales.files` and the disk: counts operations, and ends the process or raises in one."""

    def __init__(self, place: mmap.mmap, at: int | None = None, error: int | None = None, since: str = "") -> None:
        self.place, self.at, self.error, self.since, self.file, self.count = place, at, error, since, "", 0
        self.make, self.open = files._temporary, open

    def install(self) -> None:
        """Take the place of the module's `os`, `open` and `_temporary`, in this process."""
        files.os, files.open, files._temporary = self, self.append, self.temporary  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def say(self, words: str) -> None:
        """Leave word of what is going on where a parent finds it: where a kill or an error came."""
        self.place[:80] = words.encode()[:80].ljust(80)
        self.place[80:88] = self.count.to_bytes(8, "little")

    def pass_by(self, operation: str, can_fail: bool = True) -> None:
        """One operation; it may be the last. Counted from the first on the file `since`, if that is named."""
        self.since = "" if self.file == self.since else self.since
        self.count += not self.since
        if self.error is not None and self.at is not None and self.count > self.at:
            return  # a parent shall find where it was
        self.say(f"{self.file}: {operation}")
        if self.count == self.at and not self.since:
            if self.error is None:
                os.kill(os.getpid(), signal.SIGKILL)
            elif can_fail:
                raise OSError(self.error, os.strerror(self.error))
            else:
                self.at += 1

    def temporary(self, path: Path) -> tuple[int, str]:
        """`files._temporary`."""
        self.file = path.suffix if path.parent.name == "corpora" else path.name
        self.pass_by("made")
        return self.make(path)

    def fdopen(self, handle: int, mode: str) -> Any:
        """`os.fdopen`, of a file that is written in halves."""
        return self.halves(os.fdopen(handle, mode), "half written")

    def append(self, path: Any, mode: str = "r", **how: Any) -> Any:
        """`open`."""
        opened = self.open(path, mode, **how)
        self.file = Path(path).name
        return self.halves(opened, "half a row") if mode == "a" else opened

    def halves(self, opened: Any, operation: str) -> Any:
        """A file whose write is interrupted half-way."""
        write = opened.write

        @contextlib.contextmanager
        def entered() -> Iterator[Any]:
            with opened:
                yield SimpleNamespace(write=in_halves, flush=opened.flush, fileno=opened.fileno)
            if operation == "half a row":
                self.done()

        def in_halves(data: Any) -> None:
            write(data[: len(data) // 2])
            opened.flush()
            self.pass_by(operation)
            write(data[len(data) // 2 :])

        return entered()

    def fsync(self, handle: int) -> None:
        """`os.fsync`."""
        self.pass_by("to be synced")
        os.fsync(handle)

    def replace(self, old: str, new: Path) -> None:
        """`os.replace`."""
        self.pass_by("to be renamed")
        os.replace(old, new)
        self.pass_by("renamed", can_fail=False)
        self.done()

    def done(self) -> None:
        """No file is open."""
        if self.error is None:
            self.say("between files")


class Bench:
    """A folder in which commands are run, each in a fork of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = mmap.mmap(-1, 88)  # shared with the forks
        (folder / "data").mkdir()
        self.data = synthetic.write_corpora(folder / "data")

    @property
    def operations(self) -> int:
        """How many operations on files the newest command has made."""
        return int.from_bytes(self.place[80:88], "little")

    def run(
        self, words: list[str], cwd: Path, *, at: int | None = None, error: int | None = None,
        seconds: float | None = None, before: Callable[[], None] | None = None, since: str = "",
    ) -> Case:  # fmt: skip
        """Run train.py with these words; kill it in its at-th operation on a file (since the first
        on the file `since`), or after some seconds; with `error`, raise that there instead."""
        cwd.mkdir(parents=True, exist_ok=True)
        said = self.folder / "said.txt"
        self.place[:88] = b"starting".ljust(80) + bytes(8)
        process = os.fork()
        if process == 0:
            self._child(words, cwd, said, Files(self.place, at, error, since), before)
        until, ended, status = time.monotonic() + (LIMIT if seconds is None else seconds), 0, 0
        while not ended and time.monotonic() < until:
            ended, status = os.waitpid(process, os.WNOHANG)
            time.sleep(0.0005)
        if not ended:
            os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
        out = said.read_text(errors="replace")
        if not ended and seconds is None:
            out += f"\nhung: killed after {LIMIT:.0f} seconds"
        code: int | None = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL and (at is not None or seconds is not None):
            code = None
        return Case(code, out, self.place[:80].decode().strip())

    def _child(self, words: list[str], cwd: Path, said: Path, traced: Files, before: Callable[[], None] | None) -> None:
        status = 0
        try:
            handle = os.open(said, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            sys.stdout, sys.stderr = (open(n, "w", buffering=1, closefd=False) for n in (1, 2))  # noqa: SIM115
            os.chdir(cwd)
            os.environ["XDG_CACHE_HOME"] = str(cwd / "cache")
            # A clock that stands still: a checkpoint at every step, however long writing takes.
            run.time = SimpleNamespace(monotonic=lambda: 0.0)  # type: ignore[assignment]
            traced.install()
            if before:
                before()
            sys.argv = ["train.py", *words]
            runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
        except SystemExit as leaving:
            if isinstance(leaving.code, str):
                print(leaving.code, file=sys.stderr)
            status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        except BaseException:
            traceback.print_exc()
            status = 70  # no program of ours says so
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def train(self, name: str, cwd: Path, *more: str, **how: Any) -> Case:
        """One of RUNS, its directory `cwd`/out."""
        return self.run([*RUNS[name], f"data_root={self.data}", "run_dir=out", *more], cwd, **how)


# --------------------------------------------------------------------------------------------- what is compared

SAME = ("id", "status", "stopped", "steps", "metrics", "last", "best", "curve", "timescales", "parameters", "partial",
        "diverged_at")  # fmt: skip


def result(folder: Path) -> dict[str, Any]:
    """All that a run has left, by its path; raises if a file cannot be read or a temporary one is there."""
    found: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        key = str(path.relative_to(folder))
        if files.TEMPORARY in key or ".tmp" in key or ".build" in key:
            raise ValueError(f"{key} is left")
        if path.name == "record.json":
            said = record.read(path.parent)
            assert said is not None
            found[key] = {name: said[name] for name in SAME}
        elif path.suffix == ".pt" and "corpora" not in key:
            found[key] = plain(checkpoint.load(path))
        elif path.suffix == ".pt":
            found[key] = plain(torch.load(files.checked(path), weights_only=True))
        elif path.suffix == ".csv":
            rows = list(csv.reader(io.StringIO(path.read_text())))
            if len({len(row) for row in rows}) != 1:
                raise ValueError(f"{key} has rows of different lengths")
            found[key] = path.read_text()
    return found


def plain(content: Any) -> Any:
    """A checkpoint's content with tensors as arrays, without its seconds."""
    if isinstance(content, dict):
        return {key: plain(value) for key, value in content.items() if key != "seconds"}
    if isinstance(content, list | tuple):
        return [plain(value) for value in content]
    return content.numpy() if isinstance(content, torch.Tensor) else content


def same(a: Any, b: Any, tolerance: float = 0.0) -> bool:
    """Whether all of two results is equal, to the bit or within a tolerance (then without generators' states)."""
    if tolerance and isinstance(a, str) and isinstance(b, str) and "," in a:  # a curve, with its checksums
        a, b = ([[_number(v) for v in row[:-1]] for row in csv.reader(io.StringIO(text))] for text in (a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        keys = {*a, *b} - ({"rng"} if tolerance else set())
        return all(key in a and key in b and same(a[key], b[key], tolerance) for key in keys)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if tolerance and a.dtype.kind == "f":
            return a.shape == b.shape and bool(np.allclose(a, b, tolerance, tolerance))
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if tolerance and isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, tolerance, tolerance))
    return repr(a) == repr(b)


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def part_of(curve: str, whole: str) -> bool:
    """Whether all that a curve.csv says, but for its rows' checksums, stands in another."""
    said, known = (
        {(row["step"], key, value) for row in csv.DictReader(io.StringIO(text)) for key, value in row.items() if value}
        for text in (curve, whole)
    )
    return {one for one in said if one[1] != "crc32"} <= known


def compared(case: Case, folder: Path, whole: dict[str, Any], name: str = "") -> str:
    """In what a run's folder differs from what an undisturbed one has left; "" if it has ended and in nothing.

    Seeds that were stacked, and are not at one step any more, catch up alone: equal up to rounding, as ARCHITECTURE.md
    says.
    """
    if case.status != 0:
        return f"exit status {case.status}"
    tolerance = 1e-3 if "stacked" in name else 0.0
    try:
        found = result(folder)
    except (ValueError, AssertionError) as error:
        return str(error)
    return ", ".join(key for key in sorted({*found, *whole}) if not same(found.get(key), whole.get(key), tolerance))


class Report:
    """A part's counts and faults."""

    def __init__(self, sort: bool = False) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.faults: list[str] = []
        self.words: list[str] = []
        self.said: dict[str, str] = {}
        self.sort = sort

    def count(self, row: str, column: str) -> None:
        """One more case of a row of the table."""
        self.counts.setdefault(row, Counter())[column] += 1

    def fault(self, case: str, why: str, out: str = "") -> None:
        """What must not be; with the last words of the command."""
        self.faults.append(f"{case}: {why}")
        tqdm.write(f"FAULT {case}: {why}\n{out[-1500:]}", file=sys.stderr)

    def say(self, row: str, case: Case, folder: Path) -> None:
        """Keep the line of a row's first clear error."""
        line = next(line for line in case.out.splitlines() if line.startswith("error: "))
        self.said.setdefault(row, re.sub(rf"{folder}/\w+ \d+", "DIR", line).replace("|", "\\|"))

    def table(self) -> str:
        """The counts, a row each, as Markdown."""
        columns = list(dict.fromkeys(column for row in self.counts.values() for column in row))
        lines = [f"|  | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
        for row, counted in sorted(self.counts.items(), key=lambda item: item[0] if self.sort else ""):
            lines.append(f"| {row} | {' | '.join(str(counted[column]) for column in columns)} |")
        if len(self.counts) > 1:
            total = sum(self.counts.values(), Counter())
            lines.append(f"| all | {' | '.join(str(total[column]) for column in columns)} |")
        return "\n".join(lines)


def spoil(path: Path, rng: random.Random) -> str:
    """Cut a file at a random length, or change some random bytes of it; says which."""
    data = bytearray(path.read_bytes())
    if rng.random() < 0.5 and data:
        path.write_bytes(data[: rng.randrange(len(data))])
        return "cut"
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= rng.randint(1, 255)
    path.write_bytes(data)
    return "bytes changed"
