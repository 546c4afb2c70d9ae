"""Compute everything that a report shows: a table with its runs and its verdicts. Nothing is trained."""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from timescales.config.compose import Composer
from timescales.config.run import Axes, Run
from timescales.papers import judge, ladder, load, reanalysed
from timescales.papers.judge import Verdict
from timescales.papers.ladder import LadderClaim
from timescales.papers.table import PAPER, Cell, Claim, Table, expand
from timescales.reports import gather
from timescales.runs.store import Row

Item = TypeVar("Item", Claim, Cell)


@dataclass(frozen=True)
class Judged(Generic[Item]):
    """A claim or a printed value, with its verdict under each value of the settings that its paper does not state."""

    items: Sequence[Item]
    verdicts: Sequence[Verdict]

    @property
    def item(self) -> Item:
        """Return the claim or the value under the first view."""
        return self.items[0]

    @property
    def word(self) -> str:
        """Return the one word for the item: a decision only if all views agree."""
        words = {verdict.word for verdict in self.verdicts}
        return judge.NOT_RUN if judge.NOT_RUN in words else judge.UNDECIDED if len(words) > 1 else words.pop()


@dataclass(frozen=True)
class Report:
    """A table with its runs and their verdicts.

    `rows` and `planned` are by size: "paper", the names of the ladder's rungs, "rates".
    """

    table: Table
    rows: Mapping[str, Sequence[Row]]
    planned: Mapping[str, Sequence[Axes]]  # the settings of all runs, including those in `missing`
    results: Path  # where committed runs and curves are stored
    out: Path  # where the report is written
    missing: Sequence[str] = ()  # why some runs cannot be composed here
    open_runs: Mapping[str, Sequence[tuple[Run, float | None]]] = field(default_factory=dict)  # with their seconds
    dropped: int = 0  # committed runs that the table no longer has
    own: bool = False  # a table in the user's own folder, which make does not know
    unread: Sequence[str] = ()  # metrics that the table reads and no run here has, a line each
    composed: Mapping[str, Run] = field(default_factory=dict)  # all runs that can be composed, by id

    @property
    def folder(self) -> Path:
        """Return the folder of the report."""
        return self.out / self.table.name

    @property
    def all_rows(self) -> list[Row]:
        """Return the rows of all sizes, each run once. Rungs of a ladder may share runs."""
        return list({row.id: row for rows in self.rows.values() for row in rows}.values())

    @functools.cached_property
    def judged(self) -> tuple[list[Verdict], list[Verdict]]:
        """Return the verdicts on all claims and all values at the paper's size, in the table's order."""
        return judge.judge(self.table, self.rows[PAPER])

    @property
    def claims(self) -> list[Judged[Claim]]:
        """Return the paper's conclusions, or the hypotheses of our own study, each once."""
        return [each for each in self.every_claim if each.item.decides]

    @property
    def every_claim(self) -> list[Judged[Claim]]:
        """Return all claims, each once, including our own ones that decide nothing."""
        return _by_number(self.table.claims, self.judged[0])

    @property
    def values(self) -> list[Judged[Cell]]:
        """Return the printed values, each once; in a study of our own, the values that it measures."""
        return _by_number(self.table.cells, self.judged[1])

    @property
    def study(self) -> bool:
        """Return whether it is a study of our own, or one of a user's with hypotheses, not a table of a paper."""
        return self.table.paper == "ours" or any(claim.hypothesis for claim in self.table.claims)

    @property
    def counts(self) -> tuple[Counter[str], Counter[str]]:
        """Return the number of conclusions, and of printed values, with each word.

        Not counted are items that a setting was chosen by, and values that are not printed.
        """
        conclusions = Counter(each.word for each in self.claims if not each.item.calibrated)
        printed = (each for each in self.values if each.item.value is not None and not each.item.calibrated)
        return conclusions, Counter(each.word for each in printed)

    @functools.cached_property
    def ladder_claims(self) -> list[LadderClaim]:
        """Return the claims of the ladder, each over its rungs."""
        return ladder.ladder_claims(self.table, self.rows)

    @functools.cached_property
    def reanalysed(self) -> list[reanalysed.Evidence]:
        """Return what the authors' published models and the data show about the table's values and claims."""
        return reanalysed.judge(self.table, reanalysed.read(self.results))

    def open_seconds(self, size: str = PAPER) -> list[float | None]:
        """Estimate the time of each open run of a size, on a machine like those that were timed; None if unknown."""
        return [seconds for _, seconds in self.open_runs.get(size, ())]

    def curve(self, row: Row) -> list[dict[str, float]]:
        """Return a run's curve: from its record, as committed with any table, or from the last report in `out`."""
        if row.curve:
            return [dict(point) for point in row.curve]
        return gather.curve(row.id, self.table.name, self.results, self.out)

    def trivial_baselines(self, row: Row) -> dict[str, float]:
        """Return what `Task.trivial_baselines` of a run's task reach; {} without data. Imports torch."""
        from timescales.errors import MissingData
        from timescales.training import build

        try:
            return build.build_task(self.composed[row.id].config, "cpu").trivial_baselines()
        except MissingData:
            return {}


def _by_number(items: Sequence[Item], verdicts: Sequence[Verdict]) -> list[Judged[Item]]:
    found: dict[int, list[tuple[Item, Verdict]]] = {}
    for item, verdict in zip(items, verdicts, strict=True):
        found.setdefault(item.number, []).append((item, verdict))
    return [Judged([i for i, _ in each], [v for _, v in each]) for each in found.values()]


def make(
    name: str, composer: Composer, results: Path, runs: Path | None = None, own: bool = False, out: Path | None = None
) -> Report:
    """Make the report of a table.

    Runs that cannot be composed, for example because a task does not exist, are listed in it. Raises ConfigError if
    there is no such table.

    Args:
        results: where committed runs are stored.
        runs: where trained runs are stored that count too. None: only committed runs count, and those of the last
            report in `out`.
        own: whether the table is in the user's own folder.
        out: where the report is written, by default `results`.
    """
    table = load.table(name)
    composed, missing = gather.planned_runs(table, composer)
    rows, dropped = gather.gather(table, composed, results, runs, out)
    return Report(
        table=table,
        rows={size: [row for row in of_size if not row.stale] for size, of_size in rows.items()},
        planned={size: expand(table, size) for size in table.sizes},
        results=results,
        out=out or results,
        missing=missing,
        open_runs={size: gather.open_runs(table.sizes[size], composed[size], rows[size], results) for size in rows},
        dropped=dropped,
        own=own,
        unread=gather.unread(table, composed, runs) if runs else [],
        composed={run.id: run for of_size in composed.values() for run in of_size},
    )
