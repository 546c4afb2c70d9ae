"""Vary the settings that the paper does not state: `python scripts/sensitivity.py TABLE`.

Each assumed setting that names other values (`try`) is changed one at a time, at the first rung of the table's ladder.
Writes results/<table>/sensitivity.{csv,md}. Further arguments are those of train.py. Settings choose and change the
runs as they do there (seed=0 model=lstm,plstm loop.max_steps=500); the page is printed then, and not written.
--config-dir FOLDER, as for train.py, is for tables of your own: the results go to FOLDER/results/.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import analysis, paths  # noqa: E402
from timescales.config import compose, folders, identity  # noqa: E402
from timescales.config.run import run_of  # noqa: E402
from timescales.errors import ConfigError, one_line  # noqa: E402
from timescales.experiment.train import train  # noqa: E402
from timescales.papers import load  # noqa: E402
from timescales.papers.table import Rung  # noqa: E402
from timescales.reports import sensitivity  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("table")
    parser.add_argument("overrides", nargs="*", default=[], help="for train.py")
    parser.add_argument("--no-run", action="store_true", help="only write what the finished runs say")
    parser.add_argument("--config-dir", type=Path, metavar="FOLDER", help="your own folder of configurations")
    options = parser.parse_intermixed_args()  # overrides may stand anywhere
    results = options.config_dir / "results" if options.config_dir else paths.RESULTS
    folders.use(options.config_dir)
    settings = [text for text in options.overrides if narrows(text)]
    with compose.composing() as composer:
        try:
            table = small(options.table)
            if settings:
                table = sensitivity.narrowed(table, settings, composer)
            sensitivity.variations(table, composer)
        except compose.WRONG_INPUT as error:
            sys.exit(f"error: {one_line(error)}")
        if not options.no_run:
            train_all(table, composer, options)
        rows = sensitivity.gather(table, composer, results, paths.RUNS)
    own = options.config_dir is not None
    if settings:
        print(sensitivity.page(table, rows, own))
        print(f"with {' '.join(settings)}; not written, since it is a part of the table")
    else:
        print(sensitivity.write(table, rows, results, own))


def small(name: str) -> Rung:
    """Return the first rung of a table's ladder."""
    ladder = load.table(name).ladder
    if ladder is None or not ladder.rungs:
        raise ConfigError(f"{name} has no ladder, on whose first rung settings are varied")
    return next(iter(ladder.rungs.values()))


def narrows(override: str) -> bool:
    """Return whether an override is about the runs' settings, not about how they are trained."""
    return identity.is_of_identity(override.partition("=")[0].lstrip("+~"))


def train_all(table: Rung, composer: compose.Composer, options: argparse.Namespace) -> None:
    """Train the runs of each variation that are not finished."""
    shared = ["logger=none", *(text for text in options.overrides if not narrows(text))]
    variations = sensitivity.variations(table, composer)
    for k, variation in enumerate(variations, 1):
        print(f"[{k}/{len(variations)}] {variation.words}", flush=True)
        try:
            for planned in sensitivity.runs_of(table, composer, variation):
                run = run_of(composer([*load.request(planned.axes), *shared]))
                train(run)
                analysis.measure_missing(run.directory, table.probe)
        except KeyboardInterrupt:
            sys.exit("interrupted: the same command continues")


if __name__ == "__main__":
    main()
