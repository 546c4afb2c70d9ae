"""What is done of each table and what the rest costs: `python scripts/status.py [TABLE ...] [--measure]`.

--config-dir FOLDER, as for train.py, is for tables of one's own.
Hours are from finished runs of the same kind, else from a few steps timed with --measure (results/speed.csv); they are
an upper bound where a task may stop before its last epoch.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fetch_data import CORPORA  # noqa: E402
from tqdm import tqdm  # noqa: E402

from timescales import errors, paths  # noqa: E402
from timescales.config import (  # noqa: E402
    compose,
    folders,
    identity,
)
from timescales.papers import load  # noqa: E402
from timescales.reports import report  # noqa: E402
from timescales.runs import cost, record, store  # noqa: E402
from timescales.tasks.data.corpus import data_root  # noqa: E402


def status(name: str, composer: compose.Composer, unknown: dict[str, Any]) -> list[list[Any]]:
    """The lines of a table, one for each profile; puts configurations whose cost is not known into `unknown`."""
    table, committed, lines = load.table(name), store.committed(), []
    for profile in report.PROFILES:
        count: Counter[str] = Counter()
        ended, todo = [], []
        runs, why = load.runs(table, profile, composer)
        if not runs and not why:
            continue  # no tiny twin
        for _, cfg in runs:
            slug, kind = identity.slug(cfg), identity.kind(cfg)
            found, row = record.read(paths.RUNS / slug), committed.get(identity.id_of(slug), {})
            state = found["status"] if found else row.get("status", "missing")
            old = record.stale(found) if found else bool(row) and store.stale(row)
            count["stale" if old else "committed" if not found and row else state] += 1
            if state in record.ENDED:
                ended.append((kind, found or row))
            else:
                todo.append((kind, cfg))
        seconds = cost.prices(ended)
        unknown |= {kind: cfg for kind, cfg in todo if kind not in seconds}
        dear = sum(kind not in seconds for kind, _ in todo)
        hours = sum(seconds.get(kind, 0.0) for kind, _ in todo) / 3600
        known = f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"
        left = [known] * (dear < len(todo)) + [f"{dear} runs not measured"] * (dear > 0)
        absent = [
            name
            for name in table.get("needs", [])
            if name not in CORPORA or CORPORA[name].find(data_root(None)) is None
        ]
        if absent and todo:
            why.append(f"python scripts/fetch_data.py {' '.join(absent)}")
        bad = count["diverged"] + count["failed"]
        states = [count[state] for state in ("finished", "committed", "missing", "interrupted", "stale")]
        lines.append([name, profile or "paper", *states, bad, " + ".join(left), "; ".join(dict.fromkeys(why))])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", nargs="*", help="names of tables; none: all")
    parser.add_argument(
        "--measure", action="store_true", help="time a few steps of every kind of run whose cost is not known"
    )
    parser.add_argument("--config-dir", type=Path, metavar="FOLDER", help="one's own folder of configurations")
    options = parser.parse_args()
    known = folders.choices("table")
    if options.config_dir:
        paths.RESULTS = options.config_dir / "results"
        known = sorted(path.stem for path in (options.config_dir / "table").glob("*.yaml"))
    with compose.composing() as composer:
        names = options.table or known
        unknown: dict[str, Any] = {}
        try:
            folders.check_user_folder()
            lines = [line for name in tqdm(names, leave=False) for line in status(name, composer, unknown)]
        except errors.ConfigError as error:
            sys.exit(f"error: {error}")
        if options.measure:
            for kind, cfg in tqdm(unknown.items(), desc="timing"):
                try:
                    cost.write([cost.measure(kind, identity.resolved(cfg))])
                except errors.ConfigError as error:
                    tqdm.write(f"{identity.slug(cfg)}: {error}")
            lines = [line for name in names for line in status(name, composer, {})]
    head = ["table", "profile", "done", "committed", "missing", "begun", "stale", "failed", "left", "why not"]
    widths = [max(len(str(row[k])) for row in [head, *lines]) for k in range(len(head))]
    for row in [head, *lines]:
        print("  ".join(str(entry).ljust(width) for entry, width in zip(row, widths, strict=True)).rstrip())
    if not options.measure and unknown:
        print(f"\n{len(unknown)} kinds of runs are not measured: make status MEASURE=1 times a few steps of each")


if __name__ == "__main__":
    main()
