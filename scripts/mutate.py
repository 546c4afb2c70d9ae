"""Plant one fault after another, and count the tests that find it: `python scripts/mutate.py`.

tests/planted_faults.yaml has the faults. Each is planted in a copy of the repository, where the fault's test files run:
first those of `make test`, then those of `make test-slow`. A test that also fails without the fault does not count.
results/engineering/mutation.csv gets a row for each fault as soon as it is known, so the same command continues after
an interruption. Remove rows to run their faults again.

    --check        only check that each fault still fits: its old text is in its file exactly once
    --only WORDS   the faults whose name or kind contains one of these words, separated by commas
    --quick        without the slow tests; a later command without it adds them
    --suite NAME   what the rows call this suite of tests (default: now)
"""

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
FAULTS, TABLE = ROOT / "tests" / "planted_faults.yaml", ROOT / "results" / "engineering" / "mutation.csv"
KERNELS = ROOT / "build" / "mutation"  # a cache of its own: the user's keeps no compiled code with a fault
COLUMNS = ("suite", "kind", "name", "quick", "slow", "found by")
LIMIT = 1800  # seconds for the tests of a fault: an endless loop counts as found
NOT_COLLECTED = 5  # pytest's status if there is no test of this set


def read_faults() -> list[dict[str, Any]]:
    """Read the faults. Exit with status 1 if one does not fit the code any more."""
    faults: list[dict[str, Any]] = yaml.safe_load(FAULTS.read_text())
    wrong = [fault["name"] for fault in faults if (ROOT / fault["file"]).read_text().count(fault["old"]) != 1]
    wrong += [f"{fault['name']} ({name})" for fault in faults for name in fault["tests"] if not (ROOT / name).exists()]
    if wrong:
        sys.exit(f"these faults do not fit the code any more: {'; '.join(wrong)}")
    return faults


class Copy:
    """A copy of the repository, in which faults are planted."""

    def __init__(self, folder: Path):
        self.folder = folder / "copy"
        listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(listed, capture_output=True, text=True, check=True)
        for name in sorted({name for name in done.stdout.split("\0") if (ROOT / name).is_file()}):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.folder / name)
        self.sound: set[str] = set()  # tests known to pass without a fault

    def finding(self, fault: dict[str, Any], marks: str) -> list[str]:
        """Plant a fault. Return the names of the tests that fail with it, and pass without."""
        path = self.folder / fault["file"]
        path.write_text(path.read_text().replace(fault["old"], fault["new"]))
        try:
            failed = self._failing(fault["tests"], marks)
        finally:
            shutil.copy2(ROOT / fault["file"], path)
        unknown = [name for name in failed if not name.startswith("(") and name not in self.sound]
        unsound = self._failing(unknown, marks) if unknown else []
        self.sound |= set(unknown) - set(unsound)
        return [name for name in failed if name not in unsound]

    def _failing(self, tests: list[str], marks: str) -> list[str]:
        """Run tests. Return the names of those that fail."""
        options = ["-o", "addopts=", "-q", "-rfE", "--tb=no", "--no-header", "-p", "no:cacheprovider", "-m", marks]
        environment = os.environ | {"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        environment["XDG_CACHE_HOME"] = str(KERNELS)
        command = [sys.executable, "-m", "pytest", *options, *tests]
        caught: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        try:
            done = subprocess.run(command, cwd=self.folder, env=environment, timeout=LIMIT, check=False, **caught)
        except subprocess.TimeoutExpired:
            return ["(no end)"]
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.M)
        return failed or ([] if done.returncode in (0, NOT_COLLECTED) else [f"(pytest ends with {done.returncode})"])


def read_rows() -> dict[tuple[str, str], dict[str, Any]]:
    """Read the table's rows, by suite and fault."""
    if not TABLE.is_file():
        return {}
    with TABLE.open(newline="") as file:
        return {(row["suite"], row["name"]): row for row in csv.DictReader(file)}


def write_rows(rows: list[dict[str, Any]]) -> None:
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--suite", default="now")
    args = parser.parse_args()
    faults = read_faults()
    if args.check:
        print(f"{len(faults)} faults fit the code")
        return
    rows = read_rows()
    wanted = [fault for fault in faults if any(w in f"{fault['kind']}: {fault['name']}" for w in args.only.split(","))]
    sets = {"quick": "not slow"} | ({} if args.quick else {"slow": "slow"})
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for fault in tqdm(wanted, unit="fault"):
            empty = dict.fromkeys(COLUMNS, "") | {"suite": args.suite, "kind": fault["kind"], "name": fault["name"]}
            row = rows.setdefault((args.suite, fault["name"]), empty)
            for column, marks in sets.items():
                if row[column] == "":
                    found = copy.finding(fault, marks)
                    row[column] = len(found)
                    row["found by"] = "; ".join([*filter(None, row["found by"].split("; ")), *found][:3])
                    write_rows([row for row in rows.values() if row["quick"] != ""])
    summary([row for (suite, _), row in rows.items() if suite == args.suite])


def summary(rows: list[dict[str, Any]]) -> None:
    """Print which faults nothing finds, only the slow tests, or only one test. Exit with status 1 in the first case."""
    found = {row["name"]: (int(row["quick"]), int(row["slow"] or 0)) for row in rows}
    missed = [name for name, counts in found.items() if sum(counts) == 0]
    print(f"{len(found) - len(missed)} of {len(found)} faults are found")
    only_slow = [name for name, (quick, slow) in found.items() if quick == 0 < slow]
    single = [name for name, counts in found.items() if sum(counts) == 1]
    for words, names in (("not found", missed), ("only by slow tests", only_slow), ("by one test", single)):
        if names:
            print(f"{words}: {'; '.join(names)}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
