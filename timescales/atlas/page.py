"""Write docs/atlas.md, the scores of all cells in results/, and those of each model on its page in docs/models.

docs/atlas.md has the maps and ranks of the committed runs, prices, and the protocol's numbers. scores.md, beside the
runs, has the numbers of the maps with intervals. A model's page has the score of every run with its curve, and the
commands of the runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from timescales import paths
from timescales.atlas import pictures, scores
from timescales.atlas.card import in_words
from timescales.atlas.definition import Atlas
from timescales.atlas.inference import Bootstrap, Interval, Ranks, joined, ranks, spread
from timescales.atlas.pictures import two_digits
from timescales.atlas.scores import Cell
from timescales.atlas.sizes import UNITS
from timescales.atlas.tables import Tables, listed
from timescales.config.run import Run
from timescales.papers import load
from timescales.papers.table import matches
from timescales.reports.markdown import MARK, grid, put
from timescales.runs.record import State
from timescales.runs.store import Row

PAGE = paths.ROOT / "docs" / "atlas.md"
MODELS = paths.ROOT / "docs" / "models"
NOT_RUN = "**Not run yet.** The protocol on this page was written first."
BY = "scripts/pages.py"
SECTION = "Scores in the atlas"  # of a model's page


@dataclass(frozen=True)
class Shown:
    """The data of the pages.

    runs: one of each model and test; rows: of all ended runs; prices: seconds, by cost_key.
    """

    atlas: Atlas
    tables: Tables
    runs: Mapping[tuple[str, str], Run]
    rows: Sequence[Row]
    prices: Mapping[str, float]
    prefix: str = ""  # of its blocks on the page

    @property
    def state(self) -> str:
        """A sentence on missing runs; "" if all have ended."""
        runs = len(self.atlas.cells) * len(self.atlas.tests) * len(self.atlas.seeds)
        if not self.rows:
            return NOT_RUN
        return f"**Not complete**: {len(self.rows):,} of {runs:,} runs have ended." if len(self.rows) < runs else ""

    @property
    def pictures(self) -> Path:
        """The folder of the pictures."""
        return paths.RESULTS / self.atlas.name

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """The cells with scores on all rungs, the best mean over abilities first."""
        found = scores.cells_of(self.atlas, scores.of_rows(self.atlas, self.rows))
        whole = [cell for cell in found.values() if cell.has(self.atlas.rungs.values())]
        return {cell.name: cell for cell in sorted(whole, key=lambda cell: -self.mean(cell))}

    def mean(self, cell: Cell) -> float:
        """Return a cell's mean score over abilities."""
        return statistics.fmean(float(own.mean()) for own in cell.by_ability(self.atlas.rungs.values()).values())

    @cached_property
    def intervals(self) -> dict[str, dict[str, Interval]]:
        """The mean score of each cell in each ability, and in all together ("mean")."""
        boot, abilities = Bootstrap(), list(self.atlas.abilities)
        found: dict[str, dict[str, Interval]] = {}
        for name, cell in self.cells.items():
            arrays = cell.by_ability(self.atlas.rungs.values())
            found[name] = {ability: boot.of(arrays, [ability]) for ability in abilities}
            found[name]["mean"] = boot.of(arrays, abilities)
        return found

    @cached_property
    def ranks(self) -> Ranks | None:
        """The mean ranks over tests. Rungs of one training count once, with their mean."""
        tests = self.atlas.tests.values()
        means = {
            name: [statistics.fmean(map(cell.mean, rungs)) for rungs in tests] for name, cell in self.cells.items()
        }
        return ranks(means)

    @cached_property
    def spreads(self) -> dict[str, float]:
        """Return by rung how many times as much cells differ as seeds do. It takes two cells with two seeds each."""
        found = {}
        for rung in self.atlas.rungs.values():
            values = [own for cell in self.cells.values() if len(own := cell.of([rung])[0]) > 1]
            if len(values) > 1:
                found[rung.name] = spread(values)
        return found

    @cached_property
    def second(self) -> Shown:
        """Return the second map: other metrics of the same runs, without rungs that do not tell cells apart."""
        least = self.atlas.second["spread"] if self.atlas.second else 0.0
        every = replace(self, atlas=self.atlas.rescored())
        telling = {name: rung for name, rung in every.atlas.rungs.items() if every.spreads.get(name, least) >= least}
        return replace(every, atlas=replace(every.atlas, rungs=telling))

    @property
    def by_ability(self) -> dict[str, dict[str, float]]:
        """Return the mean score of each cell and ability, cells ordered by the ability in which they stand out most."""
        means = {cell: {a: of_cell[a].value for a in self.atlas.abilities} for cell, of_cell in self.intervals.items()}
        order = []
        for cell, of_cell in means.items():
            above = {}
            for ability, value in of_cell.items():
                column = [other[ability] for other in means.values()]
                above[ability] = (value - statistics.fmean(column)) / (statistics.pstdev(column) or 1.0)
            best = max(above, key=above.__getitem__)
            order.append((list(above).index(best), -of_cell[best], cell))
        return {cell: means[cell] for _, _, cell in sorted(order)}


def texts(*atlases: Shown) -> dict[Path, str]:
    """Return the text of each page, by path."""
    text = PAGE.read_text()
    found: dict[Path, str] = {}
    for shown in atlases:
        for block in (rungs, rates, sizes, prices, heat_map, says, states, second_map, later):
            name = shown.prefix + block.__name__
            if MARK.format(name, BY) in text:  # the rungs are on the page once
                text = put(text, {name: block(shown)}, BY)
        if shown.cells:
            found[shown.pictures / "scores.md"] = score_page(shown)
    for model in dict.fromkeys(name for shown in atlases for name in shown.cells):
        page = (MODELS / f"{model}.md").read_text()
        if (mark := MARK.format("atlas", BY)) not in page:
            page += f"\n## {SECTION}\n\n{mark}\n<!-- /atlas -->\n"
        parts = [model_scores(shown, model) for shown in atlases if model in shown.cells]
        found[MODELS / f"{model}.md"] = put(page, {"atlas": "\n\n".join(parts)}, BY)
    return {PAGE: text} | found


def draw(shown: Shown) -> None:
    """Write the pictures, if there are cells to show."""
    if not shown.cells:
        return
    shown.pictures.mkdir(parents=True, exist_ok=True)
    title = f"{shown.tables.title}: mean scores, 0 at chance and 1 at best"
    pictures.heat_map(shown.pictures / "atlas.png", shown.by_ability, title)
    if shown.atlas.second and not shown.prefix:
        title += "; the second map"
        pictures.heat_map(shown.pictures / "second.png", shown.second.by_ability, title)
    if shown.ranks is not None and not shown.state:
        title = "Mean ranks; a line joins cells that are not shown to differ (Nemenyi, 5 %)"
        pictures.rank_diagram(shown.pictures / "ranks.png", shown.ranks, title)


def rungs(shown: Shown) -> str:
    """Make a row for each rung: the ability, the settings of the task, metric, chance, best."""
    body = []
    for rung in shown.atlas.rungs.values():
        first = rung == shown.atlas.of(rung.ability)[0]
        ability = f"**{rung.ability}**: {shown.atlas.abilities[rung.ability]}" if first else ""
        task = " ".join(load.request(rung.settings))
        apart = f"{shown.spreads[rung.name]:.1f}" if rung.name in shown.spreads else ""
        ends = [f"{rung.chance:.3g}", f"{rung.best:g}"]
        body.append([ability, f"`{rung.name}`", f"`{task}`", f"`{rung.metric}`", *ends, apart])
    return "\n".join(grid(["ability", "rung", "task", "metric", "chance", "best", "spread"], body))


def rates(shown: Shown) -> str:
    """List the learning rate of each model, as far as it is chosen."""
    if not shown.tables.rates:
        return "Not chosen yet."
    by_rate = {rate: [m for m, r in shown.tables.rates.items() if r == rate] for rate in shown.atlas.rates}
    return "\n".join(f"- Learning rate {rate:g}: {joined(models)}" for rate, models in by_rate.items() if models)


def sizes(shown: Shown) -> str:
    """Write how units and parameters of models differ, and list the models outside the protocol's tolerance."""
    tests = {name: of[0] for name, of in shown.atlas.tests.items()}
    units: dict[str, int] = {}
    shares: dict[str, list[float]] = {}
    for model in shown.atlas.cells:
        settings = {test: shown.tables.model(model, rung) for test, rung in tests.items()}
        counts = {test: shown.tables.sizes.parameters(rung, settings[test]) for test, rung in tests.items()}
        shares[model] = [counts[test] / shown.tables.sizes.target(rung) - 1 for test, rung in tests.items()]
        units[model] = max(of[UNITS] for of in settings.values())
    every = [share for of_model in shares.values() for share in of_model]
    beyond = [model for model, of_model in shares.items() if max(map(abs, of_model)) > shown.atlas.tolerance]
    least, most = min(units, key=units.__getitem__), max(units, key=units.__getitem__)
    text = f"Models have {units[least]} (`{least}`) to {units[most]} (`{most}`) units, and "
    text += f"parameters that differ from the LSTM's by {100 * min(every):+.1f} to {100 * max(every):+.1f} %."
    if beyond:
        text += f" More than {100 * shown.atlas.tolerance:g} % apart, since units come in steps: {joined(beyond)}."
    return text


def prices(shown: Shown) -> str:
    """Write what all runs take on one core, and the range over models."""
    atlas, known = shown.atlas, {pair: shown.prices.get(run.cost_key) for pair, run in shown.runs.items()}
    if any(seconds is None for seconds in known.values()):
        missing = sorted({model for (model, _), seconds in known.items() if seconds is None})
        return f"Not priced yet: {joined(missing)}. `python scripts/pages.py atlas --price` times steps of each run."
    minutes = {}
    for model in atlas.cells:
        of_test = {test: known[model, test] or 0.0 for test in atlas.tests}
        ladder = len(atlas.seeds) * sum(of_test.values())
        choice = len(atlas.rates) * sum(of_test[test] for test in atlas.choice["rungs"])
        minutes[model] = (ladder + choice) / 60
    runs = len(atlas.cells) * (len(atlas.seeds) * len(atlas.tests) + len(atlas.rates) * len(atlas.choice["rungs"]))
    low, high = min(minutes, key=minutes.__getitem__), max(minutes, key=minutes.__getitem__)
    return (
        f"{runs:,} runs, **{sum(minutes.values()) / 60:.1f} core hours** together. All runs of a model take "
        f"{minutes[low]:.0f} (`{low}`) to {minutes[high]:.0f} minutes (`{high}`)."
    )


def heat_map(shown: Shown) -> str:
    """Show the map as a picture, and link its numbers."""
    if not shown.cells:
        return shown.state
    lines = [shown.state, ""] if shown.state else []
    lines += [f"![Scores of each cell and ability](../results/{shown.atlas.name}/atlas.png)", ""]
    lines += [f"[The same numbers with 95 % intervals](../results/{shown.atlas.name}/scores.md), for each cell."]
    return "\n".join(lines)


def second_map(shown: Shown) -> str:
    """Show the second map, and write what it leaves out and how mean ranks differ from those of the first."""
    if not shown.atlas.second:
        return ""
    if shown.state:
        return shown.state
    every, second = replace(shown, atlas=shown.atlas.rescored()), shown.second
    metrics = joined([f"`{name}` by `{rung['metric']}`" for name, rung in shown.atlas.second["metrics"].items()])
    out = [f"`{name}` {value:.1f}" for name, value in every.spreads.items() if name not in second.atlas.rungs]
    first, other = shown.ranks, second.ranks
    lines = [f"![Scores by the metrics of the second map](../results/{shown.atlas.name}/second.png)"]
    lines += [
        f"Scored in another way: {metrics}. Left out are rungs whose spread is "
        f"below {shown.atlas.second['spread']:g}, that is, on which cells hardly differ more than seeds: {joined(out)}."
    ]
    if first and other:
        moved = sorted(other.mean, key=lambda name: other.mean[name] - first.mean[name])
        gains, losses = (
            joined([f"`{name}` ({first.mean[name]:.1f} to {other.mean[name]:.1f})" for name in names])
            for names in (moved[:3], moved[:-4:-1])
        )
        lines += [
            f"The mean ranks, over {other.tests} tests in place of {first.tests}, are best for "
            f"{joined([f'`{name}` {other.mean[name]:.1f}' for name in list(other.mean)[:3]])}. Most gain {gains}; most "
            f"lose {losses}. Two cells are shown to differ if their ranks are more than {other.difference:.1f} apart."
        ]
    return "\n\n".join(lines)


def later(shown: Shown) -> str:
    """List the rungs that a later study should have, with what they would take of all models and seeds."""
    hours = dict.fromkeys(shown.atlas.tests, 0.0)
    for (_, test), run in shown.runs.items():
        hours[test] += len(shown.atlas.seeds) * shown.prices.get(run.cost_key, 0.0) / 3600
    hours["all"] = sum(hours.values())
    body = [[each["rung"], each["tells"], f"{each['times'] * hours[each['like']]:.1f} h"] for each in shown.atlas.later]
    return "\n".join(grid(["rung", "what it would tell", "all cells, 3 seeds"], body))


def score_page(shown: Shown) -> str:
    """Write the numbers of the maps with their intervals. The name of a model is a link to the scores of its runs."""
    lines = [f"# {shown.tables.title}: the scores", "", "A score is 0 at chance and 1 at best. In brackets are 95 %"]
    lines += [
        "intervals by a stratified bootstrap over rungs and seeds. [The atlas](../../docs/atlas.md) says what the"
    ]
    lines += ["abilities are. Written by `python scripts/pages.py atlas` from the committed runs."]
    maps = {"The map": shown} | ({"The second map": shown.second} if shown.atlas.second and not shown.prefix else {})
    columns = [*shown.atlas.abilities, "mean"]
    anchor = SECTION.lower().replace(" ", "-")
    for title, each in maps.items():
        body = [
            [f"[{name}](../../docs/models/{name}.md#{anchor})", *(in_words(of_cell[column]) for column in columns)]
            for name, of_cell in each.intervals.items()
        ]
        lines += ["", f"## {title}", "", *grid(["cell", *columns], body)]
    return "\n".join(lines) + "\n"


def says(shown: Shown) -> str:
    """Write the conclusions that the statistics support, after all runs have ended."""
    if shown.state:
        return shown.state
    lines = []
    found = shown.ranks
    if found is not None:
        best = next(iter(found.mean))
        p = "p < .001" if found.p < 0.001 else f"p = {found.p:.2g}"
        if not found.differ:
            lines.append(f"Friedman's test does not show that any cells differ ({p}, {found.tests} tests).")
        else:
            behind = [name for name in found.mean if found.shown_to_differ(best, name)]
            lines += [
                f"Over {found.tests} tests the mean ranks of {len(found.mean)} cells differ (Friedman, {p}). Two cells "
                f"are shown to differ if their mean ranks are more than {found.difference:.1f} apart (Nemenyi, 5 %).",
                f"The best mean rank, {found.mean[best]:.1f}, is that of `{best}`. It is shown to be better than "
                f"{joined(behind, '`{}`'.format)}; than the other {len(found.mean) - 1 - len(behind)} it is not.",
            ]
        lines.append(f"![Mean ranks](../results/{shown.atlas.name}/ranks.png)")
    if shown.prefix:  # its heat map shows the abilities of the few cells
        return "\n\n".join(lines)
    best_of = []
    for ability, what in shown.atlas.abilities.items():
        order = sorted(shown.intervals, key=lambda name, a=ability: -shown.intervals[name][a].value)  # type: ignore[misc]
        top = [f"`{name}` {in_words(shown.intervals[name][ability])}" for name in order[:3]]
        highs = {name: shown.intervals[name][ability].high for name in order}
        near_chance = [name for name, high in highs.items() if high is not None and high < 0.05]
        none = f" At most .05 with 95 %: {joined(near_chance, '`{}`'.format)}." if near_chance else ""
        best_of.append(f"- **{ability}** ({what}): the highest means are {joined(top)}.{none}")
    return "\n\n".join([*lines, "\n".join(best_of)])


def states(shown: Shown) -> str:
    """Write whether cells with more numbers of state score higher, and compare cells that have equally many.

    Cells have as many parameters, but not as many numbers of state, and may lead only because they have more of these.
    """
    if shown.state:
        return shown.state
    from scipy import stats

    tests = [of[0] for of in shown.atlas.tests.values()]
    numbers: dict[str, tuple[int, ...]] = {}  # on each test
    for name in shown.cells:
        settings = [shown.tables.model(name, rung) for rung in tests]
        of_settings = {str(each): shown.tables.sizes.state(tests[0], each) for each in settings}
        numbers[name] = tuple(of_settings[str(each)] for each in settings)
    means = {name: statistics.fmean(of_tests) for name, of_tests in numbers.items() if any(of_tests)}
    without = "".join(f"; `{name}` has none" for name in numbers if name not in means)
    least, most = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    found = {}
    for ability in shown.atlas.abilities:
        values = [shown.intervals[name][ability].value for name in means]
        found[ability] = stats.spearmanr(list(means.values()), values)
    low, high = (end(found, key=lambda ability: found[ability].statistic) for end in (min, max))
    differ = [ability for ability in found if found[ability].pvalue < 0.05 / len(found)]
    ends = [in_words(Interval(float(found[end].statistic), None, None), sign=True) for end in (low, high)]
    groups: dict[tuple[int, ...], list[str]] = {}
    for name in means:  # the best mean score first
        groups.setdefault(numbers[name], []).append(name)
    equal = []
    for of_tests, names in sorted(groups.items()):
        if len(names) > 1:
            scored = joined([f"`{name}` {two_digits(shown.mean(shown.cells[name]))}" for name in names])
            equal.append(f"- {joined(sorted(set(map(str, of_tests)), key=int))} numbers: {scored}.")
    text = (
        f"The cells of a model have {means[least]:.0f} (`{least}`) to {means[most]:.0f} (`{most}`) numbers of state a "
        f"sequence{without}. The rank correlation of this number with the score is between "
        f"{ends[0]} ({low}) and {ends[1]} ({high}). It differs from 0 "
        f"for {joined(differ)} of the {len(found)} abilities (p < .05 / {len(found)})."
    )
    if not equal:
        return text
    return (
        f"{text}\n\nCells with equally many parameters and numbers of state, with their mean scores:\n\n"
        + "\n".join(equal)
    )


def model_scores(shown: Shown, name: str) -> str:
    """Write a model's part of its page: the scores of each test by seed, with curves, and the commands of the runs."""
    cell, found = shown.cells[name], scores.of_rows(shown.atlas, shown.rows)
    body = []
    for ability, what in shown.atlas.abilities.items():
        mean = f"**{ability}**: {what}; {in_words(shown.intervals[name][ability])}"
        for rung in shown.atlas.of(ability):
            where = listed(rung.settings)
            rows = {row.seed: row for row in shown.rows if row.axes["model"] == name and matches(row.axes, where)}
            seeds = [score.seed for score in found if (score.cell, score.rung) == (name, rung.name)]
            by_seed = (_linked(cell.scores[rung.name][seed], rows[seed], shown.atlas.name) for seed in seeds)
            body.append([mean, f"`{rung.name}`", " ".join(by_seed)])
            mean = ""
    commands = []
    for rungs in shown.atlas.tests.values():
        settings = shown.atlas.run(rungs[0], shown.tables.model(name, rungs[0]), shown.tables.rates[name], 0)
        words = load.request({key: value for key, value in settings.items() if key != "seed"})
        commands.append(f"python train.py -m {' '.join(words)} seed={','.join(map(str, shown.atlas.seeds))}")
    lines = [f"**{shown.tables.title}** ([protocol](../atlas.md#protocol)): {cell.parameters:,} parameters,"]
    lines += [f"learning rate {shown.tables.rates[name]:g}. A score is 0 at chance and 1 at best.", ""]
    lines += [*grid(["ability and its mean score", "test", "scores by seed, with curves"], body), ""]
    lines += ["<details><summary>Commands of these runs</summary>", "", "```sh", *commands, "```", "", "</details>"]
    return "\n".join(lines)


def _linked(score: float, row: Row, table: str) -> str:
    text = pictures.two_digits(score)
    if row.status == State.DIVERGED.value:  # it may have no point of a curve
        return f"{text} (diverged)"
    return f"[{text}](../../results/{table}/curves/{row.id}.csv)"
