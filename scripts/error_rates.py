"""Count how often each verdict comes out where the truth is known: `python scripts/error_rates.py`.

Runs are drawn from known distributions, with a fixed seed, and judged by timescales/papers/judge.py. Writes
results/statistics/README.md, in about two minutes on one core. --draws N draws fewer times.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import paths  # noqa: E402
from timescales.files import write_atomic  # noqa: E402
from timescales.papers import judge  # noqa: E402
from timescales.papers.judge import Interval  # noqa: E402
from timescales.papers.ladder import FLAT  # noqa: E402
from timescales.reports.markdown import grid  # noqa: E402

INF = math.inf
INTRO = f"""\
# How often each verdict comes out where the truth is known

Written by `python scripts/error_rates.py`. Runs are drawn from known distributions, by a fixed seed, and judged by the
rules of [docs/statistics.md](../../docs/statistics.md). Units are standard deviations of a run. n is the number of runs
of each side. Of a ladder, *flat* is a change by less than 2 standard deviations over the ladder; the project's default
for times is a factor of {FLAT}.
"""
Draw = Callable[[float, int], np.ndarray]
Row = list[str | int]


class Simulation:
    """Draws runs and counts verdicts."""

    def __init__(self, draws: int) -> None:
        self.draws, self.random = draws, np.random.default_rng(1)

    def normal(self, mean: float, n: int) -> np.ndarray:
        """Draw the values of runs that spread by 1."""
        return self.random.normal(mean, 1.0, n)

    def falling(self, share: float) -> Draw:
        """Draw runs of which a share falls to chance, 30 standard deviations below."""
        return lambda mean, n: self.normal(mean, n) - 30.0 * (self.random.random(n) < share)

    def row(self, name: str, n: int, place: Callable[[], int], draws: int | None = None) -> Row:
        """Count how often an interval lies inside, outside and across: a row of a table."""
        times = draws or self.draws
        found = Counter(place() for _ in range(times))
        return [name, n, *(f"{100 * found[where] / times:.1f}" for where in (1, -1, 0))]

    def tables(self) -> Iterable[tuple[str, Sequence[str], list[Row]]]:
        """The title, the words and the rows of each table."""
        claim, value, trend = ("holds", "refuted"), ("agrees", "differs"), ("grows", "shrinks or flat")
        yield "A better than B: the difference of means", claim, self.differences(judge.contrast_of)
        yield "A better than B by ranks, where a table names chance", claim, self.differences(judge.ranks_of)
        yield "A like B, within 2 standard deviations", claim, self.likeness()
        yield "A printed value: mean and spread of 5 runs of the paper, margin 2 printed spreads", value, self.values()
        yield "Times to a threshold (their logarithm spreads by .5): A faster than B", claim, self.times()
        yield "A fails: more than half of its runs", claim, self.rates()
        yield "A fails more often than B", claim, self.more_often()
        yield "A better than B at the best of four learning rates (0, -.5, -1, -3)", claim, self.best_rates()
        yield "Four rungs, each twice the size of the one before: the slope of the effect", trend, self.slopes()

    def differences(self, of: Callable[[judge.Values, judge.Values], Interval]) -> list[Row]:
        """A better than B."""

        def place(a: Draw, b: Draw, apart: float, n: int) -> int:
            return of(a(apart, n), b(0, n)).place(0, INF)

        fifth, two_fifths = self.falling(0.2), self.falling(0.4)
        truths: list[tuple[str, Draw, Draw, float]] = [
            ("equal", self.normal, self.normal, 0),
            ("A 1 better", self.normal, self.normal, 1),
            ("A 2 better", self.normal, self.normal, 2),
            ("A 3 better", self.normal, self.normal, 3),
            ("equal, 1 run in 5 falls", fifth, fifth, 0),
            ("A 2 better, 1 run in 5 of both falls", fifth, fifth, 2),
            ("A never falls, 2 in 5 of B do", self.normal, two_fifths, 0),
        ]
        return [self.row(name, n, partial(place, a, b, d, n)) for name, a, b, d in truths for n in (3, 5, 10)]

    def likeness(self) -> list[Row]:
        """A like B."""

        def place(apart: float, n: int) -> int:
            return self.difference(apart, n).place(-2, 2)

        return [self.row(f"{d} apart", n, partial(place, d, n)) for d in (0, 1, 2, 4) for n in (3, 5, 10)]

    def difference(self, apart: float, n: int) -> Interval:
        """The difference of two models that are so far apart."""
        return judge.contrast_of(self.normal(apart, n), self.normal(0, n))

    def values(self) -> list[Row]:
        """A printed value; of runs that fall the paper's do so, too, or not."""

        def place(ours: Draw, paper: Draw, apart: float, n: int) -> int:
            printed = paper(0, 5)
            margin = 2 * printed.std(ddof=1)
            told = judge.contrast([ours(apart, n)], [1])
            return told.place(printed.mean() - margin, printed.mean() + margin)

        fifth, two_fifths = self.falling(0.2), self.falling(0.4)
        truths: list[tuple[str, Draw, Draw, float]] = [
            *((f"{d} away" if d else "as printed", self.normal, self.normal, d) for d in (0, 1, 2, 3, 4, 6)),
            ("as printed, 1 run in 5 of both falls", fifth, fifth, 0),
            ("2 in 5 of ours fall, none of the paper's", two_fifths, self.normal, 0),
        ]
        return [self.row(name, n, partial(place, a, b, d, n)) for name, a, b, d in truths for n in (3, 5, 10)]

    def times(self) -> list[Row]:
        """A faster than B; a time beyond the last step is known only as later."""

        def place(factor: float, last: float, n: int) -> int:
            sides = [np.exp(self.random.normal(math.log(100 / f), 0.5, n)) for f in (factor, 1)]
            first, second = ([(last, INF) if x > last else (x, x) for x in side] for side in sides)
            return judge.shift(second, first).place(0, INF)

        truths = [("equal", 1, INF), ("A twice as fast", 2, INF), ("A four times as fast", 4, INF)]
        truths += [("A four times as fast, half of B never get there", 4, 100), ("equal, half never get there", 1, 100)]
        return [self.row(name, n, partial(place, f, last, n)) for name, f, last in truths for n in (3, 4, 5, 10)]

    def failed(self, share: float, n: int) -> Interval:
        """The share of n runs that fail."""
        return judge.rate(int(self.random.binomial(n, share)), n)

    def rates(self) -> list[Row]:
        """A fails."""

        def place(p: float, n: int) -> int:
            return self.failed(p, n).place(0.5, INF)

        return [
            self.row(f"{p:.0%} of its runs fail", n, partial(place, p, n))
            for p in (0.1, 0.4, 0.5, 0.6, 0.9, 1.0)
            for n in (3, 5, 10)
        ]

    def more_often(self) -> list[Row]:
        """A fails more often than B."""

        def place(p: float, q: float, n: int) -> int:
            return judge.combined([self.failed(p, n), self.failed(q, n)], (1, -1)).place(0, INF)

        return [
            self.row(f"{p:.0%} against {q:.0%}", n, partial(place, p, q, n))
            for p, q in ((0.2, 0.2), (0.5, 0.5), (0.6, 0.2), (0.9, 0.1))
            for n in (3, 5, 10)
        ]

    def best_rates(self) -> list[Row]:
        """A better than B, each at its best learning rate."""
        rates = np.array([0, -0.5, -1, -3.0])[:, None]

        def place(apart: float, n: int) -> int:
            sides = [self.random.normal(rates + x, 1, (4, n)) for x in (apart, 0)]
            return judge.contrast_of(*(side[side.mean(1).argmax()] for side in sides)).place(0, INF)

        return [self.row(f"A {d} better" if d else "equal", n, partial(place, d, n)) for d in (0, 1, 2) for n in (3, 5)]

    def slopes(self) -> list[Row]:
        """The slope of an effect over four rungs."""
        x = np.arange(4) - 1.5

        def place(step: float, n: int) -> int:
            slope = judge.combined([self.difference(1 + step * k, n) for k in range(4)], [*(x / (x @ x))])
            where = slope.place(0, INF)
            return where or (-1 if slope.place(-2 / 3, 2 / 3) == 1 else 0)

        return [
            self.row(f"{d} more with each doubling" if d else "the effect stays", n, partial(place, d, n))
            for d in (0, 0.5, 1)
            for n in (3, 5, 10)
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--draws", type=int, default=4000, help="how often runs are drawn for each row")
    parser.add_argument("--to", type=Path, default=paths.RESULTS / "statistics" / "README.md")
    options = parser.parse_args()
    lines = [INTRO]
    for title, (yes, no), rows in tqdm(Simulation(options.draws).tables(), total=9, desc="tables"):
        lines += [f"## {title}", "", *grid(["truth", "n", f"{yes} %", f"{no} %", "undecided %"], rows), ""]
    options.to.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(options.to, "\n".join(lines).encode())
    print(f"written: {options.to}")


if __name__ == "__main__":
    main()
