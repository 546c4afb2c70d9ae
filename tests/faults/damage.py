"""Files of a run, and libraries of the fused engine, that are cut short or changed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import NamedTuple

from compare import part_of, plain, same, spoil
from harness import Case, Fault, FaultTests
from tqdm import tqdm

from timescales.nn.cells import LSTMCell
from timescales.nn.engine import equations
from timescales.nn.engine.cpu.compiler import BuildError, is_whole
from timescales.nn.engine.cpu.emit_cpp import cell_code
from timescales.nn.engine.cpu.shared_library import build
from timescales.training import checkpoint

NAMES = ("copy, pLSTM, fused", "ptb_word, MTS, NT-ASGD", "copy, GRU, three seeds")
STATES = ("interrupted", "interrupted", "finished")
FILES = ("last.pt", "record.json", "curve.csv", "best.pt")


class Damaged(NamedTuple):
    """One damaged file of one run, and the command that met it."""

    label: str
    name: str  # of the run
    cwd: Path
    path: Path
    case: Case

    @property
    def key(self) -> str:
        """The path of the file in the working directory."""
        return str(self.path.relative_to(self.cwd))

    @property
    def skipped(self) -> bool:
        """Whether the command skipped a finished run."""
        return "finished, skipped" in self.case.out


class Damage(FaultTests):
    """Damaged files of interrupted and finished runs."""

    title = "Damaged files of runs"
    description = (
        "A file of a run, interrupted or finished, is cut at a random length, or has 1 to 8 random bytes changed; then "
        "the same command is given. *one line*: an error that names the file and the fix; doing as it says ends with "
        "what an undisturbed run leaves (else it counts as a fault). *same result*: nothing differs (a finished run is "
        "skipped because of its record; what a resumed run writes again does not matter). *reported, curve restarted*: "
        "the numbers are equal, `curve.csv` lacks rows, and a line reports it. *refused when read*: the weights of a "
        "finished run are not loaded. *not read*: the program does not read the curve of a finished run. *changed, "
        "refused*: such a library is not loaded, but compiled again."
    )

    def run(self) -> None:
        """Run all cases."""
        self.report.sort = True
        bases = {(name, state): self.base(n, name, state) for n, name in enumerate(NAMES) for state in set(STATES)}
        for k in tqdm(range(self.times(400)), desc="damaged files of runs", unit="run"):
            rng = self.random("damage", k)
            name, state = rng.choice(NAMES), rng.choice(STATES)
            cwd = self.folder / f"damage {k}"
            shutil.copytree(bases[name, state], cwd)
            self.damage_and_continue(k, rng, name, state, cwd)
            shutil.rmtree(cwd)
        self.damage_libraries()

    def base(self, n: int, name: str, state: str) -> Path:
        """The folder of an undamaged run."""
        operations = self.bench.undisturbed(name).operations
        cwd = self.folder / f"base {n} {state}"
        interrupted = state == "interrupted"
        case = self.bench.train(name, cwd, fault=Fault(at=operations * 2 // 3) if interrupted else Fault())
        assert case.status == (None if interrupted else 0), case.out
        return cwd

    def damage_and_continue(self, k: int, rng: random.Random, name: str, state: str, cwd: Path) -> None:
        """Damage one file, give the command again, and count what became of it."""
        path = rng.choice(sorted(p for p in (cwd / "out").rglob("*") if p.name in FILES))
        how = spoil(path, rng)
        row = f"{path.name}, {how}, {state}"
        damaged = Damaged(f"damage {k} ({name}, {row})", name, cwd, path, self.bench.train(name, cwd))
        column = self.outcome(damaged)
        self.report.count(row, column)
        if damaged.case.clear:
            self.report.error(row, damaged.case, self.folder)
        if column == "fault":
            different = self.differences(damaged.case, cwd, name)
            self.report.fault(damaged.label, different or "damage was not detected", damaged.case.out)
        elif column == "one line":
            self.do_as_it_says(damaged)

    def outcome(self, damaged: Damaged) -> str:
        """The column of a case."""
        case, path = damaged.case, damaged.path
        if case.clear:
            return "one line" if path.name in case.out else "fault"
        if case.status != 0:
            return "fault"
        if path.suffix == ".pt" and damaged.skipped:
            return self.unread_weights(damaged)
        if path.name == "curve.csv" and damaged.skipped and "are lost" not in case.out:
            return self.unread_curve(damaged)
        different = self.differences(case, damaged.cwd, damaged.name)
        if not different:
            return "same result"
        return self.restarted_curve(damaged) if path.name == "curve.csv" and different == damaged.key else "fault"

    def unread_weights(self, damaged: Damaged) -> str:
        """The column of a weight file that a finished run did not read."""
        try:
            found = plain(checkpoint.load(damaged.path))
        except ValueError:
            return "refused when read"
        whole = self.bench.undisturbed(damaged.name).result[damaged.key]
        return "same result" if same(found, whole) else "fault"

    def unread_curve(self, damaged: Damaged) -> str:
        """The column of a curve that a finished run did not read: all other files must be equal."""
        damaged.path.write_text(self.bench.undisturbed(damaged.name).result[damaged.key])
        return "fault" if self.differences(damaged.case, damaged.cwd, damaged.name) else "not read"

    def restarted_curve(self, damaged: Damaged) -> str:
        """The column of a curve that lacks rows."""
        out, whole = damaged.case.out, self.bench.undisturbed(damaged.name).result[damaged.key]
        reported = "is damaged (" in out or "are lost" in out
        kept = part_of(damaged.path.read_text(), whole)
        return "reported, curve restarted" if reported and kept else "fault"

    def do_as_it_says(self, damaged: Damaged) -> None:
        """Follow the advice of the line of error; the run must then end as the undisturbed one."""
        out = damaged.case.out
        if "delete it" in out:
            damaged.path.unlink()
        case = self.bench.train(damaged.name, damaged.cwd, *(["resume=false"] if "resume=false" in out else []))
        different = self.differences(case, damaged.cwd, damaged.name)
        if different:
            self.report.fault(f"{damaged.label}, repaired", different, case.out)

    def damage_libraries(self) -> None:
        """A damaged library of the fused engine must not be loaded."""
        try:
            built = build(cell_code(equations.of_cell(LSTMCell(1, 1), timed=False)), "LSTMCell")
        except BuildError as error:
            self.report.paragraphs.append(f"The fused engine was left out: {error}.")
            return
        for k in tqdm(range(self.times(200)), desc="damaged libraries", unit="file"):
            copy = self.folder / f"{k}.so"
            shutil.copy(built, copy)
            how = spoil(copy, self.random("engine", k))
            column = "fault" if is_whole(copy) else "changed, refused"
            self.report.count(f"fused engine's library, {how}", column)
            if column == "fault":
                self.report.fault(f"engine {k}", "a damaged library would be loaded")
            copy.unlink()
