"""docs/atlas.md, and a page for each cell of an atlas: scores, intervals and ranks of the committed runs, prices, the
protocol's numbers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from timescales import paths
from timescales.atlas import pictures, scores
from timescales.atlas.card import in_words
from timescales.atlas.definition import Atlas, Rung
from timescales.atlas.inference import Bootstrap, Interval, Ranks, joined, ranks
from timescales.atlas.scores import Cell
from timescales.atlas.sizes import UNITS
from timescales.atlas.tables import Tables
from timescales.config import Settings
from timescales.config.run import Run
from timescales.config.values import spell
from timescales.reports.markdown import grid
from timescales.runs.record import State
from timescales.runs.store import Row

PAGE = paths.ROOT / "docs" / "atlas.md"
CELLS = paths.ROOT / "docs" / "atlas"
NOT_RUN = "**Not run yet.** The protocol on this page was written first."
BEGIN, END = "<!-- {}: written by scripts/pages.py -->", "<!-- /{} -->"


@dataclass(frozen=True)
class Shown:
    """What the pages show. runs: one of each model and test; rows: of all that ended; prices: seconds, by cost_key."""

    atlas: Atlas
    tables: Tables
    runs: Mapping[tuple[str, str], Run]
    rows: Sequence[Row]
    prices: Mapping[str, float]
    prefix: str = ""  # of the names of its blocks on the page, and of its cells' pages

    def page(self, cell: str) -> str:
        """The file of a cell's page."""
        return f"{self.prefix}{cell}.md"

    @property
    def state(self) -> str:
        """What to say of runs that are missing; "" if all have ended."""
        runs = len(self.atlas.cells) * len(self.atlas.tests) * len(self.atlas.seeds)
        if not self.rows:
            return NOT_RUN
        return f"**Not complete**: {len(self.rows):,} of {runs:,} runs have ended." if len(self.rows) < runs else ""

    @property
    def pictures(self) -> Path:
        """Where the pictures lie."""
        return paths.RESULTS / self.atlas.name

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """The cells with scores on all rungs, the best mean over abilities first."""
        found = scores.cells_of(self.atlas, scores.of_rows(self.atlas, self.rows))
        whole = [cell for cell in found.values() if cell.has(self.atlas.rungs.values())]
        return {cell.name: cell for cell in sorted(whole, key=lambda cell: -self.mean(cell))}

    def arrays(self, cell: Cell) -> dict[str, Any]:
        """The scores of a cell by ability, (rungs, seeds)."""
        return {ability: cell.of(self.atlas.of(ability)) for ability in self.atlas.abilities}

    def mean(self, cell: Cell) -> float:
        """Its mean score over abilities."""
        return statistics.fmean(float(values.mean()) for values in self.arrays(cell).values())

    @cached_property
    def intervals(self) -> dict[str, dict[str, Interval]]:
        """The mean score of each cell in each ability, and in all together ("mean")."""
        boot, abilities = Bootstrap(), list(self.atlas.abilities)
        found: dict[str, dict[str, Interval]] = {}
        for name, cell in self.cells.items():
            arrays = self.arrays(cell)
            found[name] = {ability: boot.of(arrays, [ability]) for ability in abilities}
            found[name]["mean"] = boot.of(arrays, abilities)
        return found

    @cached_property
    def ranks(self) -> Ranks | None:
        """The mean ranks over tests; rungs of one training count once, with their mean."""
        tests = self.atlas.tests.values()
        return ranks({name: [_mean(cell, rungs) for rungs in tests] for name, cell in self.cells.items()})


def _mean(cell: Cell, rungs: Sequence[Rung]) -> float:
    return statistics.fmean(cell.mean(rung) for rung in rungs)


def texts(*atlases: Shown) -> dict[Path, str]:
    """The text of each page, by path."""
    text = PAGE.read_text()
    found: dict[Path, str] = {}
    for shown in atlases:
        for block in (rungs, rates, sizes, prices, heat_map, says):
            name = shown.prefix + block.__name__
            begin, end = BEGIN.format(name), END.format(name)
            if begin in text:  # the rungs stand there once
                before, rest = text.split(begin)
                text = f"{before}{begin}\n\n{block(shown)}\n\n{end}{rest.split(end)[1]}"
        found |= {CELLS / shown.page(name): of_cell(shown, name) for name in shown.cells}
    return {PAGE: text} | found


def draw(shown: Shown) -> None:
    """Write the pictures, if there are cells to show."""
    if not shown.cells:
        return
    shown.pictures.mkdir(parents=True, exist_ok=True)
    values = {cell: {a: i.value for a, i in of_cell.items()} for cell, of_cell in shown.intervals.items()}
    pictures.heat_map(
        shown.pictures / "atlas.png", values, f"{shown.tables.title}: mean scores, 0 at chance and 1 at best"
    )
    if shown.ranks is not None and not shown.state:
        title = "Mean ranks; a line joins cells that are not shown to differ (Nemenyi, 5 %)"
        pictures.rank_diagram(shown.pictures / "ranks.png", shown.ranks, title)


def rungs(shown: Shown) -> str:
    """A row for each rung: the ability, the settings of the task, metric, chance, best."""
    body = [
        [
            f"**{rung.ability}**: {shown.atlas.abilities[rung.ability]}"
            if rung == shown.atlas.of(rung.ability)[0]
            else "",
            f"`{rung.name}`",
            _settings(rung.settings),
            f"`{rung.metric}`",
            f"{rung.chance:.3g}",
            f"{rung.best:g}",
        ]
        for rung in shown.atlas.rungs.values()
    ]
    return "\n".join(grid(["ability", "rung", "task", "metric", "chance", "best"], body))


def _settings(settings: Settings) -> str:
    return "`" + " ".join(f"{key}={spell(value)}" for key, value in settings.items()) + "`"


def rates(shown: Shown) -> str:
    """The learning rate of each model, as far as it is chosen."""
    if not shown.tables.rates:
        return "Not chosen yet."
    by_rate = {rate: [m for m, r in shown.tables.rates.items() if r == rate] for rate in shown.atlas.rates}
    return "\n".join(f"- {rate:g}: {joined(models)}" for rate, models in by_rate.items() if models)


def sizes(shown: Shown) -> str:
    """Units and parameters of each model, and those that are further from the LSTM than the protocol wants."""
    tests = {name: of[0] for name, of in shown.atlas.tests.items()}
    body, beyond = [], []
    for model in shown.atlas.cells:
        settings = {test: shown.tables.model(model, rung) for test, rung in tests.items()}
        counts = {test: shown.tables.sizes.parameters(rung, settings[test]) for test, rung in tests.items()}
        apart = {test: counts[test] / shown.tables.sizes.target(rung) - 1 for test, rung in tests.items()}
        units = sorted({of[UNITS] for of in settings.values()})
        low, high = min(apart.values()), max(apart.values())
        body.append(
            [f"`{model}`", _range(units), _range(sorted(counts.values())), f"{100 * low:+.1f} to {100 * high:+.1f} %"]
        )
        beyond += [model] if max(-low, high) > shown.atlas.tolerance else []
    allowed = (
        f"Beyond {100 * shown.atlas.tolerance:g} %, since their units come in steps: {joined(beyond)}."
        if beyond
        else ""
    )
    return "\n".join([*grid(["model", "units", "parameters", "against the LSTM"], body), "", allowed]).rstrip()


def _range(values: Sequence[int]) -> str:
    return f"{values[0]:,}" if values[0] == values[-1] else f"{values[0]:,} to {values[-1]:,}"


def prices(shown: Shown) -> str:
    """What each model's runs take on one core, and all of them together."""
    atlas, known = shown.atlas, {pair: shown.prices.get(run.cost_key) for pair, run in shown.runs.items()}
    if any(seconds is None for seconds in known.values()):
        missing = sorted({model for (model, _), seconds in known.items() if seconds is None})
        return f"Not priced yet: {joined(missing)}. `python scripts/pages.py atlas --price` times steps of each run."
    body, total = [], 0.0
    for model in atlas.cells:
        of_test = {test: known[model, test] or 0.0 for test in atlas.tests}
        ladder = len(atlas.seeds) * sum(of_test.values())
        choice = len(atlas.rates) * sum(of_test[test] for test in atlas.choice["rungs"])
        total += ladder + choice
        steps = atlas.settings["loop.max_steps"]
        per_step = 1000 * statistics.fmean(of_test.values()) / steps
        body.append(
            [
                f"`{model}`",
                f"{per_step:.1f}",
                f"{ladder / 60:.0f}",
                f"{choice / 60:.0f}",
                f"{(ladder + choice) / 60:.0f}",
            ]
        )
    by_test = {test: statistics.fmean(known[model, test] or 0.0 for model in atlas.cells) for test in atlas.tests}
    runs = len(atlas.cells) * (len(atlas.seeds) * len(atlas.tests) + len(atlas.rates) * len(atlas.choice["rungs"]))
    each = grid(["test", "seconds of a run, mean over models"], [[f"`{t}`", f"{s:.1f}"] for t, s in by_test.items()])
    head = ["model", "ms a step, mean over tests", "rungs, min", "choice of the rate, min", "together, min"]
    return "\n".join([f"{runs:,} runs, **{total / 3600:.1f} core hours** together.", "", *grid(head, body), "", *each])


def heat_map(shown: Shown) -> str:
    """The scores, each a link to the runs behind it."""
    if not shown.cells:
        return shown.state
    columns = [*shown.atlas.abilities, "mean"]
    body = [
        [f"[{name}](atlas/{shown.page(name)})", *(_square(shown.page(name), c, of_cell[c]) for c in columns)]
        for name, of_cell in shown.intervals.items()
    ]
    lines = [f"![Scores of each cell and ability](../results/{shown.atlas.name}/atlas.png)", ""]
    lines += [*grid(["cell", *columns], body), "", "In brackets 95 % of the bootstrap. Each number leads to its runs."]
    return "\n".join([*([shown.state, ""] if shown.state else []), *lines])


def _square(page: str, column: str, interval: Interval) -> str:
    return f"[{in_words(interval)}](atlas/{page}{f'#{column}' if column != 'mean' else ''})"


def says(shown: Shown) -> str:
    """The sentences that the statistics carry, when all runs have ended."""
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
            behind = [name for name in found.mean if found.apart(best, name)]
            lines += [
                f"Over {found.tests} tests the mean ranks of {len(found.mean)} cells differ (Friedman, {p}). Two cells "
                f"are shown to differ if their mean ranks are more than {found.difference:.1f} apart (Nemenyi, 5 %).",
                f"The best mean rank, {found.mean[best]:.1f}, is that of `{best}`. It is shown to be better than "
                f"{joined(behind, '`{}`'.format)}; than the other {len(found.mean) - 1 - len(behind)} it is not.",
            ]
        lines.append(f"![Mean ranks](../results/{shown.atlas.name}/ranks.png)")
    for ability, what in shown.atlas.abilities.items():
        order = sorted(shown.intervals, key=lambda name, a=ability: -shown.intervals[name][a].value)  # type: ignore[misc]
        top = [f"`{name}` {in_words(shown.intervals[name][ability])}" for name in order[:3]]
        floor = [name for name in order if (high := shown.intervals[name][ability].high) is not None and high < 0.05]
        none = f" At most .05 with 95 %: {joined(floor, '`{}`'.format)}." if floor else ""
        lines.append(f"**{ability}** ({what}): the highest means are {joined(top)}.{none}")
    return "\n\n".join(lines)


def of_cell(shown: Shown, name: str) -> str:
    """The page of a cell: for each rung its scores, the command of its runs, and their curves."""
    cell = shown.cells[name]
    lines = [f"# {shown.tables.title}: {name}", "", f"[The atlas](../atlas.md) · [{name}](../models/{name}.md) · "]
    lines[-1] += f"{cell.parameters:,} parameters, learning rate {shown.tables.rates[name]:g}"
    for ability, what in shown.atlas.abilities.items():
        lines += ["", f"## {ability}", "", f"To {what}: {in_words(shown.intervals[name][ability])}."]
        for rung in shown.atlas.of(ability):
            found = scores.of_rows(shown.atlas, shown.rows)
            each = {s.seed: s for s in found if (s.cell, s.rung) == (name, rung.name)}
            rows = {row.seed: row for row in shown.rows if row.axes["model"] == name and _of(row, rung)}
            curves = [_linked(cell.scores[rung.name][seed], rows[seed], shown.atlas.name) for seed in each]
            settings = shown.atlas.run(rung, shown.tables.model(name, rung), shown.tables.rates[name], 0)
            words = [f"{key}={spell(value)}" for key, value in settings.items() if key != "seed"]
            seeds = ",".join(map(str, shown.atlas.seeds))
            lines += ["", f"`{rung.name}`, scores by seed (with their curves): {' '.join(curves)}", "", "```sh"]
            lines += [f"python train.py -m {' '.join(words)} seed={seeds}", "```"]
    return "\n".join(lines) + "\n"


def _linked(score: float, row: Row, table: str) -> str:
    text = pictures.two_digits(score)
    if row.status == State.DIVERGED.value:  # perhaps before the first point of a curve
        return f"{text} (diverged)"
    return f"[{text}](../../results/{table}/curves/{row.id}.csv)"


def _of(row: Row, rung: Rung) -> bool:
    return all(row.axes.get(key) in (value, [value]) for key, value in rung.settings.items())
