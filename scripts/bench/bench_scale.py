"""Measure what thousands of finished runs cost: `python scripts/bench/bench_scale.py [RUNS]`.

Writes the records of so many runs to an empty folder. Then it times a sweep over all of them, which finds that nothing
is left to do, and how a report reads them. Times are CPU seconds, which do not depend on the load of the machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from timescales.config import compose  # noqa: E402
from timescales.config.run import Run  # noqa: E402
from timescales.experiment import plan  # noqa: E402
from timescales.runs import record, store  # noqa: E402

SIZES = "task.T=3 task.train_size=20 task.valid_size=10 task.test_size=10 task.batch_size=10 model.hidden_size=4"
RUN = ["task=copy", *SIZES.split(), "loop.max_steps=2", "logger=none"]


def report_time(label: str, runs: int, start: float, children: bool = False) -> None:
    """Print the CPU seconds since `start`, in total and per run."""
    seconds = cpu_seconds(children) - start
    print(f"{label:44} {seconds:7.1f} s  {1000 * seconds / runs:6.2f} ms a run", flush=True)


def cpu_seconds(children: bool = False) -> float:
    """CPU seconds of this process, or of its finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def sweep(runs: int) -> str:
    """Run train.py -m over so many seeds. Returns the first line that it prints."""
    command = [sys.executable, str(ROOT / "train.py"), "-m", *RUN, f"seed=range(0,{runs})"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def time_composing(seeds: int) -> list[Run]:
    """Time the composition of so many runs."""
    with compose.composing() as composer:
        start = cpu_seconds()
        runs = plan.plan([[composer.parse(text) for text in (*RUN, f"seed={k}")] for k in range(seeds)], composer).runs
        report_time("compose and identify", len(runs), start)
    return runs


def write_records(template: record.Record, runs: list[Run]) -> None:
    """Write a record for each run, made from the record of one real run."""
    for run in runs:
        folder = run.directory
        folder.mkdir(parents=True)
        own = dataclasses.replace(template, id=run.id, seed=run.seed, config=template.config | {"seed": run.seed})
        (folder / "record.json").write_text(json.dumps(own.content(), indent=1))
        (folder / "lock").write_text("given back")


def time_sweep(runs: int) -> None:
    """Time a sweep over finished runs."""
    start, wall = cpu_seconds(children=True), time.monotonic()
    print(sweep(runs))
    report_time(f"that sweep ({time.monotonic() - wall:.0f} s by the clock)", runs, start, children=True)


def time_reading(runs: list[Run]) -> None:
    """Time how a report reads the records."""
    start = cpu_seconds()
    rows = []
    for run in runs:
        values = record.Record.read(run.directory)
        assert values is not None
        rows.append(store.row(values, {"seed": run.seed}, "paper", ["best test/accuracy"]))
    store.rows_text(rows)
    report_time("a report's reading of the records", len(runs), start)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("runs", nargs="?", type=int, default=10_000, help="number of runs; default: 10,000")
    n = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sweep(1)  # one real run
        (path,) = Path("runs").glob("*/record.json")
        template = record.Record.read(path.parent)
        assert template is not None
        shutil.rmtree("runs")
        runs = time_composing(n)
        write_records(template, runs)
        time_sweep(n)
        time_reading(runs)
        size = sum(path.stat().st_blocks * 512 for path in Path("runs").rglob("*"))
        print(f"{size / 1e6:.0f} MB of records", flush=True)


if __name__ == "__main__":
    main()
