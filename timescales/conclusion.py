"""A conclusion of a paper as a table's `claims` write it down, and what runs say about it.

A claim is one line: "plstm > lstm @ task=pmnist". Sides are conditions, a bare word is a model; `>` is "better than",
`~` "no different from" (within the tolerance); after `@` comes where it is said. `times: 10` asks for that factor.
"lstm fails" (more than half of its runs) and "plstm never fails" are about the table's `success`; in comparisons runs
that fail it are left out, unless it says `failures: count` or compares steps to a threshold (`store.Over`). Where runs
differ in something else than the seed, the claim must hold in each group of them.

What is more than the line is a mapping: {claim: the line, and optionally metric, unit, better, tolerance, times,
failures}. With `than`, another metric, the line is one side, whose runs have the first metric better than the other.

Two single runs that were measured on the same words (`bins`) are compared by a bootstrap over blocks of words, as in
the paper; it knows nothing of seeds, so it refutes nothing.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from timescales import store, tables, verdict
from timescales.schema import ConfigError
from timescales.verdict import ALPHA, Claim, Row, number

CLAIM = {
    "claim": str, "metric": str, "than": str, "unit": str, "better": tables.BETTER, "tolerance": tables.NUMBER,
    "times": tables.NUMBER, "failures": ("count",),
}  # fmt: skip


class Conclusion(NamedTuple):
    """A claim, read: as a mapping, its one side ("fails", "never fails") or two, their sign, and where it is said."""

    told: Mapping[str, Any]
    sides: list[dict[str, Any]]
    sign: str
    place: dict[str, Any]

    def kin(self, axes: Mapping[str, Any], table: Mapping[str, Any]) -> str:
        """What a run shares with those it is compared with: all but the seed and what the sides name."""
        apart = {"seed"}.union(*self.sides) | ({"optimizer.lr"} if table.get("reduce", "mean") != "mean" else set())
        return json.dumps({k: v for k, v in axes.items() if k not in apart}, sort_keys=True)


def read(said: str | Mapping[str, Any], table: Mapping[str, Any]) -> Conclusion:
    """Read a claim. Raises ConfigError for a line that is none."""
    told: Mapping[str, Any] = {"claim": said} if isinstance(said, str) else said
    text, _, place = told["claim"].partition("@")
    fails, parts = re.fullmatch(r"\s*(.+?)\s+(never fails|fails)\s*", text), re.split(r"\s([>~])\s", text)
    if "than" in told:
        if fails or len(parts) > 1:
            raise ConfigError(
                f"table/{table['name']}.yaml: cannot read the claim {told['claim']!r}: `than` goes with one side alone"
            )
        return Conclusion(told, [conditions(text)] * 2, ">", conditions(place))
    if fails:
        return Conclusion(told, [conditions(fails.group(1))], fails.group(2), conditions(place))
    if len(parts) != 3:
        raise ConfigError(f"table/{table['name']}.yaml: cannot read the claim {told['claim']!r}: A > B @ key=value")
    return Conclusion(told, [conditions(parts[0]), conditions(parts[2])], parts[1], conditions(place))


def conditions(text: str) -> dict[str, Any]:
    """ "plstm task.T=200" as {"model": "plstm", "task.T": 200}."""
    parts = [part if "=" in part else f"model={part}" for part in text.split()]
    return {key: _scalar(value) for key, value in (part.split("=", 1) for part in parts)}


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)  # a number, true, false, null
    except json.JSONDecodeError:
        return text


def check(table: Mapping[str, Any]) -> None:
    """Raise ConfigError for a claim that cannot be read, that no run can decide, or that lacks its own tolerance."""
    for part, profile, at in ((table, None, "table"), (tables.twin(table), "tiny", "table.tiny")):
        runs = [run.axes for run in tables.expand(table, profile)]
        for k, said in enumerate(part["claims"]):
            if not isinstance(said, str):
                place = f"table/{table['name']}.yaml: {at}.claims[{k}]"
                tables.check_keys(place, said, CLAIM, ("claim",))
                tables.check_printed(place, said)
            found = read(said, part)
            told, here = found.told, [axes for axes in runs if tables.matches(axes, found.place)]
            kin = [{found.kin(axes, part) for axes in here if tables.matches(axes, side)} for side in found.sides]
            if not set.intersection(*kin):
                raise ConfigError(
                    f"table/{table['name']}.yaml: no runs decide the claim {told['claim']!r}: name all that sets its "
                    "sides apart"
                )
            if found.sign == "~" and "metric" in told and "tolerance" not in told:
                raise ConfigError(
                    f"table/{table['name']}.yaml: the claim {told['claim']!r} has a metric of its own: say in its "
                    "unit which difference is none, tolerance: ..."
                )


def judge(said: str | Mapping[str, Any], table: Mapping[str, Any], rows: Sequence[Row]) -> Claim:
    """Judge one conclusion. Raises ConfigError for a line that is none."""
    conclusion = read(said, table)
    told, sides, sign, place = conclusion
    own = [str(told["metric"])] if "metric" in told else []
    own += [words.format(told[key]) for key, words in (("than", "before {}"), ("times", "{} times")) if key in told]
    found = Claim(told["claim"] + (f" ({', '.join(own)})" if own else ""))
    here = [row for row in rows if tables.matches(row["axes"], place)]
    if any(row["stale"] for row in here):
        found.verdict = "stale"
        return found
    if len(sides) == 1:
        mine = [row for row in here if tables.matches(row["axes"], sides[0])]
        if mine:
            found.verdict, found.detail = _failures(mine, sign, table)
        return found
    left, right = sides
    name = verdict.full_name(told.get("metric", table["metric"]), table)
    needed = [name, *([verdict.full_name(told["than"], table)] if "than" in told else [])]

    def counts(row: Row) -> bool:
        # A run that never reaches a threshold counts as all that it might have taken: no hole in such a comparison.
        everyone = told.get("failures") == "count" or name.startswith("steps to ")
        return row["status"] == "finished" if everyone else verdict.succeeded(row, table)

    def by_group(where: Mapping[str, Any]) -> dict[str, list[Row]]:
        groups: dict[str, list[Row]] = {}
        for row in here:
            if tables.matches(row["axes"], where):
                groups.setdefault(conclusion.kin(row["axes"], table), []).append(row)
        kept = {key: [r for r in verdict.chosen(g, table, name) if counts(r) and None not in map(r.get, needed)]
                for key, g in groups.items()}  # fmt: skip
        return {key: rows for key, rows in kept.items() if rows}

    ours, theirs = by_group(left), by_group(right)
    if "than" in told:  # the same runs by their other metric; blocks of words compare two runs
        theirs = {key: [{**row, name: row[needed[1]], "blocks": None} for row in runs] for key, runs in ours.items()}
    pairs = [(ours[key], theirs[key]) for key in ours if key in theirs]
    judged = [_compare(a, b, name, sign, told, table) for a, b in pairs]
    if not judged:
        return found
    order = ("refuted", "reversed", "open", "in order", "holds")
    weak = 1.0 if sign == "~" else -1.0  # the smallest p speaks against "no different", the largest against "better"
    found.verdict, found.p, found.detail = min(judged, key=lambda j: (order.index(j[0]), weak * (j[1] or 0.0)))
    fewest = min(len(side) for pair in pairs for side in pair)
    if fewest < table["n_min"] and table.get("reduce") != "max":
        found.verdict += f" (n={fewest})"
    if len(judged) > 1:
        found.detail += f"; the weakest of {len(judged)} groups"
    found.verdict += verdict.partial([row for pair in pairs for side in pair for row in side])
    return found


def _failures(mine: Sequence[Row], sign: str, table: Mapping[str, Any]) -> tuple[str, str]:
    """Whether these runs "fails", more than half of them, or "never fails": verdict and detail."""
    count = sum(not verdict.succeeded(row, table) for row in mine)
    if sign == "fails":
        word = "holds" if 2 * count > len(mine) else "reversed" if count else "refuted"
    else:
        word = "refuted" if count else "holds"
    fewest = min(Counter(tables.group(row["axes"]) for row in mine).values())
    few = f" (n={fewest})" if fewest < table["n_min"] else ""
    return word + few + verdict.partial(mine), f"{count} of {len(mine)} runs fail"


def _compare(
    ours: Sequence[Row], theirs: Sequence[Row], name: str, sign: str, told: Mapping[str, Any], table: Mapping[str, Any]
) -> tuple[str, float | None, str]:
    unit, higher = verdict.scale(told, table), verdict.better(told, table) == "higher"
    times = told.get("times", 1.0) if higher else 1.0 / told.get("times", 1.0)
    a, b = [row[name] * unit for row in ours], [row[name] * unit * times for row in theirs]
    most = table.get("reduce") == "max"
    best = max if higher else min
    mean_a, mean_b = (best(v) if most else statistics.fmean(v) for v in (a, b))
    alike = verdict.near(mean_a, mean_b, told, table)
    over = [">" if any(isinstance(row[name], store.Over) for row in side) else "" for side in (ours, theirs)]
    detail = f"{over[0]}{number(mean_a)} (n={len(a)}) against {over[1]}{number(mean_b / times)} (n={len(b)})"
    if all(isinstance(row[name], store.Over) for row in (*ours, *theirs)):  # failures alone tell no order, no likeness
        return "open", None, detail
    if sign == ">" and mean_a == mean_b:  # a tie says nothing of an order
        return "open", None, detail
    spread = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in (a, b)]
    right_way = mean_a > mean_b if higher else mean_a < mean_b
    if most:  # maxima have no spread: the tolerance decides
        if sign == "~":
            return ("holds" if alike else "reversed"), None, detail
        return ("holds" if right_way and not alike else "in order" if right_way else "reversed"), None, detail
    single = len(a) == len(b) == 1  # otherwise a single run is one draw against the other side's spread
    if single:
        p = _bootstrap(ours[0], theirs[0], name) if times == 1.0 else None
        if p is not None and sign == "~":
            p = 2.0 * min(p, 1.0 - p)
        alpha, against = ALPHA / 2, "reversed"  # the interval of 95 % that a report prints beside it
    else:
        way = "two-sided" if sign == "~" else "greater" if higher else "less"
        if "than" in told:  # of the same runs: the t-test of their differences
            apart = [x - y for x, y in zip(a, b, strict=True)]
            p = verdict.welch((statistics.fmean(apart), statistics.stdev(apart), len(a)), (0.0, 0.0, len(a)), way)
        else:
            p = verdict.welch((mean_a, spread[0], len(a)), (mean_b, spread[1], len(b)), way)
        alpha, against = ALPHA, "refuted"
    if sign == "~":
        if alike:
            return ("in order" if p is None else "holds"), p, detail
        return (against if p is not None and p < ALPHA else "open"), p, detail
    if p is None:
        return ("in order" if right_way else "reversed"), None, detail
    word = "holds" if p < alpha else "in order" if right_way else "reversed" if p < 1 - alpha else against
    return word, p, detail


def _bootstrap(ours: Row, theirs: Row, name: str) -> float | None:
    """p that a run's perplexity is not lower than another's, block by block of the same words; None without blocks."""
    if not name.startswith("probe/bins/") or "/train/" in name or not (ours.get("blocks") and theirs.get("blocks")):
        return None
    from timescales.analysis import bins

    return bins.p_lower(ours["blocks"], theirs["blocks"], name.rpartition("/")[2])
