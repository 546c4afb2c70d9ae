"""The classes of a paper's table: printed values, claims, and the runs that they need.

`parse.py` makes a `Table` of the `table` node of conf/table/<name>.yaml. The classes below document the keys of that
file. A class is a node; its KEYS, or else the fields that are not FILLED, are the allowed keys. A key is the field of
the same name, unless a comment says otherwise. A key without a default is required. A cell or a claim inherits from its
table what it does not set itself (unit, better, tolerance, ...).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from timescales.config.run import Axes
from timescales.errors import ConfigError, nearest
from timescales.runs.metrics import STEPS_TO, is_steps
from timescales.runs.store import Row

Item = TypeVar("Item")
Number = float | int
Select = Literal["best", "last"]
Better = Literal["higher", "lower"]
Scale = Literal["linear", "log"]
Where = Axes  # which runs: settings, each with its value or a list of values
FILLED = {"key": None}  # of fields that code fills, not the file
PAPER = "paper"  # the name of the paper's size, beside the names of rungs
FIRST_SEED = 200  # first seed on a ladder: no seed that a size, rate or threshold was chosen by counts there
RATES = "rates"  # the name of the runs that a ladder's learning rates were chosen by
WITHIN = ("~", ">=")  # the signs that use the tolerance
FAILING = ("fails", "never fails", "sometimes fails")  # the signs of a claim about failures of one side
FAILS_MORE_OFTEN = "fails more often than"  # the sign of a claim that compares the failures of two sides


class Threshold(NamedTuple):
    """A threshold that a metric is to reach, such as "valid/accuracy > 0.5"."""

    metric: str
    reached: Callable[[float], bool]


@dataclass(frozen=True)
class Grid:
    """Settings, each with its value or a list of values; every combination is a run."""

    settings: Axes

    def values(self) -> dict[str, list[Any]]:
        """Return the list of values of each setting."""
        return {key: value if isinstance(value, list) else [value] for key, value in self.settings.items()}

    def has_model_of(self, other: Grid) -> bool:
        """Return whether it has one of the other grid's models, or whether the other grid names none."""
        models = other.values().get("model")
        return models is None or not set(models).isdisjoint(self.values().get("model", []))

    def __or__(self, other: Grid) -> Grid:
        """Return this grid, with settings of the other grid where it has them."""
        return Grid({**self.settings, **other.settings})


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What is read from a run, and how values are compared. Cells and claims inherit it from their table."""

    # "test/accuracy", a metric of a record; "steps to valid/accuracy >= 0.99", from the curve (a run that never gets
    # there has the last step that it took, as a censored value); or "probe/<analysis>/<value>", from an analysis.
    metric: str
    select: Select  # the value at the best validation, or the last one
    better: Better  # which values are better, for `>` of a claim and for `reduce`
    unit: str  # percent (records have fractions), or the metric's own, for people
    tolerance: Number  # in the printed unit: the largest difference that counts as none
    # How the runs of a cell become one value: their mean; the mean at the best of the learning rates at which all runs
    # succeeded and have a value; or the best single run, which has no interval.
    reduce: Literal["mean", "max", "best_lr"] = "mean"
    # Runs that do not reach it are failures, as are those that diverged. Claims count failures. The mean of a printed
    # value is without them, as in papers.
    success: Threshold | None = field(default=None, metadata={"yaml": str | None})
    # Runs that meet it ended at chance. If a table names it, its claims are judged by ranks: means lose power if some
    # runs stay at chance.
    chance: Threshold | None = field(default=None, metadata={"yaml": str | None})

    @property
    def column(self) -> str:
        """Return the column of runs.csv with the values."""
        return column(self.metric, self.select)

    @property
    def scale(self) -> float:
        """Return the factor from a record's unit to the printed one. Times stay in steps."""
        return 100.0 if self.unit == "percent" and not is_steps(self.metric) else 1.0

    @property
    def higher(self) -> bool:
        """Return whether larger values are better."""
        return self.better == "higher"

    def read(self, row: Row) -> float | None:
        """Return the value of a run in the printed unit; None if it has none."""
        value = row.value(self.column)
        return value if value is None or self.scale == 1.0 else value * self.scale

    def succeeded(self, row: Row) -> bool | None:
        """Return whether a run finished and reached `success`, if there is one; None if its value is unknown."""
        return row.status == "finished" and self.meets(self.success, row)

    def meets(self, threshold: Threshold | None, row: Row) -> bool | None:
        """Return whether a run reaches a threshold, if there is one; None if its value is unknown."""
        if threshold is None:
            return True
        value = row.value(column(threshold.metric, self.select))
        return None if value is None else threshold.reached(value)


@dataclass(frozen=True, kw_only=True)
class Cell(Measure):
    """A printed value."""

    value: Number | None  # null where the paper leaves the cell empty
    where: Where = field(default_factory=dict, metadata={"yaml": dict})  # its runs; {} for all of the table
    sd: Number | None = None  # standard deviation, or
    se: Number | None = None  # standard error of the mean
    n: int | None = None  # the paper's runs, with sd or se
    label: str = ""
    compute: str = ""  # a function of timescales/analysis that computes it from all runs: "two_delays.t"
    calibrated: bool = False  # a setting was chosen by looking at this value (see Assumption)
    at: str = ""  # where it is printed, if not where the table is
    # Filled by parse.py: the smallest difference to another value that the paper concludes from, and its planned runs.
    gap: float | None = field(default=None, metadata=FILLED)
    planned: int = field(default=0, metadata=FILLED)
    # Filled by assumptions.py: its place in the file, and its view in words, if it has several views.
    number: int = field(default=0, metadata=FILLED)
    under: str = field(default="", metadata=FILLED)

    @property
    def spread(self) -> float | None:
        """Return the printed standard deviation, computed from the standard error of n runs if that is printed."""
        if self.se is not None and self.n is not None:
            return self.se * math.sqrt(self.n)
        return self.sd

    @property
    def margin(self) -> float:
        """Return the largest difference that counts as none: the tolerance, or two printed spreads if they are larger.

        The spreads are cut to half of the smallest gap from which the paper concludes something.
        """
        wide = 2 * (self.spread or 0.0)
        return max(self.tolerance, wide if self.gap is None else min(wide, self.gap / 2))


@dataclass(frozen=True, kw_only=True)
class Claim(Measure):
    """A conclusion of a paper in one line, or in a mapping {claim: the line, and other keys}.

    "plstm > lstm @ task=pmnist": each side names settings of runs, and a bare word is a model. `>` is "better than",
    `~` "no different from" and `>=` "not worse than", the last two within the tolerance. Settings after `@` apply to
    both sides. "lstm fails" (more than half of its runs), "lstm sometimes fails", "plstm never fails" and "lstm fails
    more often than plstm" are about `success`.

    A claim names its source: `quote` and `at`; or `hypothesis` and `dated`, in a study of our own; or `ours`.
    """

    claim: str
    quote: str = ""  # the words of the paper that state it; [...] for what is left out
    at: str = ""  # where the quote is: paper, and section, caption or appendix
    # Why we expect it, and what would refute it. Best written before the first run of a side, on the day of `dated`.
    hypothesis: str = ""
    dated: str = ""  # "2026-11-25"
    ours: str = ""  # why we look at it, where the paper does not state it; such a claim decides nothing about the table
    than: str = ""  # another metric: in the runs of the only side, `metric` is better than this one
    times: Number = 1  # `>` by this factor
    by: Number = 0  # `>` by more than this, in the printed unit
    words: str = ""  # the claim in plain words, if its line is hard to understand
    of: str = ""  # in a rung's claim: the line of the paper's claim that it stands for
    calibrated: bool = False  # a setting was chosen by looking at this result (see Assumption)
    # Read from the line:
    sides: tuple[Where, ...] = field(default=(), metadata=FILLED)  # two; one with `than` or a sign of FAILING
    sign: str = field(default=">", metadata=FILLED)  # or one of WITHIN or FAILING, or FAILS_MORE_OFTEN
    place: Where = field(default_factory=dict, metadata=FILLED)
    text: str = field(default="", metadata=FILLED)  # the line, with the claim's other keys in words
    # Filled by assumptions.py: its place in the file, and the view under which it is judged, if it has several.
    number: int = field(default=0, metadata=FILLED)
    view: Where = field(default_factory=dict, metadata=FILLED)
    under: str = field(default="", metadata=FILLED)

    @property
    def decides(self) -> bool:
        """Return whether the claim counts for the table: a conclusion of a paper, or a hypothesis of a study."""
        return bool(self.quote or self.hypothesis)

    @property
    def has_own_metric(self) -> bool:
        """Return whether the claim names its metric, so that it may not be the table's."""
        return f"({self.metric}" in self.text

    @property
    def weights(self) -> tuple[float, float]:
        """Return the factors of the two sides' values whose sum says by how much the first side is better."""
        return (1.0, -float(self.times)) if self.higher else (-1.0, 1.0 / self.times)

    @property
    def columns(self) -> tuple[str, str]:
        """Return the columns of runs.csv that are compared, one for each side."""
        return self.column, column(self.than, self.select) if self.than else self.column

    def groups(self, runs: Iterable[Item], axes_of: Callable[[Item], Axes]) -> dict[str, list[list[Item]]]:
        """Group runs that share all settings but the seed and what the sides name. Return the groups' runs by side.

        Args:
            runs: runs outside the claim's view are skipped, and groups in which a side has no runs.
            axes_of: returns the settings of a run.
        """
        named = {"seed", *self.view}.union(*self.sides) | ({"optimizer.lr"} if self.reduce != "mean" else set())
        groups: dict[str, list[list[Item]]] = {}
        for run in runs:
            axes = axes_of(run)
            if matches(axes, self.place) and agrees(axes, self.view):
                for k in (k for k, side in enumerate(self.sides) if matches(axes, side)):
                    groups.setdefault(group(axes, named), [[] for _ in self.sides])[k].append(run)
        return {shared: sides for shared, sides in groups.items() if all(sides)}


@dataclass(frozen=True, kw_only=True)
class Cited:
    """A value that the paper cites from somebody else's model. It is never measured here."""

    label: str
    value: Number
    source: str
    sd: Number | None = None
    se: Number | None = None


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """A setting that the paper does not state."""

    said: str  # what is assumed, and from which source
    # Whether it was chosen by looking at a result. The values and claims that it was chosen by are marked too: reports
    # show them but do not count them.
    calibrated: bool = False
    # Values that runs of the table have, each in words. Printed values are judged under each (see assumptions.py).
    shown: Mapping[Any, str] = field(default_factory=dict, metadata={"yaml": dict})
    # In the file: `try`, other values worth a run. Reports name them.
    tries: tuple[Any, ...] = field(default=(), metadata={"key": "try", "yaml": list})


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A panel of figure.png."""

    kind: Literal["curves", "line", "probe", "times"]
    where: Where = field(default_factory=dict, metadata={"yaml": dict})  # the runs that it shows; by default all
    metric: str = ""  # drawn as curves or over `x`; by default the table's
    chance: Number | None = field(default=None, metadata={"yaml": Number})
    trivial_baselines: bool = False  # whether to draw what `Task.trivial_baselines` of the first run's task reach
    probe: str = ""  # an analysis; kind: probe draws its values "probe/<analysis>/<number>" over the number
    x: str = ""  # kind: line draws the metric over this setting
    xlabel: str = ""
    ylabel: str = ""
    xscale: Scale = "linear"
    yscale: Scale = "linear"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What people want to know from a table. by: the lines of the claims that answer it."""

    asks: str
    by: tuple[str, ...] = field(metadata={"yaml": list})


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the paper prints a table: the setting of its columns, and the settings of its rows."""

    columns: str
    rows: tuple[str, ...] = field(metadata={"yaml": list})


@dataclass(frozen=True, kw_only=True)
class Table(Measure):
    """A paper's table or figure."""

    name: str  # the name of its file
    title: str  # what is measured
    source: str  # where it is printed
    runs: tuple[Grid, ...] = field(metadata={"yaml": list})  # the runs are the union of the grids
    cells: tuple[Cell, ...] = field(metadata={"yaml": list})
    claims: tuple[Claim, ...] = field(metadata={"yaml": list})
    cited: tuple[Cited, ...] = field(default=(), metadata={"yaml": list})
    # By setting; `select: {try: [...]}` names other selections, which runs.csv has, too.
    assumed: Mapping[str, Assumption] = field(default_factory=dict, metadata={"yaml": dict})
    notes: tuple[str, ...] = field(default=(), metadata={"yaml": list})  # contradictions in the paper
    needs: tuple[str, ...] = field(default=(), metadata={"yaml": list})  # data sets (scripts/fetch_data.py)
    probe: tuple[str, ...] = field(default=(), metadata={"yaml": list})  # analyses measured for each finished run
    figure: tuple[Figure, ...] = field(default=(), metadata={"yaml": dict | list})
    ladder: Ladder | None = field(default=None, metadata={"yaml": dict})  # the same experiment at smaller sizes
    # The question that the table answers, in plain words, and in `by` the lines of the claims that answer it.
    question: Question | None = field(default=None, metadata={"yaml": dict})
    layout: Layout | None = field(default=None, metadata={"yaml": dict})  # reports show printed values so
    # What the paper says of its data: values and claims of metrics "data/..." that need no model (see reanalysed.py).
    data: tuple[Cell | Claim, ...] = field(default=(), metadata={"yaml": list})

    @property
    def paper(self) -> str:
        """Return the first word of the table's name: the paper's first author, or "ours"."""
        return self.name.split("_")[0]

    @property
    def sizes(self) -> dict[str, Table]:
        """Return the table at each of its sizes: "paper", then the rungs of its ladder from the smallest."""
        if self.ladder is None:
            return {PAPER: self}
        rates: dict[str, Table] = {RATES: self.ladder.rates} if self.ladder.rates else {}
        return {PAPER: self, **self.ladder.rungs, **rates}

    def size_of(self, word: str | None) -> str:
        """Return the size that a word names: None is the paper's, "small" the first rung. Raises ConfigError."""
        if word is None:
            return PAPER
        rungs = [name for name in self.sizes if name != PAPER]
        if word == "small" and rungs:
            return rungs[0]
        if word not in self.sizes:
            why = f": {self.ladder.none}" if self.ladder and self.ladder.none else ""
            choices = f"there are {', '.join(rungs)}" if rungs else f"{self.name} has no ladder{why}"
            raise ConfigError(f"rung={word}: no such rung{nearest(word, rungs)}; {choices}")
        return word

    def other_selections(self) -> list[Select]:
        """Return the selections, besides `select`, by which the paper may have chosen the values of its cells."""
        return list(self.assumed["select"].tries) if "select" in self.assumed else []


@dataclass(frozen=True)
class Competence:
    """When the runs of a rung can be compared: some setting succeeds, and not every setting is at the ceiling.

    Without this check, a rung whose models all fail, or all succeed at once, would show that they are alike.
    """

    reach: Threshold = field(metadata={"yaml": str})  # what runs must reach
    share: Number  # the share of runs, of at least one setting, that must reach it; else the rung is too short
    ceiling: Threshold | None = field(default=None, metadata={"yaml": str | None})  # too easy if all runs reach it


@dataclass(frozen=True, kw_only=True)
class Rung(Table):
    """A size of a table's ladder: the table's grids with other settings, and the claims that its runs decide."""

    KEYS: ClassVar[tuple[str, ...]] = (
        *("at", "differs", "set", "seeds", "steps", "claims", "metric", "select", "success", "chance", "tolerance"),
        "competence",
    )
    at: Number | None = None  # its size: the value of the ladder's `over`
    differs: str = ""  # in words, how its settings differ from the paper's
    seeds: int | None = None  # number of seeds, from 200 on, for grids that name no seeds
    steps: Number | None = None  # steps that a run typically takes if it may stop early; for the price
    claims: tuple[Claim, ...] = field(default=(), metadata={"yaml": list})
    # In the file: `set`, settings or a list of settings. Each changes all grids of the table; if it names models, only
    # the grids that have one of them.
    sets: tuple[Grid, ...] = field(metadata={"key": "set", "yaml": dict | list})
    competence: Competence | None = field(default=None, metadata={"yaml": dict})


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """The same experiment at several sizes, from minutes to hours on a CPU.

    `set` has settings that all rungs share. The keys `claims`, `metric`, `select`, `success`, `chance`, `tolerance` and
    `competence` are defaults for every rung.
    """

    over: str = ""  # what grows from rung to rung: a setting, or words ("parameters")
    shared: Where = field(default_factory=dict, metadata={"key": "set", "yaml": dict})
    rungs: Mapping[str, Rung] = field(default_factory=dict, metadata={"yaml": dict})  # by name, from the smallest
    # The runs that the learning rates of the rungs were chosen by. They have one seed, which is in no rung.
    rates: Rung | None = field(default=None, metadata={"yaml": dict})
    # "seed": a seed fixes the order of the data for all models, so values of the same seed are compared.
    pair: Literal["", "seed"] = ""
    none: str = ""  # why no smaller size can say anything about the table; then there are no rungs


def column(metric: str, select: Select) -> str:
    """Return the column of runs.csv for a metric and how its value is selected: "last test/accuracy"."""
    selected = is_steps(metric) or metric.startswith(("probe/", "data/", "best ", "last "))  # in one way only
    return metric if selected else f"{select} {metric}"


def metric_of(column: str) -> str:
    """Return the metric that a column is computed from: valid/loss, of "steps to valid/loss < 1"."""
    return re.sub(rf"^({STEPS_TO})?(best |last )?", "", column).split()[0]


def columns(table: Table) -> list[str]:
    """Return the columns of runs.csv that a table reads, without the further values of its analyses."""
    names: list[str] = []
    for part in table.sizes.values():
        for each in (part, *part.cells, *part.claims):
            names += each.columns if isinstance(each, Claim) else [each.column]
            names += [column(threshold.metric, each.select) for threshold in (each.success, each.chance) if threshold]
        metrics = [figure.metric for figure in part.figure if figure.kind == "line" and figure.metric]
        if isinstance(part, Rung) and part.competence:
            metrics += [each.metric for each in (part.competence.reach, part.competence.ceiling) if each]
        names += [column(metric, part.select) for metric in metrics]
    for other in table.other_selections():
        names += [column(each.metric, other) for each in (table, *table.cells)]
    return list(dict.fromkeys(names))


def expand(table: Table, size: str = PAPER, narrow: Mapping[str, Sequence[Any]] | None = None) -> list[Axes]:
    """List the settings of a table's runs at one size, each run once. The seed is a setting too.

    `narrow` restricts the runs. A grid that has a narrowed key keeps the wanted values among its own, and is dropped if
    it has none of them. Wanted values that no grid has are added to all grids that have the key. A key that no grid has
    is added to all grids. Such runs are beyond the table.

    Args:
        size: "paper", or the name of a rung.
        narrow: keys with the only values wanted.
    """
    grids = [grid.values() for grid in table.sizes[size].runs]
    for key, wanted in (narrow or {}).items():
        beyond = [value for value in wanted if not any(value in grid.get(key, []) for grid in grids)]
        known = [grid | {key: [v for v in wanted if v in grid[key] or v in beyond]} for grid in grids if key in grid]
        grids = [grid for grid in known if grid[key]] or [grid | {key: beyond} for grid in grids]
    runs: dict[str, Axes] = {}
    for grid in grids:
        for values in itertools.product(*grid.values()):
            axes = dict(zip(grid, values, strict=True))
            runs.setdefault(group(axes, ()), axes)
    return list(runs.values())


def group(axes: Axes, without: Collection[str] = ("seed",)) -> str:
    """Return a string that is the same for runs that only differ in some settings, by default in the seed."""
    return repr(sorted(item for item in axes.items() if item[0] not in without))  # json.dumps is slower


def printed_pairs(claim: Claim, cells: Sequence[Cell], runs: Sequence[Axes]) -> list[tuple[Cell, Cell]]:
    """Return the pairs of printed cells that a claim compares. runs: the settings of all runs of the table."""
    if claim.than or "fails" in claim.sign:
        return []
    known = [each for each in cells if each.value is not None and each.column == claim.column and not each.compute]
    axes = {id(cell): next(axes for axes in runs if matches(axes, cell.where)) for cell in known}
    groups = claim.groups(known, lambda cell: axes[id(cell)]).values()
    return [(first, second) for sides in groups for first, second in itertools.product(*sides)]


def varying(runs: Sequence[Axes]) -> list[str]:
    """Return the settings, except the seed, in which runs differ. runs: the settings of each run."""
    keys = dict.fromkeys(key for axes in runs for key in axes if key != "seed")
    return [key for key in keys if len({repr(axes.get(key)) for axes in runs}) > 1]


def matches(axes: Axes, where: Where) -> bool:
    """Return whether a run has all the settings that a cell or a claim names; a list means any of its values."""
    for key, value in where.items():  # a loop, not all(...): it is called two million times for a report of all tables
        if key not in axes:
            return False
        own = axes[key]
        if own not in value if isinstance(value, list) else own != value:
            return False
    return True


def agrees(axes: Axes, view: Where) -> bool:
    """Return whether a run has the view's values, as far as it has the view's settings."""
    return all(axes.get(key, value) == value for key, value in view.items())
