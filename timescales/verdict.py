"""What runs say about a paper's printed values. Plain rows in, words out; SciPy makes the tests.

What they say about its conclusions is in `conclusion.py`.
"""

from __future__ import annotations

import importlib
import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from timescales import tables
from timescales.runs.metrics import Over, condition

ALPHA = 0.05
PARTIAL = " (part of the data)"  # what is added to a verdict on runs that had no more
Row = Mapping[str, Any]  # of runs.csv, with "axes" as a dict, "stale", and the run's values under the metrics' names


@dataclass
class Cell:
    """One printed value and what our runs say of it, in the printed unit."""

    printed: Mapping[str, Any]
    values: list[tuple[int, float]] = field(default_factory=list)  # (seed, value) of the runs that count
    mean: float | None = None
    sd: float | None = None
    median: float | None = None
    failed: int = 0  # with reduce=max at the learning rate of the best value, whose failures the papers count
    n: int = 0  # runs that count; of a cell that is computed from several settings, the fewest of one
    of: int = 0  # the runs among which so many failed
    ended: int = 0  # the runs against n_min
    p: float | None = None
    verdict: str = "missing"


@dataclass
class Judgement:
    """One conclusion and what our runs say of it."""

    text: str
    # holds, in order, reversed, refuted, open (too few seeds for a `~`, or none reached the threshold), stale; in
    # brackets how few the seeds are, and of how many groups it is said: " (n=2, 1 of 3 groups)"; PARTIAL
    verdict: str = "open"
    p: float | None = None
    detail: str = ""


def metrics(table: Mapping[str, Any]) -> list[str]:
    """The names of all values that a table reads from a run, as `store.metric` knows them."""
    found: dict[str, None] = {}
    cells = table["cells"]
    for part in (table, tables.twin(table)):
        entries = [*(cells if part is table else []), *part["claims"]]
        names = [part["metric"], *(e["metric"] for e in entries if isinstance(e, Mapping) and "metric" in e)]
        names += [entry["than"] for entry in entries if isinstance(entry, Mapping) and "than" in entry]
        names += [part["success"].split()[0]] if part.get("success") else []
        names += [f["metric"] for f in tables.figures(part) if f["kind"] == "line" and "metric" in f]
        found |= dict.fromkeys(full_name(name, part) for name in names)
        for other in other_selections(table) if part is table else []:
            names = [table["metric"], *(entry["metric"] for entry in cells if "metric" in entry)]
            found |= dict.fromkeys(full_name(name, table | {"select": other}) for name in names)
    return list(found)


def other_selections(table: Mapping[str, Any]) -> list[str]:
    """How else than by `select` the paper may have chosen the values of its cells."""
    return list(table.get("assumed", {}).get("select", {}).get("try", []))


def full_name(metric: str, table: Mapping[str, Any]) -> str:
    """A metric with how it is selected: "last test/accuracy"."""
    return metric if metric.startswith(("steps to ", "probe/", "best ", "last ")) else f"{table['select']} {metric}"


def outcome(row: Row, table: Mapping[str, Any]) -> bool | None:
    """Whether a run met the table's success condition, if there is one; False if it diverged, None if unknown."""
    if row["status"] != "finished":
        return False
    if not table.get("success"):
        return True
    key, holds = condition(table["success"])
    value = row.get(full_name(key, table))
    return None if value is None else holds(value)


def cell(printed: Mapping[str, Any], table: Mapping[str, Any], rows: Sequence[Row]) -> Cell:
    """Judge one cell by the runs that are its own."""
    found = Cell(printed)
    mine = [row for row in rows if tables.matches(row["axes"], printed.get("where", {}))]
    stale = any(row["stale"] for row in mine)
    if "compute" in printed:
        good = [row for row in mine if outcome(row, table)]
        found.mean = computed(printed["compute"], good)
        found.n = fewest(good)
        rated: Sequence[Row] = mine
    else:
        name = full_name(printed.get("metric", table["metric"]), table)
        mine = chosen(mine, name, printed, table) or mine
        rated = _at_best_rate(mine, name, printed, table)
        found.values = sorted(
            (row["seed"], row[name] if isinstance(row[name], Over) else row[name] * scale(printed, table))
            for row in mine if outcome(row, table) and row.get(name) is not None
        )  # fmt: skip
        found.n = len(found.values)
        numbers = [value for _, value in found.values]
        if numbers:
            best = max if direction(printed, table) == "higher" else min
            found.mean = best(numbers) if table.get("reduce") == "max" else statistics.fmean(numbers)
            found.sd = statistics.stdev(numbers) if len(numbers) > 1 else None
            found.median = statistics.median(numbers)
    known = [outcome(row, table) for row in rated]
    found.failed, found.of = known.count(False), len(known) - known.count(None)
    found.ended = found.n + found.failed  # of as many as the paper lost; more are "unstable" whatever their number
    if table.get("reduce") == "max":  # over all learning rates
        found.ended = sum(outcome(row, table) is not None for row in mine)
    found.verdict, found.p = _judge(found, table, stale)
    found.verdict += partial(mine) if found.mean is not None else ""
    return found


def fewest(rows: Sequence[Row]) -> int:
    """How many runs there are of the setting that has the fewest; 0 without any."""
    return min(Counter(tables.group(row["axes"]) for row in rows).values(), default=0)


def partial(rows: Sequence[Row]) -> str:
    """What is added to a verdict on these runs: nothing if all of them had the whole data."""
    return PARTIAL if any(row.get("partial") for row in rows) else ""


def _judge(found: Cell, table: Mapping[str, Any], stale: bool) -> tuple[str, float | None]:
    printed = found.printed
    if printed["value"] is None:
        return "blank", None
    if found.mean is None and not found.failed:
        return "missing", None
    if stale:
        return "stale", None
    if found.failed > printed.get("failed", 0) or found.mean is None:
        return f"unstable ({found.failed} of {found.of} failed)", None
    if over := sum(isinstance(value, Over) for _, value in found.values):
        return ("open" if over == found.n else f"unstable ({over} of {found.n} never got there)"), None
    sd, n = printed.get("sd"), printed.get("n")
    if printed.get("se") is not None and n is not None:
        sd = printed["se"] * math.sqrt(n)
    p = None
    same = near(found.mean, printed["value"], printed, table)
    if sd is not None and n is not None and table.get("reduce", "mean") == "mean" and "compute" not in printed:
        # One run of ours is compared as one more draw from the paper's.
        p = welch((found.mean, found.sd or 0.0, found.n), (printed["value"], sd, n))
        far, same = not same, same if p is None else p >= ALPHA
        if same and far and found.sd and wider(found.sd, found.n, sd, n):  # our spread must not make a match
            return f"unstable (sd {number(found.sd)} against {number(sd)})", p
    if same or better(printed, table) == "neither":
        word = "match" if same else "different"
    else:
        higher = found.mean > printed["value"]
        word = "better" if higher == (better(printed, table) == "higher") else "worse"
    return word + (f" (n={found.n})" if found.ended < printed.get("n_min", table["n_min"]) else ""), p


def welch(
    ours: tuple[float, float, int], theirs: tuple[float, float, int], alternative: str = "two-sided"
) -> float | None:
    """p of Welch's t-test from (mean, sd, n) twice; one run on a side is one draw against the other side's spread.

    None for one run where the other side has no spread: nothing says how far apart two draws are.
    """
    from scipy import stats

    equal = ours[2] == 1 or theirs[2] == 1
    if ours[1] == theirs[1] == 0.0:
        if equal:
            return None
        right_way = {"two-sided": True, "greater": ours[0] > theirs[0], "less": ours[0] < theirs[0]}[alternative]
        return 0.0 if right_way and ours[0] != theirs[0] else 1.0
    return float(stats.ttest_ind_from_stats(*ours, *theirs, equal_var=equal, alternative=alternative).pvalue)


def near(a: float, b: float, told: Mapping[str, Any], table: Mapping[str, Any]) -> bool:
    """Whether two values, in the printed unit, differ by no more than a cell's or claim's tolerance."""
    return abs(a - b) <= told.get("tolerance", table["tolerance"]) + 1e-9


def wider(ours: float, n_ours: int, theirs: float, n_theirs: int) -> bool:
    """Whether our spread is larger than the paper's by more than chance (F-test of two variances)."""
    from scipy import stats

    if theirs == 0.0:
        return True
    return n_theirs > 1 and bool(stats.f.sf((ours / theirs) ** 2, n_ours - 1, n_theirs - 1) < ALPHA)


def better(printed: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    """Which values are better, "higher" or "lower"; of a cell also "neither"."""
    return printed.get("better", table["better"])


def direction(told: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    """Which way a cell's or a claim's runs are chosen and compared, "higher" or "lower"; the table's for "neither"."""
    own = better(told, table)
    return table["better"] if own == "neither" else own


def scale(printed: Mapping[str, Any], table: Mapping[str, Any]) -> float:
    """From a record's unit to the printed one."""
    return 100.0 if printed.get("unit", table["unit"]) == "percent" else 1.0


def chosen(rows: Sequence[Row], name: str, told: Mapping[str, Any], table: Mapping[str, Any]) -> list[Row]:
    """With reduce=best_lr: the runs at the best stable learning rate (best mean, none diverged); none if none is."""
    if table.get("reduce") != "best_lr":
        return list(rows)
    rates: dict[Any, list[Row]] = {}
    for row in rows:
        rates.setdefault(row["axes"]["optimizer.lr"], []).append(row)
    means = {}
    for rate, found in rates.items():
        values = [row[name] for row in found if outcome(row, table) and row.get(name) is not None]
        if len(values) == len(found):
            means[rate] = statistics.fmean(values)
    best = max if direction(told, table) == "higher" else min
    return rates[best(means, key=means.__getitem__)] if means else []


def _at_best_rate(rows: Sequence[Row], name: str, told: Mapping[str, Any], table: Mapping[str, Any]) -> Sequence[Row]:
    """With reduce=max: the runs at the learning rate of the best value."""
    good = [row for row in rows if outcome(row, table) and row.get(name) is not None]
    if table.get("reduce") != "max" or not good or "optimizer.lr" not in good[0]["axes"]:
        return rows
    best = (max if direction(told, table) == "higher" else min)(good, key=lambda row: row[name])
    return [row for row in rows if row["axes"]["optimizer.lr"] == best["axes"]["optimizer.lr"]]


def computed(name: str, rows: Sequence[Row]) -> float | None:
    """The value of a function of timescales/analysis on rows: "reset_units.t"; None if they do not suffice."""
    module, _, function = name.partition(".")
    return getattr(importlib.import_module(f"timescales.analysis.{module}"), function)(rows)


def number(value: float) -> str:
    """A number as people write it in a table."""
    if isinstance(value, Over):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def whole(cells: Sequence[Cell], claims: Sequence[Judgement], complete: bool = True) -> str:
    """A table's verdict: "contradicted", "contradicted so far", "open", "not in order", "in order, not significant",
    "reproduced", "reproduced in order" or "not reproduced", each of the last three also with " so far".

    "not reproduced": values are worse, different or unstable, and nothing is claimed.
    complete: whether all of its runs have ended.
    """
    words = [word for c in cells if (word := word_of(c)) != "blank"]
    said = [word_of(c) for c in claims]
    if "refuted" in said:
        of_few = all("n=" in c.verdict for c in claims if word_of(c) == "refuted")
        return "contradicted" + " so far" * of_few
    if not complete or (not words and not said) or {"open", "missing", "stale"} & {*words, *said}:
        return "open"
    if "reversed" in said:
        return "not in order"
    if "in order" in said:
        return "in order, not significant"
    few = " so far" if any(re.search(r"n=|groups", found.verdict) for found in (*cells, *claims)) else ""
    if not {"worse", "different", "unstable"} & set(words):
        return "reproduced" + few
    return ("reproduced in order" if said else "not reproduced") + few


def word_of(found: Cell | Judgement) -> str:
    """A verdict without what it has in brackets."""
    return found.verdict.partition(" (")[0]
