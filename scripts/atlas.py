"""Write the atlas of memory: its tables, docs/atlas.md, its pictures and the package's scores: `pages.py atlas`.

conf/table/ours_atlas_rates.yaml comes from conf/atlas.yaml and, of the models whose learning rate is chosen,
conf/table/ours_atlas.yaml; the same for the second atlas, of one plain layer; then what is shown, from the runs that
are here or committed. `make atlas` does all of it, runs included.
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tqdm import tqdm

from timescales import paths
from timescales.atlas import page, scores
from timescales.atlas.definition import Atlas, atlas
from timescales.atlas.sizes import Sizes
from timescales.atlas.tables import Tables, rates_of
from timescales.config.compose import Composer
from timescales.config.run import Run, run_of
from timescales.errors import ConfigError
from timescales.papers import load
from timescales.reports import gather
from timescales.runs import cost
from timescales.runs.store import Row


def rows(name: str, composer: Composer, local: bool) -> list[Row]:
    """Return the ended runs of a table, [] if the table does not exist yet. local: also those in runs/."""
    if not table_file(name).is_file():
        return []
    table = load.table(name)
    composed, _ = gather.planned_runs(table, composer)
    return gather.gather(table, composed, paths.RESULTS, paths.RUNS if local else None)[0]["paper"]


def table_file(name: str) -> Path:
    """Return the file of a table."""
    return paths.conf() / "table" / f"{name}.yaml"


def kinds(found: Atlas, tables: Tables, composer: Composer) -> dict[tuple[str, str], Run]:
    """Return a run of each model on each test, by their names."""
    runs = {}
    for model in found.cells:
        for test, rungs in found.tests.items():
            settings = found.run(rungs[0], tables.model(model, rungs[0]), found.rate, found.seeds[0])
            runs[model, test] = run_of(composer(load.request(settings)))
    return runs


def measure(runs: Mapping[tuple[str, str], Run], place: Path) -> None:
    """Time the kinds of runs that are not known yet, by what one core works for them."""
    known = {row.kind for row in cost.rows(place)}
    for run in tqdm(runs.values(), "timing"):
        if run.cost_key not in known:
            place.mkdir(parents=True, exist_ok=True)
            cost.write([cost.measure(run.cost_key, run.config, time.process_time)], place)


def texts(check: bool, price: bool = False) -> Iterator[tuple[Path, str]]:
    """Yield the atlas's files and their texts: tables, pages, scores. check: from committed runs, and nothing is drawn.

    price: first time the kinds of runs that are not known. Raises ConfigError without results/.
    """
    if lost := paths.lost_results():  # else the pages would say that the atlas is not run
        raise ConfigError(lost)
    first, shown = atlas(), []
    composer = Composer()
    for prefix, found in {"": first, "plain_": first.plain}.items():
        if found is None:
            continue
        sizes, prices = Sizes(found, composer), paths.RESULTS / found.name
        yield table_file(found.rates_table), Tables(found, sizes, {}).text_of_rates()
        tables = Tables(found, sizes, rates_of(found, rows(found.rates_table, composer, not check)))
        if tables.rates:
            yield table_file(found.name), tables.text_of_scores()
        runs = kinds(found, tables, composer)
        if price:
            measure(runs, prices)
        ended = rows(found.name, composer, not check)
        seconds = {row.kind: float(row.seconds) for row in cost.rows(prices)}
        shown.append(page.Shown(found, tables, runs, ended, seconds, prefix))
    yield from page.texts(*shown).items()
    if not shown[0].state:  # a card compares only with whole atlases
        yield scores.COMMITTED, scores.text(scores.of_rows(first, shown[0].rows))
    for each in [] if check else shown:
        page.draw(each)
