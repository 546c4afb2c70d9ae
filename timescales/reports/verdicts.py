"""results/verdicts.json: every verdict, for machines. Its schema stands beside it; `timescales.results()` reads it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from timescales.files import write_atomic
from timescales.papers import reanalysed, verdict
from timescales.papers.table import Cell, Claim
from timescales.papers.verdict import CellResult, ClaimResult, Comparison, P, Verdict, Word
from timescales.reports import wording
from timescales.reports.report import Report

FILE, SCHEMA = "verdicts.json", "verdicts.schema.json"
KINDS = ("table", "value", "conclusion", "hypothesis", "question")
EVIDENCE = ("runs", "reanalysed")
Number = float | int
Fields = dict[str, str | Number | None]  # of a `Line`, by name


def _key(words: str, **more: Any) -> dict[str, Any]:
    """What a field is, in words, and more of its JSON schema."""
    return {"description": words, **more}


@dataclass(frozen=True)
class Line:
    """A verdict, as an object of verdicts.json and a row of `timescales.results().verdicts`."""

    table: str = field(metadata=_key("the table's name, conf/table/<name>.yaml"))
    item: str = field(
        metadata=_key("what is judged: the table, a printed value with its settings, or a claim in one line")
    )
    kind: str = field(metadata=_key("question: a claim of ours, which decides nothing", enum=[*KINDS]))
    evidence: str = field(
        metadata=_key(
            "our runs, or what needs no training: published models of the authors, and data", enum=[*EVIDENCE]
        )
    )
    of: str = field(metadata=_key("of the runs their size, paper or tiny; else which model or data"))
    under: str = field(
        metadata=_key("the value of a setting that the paper does not state, where an item is judged under several")
    )
    word: str = field(metadata=_key("the verdict", enum=sorted({*map(str, verdict.Word), *map(str, reanalysed.Word)})))
    remarks: str = field(metadata=_key("what restricts it"))
    X: Number | None = field(
        metadata=_key("of a value: the smallest margin at which it is shown to be equivalent, in the printed unit")
    )
    p: Number | None = field(
        metadata=_key("of the test that the word goes by, corrected for the other tests of the table")
    )
    n: int = field(metadata=_key("runs; of a claim those of the side that has the fewest", minimum=0))
    printed: Number | None = field(metadata=_key("the printed value"))
    first: Number | None = field(
        metadata=_key("our value, or that of a claim's first side; in the printed unit, of several the mean")
    )
    second: Number | None = field(metadata=_key("that of a claim's second side"))
    at: str = field(metadata=_key("where the paper says it, or when a hypothesis was written"))
    quote: str = field(metadata=_key("the paper's words"))


def lines(report: Report) -> list[Line]:
    """Every verdict of a report: on the table, its values and claims, at both sizes, and what needs no training."""
    table = report.table
    whole = [_line(report, table.title, "table", report.verdict, at=table.source)]
    if table.tiny:
        whole.append(_line(report, table.title, "table", report.small_verdict, of="tiny", at=table.source))
    judged = [_value(report, found) for found in report.cells]
    judged += [_claim(report, found, "paper") for found in report.claims]
    judged += [_claim(report, found, "tiny") for found in report.small_claims]
    return [*whole, *judged, *(_evidence(report, found) for found in report.reanalysed)]


def _line(report: Report, item: str, kind: str, found: Verdict, **more: Any) -> Line:
    empty: dict[str, Any] = {key.name: "" if key.type == "str" else None for key in fields(Line)}
    said = {"table": report.table.name, "item": item, "kind": kind, "evidence": "runs", "of": "paper", "n": found.n}
    return Line(**empty | said | {"word": str(found.word), "remarks": ", ".join(wording.remarks(found))} | more)


def _value(report: Report, found: CellResult) -> Line:
    gap = found.verdict.gap
    return _line(
        report,
        item_of(found.cell),
        "value",
        found.verdict,
        **_about(found.cell, report),
        X=None if gap is None else gap.within,
        p=_corrected(found.verdict.p_against),
        n=found.sample.n,
        first=None if found.sample.mean is None else float(found.sample.mean),
    )


def _claim(report: Report, found: ClaimResult, size: str) -> Line:
    said, numbers = found.verdict, found.numbers
    against = {Word.REFUTED: said.p_against, Word.REVERSED: said.p_against, Word.TOO_SMALL: said.p_small}
    sides = (numbers.first.value, numbers.second.value) if isinstance(numbers, Comparison) else (None, None)
    first, second = (None if value is None else float(value) for value in sides)
    p = _corrected(against.get(said.word, said.p_for))
    about = _about(found.claim, report) | {"of": size, "p": p, "first": first, "second": second}
    return _line(report, item_of(found.claim), kind_of(found.claim), said, **about)


def _evidence(report: Report, found: reanalysed.Evidence) -> Line:
    numbers = dict(zip(("first", "second"), found.numbers, strict=False))
    about = _about(found.item, report) | {"evidence": "reanalysed", "of": found.of, "n": 1}
    line = _line(report, item_of(found.item), kind_of(found.item), Verdict(Word.UNDECIDED), **about, **numbers)
    return Line(**asdict(line) | {"word": str(found.word)})


def _about(item: Cell | Claim, report: Report) -> Fields:
    """What a value or a claim says of itself and of its place."""
    if isinstance(item, Cell):
        return {"under": item.under, "printed": item.value, "at": item.at or report.table.source}
    return {"under": item.under, "at": item.at or item.dated, "quote": item.quote}


def item_of(item: Cell | Claim) -> str:
    """A value's label and settings, or a claim's line."""
    if isinstance(item, Claim):
        return item.text
    return ": ".join(filter(None, [item.label, wording.settings(item.where)]))


def kind_of(item: Cell | Claim) -> str:
    """One of KINDS."""
    if isinstance(item, Cell):
        return "value"
    return "conclusion" if item.quote else "hypothesis" if item.hypothesis else "question"


def _corrected(p: P | None) -> float | None:
    return None if p is None else p.corrected


def schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of verdicts.json, from the fields of `Line`."""
    types = {"str": "string", "int": "integer", "Number | None": ["number", "null"]}
    properties = {key.name: {"type": types[str(key.type)], **key.metadata} for key in fields(Line)}
    item = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Verdicts of all tables"}
    return {**head, "type": "array", "items": item}


def texts(reports: Sequence[Report], results: Path) -> dict[Path, str]:
    """The texts of verdicts.json and of its schema; lines of tables that are not among the reports stay."""
    names = {report.table.name for report in reports}
    kept = [line for line in read(results) if line["table"] not in names]
    every = kept + [_rounded(asdict(line)) for report in reports for line in lines(report)]
    every.sort(key=lambda line: str(line["table"]))  # stable: a table's lines keep their order
    text = "".join(f"{',' if k else '['}\n{json.dumps(line, ensure_ascii=False)}" for k, line in enumerate(every))
    return {results / FILE: f"{text or '['}\n]\n", results / SCHEMA: json.dumps(schema(), indent=1) + "\n"}


def _rounded(line: Fields) -> Fields:
    """Numbers of six digits, as on every machine; JSON has none that is not finite."""
    return {key: _number(value) if isinstance(value, float) else value for key, value in line.items()}


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def write(reports: Sequence[Report], results: Path) -> None:
    """Write verdicts.json and its schema, where there is any report."""
    for path, text in texts(reports, results).items() if results.is_dir() else ():
        write_atomic(path, text.encode())


def read(results: Path) -> list[Fields]:
    """The lines of verdicts.json, as objects; none where there is no file."""
    path = results / FILE
    return json.loads(path.read_text()) if path.is_file() else []
