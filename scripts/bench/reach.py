"""How far the code around the experiments reaches: sizes, counts of one run, and seconds. `reach.py [CHECKOUT ...]`

Each checkout is measured by its own .venv, one after another in each round, so that two versions can be compared:
lines that handle the command line and run experiments, hashes of the id and readings and writings of the record in a
run of one step, CPU seconds of --help, --cfg job and the skip of a finished run.
`bench_scale.py` times sweeps of thousands of finished runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What is about the command line and about running experiments; tests of it.
PARTS = ("config/*.py", "experiment/*.py", "cli.py", "sweep.py", "commands.py")
TESTS = ("config/*.py", "test_sweeps.py", "test_launchers.py", "papers/test_sweep.py")
SIZES = "task.T=2 task.train_size=16 task.valid_size=8 task.test_size=8 task.batch_size=8 model.hidden_size=4"
QUICK = ["task=copy", *SIZES.split(), "loop.max_steps=1", "logger=none"]
ROUNDS = 5
COUNTED = """
import json, sys
sys.path.insert(0, {root!r})
from timescales.config import identity
from timescales.runs import record
counts = dict.fromkeys(("hashes", "readings", "writings"), 0)

def counted(module, name, key):
    original = getattr(module, name)
    def call(*arguments, **more):
        counts[key] += 1
        return original(*arguments, **more)
    setattr(module, name, call)

counted(identity, "identity", "hashes")
kept = getattr(record, "Record", record)  # of an older checkout functions of the module
counted(kept, "read", "readings")
counted(kept, "write", "writings")
import train
from timescales import cli
sys.argv = ["train.py", *{arguments!r}]
cli.run(train.main)
print(json.dumps(counts))
"""


def lines(root: Path) -> dict[str, int]:
    """Lines of code, and of tests of handling Hydra; uses of free-form dictionaries."""
    code = [path for part in PARTS for path in (root / "timescales").glob(part)]
    code += [root / "train.py", *(root / "hydra_plugins").glob("*.py")]
    tests = [path for part in TESTS for path in (root / "tests").glob(part)]
    package = "".join(path.read_text() for path in (root / "timescales").rglob("*.py"))
    return {
        "lines": sum(len(path.read_text().splitlines()) for path in code),
        "lines of train.py": len((root / "train.py").read_text().splitlines()),
        "lines of tests": sum(len(path.read_text().splitlines()) for path in tests),
        "dict[str, Any], Mapping[str, Any]": len(re.findall(r"\b(?:dict|Mapping)\[str, Any\]", package)),
    }


def seconds(command: list[str], folder: str) -> float:
    """CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def counts(root: Path, python: str, folder: str) -> dict[str, int]:
    """Of a run of one step: how often its id is hashed, and its record read and written."""
    code = COUNTED.format(root=str(root), arguments=[*QUICK, "run_dir=counted"])
    done = subprocess.run([python, "-c", code], cwd=folder, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("checkouts", nargs="*", type=Path, default=[ROOT])
    measured: dict[Path, dict[str, object]] = {}
    roots = [path.resolve() for path in parser.parse_args().checkouts]
    with tempfile.TemporaryDirectory() as place:
        timed: dict[str, Callable[[str, str], list[str]]] = {
            "--help": lambda python, train: [python, train, "--help"],
            "--cfg job": lambda python, train: [python, train, "--cfg", "job"],
            "skip of a finished run": lambda python, train: [python, train, *QUICK],
        }
        for root in roots:
            python, folder = str(root / ".venv" / "bin" / "python"), f"{place}/{roots.index(root)}"
            os.mkdir(folder)
            measured[root] = {**lines(root), **counts(root, python, folder)}
            subprocess.run([python, str(root / "train.py"), *QUICK], cwd=folder, check=True, capture_output=True)
        for name, command in timed.items():
            spent: dict[Path, list[float]] = {root: [] for root in roots}
            for _ in range(ROUNDS):
                for k, root in enumerate(roots):
                    python = str(root / ".venv" / "bin" / "python")
                    spent[root].append(seconds(command(python, str(root / "train.py")), f"{place}/{k}"))
            for root in roots:
                measured[root][f"{name}: CPU s"] = round(min(spent[root]), 3)
    for root in roots:
        print(root.name)
        for key, value in measured[root].items():
            print(f"  {key:40} {value}")


if __name__ == "__main__":
    main()
