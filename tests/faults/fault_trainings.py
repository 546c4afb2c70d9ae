"""Small trainings in forked processes, with a fault, and what they leave on disk."""

import contextlib
import csv
import io
import multiprocessing
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from ctypes import c_longlong
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import synthetic
import torch
from faulty_files import Fault, FaultyFiles
from hydra.core.global_hydra import GlobalHydra

from timescales import files
from timescales.runs import record
from timescales.tasks.data import cache
from timescales.training import loop, run  # noqa: F401  # loop is loaded once, before the forks
from timescales.training.run import load_checkpoint

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["logger=csv", "device=cpu", "model.hidden_size=5", "loop.log_every=3", "loop.checkpoint_every=0"]
STEPS = ["loop.max_steps=24", "loop.eval_every=8"]
LIMIT = 120.0  # seconds after which a command counts as hanging
# What an interruption must not change of a record.
KEYS = ("id", "status", "stopped", "steps", "metrics", "last", "best", "curve", "timescales", "parameters", "partial")
NO_FAULT = Fault()


def command(task: str, *overrides: str) -> list[str]:
    """The overrides of a small training."""
    sizes = ["task.batch_size=4", *synthetic.sizes(task, 40, 8, 8), *synthetic.SMALL.get(task, [])]
    return [*SMALL, *STEPS, f"task={task}", *sizes, *overrides]


# Drawn sequences and texts with a carried state; both engines; dropout; an optimizer that averages; several seeds.
RUNS = {
    "copy, PLSTM": command("copy", "model=plstm", "engine=fused"),
    "adding, UR, dropout": command("adding", "model=ur", "model.num_layers=2", "model.dropout=0.3"),
    "ptb_char, chrono": command("ptb_char", "model=chrono", "engine=eager"),
    "ptb_word, MTS, NT-ASGD": command("ptb_word", "model=mts", "task.dropout_hidden=0.3"),
    "copy, GRU, three seeds": command("copy", "model=gru", "seeds=3"),
}


class Case(NamedTuple):
    """What became of one command."""

    status: int  # the exit status; -SIGKILL: killed
    out: str  # stdout and stderr

    @property
    def killed(self) -> bool:
        """Whether the command was killed."""
        return self.status == -signal.SIGKILL

    @property
    def clear(self) -> bool:
        """Whether it failed with one line of error and no traceback."""
        errors = [line for line in self.out.splitlines() if line.startswith("error: ")]
        return self.status == 1 and len(errors) == 1 and "Traceback" not in self.out


class Whole(NamedTuple):
    """What an undisturbed run leaves, how long it takes, and how many operations on files it makes."""

    files: dict[str, Any]
    seconds: float
    operations: int


class Bench:
    """A folder in which commands run, each in a fork of this process, so that torch is loaded only once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counter = multiprocessing.RawValue(c_longlong)  # forked processes share it
        self.whole: dict[str, Whole] = {}
        (folder / "data").mkdir()
        self.data = synthetic.write_corpora(folder / "data")

    def undisturbed(self, name: str) -> Whole:
        """One of RUNS without a fault; it runs once."""
        if name not in self.whole:
            cwd = self.folder / f"whole {len(self.whole)}"
            begun = time.monotonic()
            case = self.train(name, cwd)
            assert case.status == 0, f"{name}: {case.out}"
            self.whole[name] = Whole(contents(cwd), time.monotonic() - begun, self.counter.value)
        return self.whole[name]

    def train(self, name: str, cwd: Path, *more: str, **options: Any) -> Case:
        """Run `train.py` for one of RUNS, in the run directory `cwd`/out."""
        return self.run([*RUNS[name], f"data_root={self.data}", "run_dir=out", *more], cwd, **options)

    def run(
        self,
        arguments: Sequence[str],
        cwd: Path,
        fault: Fault = NO_FAULT,
        before: Callable[[], object] = lambda: None,
        script: str = "train.py",
    ) -> Case:
        """Run a script of the repository with a fault; `before` is called in the new process first."""
        cwd.mkdir(parents=True, exist_ok=True)
        log = self.folder / "output.txt"
        self.counter.value = 0
        process = os.fork()
        if process == 0:

            def begin() -> None:
                enter(cwd, log, self.counter, fault)
                before()

            run_and_exit(ROOT / script, arguments, begin)
        status = wait(process, fault.seconds or LIMIT)
        assert status is not None or fault.seconds, f"hung: killed after {LIMIT:.0f} s\n{log.read_text()}"
        return Case(-signal.SIGKILL if status is None else status, log.read_text(errors="replace"))

    def differences(self, name: str, case: Case, cwd: Path) -> list[str]:
        """The files in which a finished run differs from the undisturbed one."""
        assert case.status == 0, case.out
        found, whole = contents(cwd), self.undisturbed(name).files
        return sorted(key for key in {*found, *whole} if found.get(key) != whole.get(key))

    def assert_continues(self, name: str, cwd: Path, *more: str) -> None:
        """Give the same command without a fault; it must end, bit by bit, as the undisturbed run."""
        case = self.train(name, cwd, *more)
        assert self.differences(name, case, cwd) == [], case.out


def wait(process: int, seconds: float) -> int | None:
    """The exit status of a child process; None if it did not end in time and was killed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def enter(cwd: Path, log: Path, counter: c_longlong, fault: Fault) -> None:
    """Redirect output and working directory, stop the clock, and install the fault."""
    handle = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.stdout, sys.stderr = (open(n, "w", buffering=1, closefd=False) for n in (1, 2))  # noqa: SIM115
    os.chdir(cwd)
    cache.cache_dir = lambda: cwd / "cache"
    # The clock stands still, so that there is a checkpoint at every step however long writing takes.
    run.time = SimpleNamespace(monotonic=lambda: 0.0)  # type: ignore[assignment]
    GlobalHydra.instance().clear()
    FaultyFiles(counter, fault).install()


def run_and_exit(script: Path, arguments: Sequence[str], arrange: Callable[[], object]) -> None:
    """Run a script as Python runs it, and end this process with its exit status."""
    status = 70  # which the package itself never uses
    try:
        arrange()
        sys.argv = [script.name, *arguments]
        sys.path.insert(0, str(script.parent))
        runpy.run_path(str(script), run_name="__main__")
        status = 0
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def contents(folder: Path) -> dict[str, Any]:
    """What is compared of all files under a folder, by path. Asserts that each can be read, and none is temporary."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        key = str(path.relative_to(folder))
        assert not any(part in key for part in (files.TEMPORARY, ".tmp", ".build")), f"{key} was left behind"
        if path.name == "record.json":
            saved = record.Record.read(path.parent)
            assert saved is not None
            found[key] = comparable({name: saved.content()[name] for name in KEYS})
        elif path.suffix == ".pt":
            cached = path.parent.name == "corpora"
            content = torch.load(files.checked(path), weights_only=True) if cached else load_checkpoint(path)
            found[key] = comparable(content)
        elif path.suffix == ".csv":
            found[key] = path.read_text()
            assert len({len(row) for row in csv.reader(io.StringIO(found[key]))}) == 1, f"{key}: unequal rows"
    return found


def comparable(content: Any) -> Any:
    """Nested content as values that == compares bit by bit, NaN among them, without the seconds that a run took."""
    if isinstance(content, dict):
        return {key: comparable(value) for key, value in content.items() if key != "seconds"}
    if isinstance(content, list | tuple):
        return [comparable(value) for value in content]
    if isinstance(content, torch.Tensor):
        content = content.numpy()
    if hasattr(content, "tobytes"):
        return str(content.dtype), content.shape, content.tobytes()
    return repr(content)
