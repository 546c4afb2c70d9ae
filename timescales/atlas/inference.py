"""Compute statistics of scores: means with intervals, differences, and which mean ranks differ.

The scores of a cell are an array (rungs, seeds) for each ability.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

RESAMPLES = 4000
ALPHA = 0.05

Scores = Mapping[str, Any]  # the scores of a cell: by ability an array (rungs, seeds)


class Interval(NamedTuple):
    """A value with its 95 % bootstrap interval. low and high are None if there is only one seed."""

    value: float
    low: float | None
    high: float | None

    @property
    def apart_from_0(self) -> bool:
        """Return whether the interval excludes 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Bootstrap:
    """A stratified bootstrap: it resamples the rungs of each ability and the seeds of each rung. Abilities stay.

    The same rungs are drawn for every cell, so that differences between two cells are differences on the same tests. An
    ability with one rung keeps it.
    """

    resamples: int = RESAMPLES

    def means(self, scores: Scores, ability: str, sample: int) -> Any:
        """Return the ability's mean score in each resample. sample: a number for each cell; each has its own seeds."""
        import numpy as np

        values = np.asarray(scores[ability], float)
        n, seeds = values.shape
        rungs = self._generator(ability, 0).integers(n, size=(self.resamples, n))
        drawn = self._generator(ability, 1 + sample).integers(seeds, size=(self.resamples, n, seeds))
        return values[rungs[:, :, None], drawn].mean((1, 2))

    def _generator(self, ability: str, number: int) -> Any:
        import numpy as np

        return np.random.default_rng([number, *ability.encode()])

    def of(self, scores: Scores, abilities: Sequence[str], other: Scores | None = None) -> Interval:
        """Estimate the mean over abilities or, with `other`, by how much it exceeds that of another cell."""
        import numpy as np

        def value(of_cell: Scores) -> float:
            return float(np.mean([np.mean(of_cell[ability]) for ability in abilities]))

        drawn = np.mean([self.means(scores, ability, 0) for ability in abilities], 0)
        cells, found = [scores], value(scores)
        if other is not None:
            cells.append(other)
            found -= value(other)
            drawn = drawn - np.mean([self.means(other, ability, 1) for ability in abilities], 0)
        if any(np.shape(cell[ability])[1] < 2 for cell in cells for ability in abilities):
            return Interval(found, None, None)
        low, high = np.quantile(drawn, [ALPHA / 2, 1 - ALPHA / 2])
        return Interval(found, float(low), float(high))


@dataclass(frozen=True)
class Ranks:
    """Mean ranks of cells over tests, the best first, and the smallest difference that Nemenyi's test shows.

    p: of Friedman's test that all cells are equal. Cells are only compared if p is below 5 %.
    """

    mean: Mapping[str, float]
    tests: int
    p: float
    difference: float

    @property
    def differ(self) -> bool:
        """Return whether Friedman's test shows that some cells differ."""
        return self.p < ALPHA

    def shown_to_differ(self, first: str, second: str) -> bool:
        """Return whether two cells are shown to differ."""
        return self.differ and abs(self.mean[first] - self.mean[second]) > self.difference

    def alike(self) -> list[list[str]]:
        """Return the largest groups of at least two neighbours in which no two cells are shown to differ."""
        names = list(self.mean)
        groups: list[list[str]] = []
        for k, name in enumerate(names):
            last = max(j for j in range(k, len(names)) if not self.shown_to_differ(name, names[j]))
            if last > k and (not groups or names[last] not in groups[-1]):
                groups.append(names[k : last + 1])
        return groups


def ranks(means: Mapping[str, Sequence[float]]) -> Ranks | None:
    """Rank cells (Friedman 1937, Nemenyi 1963; as in Demsar 2006). None for fewer than three cells or two tests.

    means: of each cell, its mean score on each test. Cells that are equal on a test share their ranks.
    """
    import numpy as np
    from scipy import stats

    values = np.array(list(means.values()), float)
    cells, tests = values.shape if values.ndim == 2 else (0, 0)
    if cells < 3 or tests < 2:
        return None
    mean = stats.rankdata(-values, axis=0).mean(1)
    alike = (values == values[0]).all()
    p = 1.0 if alike else float(stats.friedmanchisquare(*values).pvalue)
    q = float(stats.studentized_range.ppf(1 - ALPHA, cells, np.inf)) / np.sqrt(2)
    order = np.argsort(mean, kind="stable")
    named = list(means)
    found = {named[k]: float(mean[k]) for k in order}
    return Ranks(found, tests, p, float(q * np.sqrt(cells * (cells + 1) / (6 * tests))))


def spread(values: Sequence[Any]) -> float:
    """Return how many times as much cells differ as the seeds of a cell do, by standard deviations.

    values: the scores of each cell, of two seeds or more; cells may have different numbers of seeds. Infinite if the
    seeds of no cell differ.
    """
    import numpy as np

    between = np.std([np.mean(own) for own in values], ddof=1)
    within = np.sqrt(np.mean([np.var(own, ddof=1) for own in values]))
    return float(between / within) if within else float("inf")


def joined(words: Sequence[str], text: Callable[[str], str] = str) -> str:
    """Join words as a list in a sentence."""
    shown = [text(word) for word in words]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "none"
