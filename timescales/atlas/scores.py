"""Read the scores of cells: from rows of runs, and from the committed file, which is part of the package.

The file is part of the package so that a card can be written without a checkout.
"""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from timescales.atlas.definition import Atlas, Rung
from timescales.atlas.tables import listed, measured
from timescales.files import csv_rows, csv_text
from timescales.papers.table import matches
from timescales.runs.store import Row

COMMITTED = Path(__file__).with_name("scores.csv")


class Score(NamedTuple):
    """A line of scores.csv: a run of a cell on a rung. value: of the rung's metric; None if the run diverged."""

    cell: str
    rung: str
    seed: int
    value: float | None
    parameters: int


@dataclass(frozen=True)
class Cell:
    """The scores of a cell on some rungs."""

    name: str
    scores: Mapping[str, Mapping[int, float]]  # by rung and seed
    parameters: int = 0  # the mean over the rungs

    def has(self, rungs: Iterable[Rung]) -> bool:
        """Return whether it has scores on all of these rungs, and one seed on all of them."""
        return bool(set.intersection(*(set(self.scores.get(rung.name, {})) for rung in rungs)))

    def mean(self, rung: Rung) -> float:
        """Return its mean score on a rung."""
        return statistics.fmean(self.scores[rung.name].values())

    def of(self, rungs: Iterable[Rung]) -> Any:
        """Return an array (rungs, seeds) of the seeds that it has on all of these rungs."""
        import numpy as np

        rungs = list(rungs)
        seeds = sorted(set.intersection(*(set(self.scores[rung.name]) for rung in rungs)))
        return np.array([[self.scores[rung.name][seed] for seed in seeds] for rung in rungs])

    def by_ability(self, rungs: Iterable[Rung]) -> dict[str, Any]:
        """Return arrays as `of` does, of the rungs of each ability."""
        found: dict[str, list[Rung]] = {}
        for rung in rungs:
            found.setdefault(rung.ability, []).append(rung)
        return {ability: self.of(own) for ability, own in found.items()}


def cells_of(atlas: Atlas, found: Iterable[Score]) -> dict[str, Cell]:
    """Return the cells by name, with their scores on the rungs of the atlas."""
    by_cell: dict[str, dict[str, dict[int, float]]] = {}
    sizes: dict[str, list[int]] = {}
    for each in found:
        if each.rung in atlas.rungs:
            of_rung = by_cell.setdefault(each.cell, {}).setdefault(each.rung, {})
            of_rung[each.seed] = atlas.rungs[each.rung].score(each.value)
            sizes.setdefault(each.cell, []).append(each.parameters)
    return {name: Cell(name, scores, round(statistics.fmean(sizes[name]))) for name, scores in by_cell.items()}


def of_rows(atlas: Atlas, rows: Iterable[Row]) -> list[Score]:
    """Compute the scores of runs on the rungs."""
    return [
        Score(row.axes["model"], rung.name, row.seed, measured(row, rung), row.parameters or 0)
        for row in rows
        for rung in atlas.rungs.values()
        if matches(row.axes, listed(rung.settings))
    ]


def committed(path: Path = COMMITTED) -> list[Score]:
    """Read the scores in the package; [] before the first runs are committed."""
    found = []
    for line in csv_rows(path):
        value = float(line["value"]) if line["value"] else None
        found.append(Score(line["cell"], line["rung"], int(line["seed"]), value, int(line["parameters"])))
    return found


def text(found: Iterable[Score]) -> str:
    """Write the text of scores.csv."""
    lines = [each._asdict() | {"value": "" if each.value is None else f"{each.value:.5g}"} for each in found]
    return csv_text(lines, Score._fields)
