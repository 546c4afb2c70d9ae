"""What thousands of runs cost before any of them is trained: `python scripts/bench/bench_scale.py [RUNS]`.

Lays down as many finished records in an empty folder, then times a sweep that asks for all of them and a report's
reading of them. CPU seconds, so that a busy machine says the same.
"""

from __future__ import annotations

import argparse
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

from timescales.config import compose, identity  # noqa: E402
from timescales.papers import table  # noqa: E402
from timescales.runs import record, store  # noqa: E402

RUN = ["task=copy", "task.T=3", "task.train_size=20", "task.valid_size=10", "task.test_size=10",
       "task.batch_size=10", "model.hidden_size=4", "loop.max_steps=2", "logger=none"]  # fmt: skip


def timed(label: str, runs: int, begun: float, children: bool = False) -> None:
    """Print the CPU seconds since `begun`, and how many runs that is a second."""
    seconds = cpu(children) - begun
    print(f"{label:44} {seconds:7.1f} s  {1000 * seconds / runs:6.2f} ms a run", flush=True)


def cpu(children: bool = False) -> float:
    """Seconds of CPU of this process, or of those it has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def sweep(runs: int, *more: str) -> str:
    """Call train.py -m as people do; its first line."""
    command = [sys.executable, str(ROOT / "train.py"), "-m", *RUN, f"seed=range(0,{runs})", *more]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="?", type=int, default=10_000)
    n = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sweep(1)  # one real record
        (path,) = Path("runs").glob("*/record.json")
        one = record.read(path.parent)
        assert one is not None
        with compose.composing() as composer:
            runs = [table.Run({"seed": k}, [*RUN, f"seed={k}"]) for k in range(n)]
            begun = cpu()
            slugs = [identity.slug(composer(run.overrides)) for run in runs]
            timed("compose and identify", n, begun)
        shutil.rmtree("runs")
        for k, slug in enumerate(slugs):
            place = Path("runs") / slug
            place.mkdir(parents=True)
            text = one | {"id": identity.id_of(slug), "seed": k, "config": one["config"] | {"seed": k}}
            (place / "record.json").write_text(json.dumps(text, indent=1))
            (place / "lock").write_text("given back")
        begun, wall = cpu(children=True), time.monotonic()
        print(sweep(n))
        timed(f"that sweep ({time.monotonic() - wall:.0f} s by the clock)", n, begun, children=True)
        begun = cpu()
        rows = []
        for run, slug in zip(runs, slugs, strict=True):
            found = record.read(Path("runs") / slug)
            assert found is not None
            rows.append(store.row(found, run.axes, None, ["best test/accuracy"]))
        store.rows_text(rows)
        timed("a report's reading of the records", n, begun)
        size = sum(path.stat().st_blocks * 512 for path in Path("runs").rglob("*"))
        print(f"{size / 1e6:.0f} MB of records", flush=True)


if __name__ == "__main__":
    main()
