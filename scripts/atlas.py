"""The atlas of memory: writes its tables, docs/atlas.md, its pictures and the scores that the package has.

`python scripts/atlas.py` writes conf/table/ours_atlas_rates.yaml from conf/atlas.yaml and, of the models whose learning
rate is chosen, conf/table/ours_atlas.yaml; then what is shown, from the runs that are here or committed. `make atlas`
does all of it, runs included. --price first times a few steps of every kind of run (results/ours_atlas/speed.csv).
--check compares and writes nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tqdm import tqdm  # noqa: E402

from timescales import paths  # noqa: E402
from timescales.atlas import page, scores  # noqa: E402
from timescales.atlas.definition import Atlas, atlas  # noqa: E402
from timescales.atlas.sizes import Sizes  # noqa: E402
from timescales.atlas.tables import Tables, rates_of  # noqa: E402
from timescales.config.compose import Composer, composing, setting  # noqa: E402
from timescales.config.run import Run, run_of  # noqa: E402
from timescales.errors import ConfigError  # noqa: E402
from timescales.files import write_atomic  # noqa: E402
from timescales.papers import load  # noqa: E402
from timescales.reports import gather  # noqa: E402
from timescales.runs import cost  # noqa: E402
from timescales.runs.store import Row  # noqa: E402

PRICES = paths.RESULTS / atlas().name


def rows(name: str, composer: Composer, local: bool) -> list[Row]:
    """The runs of a table that have ended; none where there is no such table yet. local: also those that lie here."""
    if not table_file(name).is_file():
        return []
    table = load.table(name)
    composed, _ = gather.planned_runs(table, composer)
    return gather.gather(table, composed, paths.RESULTS, paths.RUNS if local else None)[0]["paper"]


def table_file(name: str) -> Path:
    """The file of a table."""
    return paths.conf() / "table" / f"{name}.yaml"


def kinds(found: Atlas, tables: Tables, composer: Composer) -> dict[tuple[str, str], Run]:
    """A run of each model on each test, by their names."""
    runs = {}
    for model in found.cells:
        for test, rungs in found.tests.items():
            settings = found.run(rungs[0], tables.model(model, rungs[0]), found.rate, found.seeds[0])
            runs[model, test] = run_of(composer([setting(key, value) for key, value in settings.items()]))
    return runs


def measure(runs: Mapping[tuple[str, str], Run]) -> None:
    """Time the kinds of runs that are not known yet, by what one core works for them."""
    known = {row.kind for row in cost.rows(PRICES)}
    for run in tqdm(runs.values(), "timing"):
        if run.cost_key not in known:
            PRICES.mkdir(parents=True, exist_ok=True)
            cost.write([cost.measure(run.cost_key, run.config, time.process_time)], PRICES)


def write(texts: Mapping[Path, str], check: bool) -> None:
    """Write files, or with `check` end with status 1 where they are not what they should be."""
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text() != text]
    if check and stale:
        sys.exit(f"python scripts/atlas.py writes again: {', '.join(str(path.relative_to(ROOT)) for path in stale)}")
    for path in [] if check else stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, texts[path].encode())
        print(f"written: {path.relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--price", action="store_true", help="time a few steps of each kind of run that is not known")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not what it should be")
    options = parser.parse_args()
    found = atlas()
    with composing() as composer:
        tables = Tables(found, Sizes(found, composer), {})
        write({table_file(found.rates_table): tables.text_of_rates()}, options.check)
        tables = Tables(found, tables.sizes, rates_of(found, rows(found.rates_table, composer, not options.check)))
        if tables.rates:
            write({table_file(found.name): tables.text_of_scores()}, options.check)
        runs = kinds(found, tables, composer)
        if options.price:
            measure(runs)
        ended = rows(found.name, composer, not options.check)
        shown = page.Shown(found, tables, runs, ended, {row.kind: float(row.seconds) for row in cost.rows(PRICES)})
        texts = page.texts(shown)
        if ended:
            texts[scores.COMMITTED] = scores.text(scores.of_rows(found, ended))
        write(texts, options.check)
        if not options.check:
            page.draw(shown)


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:  # such as data that are not here
        sys.exit(f"error: {error}")
