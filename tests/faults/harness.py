"""Small commands in forked processes, the counts of what became of them, and the base class of all fault tests."""

from __future__ import annotations

import contextlib
import os
import random
import re
import runpy
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
os.environ["OMP_NUM_THREADS"] = "1"

import synthetic  # noqa: E402
from compare import ROUNDING, differences, result  # noqa: E402
from faulty_files import Fault, FaultyFiles, Progress  # noqa: E402
from tqdm import tqdm  # noqa: E402

from timescales.training import loop, run  # noqa: E402, F401 (loop: loaded once, before the forks)

SMALL = ["logger=csv", "device=cpu", "model.hidden_size=5", "loop.log_every=3", "loop.checkpoint_every=0"]
STEPS = ["loop.max_steps=24", "loop.eval_every=8"]
LIMIT = 120.0  # seconds after which a command counts as hanging
INTERNAL_ERROR = 70  # an exit status that the package itself never uses
NO_FAULT = Fault()


def command(*overrides: str) -> list[str]:
    """The overrides of a small training: those that all trainings share, then its own."""
    task = next(text.removeprefix("task=") for text in overrides if text.startswith("task="))
    sizes = ["task.batch_size=4", *synthetic.sizes(task, 40, 8, 8), *synthetic.SMALL.get(task, [])]
    return [*SMALL, *STEPS, *sizes, *overrides]


# Every kind of task (drawn, images, texts with a carried state, reviews), both engines, several seeds.
RUNS = {
    "copy, pLSTM, fused": command("task=copy", "model=plstm", "engine=fused"),
    "copy, LSTM, eager": command("task=copy", "model=lstm", "engine=eager"),
    "adding, UR, fused, dropout": command("task=adding", "model=ur", "model.num_layers=2", "model.dropout=0.3"),
    "frequency, pLSTM, eager": command("task=frequency", "model=plstm", "engine=eager"),
    "smnist, gated GRU, eager": command(
        "task=smnist", "task.length=40", "model=gated", "model.core=gru", "model.hidden_size=16"
    ),
    "ptb_char, chrono, fused": command("task=ptb_char", "model=chrono", "engine=fused"),
    "ptb_word, MTS, NT-ASGD": command("task=ptb_word", "model=mts", "task.dropout_hidden=0.3"),
    "imdb, JANET, eager": command("task=imdb", "model=janet"),
    "copy, GRU, three seeds": command("task=copy", "model=gru", "seeds=3"),
}


class Case(NamedTuple):
    """What became of one command."""

    status: int | None  # the exit status; None: killed as planned; below 0: killed by another signal
    out: str  # stdout and stderr
    operation: str  # the latest operation on a file

    @property
    def clear(self) -> bool:
        """Whether it failed with one line of error and no traceback."""
        errors = [line for line in self.out.splitlines() if line.startswith("error: ")]
        return self.status == 1 and len(errors) == 1 and "Traceback" not in self.out


class Whole(NamedTuple):
    """What an undisturbed run leaves, how long it takes, and how many operations on files it makes."""

    result: dict[str, Any]
    seconds: float
    operations: int


class Bench:
    """A folder in which commands run, each in a fork of this process, so that torch is loaded only once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.progress = Progress()
        self.whole: dict[str, Whole] = {}
        (folder / "data").mkdir()
        self.data = synthetic.write_corpora(folder / "data")

    def train(self, name: str, cwd: Path, *more: str, **options: Any) -> Case:
        """Run `train.py` for one of RUNS, in the run directory `cwd`/out."""
        return self.run([*RUNS[name], f"data_root={self.data}", "run_dir=out", *more], cwd, **options)

    def undisturbed(self, name: str) -> Whole:
        """One of RUNS without a fault; it runs once."""
        if name not in self.whole:
            cwd = self.folder / f"whole {len(self.whole)}"
            begun = time.monotonic()
            case = self.train(name, cwd)
            assert case.status == 0, f"{name}: {case.out}"
            self.whole[name] = Whole(result(cwd), time.monotonic() - begun, self.progress.count)
        return self.whole[name]

    def run(
        self,
        arguments: Sequence[str],
        cwd: Path,
        fault: Fault = NO_FAULT,
        before: Callable[[], None] | None = None,
        script: str = "train.py",
    ) -> Case:
        """Run a script of the repository with a fault; `before` is called in the new process first."""
        cwd.mkdir(parents=True, exist_ok=True)
        log = self.folder / "output.txt"
        self.progress.write("starting", 0)
        process = os.fork()
        if process == 0:
            arrangement = Arrangement(cwd, log, FaultyFiles(self.progress, fault), before)
            run_and_exit(ROOT / script, arguments, arrangement)
        status = wait(process, LIMIT if fault.seconds is None else fault.seconds)
        out = log.read_text(errors="replace")
        if status is None and fault.seconds is None:
            return Case(-signal.SIGKILL, f"{out}\nhung: killed after {LIMIT:.0f} seconds", self.progress.operation)
        planned = status is None or (status == -signal.SIGKILL and fault.kills)
        return Case(None if planned else status, out, self.progress.operation)


def wait(process: int, seconds: float) -> int | None:
    """The exit status of a child process; None if it did not end in time and was killed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.0005)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


@dataclass(frozen=True)
class Arrangement:
    """What a child process sets up before it runs a script."""

    cwd: Path
    log: Path
    files: FaultyFiles
    before: Callable[[], None] | None

    def enter(self) -> None:
        """Redirect output and working directory, stop the clock, and install the fault."""
        handle = os.open(self.log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = (open(n, "w", buffering=1, closefd=False) for n in (1, 2))  # noqa: SIM115
        os.chdir(self.cwd)
        os.environ["XDG_CACHE_HOME"] = str(self.cwd / "cache")
        # The clock stands still, so that there is a checkpoint at every step however long writing takes.
        run.time = SimpleNamespace(monotonic=lambda: 0.0)  # type: ignore[assignment]
        self.files.install()
        if self.before:
            self.before()


def run_and_exit(script: Path, arguments: Sequence[str], arrangement: Arrangement) -> None:
    """Run a script as Python runs it, and end this process with its exit status."""
    status = 0
    try:
        arrangement.enter()
        sys.argv = [script.name, *arguments]
        sys.path.insert(0, str(script.parent))
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
        status = INTERNAL_ERROR
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


@dataclass
class Report:
    """The counts and the faults of one kind of test."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    paragraphs: list[str] = field(default_factory=list)  # more text for the page
    errors: dict[str, str] = field(default_factory=dict)  # the first line of error of each row
    sort: bool = False  # rows by name; else in the order in which they came

    def count(self, row: str, column: str) -> None:
        """Add one case to a cell of the table."""
        self.counts.setdefault(row, Counter())[column] += 1

    def fault(self, case: str, why: str, out: str = "") -> None:
        """Add a fault, and print it with the end of the command's output."""
        self.faults.append(f"{case}: {why}")
        tqdm.write(f"FAULT {case}: {why}\n{out[-1500:]}", file=sys.stderr)

    def error(self, row: str, case: Case, folder: Path) -> None:
        """Keep the line of error of a case, if it is the first one of its row."""
        line = next(line for line in case.out.splitlines() if line.startswith("error: "))
        self.errors.setdefault(row, re.sub(rf"{folder}/\w+ \d+", "DIR", line).replace("|", "\\|"))

    def table(self) -> str:
        """The counts as a Markdown table."""
        columns = list(dict.fromkeys(column for row in self.counts.values() for column in row))
        rows = sorted(self.counts.items()) if self.sort else list(self.counts.items())
        if len(rows) > 1:
            rows.append(("all", sum(self.counts.values(), Counter())))
        lines = [f"|  | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
        lines += [f"| {row} | {' | '.join(str(counted[column]) for column in columns)} |" for row, counted in rows]
        return "\n".join(lines)


class FaultTests:
    """One kind of fault. A subclass gives a title and a description, and its `run` fills `report`."""

    title: str
    description: str

    def __init__(self, bench: Bench, seed: int, share: float) -> None:
        self.bench, self.folder = bench, bench.folder
        self.seed, self.share = seed, share
        self.report = Report()

    def run(self) -> None:
        """Run all cases."""
        raise NotImplementedError

    def random(self, *names: Any) -> random.Random:
        """The random generator of one case."""
        return random.Random(f"{self.seed} {names}")

    def times(self, full: int) -> int:
        """How many cases to run of a full count; at least one."""
        return max(1, round(full * self.share))

    def differences(self, case: Case, cwd: Path, name: str) -> str:
        """In which files a run differs from the undisturbed one; "": in none."""
        return differences(case.status, cwd, self.bench.undisturbed(name).result)

    def expect_equal(self, label: str, row: str, name: str, cwd: Path, eager: bool = False) -> None:
        """Give the same command again without a fault; it must end as the undisturbed run.

        eager: up to rounding, since no library could be compiled at first, and the run said so.
        """
        case = self.bench.train(name, cwd)
        whole = self.bench.undisturbed(name).result
        different = differences(case.status, cwd, whole, ROUNDING) if eager else self.differences(case, cwd, name)
        equal = "continues, equal up to rounding" if eager else "continues, equal"
        self.report.count(row, "continues, differs" if different else equal)
        if different:
            self.report.fault(f"{label}, continued", different, case.out)

    def expect_one_line(self, label: str, row: str, case: Case) -> None:
        """A command must succeed, or fail with one line of error."""
        column = "one line" if case.clear else "ran" if case.status == 0 else "fault"
        self.report.count(row, column)
        if case.clear:
            self.report.error(row, case, self.folder)
        if column == "fault":
            self.report.fault(label, f"status {case.status}", case.out)
