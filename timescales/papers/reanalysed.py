"""Judge what needs no training: numbers of the authors' published models, and of the data.

`analysis/released.py` computes the numbers; they are stored in results/reanalysed/values.csv. A published model fills a
value or a claim as a run with its settings would. No test is needed: the paper's sentence is about this very model, or
these data.

A number of a published model is *as printed* if it has the printed digits. A number of data that we draw, or an
estimate of our own, is *as printed* if it is within the tolerance. A claim is *as printed* if its numbers have its
order.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timescales.analysis.study import Source
from timescales.files import csv_rows, csv_text
from timescales.papers.judge import Interval, region_of
from timescales.papers.table import WITHIN, Cell, Claim, Table, agrees, expand, matches

FOLDER = "reanalysed"  # in results/
COLUMNS = ("kind", "of", "axes", "metric", "value")
WORDS = AS_PRINTED, NOT_AS_PRINTED = "as printed", "not as printed"


@dataclass(frozen=True)
class Evidence:
    """A printed value or claim, and what a published model or the data say about it.

    numbers: for a value the source's number; for a claim the two numbers that it compares, the one that should be
    better first. All in the printed unit.
    """

    item: Cell | Claim
    word: str
    of: str
    numbers: tuple[float, ...]


def text(sources: Sequence[Source]) -> str:
    """Write sources as the text of values.csv, one line for each number."""
    numbers = ((source, metric, value) for source in sources for metric, value in source.values.items())
    rows = ((s.kind, s.of, json.dumps(s.axes), metric, f"{value:.6g}") for s, metric, value in numbers)
    return csv_text((dict(zip(COLUMNS, row, strict=True)) for row in rows), COLUMNS)


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
    counts = Counter(evidence.word for evidence in found)
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
            if isinstance(item, Cell) and item.value is not None:
                found += _value(item, item.value, own)
            elif isinstance(item, Claim) and item.decides and "fails" not in item.sign:
                found += _claim(item, own)
    return found


def _value(cell: Cell, printed: float, sources: Sequence[Source]) -> Iterator[Evidence]:
    """Judge a printed value by each source that has it."""
    digits = 0.5 * 10.0 ** -len(str(printed).partition(".")[2])
    for source in (s for s in sources if cell.column in s.values and matches(s.axes, cell.where)):
        number = source.values[cell.column] * cell.scale
        near = abs(number - printed) <= (cell.tolerance if source.kind == "data" else digits) + 1e-9
        yield Evidence(cell, AS_PRINTED if near else NOT_AS_PRINTED, source.of, (number,))


def _claim(claim: Claim, sources: Sequence[Source]) -> Iterator[Evidence]:
    """Judge a claim by each group of sources that differ only in what the claim's sides name."""
    complete = [source for source in sources if source.values.keys() >= {*claim.columns}]
    for sides in claim.groups(complete, lambda source: source.axes).values():
        pair = [sides[0][0], sides[-1][0]]
        numbers = [source.values[name] * claim.scale for source, name in zip(pair, claim.columns, strict=True)]
        lead = sum(weight * number for weight, number in zip(claim.weights, numbers, strict=True))
        place = Interval(lead, lead, lead).place(*region_of(claim))  # 0: on an edge, which belongs to a tolerance
        word = AS_PRINTED if place == 1 or (place == 0 and claim.sign in WITHIN) else NOT_AS_PRINTED
        yield Evidence(claim, word, " against ".join(dict.fromkeys(source.of for source in pair)), tuple(numbers))
