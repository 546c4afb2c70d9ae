"""The atlas of memory: writes its tables, docs/atlas.md, its pictures and the scores that the package has.

`python scripts/atlas.py` writes conf/table/ours_atlas_rates.yaml from conf/atlas.yaml and, of the models whose learning
rate is chosen, conf/table/ours_atlas.yaml; the same for the second atlas, of one plain layer; then what is shown, from
the runs that are here or committed. `make atlas` does all of it, runs included. --price first times a few steps of
every kind of run (results/NAME/speed.csv). --check compares and writes nothing.
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


def measure(runs: Mapping[tuple[str, str], Run], place: Path) -> None:
    """Time the kinds of runs that are not known yet, by what one core works for them."""
    known = {row.kind for row in cost.rows(place)}
    for run in tqdm(runs.values(), "timing"):
        if run.cost_key not in known:
            place.mkdir(parents=True, exist_ok=True)
            cost.write([cost.measure(run.cost_key, run.config, time.process_time)], place)


def tables_of(found: Atlas, composer: Composer, check: bool) -> Tables:
    """Both tables of an atlas, written; the second as far as learning rates are chosen."""
    sizes = Sizes(found, composer)
    write({table_file(found.rates_table): Tables(found, sizes, {}).text_of_rates()}, check)
    tables = Tables(found, sizes, rates_of(found, rows(found.rates_table, composer, not check)))
    if tables.rates:
        write({table_file(found.name): tables.text_of_scores()}, check)
    return tables


def shown_of(found: Atlas, prefix: str, composer: Composer, options: argparse.Namespace) -> page.Shown:
    """What the pages show of an atlas."""
    tables, prices = tables_of(found, composer, options.check), paths.RESULTS / found.name
    runs = kinds(found, tables, composer)
    if options.price:
        measure(runs, prices)
    ended = rows(found.name, composer, not options.check)
    seconds = {row.kind: float(row.seconds) for row in cost.rows(prices)}
    return page.Shown(found, tables, runs, ended, seconds, prefix)


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
    if lost := paths.lost_results():  # else its pages would say that the atlas is not run
        sys.exit(f"error: {lost}")
    first = atlas()
    with composing() as composer:
        atlases = {"": first} | ({"plain_": first.plain} if first.plain else {})
        shown = [shown_of(found, prefix, composer, options) for prefix, found in atlases.items()]
        texts = page.texts(*shown)
        if not shown[0].state:  # a card compares with whole atlases alone
            texts[scores.COMMITTED] = scores.text(scores.of_rows(first, shown[0].rows))
        write(texts, options.check)
        if not options.check:
            for each in shown:
                page.draw(each)


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:  # such as data that are not here
        sys.exit(f"error: {error}")
