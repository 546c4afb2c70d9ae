"""Write results/verdicts.json, every verdict for machines, and its schema. `timescales.results()` reads it."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from timescales.files import write_atomic
from timescales.papers import judge, ladder, reanalysed
from timescales.papers.judge import Verdict
from timescales.papers.table import PAPER, Cell, Claim
from timescales.reports import wording
from timescales.reports.report import Report

FILE, SCHEMA = "verdicts.json", "verdicts.schema.json"
WORDS = sorted({*judge.WORDS, *ladder.RUNG_WORDS.values(), "grows", "shrinks", "flat", *reanalysed.WORDS})


def _key(words: str, **more: Any) -> Any:
    """Make a field with a description in words, and with more of its JSON schema."""
    return field(metadata={"description": words, **more})


@dataclass(frozen=True)
class Line:
    """A verdict, as an object of verdicts.json and a row of `timescales.results().verdicts`."""

    table: str = _key("the table's name, conf/table/<name>.yaml")
    item: str = _key("what is judged: a printed value with its settings, or a claim in one line")
    kind: str = _key(
        "question: a claim of ours, which decides nothing", enum=["value", "conclusion", "hypothesis", "question"]
    )
    evidence: str = _key(
        "our runs, or what needs no training: the authors' published models, and data", enum=["runs", "reanalysed"]
    )
    of: str = _key(
        "of runs their size, paper or the name of a rung, or slope: how the effect changes over all rungs that "
        "count, with each doubling of what the ladder grows; else which model or data"
    )
    under: str = _key("the value of a setting that the paper does not state, where an item is judged under several")
    word: str = _key("the verdict", enum=WORDS)
    notes: str = _key("what else there is to know, such as runs that failed")
    counted: bool = _key("whether it counts: false where a setting was chosen by looking at it")
    n: int = _key("runs; of a claim those of the side that has the fewest", minimum=0)
    printed: float | None = _key("the printed value")
    low: float | None = _key("the lower end of the 95 % interval of our value or effect")
    mid: float | None = _key("our value or effect; of times at a rung, and of their slope, a power of 2")
    high: float | None = _key("the upper end of the interval")
    region_low: float | None = _key("the lower end of the region that is claimed, or printed")
    region_high: float | None = _key("the upper end of the region")
    at: str = _key("where the paper says it, or when a hypothesis was written")
    quote: str = _key("the paper's words")


def lines(report: Report) -> list[Line]:
    """List every verdict of a report: on values, on claims at every size, and on what needs no training."""
    claims, values = report.judged
    found = [_line(report, cell, verdict) for cell, verdict in zip(report.table.cells, values, strict=True)]
    found += [_line(report, claim, verdict) for claim, verdict in zip(report.table.claims, claims, strict=True)]
    for judged in report.ladder_claims:
        for s in judged.steps:
            found.append(_line(report, judged.claim, s.verdict, of=s.name, word=s.word, notes=s.short))
    for judged in report.ladder_claims:
        if judged.slope is not None:
            n = min(step.verdict.n for step in judged.steps if step.counts)
            change = Verdict(judged.trend, judged.slope, (0.0 - judged.flat, judged.flat), n=n)
            found.append(_line(report, judged.claim, change, of="slope"))
    for each in report.reanalysed:
        verdict, mid = Verdict(each.word, n=1), each.numbers[0]
        found.append(_line(report, each.item, verdict, evidence="reanalysed", of=each.of, mid=mid))
    return [line for line in found if line.word]


def _line(report: Report, item: Cell | Claim, found: Verdict, **more: Any) -> Line:
    values: dict[str, Any]
    if isinstance(item, Cell):
        name = ": ".join(filter(None, [item.label, wording.settings(item.where)]))
        values = {"item": name, "kind": "value", "printed": item.value, "at": item.at, "quote": ""}
    else:
        kind = "conclusion" if item.quote else "hypothesis" if item.hypothesis else "question"
        values = {"item": item.text, "kind": kind, "printed": None, "at": item.at or item.dated, "quote": item.quote}
    values |= {"table": report.table.name, "at": values["at"] or report.table.source, "evidence": "runs", "of": PAPER}
    values |= {"under": item.under, "word": found.word, "notes": "; ".join(found.notes), "n": found.n}
    values |= dict(zip(("low", "mid", "high"), found.interval or (None, None, None), strict=True))
    values |= dict(zip(("region_low", "region_high"), found.region, strict=True))
    values["counted"] = not item.calibrated
    return Line(**values | {key: value for key, value in more.items() if value not in (None, "")})


def schema() -> dict[str, Any]:
    """Return the JSON schema (2020-12) of verdicts.json, from the fields of `Line`."""
    types: dict[Any, Any] = {str: "string", int: "integer", bool: "boolean", float | None: ["number", "null"]}
    properties = {key.name: {"type": types[key.type], **key.metadata} for key in fields(Line)}
    item = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Verdicts of all tables"}
    return {**head, "type": "array", "items": item}


def texts(reports: Sequence[Report], folder: Path) -> dict[Path, str]:
    """Return the texts of verdicts.json and of its schema. Lines of tables that are not among the reports stay."""
    names = {report.table.name for report in reports}
    others = [line for line in read(folder) if line["table"] not in names]
    own = (asdict(line) for report in reports for line in lines(report))
    every = others + [{key: _rounded(value) for key, value in line.items()} for line in own]
    every.sort(key=lambda line: str(line["table"]))  # stable: a table's lines keep their order
    text = "".join(f"{',' if k else '['}\n{json.dumps(line, ensure_ascii=False)}" for k, line in enumerate(every))
    return {folder / FILE: f"{text or '['}\n]\n", folder / SCHEMA: json.dumps(schema(), indent=1) + "\n"}


def _rounded(value: Any) -> Any:
    """Round a number to six digits, the same on every machine. JSON has no infinite numbers, so they become None."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def write(reports: Sequence[Report], folder: Path) -> None:
    """Write verdicts.json and its schema, if there is any report."""
    for path, text in texts(reports, folder).items() if folder.is_dir() else ():
        write_atomic(path, text.encode())


def read(folder: Path) -> list[dict[str, str | float | None]]:
    """Read the lines of verdicts.json as objects. Returns [] if there is no file."""
    path = folder / FILE
    return json.loads(path.read_text()) if path.is_file() else []
