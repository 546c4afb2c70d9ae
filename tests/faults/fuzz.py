"""Random command lines: all are composed, and some of the valid ones take a training step."""

from __future__ import annotations

import json
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import random_overrides
from harness import FaultTests
from random_overrides import GROUPS, Outcome
from synthetic import SMALL, sizes
from tqdm import tqdm

MEMORY = 8 << 30  # bytes of address space for a training step


class RandomOverrides(FaultTests):
    """Command lines that nobody would type."""

    title = "Random overrides"
    description = (
        "Random command lines: choices of groups; keys that are right, misspelt, deleted, added and nonsensical; "
        "values of every type, out of range, huge, nested, null, Unicode, paths, classes, interpolations; duplicates, "
        "sweeps, Hydra's own settings and options; brackets, quotes and signs in wrong places. All goes through "
        "`train.py`, up to where it would load torch. *valid*: composes, passes the validation and has an identity. "
        "*clear*: one line of error, of Hydra or ours. *fault*: a traceback, several lines, or more than 30 s. "
        "`train.py` itself takes the steps, with small sizes and without a network."
    )

    def run(self) -> None:
        """Compose, then take steps."""
        self.compose()
        self.take_steps(self.times(500))

    def compose(self) -> None:
        """Every case must be valid, or one line of error."""
        for number, case in self.composed(self.times(10_000), False, "command lines"):
            row = "a sweep" if "-m" in case.overrides else "one run"
            self.report.count(f"{row}, composed and validated without torch", case.kind)
            if case.kind not in ("valid", "clear"):
                self.report.fault(f"fuzz command line {number}", f"{case.kind}: {shown(case)}", case.text)

    def take_steps(self, wanted: int) -> None:
        """A step of a valid case must succeed, or fail with one line of error."""
        taken = 0
        with tqdm(total=wanted, desc="steps", unit="step") as bar:
            for number, case in self.composed(4 * wanted, True, "compositions for steps"):
                if case.kind not in ("valid", "clear"):
                    self.report.count("composed for a step", case.kind)
                    self.report.fault(f"fuzz composition {number} for steps", shown(case), case.text)
                if case.kind == "valid" and taken < wanted:
                    self.take_step(number, case)
                    taken += 1
                    bar.update()

    def take_step(self, number: int, outcome: Outcome) -> None:
        """Take one step of a valid case."""
        cwd = self.folder / f"fuzz {number}"
        case = self.bench.run(one_step(outcome.overrides, self.bench.data), cwd, before=isolate)
        column = "ran" if case.status == 0 else "one line" if case.clear else "fault"
        self.report.count("valid ones, one training step", column)
        if column == "fault":
            self.report.fault(f"fuzz step {number}", shown(outcome), case.out)
        shutil.rmtree(cwd, ignore_errors=True)

    def composed(self, n: int, small: bool, label: str) -> Iterator[tuple[int, Outcome]]:
        """The numbers and outcomes of n cases, from a process without torch."""
        cwd = self.folder / label
        cwd.mkdir()
        command = [
            sys.executable,
            random_overrides.__file__,
            str(self.seed),
            "0",
            str(n),
            *(["small"] if small else []),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cwd) as process:
            assert process.stdout is not None
            number = -1
            for number, line in enumerate(tqdm(process.stdout, total=n, desc=label, unit="case", smoothing=0.02)):
                yield number, Outcome(*json.loads(line))
        assert process.returncode == 0, f"{number + 1} of {n} cases, then exit status {process.returncode}"


def shown(case: Outcome) -> str:
    """The overrides of a case, for the report."""
    return f"`{' '.join(case.overrides)[:300]}`"


def one_step(overrides: list[str], data: Path) -> list[str]:
    """The overrides of a case together with those that make it one small step on the CPU."""
    groups = [text for text in overrides if text.partition("=")[0] in GROUPS]
    rest = [text for text in overrides if text not in groups]
    task = next((text.removeprefix("task=") for text in reversed(groups) if text.startswith("task=")), "copy")
    small = ["logger=csv", "device=cpu", "model.hidden_size=5", "task.batch_size=4", *sizes(task, 40, 8, 8)]
    last = ["loop.max_steps=1", "loop.max_eval_batches=1", "loop.max_epochs=1", "loop.eval_every=null"]
    return [*groups, *small, *SMALL.get(task, []), f"data_root={data}", *rest, *last]


def isolate() -> None:
    """Take the network from this process, and limit its memory to that of a small machine."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no network here")

    socket.socket.connect = refuse  # type: ignore[method-assign]
    socket.getaddrinfo = refuse  # type: ignore[assignment]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
