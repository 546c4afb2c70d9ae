"""What is done of each table and what the rest costs: `python scripts/status.py [TABLE ...] [--measure]`.

`python scripts/status.py TABLE --list` lists the runs of a table: settings, seed, state, directory. Settings narrow the
list: seed=0 model=lstm,plstm. --profile tiny lists those of the small-scale version.
--config-dir FOLDER, as for train.py, is for tables of your own.
Hours are from finished runs of the same kind, else from a few steps timed with --measure (results/speed.csv). They are
an upper bound where a task may stop before its last epoch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tqdm import tqdm  # noqa: E402

from timescales import paths  # noqa: E402
from timescales.config import compose, folders, identity  # noqa: E402
from timescales.config.compose import Composer  # noqa: E402
from timescales.errors import ConfigError  # noqa: E402
from timescales.papers.table import SIZES  # noqa: E402
from timescales.reports import status  # noqa: E402
from timescales.runs import cost  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="*", help="names of tables (none: all); with --list also settings, seed=0")
    parser.add_argument(
        "--measure", action="store_true", help="time a few steps of every kind of run whose cost is not known"
    )
    parser.add_argument("--list", action="store_true", help="list the runs of a table; trains and measures nothing")
    parser.add_argument("--profile", choices=["tiny"], help="with --list: the runs of the small-scale version")
    parser.add_argument("--config-dir", type=Path, metavar="FOLDER", help="your own folder of configurations")
    options = parser.parse_intermixed_args()  # settings may follow --list
    results, known = paths.RESULTS, folders.choices("table")
    if options.config_dir:
        results = options.config_dir / "results"
        known = sorted(path.stem for path in (options.config_dir / "table").glob("*.yaml"))
    with compose.composing() as composer:
        try:
            folders.check_user_folder()
            if options.list:
                plan(options, composer, results)
            else:
                overview(options.table or known, composer, results, options.measure)
        except ConfigError as error:
            sys.exit(f"error: {error}")


def plan(options: argparse.Namespace, composer: Composer, results: Path) -> None:
    """Print the runs of one table, a line each."""
    names = [word for word in options.table if "=" not in word]
    if len(names) != 1:
        raise ConfigError("--list is for one table: python scripts/status.py TABLE --list")
    overrides = [composer.parse(word) for word in options.table if "=" in word]
    where = {override.key_or_group: composer.values(override) for override in overrides}
    found = [s for s in status.status(names[0], composer, results, paths.RUNS) if SIZES[s.size] == options.profile]
    if not found:
        raise ConfigError(f"{names[0]} has no small-scale version (its key `tiny`)")
    print(status.table_text(found[0].plan(where)))


def overview(names: list[str], composer: Composer, results: Path, measure: bool) -> None:
    """Print a line for each table and size; measure: first time a few steps of the kinds of runs not known."""
    from timescales.tasks.data.all import CORPORA
    from timescales.tasks.data.corpus import data_root

    absent = [name for name, corpus in CORPORA.items() if corpus.find(data_root(None)) is None]

    def all_of() -> list[status.Status]:
        bar = tqdm(names, leave=False)
        return [s for name in bar for s in status.status(name, composer, results, paths.RUNS, absent)]

    found = all_of()
    unknown = {kind: cfg for s in found for kind, cfg in s.unknown.items()}
    if measure:
        for kind, cfg in tqdm(unknown.items(), desc="timing"):
            try:
                cost.write([cost.measure(kind, identity.resolved(cfg))], results)
            except ConfigError as error:
                tqdm.write(f"{identity.slug(cfg)}: {error}")
        found = all_of()
    print(status.table_text([status.HEAD, *(s.line() for s in found)]))
    if unknown and not measure:
        print(f"\n{len(unknown)} kinds of runs are not measured: make status MEASURE=1 times a few steps of each")


if __name__ == "__main__":
    main()
