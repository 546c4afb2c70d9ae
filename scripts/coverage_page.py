"""Write the tables of docs/coverage.md, what judges each table and figure of the papers, from docs/coverage.yaml."""

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from timescales import paths
from timescales.papers import load, reanalysed
from timescales.papers.table import Cell, Claim, Row, Table, expand, matches
from timescales.reports.markdown import grid, put
from timescales.runs import record, store

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("table", "script", "analysis", "why_not")
Item = Mapping[str, str]


@dataclass(frozen=True)
class Judged:
    """What a table says of an item.

    claims, cells: those that are about it. runs, planned: how many of their runs at paper size have ended with the
    numbers that they need, and how many there are to be; none for items about data only. small: how many runs of
    rungs have such numbers. published: whether published models of the authors have them.
    """

    claims: Sequence[Claim]
    cells: Sequence[Cell]
    runs: int
    planned: int
    small: int
    published: bool

    @property
    def standing(self) -> str:
        """Which runs stand behind the item: "all", "some" of paper size, "ladder" ones only, or "none".

        "data" where no run is needed.
        """
        if not self.planned:
            return "data"
        if self.runs:
            return "all" if self.runs == self.planned else "some"
        return "ladder" if self.small else "none"


def texts(check: bool) -> Iterator[tuple[Path, str]]:
    """Yield the page and its text."""
    page = ROOT / "docs" / "coverage.md"
    yield page, put(page.read_text(), {"coverage": markdown(read())}, "scripts/pages.py")


def read() -> list[dict[str, Any]]:
    """Return the papers of docs/coverage.yaml, each with its items."""
    papers = OmegaConf.to_container(OmegaConf.load(ROOT / "docs" / "coverage.yaml"))
    assert isinstance(papers, list)
    return papers


def markdown(papers: list[dict[str, Any]]) -> str:
    """Write the counts, and a section for each paper with a row for each of its tables and figures."""
    lines = [*counts([item for paper in papers for item in paper["items"].values()]), ""]
    header = ["item", "shows", "here", "judged by", "runs at paper size"]
    for paper in papers:
        body = [[label, item["shows"], place(item), judge(item), runs(item)] for label, item in paper["items"].items()]
        lines += [f"### {paper['paper']}", "", *grid(header, body), ""]
    return "\n".join(lines).rstrip()


def counts(items: Sequence[Item]) -> list[str]:
    """Lines: what judges how many of the items, and how many stand on runs of paper size."""
    planned = sum("analysis" in item and file_of(item["analysis"]) is None for item in items)
    count = Counter(next(kind for kind in KINDS if kind in item) for item in items)
    standing = Counter(judged(item).standing for item in items if "table" in item)
    return [
        f"{len(items)} tables, figures and printed results:",
        "",
        f"- {count['table']} are judged by the claims or printed values of a table here: {standing['all']} on all of",
        f"  its runs at paper size, {standing['some']} on some, {standing['ladder']} on rungs of a ladder only,",
        f"  {standing['none']} on none yet, {standing['data']} only on the data;",
        f"- {count['script']} are judged by a test: they show no trained model;",
        f"- {count['analysis']} are analyses without a verdict (`python scripts/analyse.py RUN_DIR`);",
        f"- {count['why_not']} are left out.",
        "",
        f"Analyses still planned, beside a table or not: {planned}.",
    ]


@functools.cache
def table_of(name: str) -> tuple[Table, list[Row]]:
    """Return a table, and its committed runs that have ended."""
    rows = [row for row in store.read_rows(paths.RESULTS / name / "runs.csv") if row.status in record.ENDED]
    return load.table(name), rows


def judged(item: Item) -> Judged:
    """Find what judges an item: the claims and values of its table, and their runs.

    `about` of an item: the metrics of its claims and values, and after @ their settings.
    """
    table, rows = table_of(item["table"])
    metrics, _, place = (text.strip() for text in item.get("about", "").partition("@"))
    pairs = (part.split("=", 1) for part in place.split())
    settings = {key: [yaml.safe_load(value) for value in values.split(",")] for key, values in pairs}
    about_data = metrics.startswith("data/")
    all_claims, all_cells = (table.claims, table.cells) if not about_data else split(table.data)
    claims = [claim for claim in all_claims if claim.metric.startswith(metrics) and _about(settings, claim)]
    cells = [cell for cell in all_cells if cell.metric.startswith(metrics) and _at(settings, cell.where)]
    wheres = [{**settings, **claim.place, **side} for claim in claims for side in claim.sides]
    wheres += [{**settings, **cell.where} for cell in cells]
    planned = [] if about_data else expand(table)
    wanted = [axes for axes in planned if any(matches(axes, where) for where in wheres)]
    measured = [row for row in rows if _has(row, metrics) and _at(settings, row.axes)]
    runs = sum(row.rung == "paper" and row.axes in wanted for row in measured)
    # Runs of rungs are judged by claims: of an item that is values only they say nothing.
    small = sum(row.rung not in ("paper", "rates") for row in measured) if claims else 0
    evidence = [found.item for found in reanalysed.judge(table, reanalysed.read(paths.RESULTS))]
    published = not about_data and any(item in evidence for item in (*claims, *cells))
    return Judged(claims, cells, runs, len(wanted), small, published)


def split(items: Sequence[Cell | Claim]) -> tuple[list[Claim], list[Cell]]:
    """Separate claims from values."""
    claims = [item for item in items if isinstance(item, Claim)]
    return claims, [item for item in items if isinstance(item, Cell)]


def _about(settings: Mapping[str, list[Any]], claim: Claim) -> bool:
    """Return whether all sides of a claim are at these settings."""
    return all(_at(settings, {**claim.place, **side}) for side in claim.sides)


def _at(settings: Mapping[str, list[Any]], where: Mapping[str, Any]) -> bool:
    """Return whether a place is at these settings, which list their values. where: of a cell, run or side."""
    return all(where[key] in values for key, values in settings.items() if key in where)


def _has(row: Row, metrics: str) -> bool:
    """Return whether a run has the numbers of an item. Those of an analysis are measured apart."""
    return not metrics.startswith("probe/") or any(
        key.startswith(metrics) and value is not None for key, value in row.values.items()
    )


def judge(item: Item) -> str:
    """Say what judges an item."""
    if "table" not in item:
        return "a test" if "script" in item else f"nothing: {item['no_claim']}" if "no_claim" in item else ""
    found, about = judged(item), item.get("about", "")
    numbers = {"value": len(found.cells), "claim": len(found.claims)}
    words = [f"{n} {word}{'s' if n > 1 else ''}" for word, n in numbers.items() if n]
    of = f" (`{about}`)" if about else ""
    return f"[{', '.join(words)}](../results/{item['table']}/table.md){of}"


def runs(item: Item) -> str:
    """Count an item's ended runs at paper size; if some are missing, also its runs of rungs."""
    if "table" not in item:
        return ""
    found = judged(item)
    if not found.planned:
        return "no run needed"
    published = "; [published models](../results/reanalysed/README.md)" if found.published else ""
    small = f"; {found.small} on the ladder" if found.small and found.runs < found.planned else ""
    return f"{found.runs or 'none'} of {found.planned}{small}{published}"


def place(item: Item) -> str:
    """Write links to what an item is here: its table, test or analysis."""
    words = {
        "table": lambda name: f"[{name}](../conf/table/{name}.yaml)",
        "script": lambda path: f"[{path}](../{path})",
        "analysis": analysis,
        "why_not": lambda text: f"left out: {text}",
    }
    return "; ".join(words[kind](item[kind]) for kind in KINDS if kind in item)


def analysis(text: str) -> str:
    """Write an item's "NAME, words" with a link to the analysis, or "planned, words"."""
    path = file_of(text)
    if path is None:
        return f"analysis: {text}"
    _, comma, words = text.partition(",")
    return f"analysis [{path.stem}](../{path.relative_to(ROOT)}){comma}{words}"


def file_of(text: str) -> Path | None:
    """Return the file of timescales/analysis that an item's "NAME, words" names; None for "planned, words"."""
    path = ROOT / "timescales" / "analysis" / f"{text.partition(',')[0]}.py"
    return path if path.is_file() else None
