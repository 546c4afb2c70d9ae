"""Count how often each verdict comes out where the truth is known: `python scripts/error_rates.py`.

Runs are drawn from known distributions, with a fixed seed, and judged by timescales/papers/judge.py. Writes
results/statistics/README.md, in about a minute on one core. --draws N draws fewer times.
"""

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
from timescales.reports.markdown import grid  # noqa: E402

INF = math.inf
INTRO = """\
# How often each verdict comes out where the truth is known

Written by `python scripts/error_rates.py`. Runs are drawn from known distributions, by a fixed seed, and judged by the
rules of [docs/statistics.md](../../docs/statistics.md). Units are standard deviations of a run. n is the number of runs
of each side.
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

    def row(self, name: str, n: int, place: Callable[[], int]) -> Row:
        """Count how often an interval is inside, outside and across: a row of a table."""
        found = Counter(place() for _ in range(self.draws))
        return [name, n, *(f"{100 * found[where] / self.draws:.1f}" for where in (1, -1, 0))]

    def tables(self) -> Iterable[tuple[str, Sequence[str], list[Row]]]:
        """Yield the title, the words and the rows of each table."""
        claim, value = ("holds", "refuted"), ("agrees", "differs")
        yield "A better than B: the difference of means", claim, self.differences(judge.contrast_of)
        yield "A better than B by ranks, where a table names chance", claim, self.differences(judge.ranks_of)
        yield "A like B, within 2 standard deviations", claim, self.likeness()
        yield "A printed value: mean and spread of 5 runs of the paper, margin 2 printed spreads", value, self.values()

    def differences(self, of: Callable[[judge.Values, judge.Values], Interval]) -> list[Row]:
        """Simulate claims that A is better than B."""

        def place(a: Draw, b: Draw, distance: float, n: int) -> int:
            return of(a(distance, n), b(0, n)).place(0, INF)

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
        """Simulate claims that A is like B."""

        def place(distance: float, n: int) -> int:
            return self.difference(distance, n).place(-2, 2)

        return [self.row(f"{d} apart", n, partial(place, d, n)) for d in (0, 1, 2, 4) for n in (3, 5, 10)]

    def difference(self, distance: float, n: int) -> Interval:
        """Return the interval of the difference of two models whose means have this distance."""
        return judge.contrast_of(self.normal(distance, n), self.normal(0, n))

    def values(self) -> list[Row]:
        """Simulate comparisons with a printed value. If runs fail, those of the paper may have failed, too."""

        def place(ours: Draw, paper: Draw, distance: float, n: int) -> int:
            printed = paper(0, 5)
            margin = 2 * printed.std(ddof=1)
            difference = judge.contrast([ours(distance, n)], [1])
            return difference.place(printed.mean() - margin, printed.mean() + margin)

        fifth, two_fifths = self.falling(0.2), self.falling(0.4)
        truths: list[tuple[str, Draw, Draw, float]] = [
            *((f"{d} away" if d else "as printed", self.normal, self.normal, d) for d in (0, 1, 2, 3, 4, 6)),
            ("as printed, 1 run in 5 of both falls", fifth, fifth, 0),
            ("2 in 5 of ours fall, none of the paper's", two_fifths, self.normal, 0),
        ]
        return [self.row(name, n, partial(place, a, b, d, n)) for name, a, b, d in truths for n in (3, 5, 10)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--draws", type=int, default=4000, help="how often runs are drawn for each row")
    parser.add_argument("--to", type=Path, default=paths.RESULTS / "statistics" / "README.md")
    options = parser.parse_args()
    if options.draws < 1:
        parser.error("--draws must be at least 1")
    lines = [INTRO]
    for title, (yes, no), rows in tqdm(Simulation(options.draws).tables(), total=4, desc="tables"):
        lines += [f"## {title}", "", *grid(["truth", "n", f"{yes} %", f"{no} %", "undecided %"], rows), ""]
    options.to.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(options.to, "\n".join(lines).encode())
    print(f"written: {options.to}")


if __name__ == "__main__":
    main()
