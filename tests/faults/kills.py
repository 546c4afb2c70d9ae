"""kill -9 at random moments, then the same command again."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

from compare import RECORD_KEYS
from harness import ROOT, RUNS, Case, Fault, FaultTests, Whole
from tqdm import tqdm

TABLE = "chien_copy"  # the report that is killed


class Kills(FaultTests):
    """Trainings and reports that are killed: half of them at a random time, half in an operation on a file."""

    title = "Killed"
    description = (
        "A run is killed up to four times with SIGKILL, in turn after a random time and in a random operation on a "
        "file (a file is then half written), the fourth time while the end of the run is written. Each time the same "
        "command is given again; at last it is left to finish. It is compared with a run that nobody disturbed, bit by "
        f"bit: the record's {', '.join(RECORD_KEYS)}; `curve.csv`; every tensor and number of `last.pt` and `best.pt` "
        "but the seconds; the caches of corpora. No temporary file may be left, and every file must parse. Checkpoints "
        "at every step."
    )

    def run(self) -> None:
        """Kill trainings, then reports."""
        self.places = Counter[str]()
        done, kills = 0, self.times(100)
        with tqdm(total=kills, desc="kill -9", unit="kill") as bar:
            series = 0
            while done < kills:
                killed = self.kill_and_continue(series, min(4, kills - done))
                done += killed
                bar.update(killed)
                series += 1
        self.kill_reports()
        rows = "\n".join(f"| {place} | {n} |" for place, n in sorted(self.places.items()))
        self.report.paragraphs.append(f"Where the kills came:\n\n| file: operation | kills |\n|---|---:|\n{rows}")

    def kill_and_continue(self, series: int, attempts: int) -> int:
        """Kill one run several times, then let it finish and compare it; returns how often it was killed."""
        name = list(RUNS)[series % len(RUNS)]
        whole = self.bench.undisturbed(name)
        cwd, rng = self.folder / f"kill {series}", self.random("kill", series)
        killed = 0
        for k in range(attempts):
            case = self.bench.train(name, cwd, fault=choose_kill(rng, series, k, whole))
            killed += self.killed(name, case)
            if case.status not in (None, 0):
                self.report.fault(f"kill {series}.{k} ({name})", "the same command does not continue", case.out)
        case = self.bench.train(name, cwd)
        different = self.differences(case, cwd, name)
        self.report.count(name, "differs" if different else "bitwise equal")
        if different:
            self.report.fault(f"kill {series} ({name})", different, case.out)
        shutil.rmtree(cwd)
        return killed

    def killed(self, row: str, case: Case) -> bool:
        """Count a kill and its place, if the command was killed."""
        if case.status is not None:
            return False
        self.report.count(row, "kills")
        self.places[case.operation] += 1
        return True

    def kill_reports(self) -> None:
        """Kill scripts/report.py while it writes its files, then run it again."""
        name = f"scripts/report.py {TABLE}"
        case = self.write_report(cwd := self.folder / "report")
        assert case.status == 0, case.out
        whole, operations = contents(cwd), self.bench.progress.count
        for k in tqdm(range(self.times(20)), desc="kill -9 of reports", unit="kill"):
            cwd = self.folder / f"report {k}"
            self.killed(name, self.write_report(cwd, Fault(at=self.random("report", k).randint(1, operations))))
            case = self.write_report(cwd)
            equal = case.status == 0 and contents(cwd) == whole
            self.report.count(name, "bitwise equal" if equal else "differs")
            if not equal:
                self.report.fault(f"report {k}", str({*contents(cwd)} ^ {*whole}), case.out)
            shutil.rmtree(cwd)

    def write_report(self, cwd: Path, fault: Fault | None = None) -> Case:
        """Write a table's report in a folder of its own that holds the committed runs."""
        if not cwd.exists():
            shutil.copytree(ROOT / "results" / TABLE, cwd / "results" / TABLE)
        script = "scripts/report.py"
        return self.bench.run([TABLE, f"--config-dir={cwd}"], cwd, fault or Fault(), script=script)


def choose_kill(rng: random.Random, series: int, k: int, whole: Whole) -> Fault:
    """When to kill a run for the k-th time."""
    if k == 3:  # at the end of the run: the best weights, the last record
        return Fault(at=rng.randint(1, 10), since="best.pt")
    if (series + k) % 2:
        return Fault(at=rng.randint(1, max(1, whole.operations // 3)))
    return Fault(seconds=rng.uniform(0.1, 0.7) * whole.seconds)


def contents(cwd: Path) -> dict[str, bytes]:
    """All files of the results, by path."""
    return {str(path.relative_to(cwd)): path.read_bytes() for path in (cwd / "results").rglob("*") if path.is_file()}
