"""What becomes of runs that are killed, of full disks, damaged files and nonsense at the command line?

    python tests/faults/run.py                       # everything, at full counts
    python tests/faults/run.py --only kill,fuzz      # some parts; the others' results stay
    python tests/faults/run.py --share 0.1 --dry     # a tenth of the counts, nothing written

Parts: kill (kill -9 at random moments, then the same command), disk (full, read-only, forbidden), damage (truncated and
flipped files), corpora (the same of data sets and their caches), fuzz (random overrides composed; some take a step).
Every case follows from --seed and its own number, which is printed where it fails. Small models, one thread. Writes
results/torture.md; exit status 1 if there was a fault. Each command runs in a process of its own, forked from this one
so that it need not load torch again; what it writes to disk passes through `harness.Files`, which can end the
process, or raise an error, within any operation on a file.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import errno
import os
import platform
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import fuzz  # noqa: E402
import torch  # noqa: E402
from harness import RUNS, SAME, Bench, Case, Report, compared, part_of, plain, result, same, spoil  # noqa: E402
from tqdm import tqdm  # noqa: E402

from timescales import files, paths  # noqa: E402
from timescales.nn.engine.fused import build, is_whole, library  # noqa: E402
from timescales.runs import provenance  # noqa: E402
from timescales.tasks.data import imdb  # noqa: E402
from timescales.training import checkpoint  # noqa: E402

RESULT = ROOT / "results" / "torture.md"


class Torture:
    """The parts; each returns its report and a paragraph on what was done."""

    def __init__(self, seed: int, share: float, folder: Path) -> None:
        self.seed, self.share = seed, share
        self.bench = Bench(folder)
        self.folder = folder
        self.whole: dict[str, tuple[dict[str, Any], float, int]] = {}

    def random(self, *names: Any) -> random.Random:
        """A generator for one case."""
        return random.Random(f"{self.seed} {names}")

    def times(self, full: int) -> int:
        """A count, at this share of it."""
        return max(1, round(full * self.share))

    def undisturbed(self, name: str) -> tuple[dict[str, Any], float, int]:
        """What a run leaves that nobody disturbs, its seconds and its operations on files."""
        if name not in self.whole:
            cwd = self.folder / f"whole {len(self.whole)}"
            begun = time.monotonic()
            case = self.bench.train(name, cwd)
            assert case.status == 0, f"{name}: {case.out}"
            self.whole[name] = (result(cwd), time.monotonic() - begun, self.bench.operations)
        return self.whole[name]

    def kill(self) -> tuple[Report, str]:
        """kill -9 at random moments: half of them of time, half within an operation on a file."""
        report, places, kills = Report(), Counter[str](), self.times(100)
        bar = tqdm(total=kills, desc="kill -9", unit="kill")
        done = series = 0
        while done < kills:
            name = list(RUNS)[series % len(RUNS)]
            whole, seconds, operations = self.undisturbed(name)
            cwd, rng = self.folder / f"kill {series}", self.random("kill", series)
            for k in range(min(4, kills - done)):
                if k == 3:  # in the run's end: the best weights, the last record
                    how: dict[str, Any] = {"at": rng.randint(1, 10), "since": "best.pt"}
                elif (series + k) % 2:
                    how = {"at": rng.randint(1, max(1, operations // 3))}
                else:
                    how = {"seconds": rng.uniform(0.1, 0.7) * seconds}
                case = self.bench.train(name, cwd, **how)
                if case.status is None:
                    done += 1
                    bar.update()
                    report.count(name, "kills")
                    places[case.place] += 1
                elif case.status != 0:
                    report.fault(f"kill {series}.{k} ({name})", "the same command does not go on", case.out)
            case = self.bench.train(name, cwd)
            differs = compared(case, cwd, whole, name)
            report.count(
                name, "differs" if differs else "equal up to rounding" if "stacked" in name else "bitwise equal"
            )
            if differs:
                report.fault(f"kill {series} ({name})", differs, case.out)
            shutil.rmtree(cwd)
            series += 1
        bar.close()
        self._reports(report, places)
        words = "\n".join(f"| {place} | {n} |" for place, n in sorted(places.items()))
        report.words.append(f"Where the kills landed:\n\n| file: operation | kills |\n|---|---:|\n{words}")
        return report, (
            "A run is killed up to four times with SIGKILL, by turns after a random time and within a random operation "
            "on a file (a file is then written to its half), the fourth time while its end is written, and each time "
            "the same command is given again; at last "
            "it is left to end. Compared with a run that nobody disturbed, bit by bit: the record's "
            f"{', '.join(SAME)}; `curve.csv`; every tensor and number of `last.pt` and `best.pt` but the seconds; the "
            "caches of corpora. No temporary file may be left, and every file must parse. Checkpoints at every step. "
            "Stacked seeds that a kill left at different steps catch up alone: their numbers must agree within .001."
        )

    def _reports(self, report: Report, places: Counter[str]) -> None:
        """The same of a report: killed within its files, then written again."""
        name = "scripts/report.py chien_copy"

        def before() -> None:
            paths.RESULTS = Path.cwd() / "results"
            import report as script

            script.ROOT = Path.cwd()
            script.folders.choices = lambda group, known=script.folders.choices: (
                ["chien_copy"] if group == "table" else known(group)
            )
            # The front page is of all tables, in the checkout's README.
            script.readme.PICTURE = "chien_copy"
            for function in ("draw", "write"):
                setattr(script.readme, function, lambda *_: None)
            sys.argv = ["report.py", "chien_copy"]
            script.main()
            raise SystemExit(0)

        def fresh(cwd: Path) -> Path:
            shutil.copytree(ROOT / "results" / "chien_copy", cwd / "results" / "chien_copy")
            return cwd

        def left(cwd: Path) -> dict[str, bytes]:
            return {
                str(p.relative_to(cwd)): p.read_bytes() for p in sorted((cwd / "results").rglob("*")) if p.is_file()
            }

        whole_cwd = fresh(self.folder / "report")
        case = self.bench.run([], whole_cwd, before=before)
        assert case.status == 0, case.out
        whole, operations = left(whole_cwd), self.bench.operations
        for k in tqdm(range(self.times(20)), desc="kill -9 of reports", unit="kill"):
            cwd = fresh(self.folder / f"report {k}")
            case = self.bench.run([], cwd, before=before, at=self.random("report", k).randint(1, operations))
            if case.status is None:
                report.count(name, "kills")
                places[case.place] += 1
            case = self.bench.run([], cwd, before=before)
            equal = case.status == 0 and left(cwd) == whole
            report.count(name, "bitwise equal" if equal else "differs")
            if not equal:
                report.fault(f"report {k}", str({*left(cwd)} ^ {*whole}), case.out)
            shutil.rmtree(cwd)

    def disk(self) -> tuple[Report, str]:
        """Disks that are full or forbidden."""
        report = Report()
        for k in tqdm(range(self.times(100)), desc="a write fails", unit="run"):
            name, rng = list(RUNS)[k % len(RUNS)], self.random("disk", k)
            operations = self.undisturbed(name)[2]
            word = rng.choice(["ENOSPC", "EIO", "EDQUOT", "EROFS"])
            cwd = self.folder / f"disk {k}"
            at = rng.randint(1, operations)
            case = self.bench.train(name, cwd, at=at, error=getattr(errno, word))
            row, label = f"a write of {case.place.split(':')[0]} fails", f"disk {k} ({name}, operation {at}, {word})"
            self._said(report, row, label, case)
            self._goes_on(report, row, label, name, cwd)
            shutil.rmtree(cwd)
        for k in tqdm(range(self.times(30)), desc="small file limit", unit="run"):
            name, rng = list(RUNS)[k % len(RUNS)], self.random("limit", k)
            cwd, size = self.folder / f"limit {k}", int(2 ** rng.uniform(8, 15))
            self.undisturbed(name)

            def limited(size: int = size) -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

            row, label = "no file larger than 0.25 to 32 kB (RLIMIT_FSIZE)", f"limit {k} ({name}, {size} bytes)"
            self._said(report, row, label, self.bench.train(name, cwd, before=limited))
            self._goes_on(report, row, label, name, cwd)
            shutil.rmtree(cwd)
        self._mounted(report)
        self._forbidden(report)
        return report, (
            "A random write fails with an error of the system, as Python raises it; files may not grow beyond a limit; "
            "the run's directory is a tmpfs of a few pages; directories and files are read-only or forbidden to the "
            "user (a process without root's rights). *one line*: exit status 1 and one line that begins with `error:`. "
            "*goes on, equal*: when the disk is mended the same command ends with what an undisturbed run leaves."
        )

    def _said(self, report: Report, row: str, label: str, case: Case) -> None:
        column = "one line" if case.clear else "ran" if case.status == 0 else "fault"
        report.count(row, column)
        if case.clear:
            report.say(row, case, self.folder)
        if column == "fault":
            report.fault(label, f"status {case.status}", case.out)

    def _goes_on(self, report: Report, row: str, label: str, name: str, cwd: Path) -> None:
        case = self.bench.train(name, cwd)
        differs = compared(case, cwd, self.undisturbed(name)[0], name)
        report.count(row, "goes on, differs" if differs else "goes on, equal")
        if differs:
            report.fault(f"{label}, gone on", differs, case.out)

    def _mounted(self, report: Report) -> None:
        """Really full disks, where this user may mount any."""
        for k in tqdm(range(self.times(30)), desc="full disk", unit="run"):
            name, rng = list(RUNS)[k % len(RUNS)], self.random("mounted", k)
            cwd, pages = self.folder / f"mounted {k}", rng.randint(2, 16)
            self.undisturbed(name)
            cwd.mkdir()
            options = f"size={4096 * pages}"
            mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(cwd)]
            if subprocess.run(mount, capture_output=True, check=False).returncode:
                report.words.append("No tmpfs could be mounted here: that part was left out.")
                cwd.rmdir()
                return
            try:
                row, label = "a tmpfs of 8 to 64 kB is full", f"mounted {k} ({name}, {options})"
                self._said(report, row, label, self.bench.train(name, cwd))
                subprocess.run(["mount", "-o", "remount,size=64m", str(cwd)], check=True)
                self._goes_on(report, row, label, name, cwd)
            finally:
                subprocess.run(["umount", str(cwd)], check=True)
            cwd.rmdir()

    def _forbidden(self, report: Report) -> None:
        """What the file system's permissions forbid, to somebody who is not root."""
        name = "ptb_char, chrono, fused"
        self.undisturbed(name)

        def as_anybody() -> None:
            """Without root's right to pass by permissions: no capability is left (capset, version 3 of its header)."""
            header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
            assert ctypes.CDLL(None, use_errno=True).capset(header, none) == 0

        places = {
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
        for k, (row, (place, mode)) in enumerate(places.items()):
            cwd = self.folder / f"forbidden {k}"
            cwd.mkdir()
            shutil.copytree(self.bench.data / "ptb", cwd / "data" / "ptb")
            data = "data_root=data"
            if place.startswith("out"):  # half a run lies there
                case = self.bench.train(name, cwd, data, at=self.whole[name][2] // 2)
                assert case.status is None, case.out
            (cwd / "cache").mkdir(exist_ok=True)
            os.chmod(cwd / place, mode)
            self._said(report, row, f"forbidden {k} ({row})", self.bench.train(name, cwd, data, before=as_anybody))
            os.chmod(cwd / place, 0o755)
            case = self.bench.train(name, cwd, data)
            whole = {key: value for key, value in self.whole[name][0].items() if key.startswith("out")}
            found = {key: value for key, value in result(cwd).items() if key.startswith("out")}
            equal = case.status == 0 and same(found, whole)
            report.count(row, "goes on, equal" if equal else "goes on, differs")
            if not equal:
                report.fault(f"forbidden {k} ({row}), gone on", f"status {case.status}", case.out)
            shutil.rmtree(cwd)

    def damage(self) -> tuple[Report, str]:
        """Files of a run that are cut short or changed."""
        report = Report(sort=True)
        names = ["copy, pLSTM, fused", "ptb_word, MTS, NT-ASGD", "copy, GRU, three seeds stacked"]
        bases: dict[tuple[str, str], Path] = {}
        for n, name in enumerate(names):
            _, _, operations = self.undisturbed(name)
            for state, at in (("interrupted", operations * 2 // 3), ("finished", None)):
                cwd = bases[name, state] = self.folder / f"base {n} {state}"
                case = self.bench.train(name, cwd, at=at)
                assert case.status == (0 if at is None else None), case.out
        for k in tqdm(range(self.times(400)), desc="damaged files of runs", unit="run"):
            rng = self.random("damage", k)
            name, state = rng.choice(names), rng.choice(["interrupted", "interrupted", "finished"])
            cwd = self.folder / f"damage {k}"
            shutil.copytree(bases[name, state], cwd)
            kinds = ("last.pt", "record.json", "curve.csv", "best.pt")
            path = rng.choice(sorted(p for p in (cwd / "out").rglob("*") if p.name in kinds))
            how = spoil(path, rng)
            row, label = f"{path.name}, {how}, {state}", f"damage {k} ({name}, {path.name}, {how}, {state})"
            case = self.bench.train(name, cwd)
            column = self._outcome(case, cwd, name, path)
            report.count(row, column)
            if case.clear:
                report.say(row, case, self.folder)
            if column == "fault":
                report.fault(
                    label, compared(case, cwd, self.whole[name][0], name) or "damage that was not seen", case.out
                )
            elif column == "one line":
                self._mended(report, label, case, cwd, name, path)
            shutil.rmtree(cwd)
        self._engine(report)
        return report, (
            "A file of a run, interrupted or finished, is cut at a random length, or has 1 to 8 random bytes changed; "
            "then the same command is given. *one line*: an error that names the file and the mend; doing as it says "
            "ends with what an undisturbed run leaves (else it counts as a fault). *same result*: nothing differs "
            "(a finished run is skipped by its record; what a resume writes anew does not matter). *said, curve begun "
            "anew*: the numbers are equal, `curve.csv` lacks rows, and a line says so. *refused when read*: a finished "
            "run's weights are not loaded. *read by nobody*: the curve of a finished run is for people. *not as "
            "it was, refused*: such a library is not loaded, but compiled again."
        )

    def _outcome(self, case: Case, cwd: Path, name: str, path: Path) -> str:
        if case.clear:
            return "one line" if path.name in case.out else "fault"
        if case.status != 0:
            return "fault"
        if path.suffix == ".pt" and "finished, skipped" in case.out:
            tolerance = 1e-3 if "stacked" in name else 0.0
            try:
                found = plain(checkpoint.load(path))
            except ValueError:
                return "refused when read"
            whole = self.whole[name][0][str(path.relative_to(cwd))]
            return "same result" if same(found, whole, tolerance) else "fault"
        if path.name == "curve.csv" and "finished, skipped" in case.out and "are lost" not in case.out:
            path.write_text(self.whole[name][0][str(path.relative_to(cwd))])
            return "fault" if compared(case, cwd, self.whole[name][0], name) else "read by nobody"
        differs = compared(case, cwd, self.whole[name][0], name)
        if not differs:
            return "same result"
        said = "is damaged (" in case.out or "are lost" in case.out
        if path.name == "curve.csv" and differs == str(path.relative_to(cwd)):
            kept = "stacked" in name or part_of(path.read_text(), self.whole[name][0][differs])
            return "said, curve begun anew" if said and kept else "fault"
        return "fault"

    def _mended(self, report: Report, label: str, case: Case, cwd: Path, name: str, path: Path) -> None:
        if "delete it" in case.out:
            path.unlink()
        again = self.bench.train(name, cwd, *(["resume=false"] if "resume=false" in case.out else []))
        differs = compared(again, cwd, self.whole[name][0], name)
        if differs:
            report.fault(f"{label}, mended", differs, again.out)

    def _engine(self, report: Report) -> None:
        """Damaged libraries of the fused engine."""
        if isinstance(library(), str):
            report.words.append("No compiler here: the fused engine was left out.")
            return
        built = build()
        for k in tqdm(range(self.times(200)), desc="damaged libraries", unit="file"):
            rng, copy = self.random("engine", k), self.folder / f"{k}.so"
            shutil.copy(built, copy)
            how = spoil(copy, rng)
            column = "fault" if is_whole(copy) else "not as it was, refused"
            report.count(f"fused engine's library, {how}", column)
            if column == "fault":
                report.fault(f"engine {k}", "a damaged library would be loaded")
            copy.unlink()

    def corpora(self) -> tuple[Report, str]:
        """Damaged data sets and caches."""
        return fuzz.corpora(self)

    def fuzz(self) -> tuple[Report, str]:
        """Random overrides."""
        return fuzz.fuzz(self)


PARTS = {"kill": "Killed", "disk": "Disks", "damage": "Damaged files of runs", "corpora": "Damaged data sets",
         "fuzz": "Random overrides"}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts of {','.join(PARTS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the full counts")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if wrong := [name for name in chosen if name not in PARTS]:
        sys.exit(f"error: --only {wrong[0]}: no such part; there are {', '.join(PARTS)}")
    torch.set_num_threads(1)
    imdb.tokenizer = lambda: str.split  # all that spaCy would do with these reviews
    library()  # once, for all forks, as what torch loads for its first optimizer
    torch.optim.SGD([torch.zeros(1)])
    sections, commit = earlier(), provenance._commit()  # of the code that is loaded now
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="torture.") as folder:
        torture = Torture(options.seed, options.share, Path(folder))
        for name in (name for name in PARTS if name in chosen):
            begun = time.monotonic()
            report, words = getattr(torture, name)()
            minutes = (time.monotonic() - begun) / 60
            sections[name] = section(name, options, report, words, minutes, commit)
            faults += report.faults
            print(f"\n{sections[name]}", flush=True)
            if not options.dry:
                head = "# What runs, files and configurations withstand\n\nWritten by `make torture`.\n\n"
                body = "\n".join(sections[part] for part in PARTS if part in sections)
                files.write_atomic(RESULT, f"{head}{body}".encode())
    sys.exit(f"{len(faults)} faults" if faults else 0)


def section(
    name: str, options: argparse.Namespace, report: Report, words: str, minutes: float, commit: str | None
) -> str:
    """A part of results/torture.md."""
    again = f"python tests/faults/run.py --only {name} --seed {options.seed}"
    again += f" --share {options.share}" if options.share != 1 else ""
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    faults = "\n".join(f"- {fault}" for fault in report.faults) or "No faults."
    said = "\n".join(f"- {row}: `{line}`" for row, line in report.said.items())
    parts = [
        f"## {PARTS[name]}", f"`{again}`", words, report.table() if report.counts else "", *report.words,
        f"The first line of each:\n\n{said}" if said else "", faults,
        f"{datetime.date.today()}, {versions}, {platform.system()}, {provenance.processor()}, one thread, "
        f"{minutes:.0f} minutes, commit {commit}.",
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def earlier() -> dict[str, str]:
    """The parts of results/torture.md as it is."""
    if not RESULT.is_file():
        return {}
    found = {}
    for block in RESULT.read_text().split("\n## ")[1:]:
        for name, title in PARTS.items():
            if block.startswith(f"{title}\n"):
                found[name] = f"## {block}".rstrip() + "\n"
    return found


if __name__ == "__main__":
    main()
