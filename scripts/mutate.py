"""Plant one fault after another, and count the tests that find it: `python scripts/mutate.py`.

tests/planted_faults.yaml has the faults. Each is planted in a copy of the repository, where the fault's test files run:
first those of `make test`, then those of `make test-slow`. results/engineering/mutation.csv gets a row for each fault
as soon as it is known, so the same command continues after an interruption. Remove rows to run their faults again.

    --check        only check that each fault still fits: its old text is in its file exactly once
    --only WORDS   the faults whose name or kind contains one of these words, separated by commas
    --quick        without the slow tests
"""

from __future__ import annotations

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
COLUMNS = ("kind", "name", "quick", "slow", "found by")
LIMIT = 1800  # seconds for the tests of a fault: an endless loop counts as found


def read_faults() -> list[dict[str, Any]]:
    """Read the faults. Exit with status 1 if one does not fit the code any more."""
    faults: list[dict[str, Any]] = yaml.safe_load(FAULTS.read_text())
    wrong = [fault["name"] for fault in faults if (ROOT / fault["file"]).read_text().count(fault["old"]) != 1]
    wrong += [f"{fault['name']} ({name})" for fault in faults for name in fault["tests"] if not (ROOT / name).exists()]
    if wrong:
        sys.exit(f"these faults do not fit the code any more: {'; '.join(wrong)}")
    return faults


def failing(copy: Path, tests: list[str], marks: str) -> list[str]:
    """Run tests in a copy of the repository. Return the names of those that fail."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", marks, "--tb=no", "--no-header", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    # A cache of its own: the user's keeps no kernels of code with a fault.
    environment["XDG_CACHE_HOME"] = str(copy.parent / "cache")
    try:
        done = subprocess.run(
            [*command, *tests], cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return ["(no end)"]
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    return failed or (["(pytest itself)"] if done.returncode not in (0, 5) else [])


def planted(fault: dict[str, Any], quick: bool) -> dict[str, Any]:
    """Plant a fault in a copy and run its tests. Return its row."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        leave_out = shutil.ignore_patterns(".git", ".venv*", "build", "runs", "__pycache__", ".*_cache")
        shutil.copytree(ROOT, copy, ignore=leave_out)
        path = copy / fault["file"]
        path.write_text(path.read_text().replace(fault["old"], fault["new"]))
        found = failing(copy, fault["tests"], "not slow")
        slow = [] if quick else failing(copy, fault["tests"], "slow")
    names = "; ".join([*found, *slow][:3])
    return {"kind": fault["kind"], "name": fault["name"], "quick": len(found), "slow": len(slow), "found by": names}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    faults = read_faults()
    if args.check:
        print(f"{len(faults)} faults fit the code")
        return
    rows: list[dict[str, Any]] = []
    if TABLE.is_file():
        with TABLE.open(newline="") as file:
            rows = list(csv.DictReader(file))
    done = {row["name"] for row in rows}
    wanted = [fault for fault in faults if any(w in f"{fault['kind']}: {fault['name']}" for w in args.only.split(","))]
    for fault in tqdm([fault for fault in wanted if fault["name"] not in done], unit="fault"):
        rows.append(planted(fault, args.quick))
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        with TABLE.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    summary([{**row, "quick": int(row["quick"]), "slow": int(row["slow"])} for row in rows])


def summary(rows: list[dict[str, Any]]) -> None:
    """Print which faults nothing finds, only the slow tests, or only one test."""
    missed = [row["name"] for row in rows if row["quick"] + row["slow"] == 0]
    only_slow = [row["name"] for row in rows if row["quick"] == 0 < row["slow"]]
    single = [row["name"] for row in rows if row["quick"] + row["slow"] == 1]
    print(f"{len(rows) - len(missed)} of {len(rows)} faults are found")
    for words, names in (("not found", missed), ("only by slow tests", only_slow), ("by one test", single)):
        if names:
            print(f"{words}: {'; '.join(names)}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
