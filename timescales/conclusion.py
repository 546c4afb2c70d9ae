"""A conclusion of a paper as a table's `claims` write it down, and what runs say about it.

A claim is one line: "plstm > lstm @ task=pmnist". Sides are conditions, a bare word is a model; `>` is "better than",
`~` "no different from" (within the tolerance); after `@` comes where it is said. `times: 10` asks for that factor.
"lstm fails" (more than half of its runs) and "plstm never fails" are about the table's `success`; in comparisons runs
that fail it are left out, unless it says `failures: count` or compares steps to a threshold (`store.Over`). Where runs
differ in more than the seed, the claim must hold in each group of them. Runs that diverged, or never reached the
threshold, leave a comparison uncertain: what a test says is then "in order" instead of "holds", "reversed" instead of
"refuted".

What is more than the line is a mapping: {claim: the line, and optionally metric, unit, better, tolerance, times,
failures}. With `than`, another metric, the line is one side, whose runs have the first metric better than the other.

Two single runs that were measured on the same words (`bins`) are compared by a bootstrap over blocks of words, as in
the paper; it knows nothing of seeds, so it refutes nothing.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from timescales import tables, verdict
from timescales.errors import ConfigError
from timescales.runs import metrics
from timescales.verdict import ALPHA, Judgement, Row, number

CLAIM = {
    "claim": str, "metric": str, "than": str, "unit": str, "better": tables.BETTER, "tolerance": tables.NUMBER,
    "times": tables.NUMBER, "failures": ("count",),
}  # fmt: skip
FAILS = ("fails", "never fails")
ORDER = ("refuted", "reversed", "open", "in order", "holds")  # the weakest first


class Conclusion(NamedTuple):
    """A claim, read: as a mapping, its one side ("fails", "never fails") or two, their sign, and where it is said."""

    told: Mapping[str, Any]
    sides: list[dict[str, Any]]
    sign: str
    place: dict[str, Any]

    def text(self) -> str:
        """The claim's line with what it says beyond it."""
        more = {"metric": "{}", "than": "before {}", "times": "{} times", "failures": "failures {}"}
        own = [words.format(self.told[key]) for key, words in more.items() if key in self.told]
        return self.told["claim"] + (f" ({', '.join(own)})" if own else "")

    def groups(self, rows: Iterable[Row], table: Mapping[str, Any]) -> dict[str, list[list[Row]]]:
        """Groups of runs that share all but the seed and what the sides name, each side's apart; rows: all with "axes".

        A group in which a side has none is left out.
        """
        apart = {"seed"}.union(*self.sides) | ({"optimizer.lr"} if table.get("reduce", "mean") != "mean" else set())
        found: dict[str, list[list[Row]]] = {}
        for row in rows:
            kin = json.dumps({k: v for k, v in row["axes"].items() if k not in apart}, sort_keys=True)
            for k, side in enumerate(self.sides):
                if tables.matches(row["axes"], self.place) and tables.matches(row["axes"], side):
                    found.setdefault(kin, [[] for _ in self.sides])[k].append(row)
        return {kin: sides for kin, sides in found.items() if all(sides)}


class Ruling(NamedTuple):
    """What one group of runs says of a claim; n: the fewest runs of a side, against n_min."""

    word: str
    p: float | None
    detail: str
    n: int


class Side(NamedTuple):
    """What is compared of one side of a claim; n: its runs, with reduce=max those of all learning rates."""

    rows: list[Row]
    values: list[float]  # in the printed unit, the second side's times what the claim asks for
    mean: float  # or the best
    over: list[bool]  # of each value, or the best, whether it is only known to be larger
    lost: int  # runs that diverged, count, and have no value
    n: int
    said: str


def read(said: str | Mapping[str, Any], table: Mapping[str, Any]) -> Conclusion:
    """Read a claim. Raises ConfigError for a line that is no claim."""
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
    """Raise ConfigError for a claim that cannot be read, that no run can decide, or whose keys do not belong to it."""
    for part, profile, at in ((table, None, "table"), (tables.twin(table), "tiny", "table.tiny")):
        runs = [{"axes": run.axes} for run in tables.expand(table, profile)]
        for k, said in enumerate(part["claims"]):
            if not isinstance(said, str):
                place = f"table/{table['name']}.yaml: {at}.claims[{k}]"
                tables.check_keys(place, said, CLAIM, ("claim",))
                tables.check_printed(place, said)
            found = read(said, part)
            if wrong := _wrong(found, part, bool(found.groups(runs, part))):
                raise ConfigError(f"table/{table['name']}.yaml: {wrong.format(repr(found.told['claim']))}")


def _wrong(found: Conclusion, table: Mapping[str, Any], decided: bool) -> str | None:
    """What is wrong with a claim, with {} where it is named; decided: whether there are runs that decide it."""
    told, sign = found.told, found.sign
    if not decided:
        return "no runs decide the claim {}: name all that sets its sides apart"
    if sign in FAILS and not table.get("success"):
        return 'the claim {} needs success: "valid/accuracy > 0.5" or the like: which runs fail?'
    if sign in FAILS and (more := sorted(told.keys() - {"claim"})):
        return f"the claim {{}} goes by the table's success alone: leave out {', '.join(more)}"
    if sign == "~" and "times" in told:
        return "the claim {} says no difference: leave out times"
    if sign == ">" and "tolerance" in told and table.get("reduce") != "max":
        return "the claim {} is decided by a test: leave out tolerance"
    if sign == "~" and "metric" in told and "tolerance" not in told:
        return "the claim {} has a metric of its own: say in its unit which difference is none, tolerance: ..."
    return None


def judge(
    said: str | Mapping[str, Any],
    table: Mapping[str, Any],
    rows: Sequence[Row],
    asked: Iterable[Mapping[str, Any]] | None = None,
) -> Judgement:
    """Judge one conclusion by the runs that have ended; asked: the axes of all that there will be (None: no more).

    Raises ConfigError for a line that is no claim.
    """
    conclusion = read(said, table)
    found = Judgement(conclusion.text())
    groups = conclusion.groups(rows, table)
    wanted = groups if asked is None else conclusion.groups(({"axes": axes} for axes in asked), table)
    mine = [row for sides in groups.values() for side in sides for row in side]
    if any(row["stale"] for row in mine):
        found.verdict = "stale"
        return found
    rule = _failures if conclusion.sign in FAILS else _compare
    ruled = [rule(conclusion, table, sides, wanted.get(kin, sides)) for kin, sides in groups.items()]
    rulings = [ruling for ruling in ruled if ruling is not None]
    if not rulings:
        return found
    # The smallest p speaks against "no different", the largest against "better".
    weak = 1.0 if conclusion.sign == "~" else -1.0
    found.verdict, found.p, found.detail, _ = min(rulings, key=lambda r: (ORDER.index(r.word), weak * (r.p or 0.0)))
    fewest = min(ruling.n for ruling in rulings)
    few = [f"n={fewest}"] * (fewest < table["n_min"])
    few += [f"{len(rulings)} of {len(wanted)} groups"] * (len(rulings) < len(wanted))
    found.verdict += f" ({', '.join(few)})" if few else ""
    found.detail += f"; the weakest of {len(rulings)} groups" if len(rulings) > 1 else ""
    found.verdict += verdict.partial(mine)
    return found


def _failures(
    claim: Conclusion, table: Mapping[str, Any], sides: Sequence[Sequence[Row]], wanted: Sequence[Sequence[Row]]
) -> Ruling | None:
    """Whether these runs "fails", more than half of all that there will be, or "never fails"."""
    known = [outcome for row in sides[0] if (outcome := verdict.outcome(row, table)) is not None]
    failed, ended, all_of_them = known.count(False), len(known), len(wanted[0])
    if not ended:
        return None
    if claim.sign == "never fails":
        word = "refuted" if failed else "holds"
    elif 2 * failed > all_of_them:
        word = "holds"
    elif 2 * (failed + all_of_them - ended) <= all_of_them:  # also if all that are to come should fail
        word = "reversed" if failed else "refuted"
    else:
        word = "in order" if 2 * failed > ended else "reversed"
    return Ruling(word, None, f"{failed} of {ended} runs fail", ended)


def _compare(
    claim: Conclusion, table: Mapping[str, Any], sides: Sequence[Sequence[Row]], wanted: Sequence[Sequence[Row]]
) -> Ruling | None:
    """Whether the runs of the first side are better than, or no different from, those of the second."""
    ours, theirs = (_side(claim, table, rows, k) for k, rows in enumerate(sides))
    if not ours.values or not theirs.values:
        return None
    most = table.get("reduce") == "max"
    n = min(ours.n, theirs.n)
    if most and (ours.n, theirs.n) == tuple(map(len, wanted)):  # all that there will be, more or less than elsewhere
        n = max(n, table["n_min"])
    detail = f"{ours.said} against {theirs.said}"
    detail += f"; {ours.lost + theirs.lost} diverged" if ours.lost or theirs.lost else ""
    # Where a run takes more steps than it may, nobody knows how many: then the smaller of two means may be larger.
    over = (theirs if ours.mean > theirs.mean else ours).over if claim.sign == ">" else [*ours.over, *theirs.over]
    if all(over) or (claim.sign == ">" and ours.mean == theirs.mean):  # a tie says nothing of an order
        return Ruling("open", None, detail, n)
    if claim.sign == "~" and (all(ours.over) or all(theirs.over)):
        return Ruling("open", None, detail, n)
    right_way = ours.mean > theirs.mean if verdict.direction(claim.told, table) == "higher" else ours.mean < theirs.mean
    word, p = (
        _by_maxima(claim, table, ours, theirs, right_way) if most else _by_test(claim, table, ours, theirs, right_way)
    )
    better = [ours if right_way else theirs] if claim.sign == ">" else [ours, theirs]
    if any(over) or any(side.lost for side in better):
        word = {"holds": "in order", "refuted": "reversed"}.get(word, word)
    return Ruling(word, p, detail, n)


def _side(claim: Conclusion, table: Mapping[str, Any], rows: Sequence[Row], k: int) -> Side:
    """What is compared of the runs of a claim's first side, k = 0, or of its second."""
    told, most = claim.told, table.get("reduce") == "max"
    name = verdict.full_name(told.get("metric", table["metric"]), table)
    names = [name, verdict.full_name(told["than"], table) if "than" in told else name]
    # A run that never reaches a threshold counts as all that it might have taken: no hole in such a comparison.
    everyone = told.get("failures") == "count" or name.startswith("steps to ")
    counted = [r for r in verdict.chosen(rows, name, told, table) if everyone or verdict.outcome(r, table)]
    kept = [row for row in counted if None not in map(row.get, names)]
    lost = sum(row["status"] != "finished" and None in map(row.get, names) for row in counted)
    higher = verdict.direction(told, table) == "higher"
    times = told.get("times", 1.0) if k else 1.0
    values = [row[names[k]] * verdict.scale(told, table) * (times if higher else 1.0 / times) for row in kept]
    over = [isinstance(row[names[k]], metrics.Over) for row in kept]
    if not values:
        return Side(kept, values, 0.0, over, lost, 0, "")
    mean = (max if higher else min)(values) if most else statistics.fmean(values)
    n = len(rows) if most else len(values)
    over = [over[values.index(mean)]] if most else over  # the others do not matter
    said = f"{'>' * any(over)}{number(mean / (times if higher else 1.0 / times))} (n={n})"
    return Side(kept, values, mean, over, lost, n, said)


def _by_maxima(
    claim: Conclusion, table: Mapping[str, Any], ours: Side, theirs: Side, right_way: bool
) -> tuple[str, None]:
    """Maxima have no spread: the tolerance decides."""
    alike = verdict.near(ours.mean, theirs.mean, claim.told, table)
    if claim.sign == "~":
        return ("holds" if alike else "reversed"), None
    return ("holds" if right_way and not alike else "in order" if right_way else "reversed"), None


def _by_test(
    claim: Conclusion, table: Mapping[str, Any], ours: Side, theirs: Side, right_way: bool
) -> tuple[str, float | None]:
    """The word for two sides' values, all of them known, and p of its test if there is one."""
    told, sign = claim.told, claim.sign
    if len(ours.values) == len(theirs.values) == 1:  # else a single run is one draw against the other side's spread
        name = verdict.full_name(told.get("metric", table["metric"]), table)
        p = None if told.keys() & {"times", "than"} else _bootstrap(ours.rows[0], theirs.rows[0], name)
        if p is not None and sign == "~":
            p = 2.0 * min(p, 1.0 - p)
        alpha, against = ALPHA / 2, "reversed"  # the interval of 95 % that a report prints beside it
    else:
        way = "two-sided" if sign == "~" else "greater" if verdict.direction(told, table) == "higher" else "less"
        if "than" in told:  # of the same runs: the t-test of their differences
            p = verdict.welch(_drawn([x - y for x, y in zip(ours.values, theirs.values, strict=True)]),
                              (0.0, 0.0, len(ours.values)), way)  # fmt: skip
        else:
            p = verdict.welch(_drawn(ours.values), _drawn(theirs.values), way)
        alpha, against = ALPHA, "refuted"
    if sign == "~":
        if verdict.near(ours.mean, theirs.mean, told, table):
            return ("in order" if p is None else "holds"), p
        return (against if p is not None and p < ALPHA else "open"), p
    if p is None:
        return ("in order" if right_way else "reversed"), None
    return ("holds" if p < alpha else "in order" if right_way else "reversed" if p < 1 - alpha else against), p


def _drawn(values: Sequence[float]) -> tuple[float, float, int]:
    """Mean, standard deviation and number of values."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values)


def _bootstrap(ours: Row, theirs: Row, name: str) -> float | None:
    """p that a run's perplexity is not lower than another's, block by block of the same words; None without blocks."""
    if not name.startswith("probe/bins/") or "/train/" in name or not (ours.get("blocks") and theirs.get("blocks")):
        return None
    from timescales.analysis import bins

    return bins.p_lower(ours["blocks"], theirs["blocks"], name.rpartition("/")[2])
