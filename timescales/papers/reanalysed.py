"""Judge what needs no training: numbers of the authors' published models, and of the data.

`analysis/released.py` computes the numbers; they are stored in results/reanalysed/values.csv. A published model fills a
value or a claim as a run with its settings would. No test is needed: the paper's sentence is about this very model, or
these data.

A number of a published model is *as printed* if it has the printed digits. A number of data that we draw, or an
estimate of our own, is *as printed* if it is within the tolerance. A claim is *as printed* if its numbers have its
order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from timescales.analysis.study import Source
from timescales.files import csv_rows, csv_text
from timescales.papers.table import FAILING, FAILS_MORE_OFTEN, Cell, Claim, Table, agrees, expand, matches

FOLDER = "reanalysed"  # in results/
COLUMNS = ("kind", "of", "axes", "metric", "value")


class Word(StrEnum):
    """What a source says about a printed value or claim."""

    AS_PRINTED = "as printed"
    NOT_AS_PRINTED = "not as printed"


@dataclass(frozen=True)
class Evidence:
    """A printed value or claim, and what a published model or the data say about it.

    numbers: for a value the source's number; for a claim the two numbers that it compares, the one that should be
    better first. All in the printed unit.
    """

    item: Cell | Claim
    word: Word
    of: str
    numbers: tuple[float, ...]


def text(sources: Sequence[Source]) -> str:
    """Write sources as the text of values.csv, one line for each number."""
    rows = [
        {
            "kind": source.kind,
            "of": source.of,
            "axes": json.dumps(source.axes),
            "metric": metric,
            "value": f"{value:.6g}",
        }
        for source in sources
        for metric, value in source.values.items()
    ]
    return csv_text(rows, COLUMNS)


def read(results: Path) -> list[Source]:
    """Read the sources of results/reanalysed/values.csv. Returns [] if the file does not exist."""
    found: dict[tuple[str, str, str], Source] = {}
    for row in csv_rows(results / FOLDER / "values.csv"):
        kind: Any = row["kind"]
        key = (kind, row["of"], row["axes"])
        source = found.setdefault(key, Source(kind, row["of"], json.loads(row["axes"]), {}))
        source.values[row["metric"]] = float(row["value"])
    return list(found.values())


def in_words(found: Sequence[Evidence]) -> str:
    """Count how often something is as printed: "2 *as printed*, 1 *not as printed*"."""
    counts = Counter(str(evidence.word) for evidence in found)
    return ", ".join(f"{count} *{word}*" for word, count in counts.most_common())


def judge(table: Table, sources: Sequence[Source]) -> list[Evidence]:
    """Judge a table's values and claims by sources: in the table's order, once for each source or pair of sources.

    A published model counts if the table has runs like it. All settings that a claim (its sides, `@`) or a cell
    (`where`) names must be among the source's.
    """
    runs = expand(table)
    # A source is like a run that has its task, and its values of all settings that both name.
    like = [s for s in sources if any(a.get("task") == s.axes.get("task") and agrees(a, s.axes) for a in runs)]
    found: list[Evidence] = []
    printed: list[Cell | Claim] = [*table.cells, *table.claims]
    for items, own in ((printed, like), (table.data, sources)):
        for item in items:
            if isinstance(item, Cell):
                filling = [
                    source for source in own if item.column in source.values and matches(source.axes, item.where)
                ]
                found += [_value(item, item.value, source) for source in filling if item.value is not None]
            elif item.decides and item.sign not in (*FAILING, FAILS_MORE_OFTEN):
                found += _claim(item, own)
    return found


def _value(cell: Cell, printed: float, source: Source) -> Evidence:
    number = source.values[cell.column] * cell.scale
    digits = len(str(printed).partition(".")[2])
    allowed = cell.tolerance if source.kind == "data" else 0.5 * 10.0**-digits
    return Evidence(cell, _word(abs(number - printed) <= allowed + 1e-9), source.of, (number,))


def _claim(claim: Claim, sources: Sequence[Source]) -> list[Evidence]:
    """Judge a claim by each group of sources that differ only in what the claim's sides name."""
    first, second = claim.columns
    complete = [source for source in sources if {first, second} <= source.values.keys()]
    found = []
    for sides in claim.groups(complete, lambda source: source.axes).values():
        pair = [sides[0][0], sides[-1][0]]
        numbers = tuple(source.values[name] * claim.scale for source, name in zip(pair, claim.columns, strict=True))
        of = dict.fromkeys(source.of for source in pair)
        found.append(Evidence(claim, _word(_in_order(claim, *numbers)), " against ".join(of), numbers))
    return found


def _in_order(claim: Claim, first: float, second: float) -> bool:
    if claim.sign == "~":
        return abs(first - second) <= claim.tolerance
    sign = 1.0 if claim.higher else -1.0
    lead = sign * (first - second * (claim.times if claim.higher else 1.0 / claim.times))
    return lead >= -claim.tolerance if claim.sign == ">=" else lead > claim.by


def _word(as_printed: bool) -> Word:
    return Word.AS_PRINTED if as_printed else Word.NOT_AS_PRINTED
