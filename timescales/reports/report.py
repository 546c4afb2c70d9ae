"""A table and what its runs say of it: all that a report shows is computed here. The pages only write it."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from timescales.config import Config
from timescales.config.compose import Composer
from timescales.config.run import Axes, Run
from timescales.config.schema import MODEL_DEFAULTS
from timescales.papers import load, reanalysed
from timescales.papers.cells import in_unit, judge_cells, judge_selection, spread, typical
from timescales.papers.claims import judge_claims
from timescales.papers.table import SIZES, Grid, Row, Select, SmallTable, Table, Where, expand, matches
from timescales.papers.verdict import CellResult, ClaimResult, Verdict, Word, judge_small, judge_table
from timescales.reports import gather
from timescales.runs.metrics import is_steps

OF_EVERY_MODEL = {f"model.{key}": value for key, value in MODEL_DEFAULTS.items()}

if TYPE_CHECKING:  # needed only where small-scale versions are reported
    import pandas


@dataclass(frozen=True)
class Price:
    """What the open runs will take."""

    timed: int  # runs of a kind whose cost is known, and
    seconds: float  # what they take together
    untimed: int  # the other runs


def price(each: Collection[float | None]) -> Price:
    """What open runs will take together; each: the seconds of one, if they are known."""
    timed = [seconds for seconds in each if seconds is not None]
    return Price(len(timed), sum(timed), len(each) - len(timed))


@dataclass(frozen=True)
class Difference:
    """LSTM minus MTS perplexity on words of some frequency, by paired bootstrap over blocks of the same words."""

    where: Axes  # the settings of the two runs
    words: str
    mean: float
    interval: tuple[float, float]  # 95 %
    authors_interval: tuple[float, float]  # 99.9 %


@dataclass(frozen=True)
class Setting:
    """A configuration of the small-scale version, and the values of its runs in the table's unit."""

    axes: Axes
    runs: int
    values: Sequence[float]  # of every run that has one
    mean: float | None  # of those that count; of steps to a threshold the median
    sd: float | None
    failed: int
    minutes: float  # the mean of a run


@dataclass(frozen=True)
class Origin:
    """Where the numbers of one size come from."""

    size: str
    hours: Mapping[tuple[str | None, int | None], float]  # by machine and threads
    commits: Sequence[str]
    partial: Sequence[str]  # what runs lacked of the whole data


@dataclass(frozen=True)
class Report:
    """A table, its runs as far as there are any, and what they say.

    `rows` and `planned` are by size: "paper", and "tiny" for the small-scale version.
    """

    table: Table
    rows: Mapping[str, Sequence[Row]]
    planned: Mapping[str, Sequence[Axes]]  # the axes of all its runs, also of those in `missing`
    results: Path  # where reports and committed curves lie
    missing: Sequence[str] = ()  # why some runs cannot be composed here
    open_runs: Sequence[tuple[Run, float | None]] = ()  # each with the seconds that it will take, if they are known
    dropped: int = 0  # committed runs that are not the table's any more
    kinds: set[str] = field(default_factory=set)  # `Run.cost_key` of all runs that can be composed
    own: bool = False  # a table in the user's own folder, which make does not know
    unread: Sequence[str] = ()  # what the table reads and no run here has, a line each
    configs: Mapping[str, Config] = field(default_factory=dict)  # of all runs that can be composed, by id

    @property
    def folder(self) -> Path:
        """Where the report lies."""
        return self.results / self.table.name

    @property
    def all_rows(self) -> list[Row]:
        """The rows of both sizes."""
        return [row for rows in self.rows.values() for row in rows]

    def complete(self, size: str) -> bool:
        """Whether all runs of a size have ended."""
        return len(self.rows[size]) >= len(self.planned[size])

    @functools.cached_property
    def cells(self) -> list[CellResult]:
        """The printed values, judged."""
        return judge_cells(self.table.cells, self.rows["paper"])

    @functools.cached_property
    def claims(self) -> list[ClaimResult]:
        """The claims, judged by the runs of the paper's size."""
        return self._judged(self.table, "paper")

    @functools.cached_property
    def small_claims(self) -> list[ClaimResult]:
        """The claims of the small-scale version, judged by its runs."""
        return self._judged(self.table.tiny, "tiny") if self.table.tiny else []

    def _judged(self, table: Table, size: str) -> list[ClaimResult]:
        return judge_claims(table.claims, self.rows[size], self.planned[size])

    @functools.cached_property
    def verdict(self) -> Verdict:
        """The table's verdict, at the paper's size."""
        return judge_table(self.cells, self.claims, self.rows["paper"], self.complete("paper"))

    @functools.cached_property
    def small_verdict(self) -> Verdict:
        """The verdict of the small-scale version."""
        claims = [result.verdict for result in self.small_claims]
        return judge_small(self.table, claims, self.rows["tiny"], self.complete("tiny"))

    @functools.cached_property
    def other_selections(self) -> dict[Select, list[CellResult]]:
        """The cells as they are if the runs' values had been selected in another way."""
        rows = self.rows["paper"]
        return {select: judge_selection(self.cells, select, rows) for select in self.table.other_selections()}

    @functools.cached_property
    def reanalysed(self) -> list[reanalysed.Evidence]:
        """What the authors' published models and the data alone say of its values and claims."""
        return reanalysed.judge(self.table, reanalysed.read(self.results))

    @property
    def useful_runs(self) -> Sequence[tuple[Run, float | None]]:
        """The open runs; none of a table of which nothing can be decided."""
        return [] if self.verdict.word == Word.CANNOT else self.open_runs

    def price_of(self, where: Where) -> Price:
        """What the open runs with these settings will take on a machine like those that were timed."""
        return price([seconds for run, seconds in self.useful_runs if matches(run.axes, where)])

    def curve(self, row: Row) -> list[dict[str, float]]:
        """A run's curve."""
        return gather.curve(self.table, row, self.results)

    def floors(self, row: Row) -> dict[str, float]:
        """What simple rules reach on a run's task, by their words (`Task.floors`); {} without data. Imports torch."""
        from timescales.errors import MissingData
        from timescales.training import build

        try:
            return build.build_task(self.configs[row.id], "cpu").floors()
        except MissingData:
            return {}

    @functools.cached_property
    def bootstrap(self) -> list[Difference]:
        """Differences of perplexity between LSTM and MTS runs on the same words."""
        return _bootstrap(self.rows["paper"]) if "bins" in self.table.probe else []

    @functools.cached_property
    def small_settings(self) -> list[Setting]:
        """The configurations of the small-scale version that have runs, in their order."""
        return _settings(self.table.tiny, self.rows["tiny"]) if self.table.tiny else []

    @functools.cached_property
    def small_shared(self) -> Axes:
        """The settings that all runs of the small-scale version share beyond the paper's."""
        if self.table.tiny is None:
            return {}
        first, *others = (grid.settings for grid in self.table.tiny.sets or (Grid({}),))
        varying = varying_axes(self.rows["tiny"])
        shared = {
            key: value for key, value in first.items() if all(key in other and other[key] == value for other in others)
        }
        return {key: value for key, value in shared.items() if key not in varying}

    @property
    def origins(self) -> list[Origin]:
        """Where the numbers come from, by size."""
        return [_origin(size, rows) for size, rows in self.rows.items()]


def make(name: str, composer: Composer, results_dir: Path, runs_dir: Path | None = None, own: bool = False) -> Report:
    """The report of the table of this name.

    Runs that cannot be composed (a task that is not there) are named in it. Raises ConfigError if there is no table.

    Args:
        results_dir: where reports and committed runs lie.
        runs_dir: where trained runs lie that count too; None: only committed ones count.
        own: whether the table lies in the user's own folder.
    """
    table = load.table(name)
    composed, missing = gather.planned_runs(table, composer)
    rows, dropped = gather.gather(table, composed, results_dir, runs_dir)
    return Report(
        table=table,
        rows=rows,
        planned={size: expand(table, profile) for size, profile in SIZES.items()},
        results=results_dir,
        missing=missing,
        open_runs=gather.open_runs(composed["paper"], rows["paper"], results_dir),
        dropped=dropped,
        kinds={run.cost_key for of_size in composed.values() for run in of_size},
        own=own,
        unread=gather.unread(table, composed, runs_dir) if runs_dir else [],
        configs={run.id: run.config for of_size in composed.values() for run in of_size},
    )


def by_paper(reports: Iterable[Report]) -> dict[str, list[Report]]:
    """The reports of each paper's tables, and those of our own studies ("ours")."""
    papers: dict[str, list[Report]] = {}
    for report in reports:
        papers.setdefault(report.table.paper, []).append(report)
    return papers


def name_of(paper: Sequence[Report]) -> str:
    """The name of the paper whose reports these are: "Chien et al. 2021"."""
    return paper[0].table.source.split(",")[0]


def settings_frame(rows: Sequence[Row]) -> pandas.DataFrame:
    """The settings of runs as text, a row for each run; where a run does not have a setting, NaN.

    One that every model has is at its default where a run does not name it.
    """
    import pandas

    frame = pandas.DataFrame([{key: str(value) for key, value in row.axes.items()} for row in rows])
    return frame.fillna({key: str(value) for key, value in OF_EVERY_MODEL.items() if key in frame})


def varying_axes(rows: Sequence[Row]) -> list[str]:
    """The settings, except the seed, that have several values among those runs that have them."""
    frame = settings_frame(rows)
    return [key for key in frame.columns if key != "seed" and frame[key].nunique() > 1]


def _settings(table: SmallTable, rows: Sequence[Row]) -> list[Setting]:
    """The rows of a small-scale version by configuration."""
    if not rows:
        return []
    keys = varying_axes(rows)
    groups = settings_frame(rows).groupby(keys or (lambda _: 0), sort=False, dropna=False)
    return [_setting(table, keys, [rows[k] for k in group.index]) for _, group in groups]


def _setting(table: SmallTable, keys: Sequence[str], rows: Sequence[Row]) -> Setting:
    column = table.column
    everyone = is_steps(column)  # a run that failed has a value, too, as in claims
    counted = [row for row in rows if everyone or table.succeeded(row)]
    values = [in_unit(table, value) for row in counted if (value := row.value(column)) is not None]
    return Setting(
        axes={key: rows[0].axes.get(key, OF_EVERY_MODEL.get(key, "")) for key in keys},
        runs=len(rows),
        values=[in_unit(table, value) for row in rows if (value := row.value(column)) is not None],
        mean=typical(table, values) if values else None,
        sd=spread(table, values),
        failed=len(rows) - len(counted),
        minutes=statistics.fmean(row.seconds for row in rows) / 60,
    )


def _bootstrap(rows: Sequence[Row]) -> list[Difference]:
    from timescales.analysis import bins

    pairs: dict[str, tuple[Axes, dict[str, str]]] = {}
    for row in rows:
        if row.blocks:
            where: Axes = {key: value for key, value in row.axes.items() if key.partition(".")[0] != "model"}
            pairs.setdefault(str(where), (where, {}))[1][row.axes["model"]] = row.blocks
    differences = []
    for where, texts in pairs.values():
        if {"lstm", "mts"} <= set(texts):
            found = bins.summary(bins.resampled(texts["lstm"], texts["mts"]))
            for k, words in enumerate((*bins.NAMES, "all")):
                value = {key: float(values[k]) for key, values in found.items()}
                interval = (value["low"], value["high"])
                authors = (value["authors_low"], value["authors_high"])
                differences.append(Difference(where, words, value["mean"], interval, authors))
    return differences


def _origin(size: str, rows: Sequence[Row]) -> Origin:
    hours: dict[tuple[str | None, int | None], float] = {}
    for row in rows:
        device = row.machine, row.threads
        hours[device] = hours.get(device, 0.0) + row.seconds / 3600
    commits = sorted({str(row.commit) for row in rows})
    return Origin(size, hours, commits, sorted({row.partial for row in rows if row.partial}))
