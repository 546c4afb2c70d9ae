"""Write the measured parts of each paper's page: what is known about it, what its runs took, and its tables.

`scripts/report.py` writes them into docs/papers, and a list of the pages into docs/papers/README.md.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from timescales import paths
from timescales.errors import ConfigError
from timescales.papers.table import PAPER, Grid
from timescales.reports import index, markdown, wording
from timescales.reports.report import Report
from timescales.runs import cost

FOLDER = paths.ROOT / "docs" / "papers"
RESULTS = "../../results"  # as seen from FOLDER


def pages(reports: Sequence[Report]) -> dict[Path, str]:
    """Return the text of each paper's page, and of the list of papers, by path. reports: of all tables, by name."""
    texts: dict[Path, str] = {}
    body = []
    for paper, group in itertools.groupby(reports, key=lambda report: report.table.paper):
        own, path = list(group), FOLDER / f"{paper}.md"
        if not path.is_file():
            raise ConfigError(f"no page {path}, which table/{paper}_*.yaml needs: write it like another paper's page")
        text = path.read_text()
        if paper != "ours":
            asked = "\n".join(index.questions(own, f"{RESULTS}/"))
            texts[path] = markdown.put(text, {"summary": summary(own), "questions": asked, "tables": tables(own)})
        title = text.partition("\n")[0].removeprefix("# ")
        body.append([f"[{title}]({path.name})", len(own), *wording.counts(own)])
    listed = markdown.grid(["page", "tables", "conclusions", "printed values"], body)
    path = FOLDER / "README.md"
    return texts | {path: markdown.put(path.read_text(), {"papers": "\n".join(listed)})}


def tables(reports: Sequence[Report]) -> str:
    """List a paper's tables with their verdicts and runs."""
    body = []
    for report in reports:
        link, _, *decided, runs, missing, rungs = index.row(report)
        hours = sum(row.seconds for row in report.rows[PAPER]) / 3600
        spent = f"{hours:.1f}" if hours else ""
        body.append([link.replace("](", f"]({RESULTS}/"), report.table.title, *decided, runs, spent, missing, rungs])
    head = ("table", "shows", "conclusions", "printed values", "runs", "hours", "missing", "rungs run")
    return "\n".join(markdown.grid(head, body))


def models(grids: Iterable[Grid]) -> list[str]:
    """Return the models of grids that have a page. `model=gated model.gate=ur` counts as `ur` too."""
    grids = list(grids)
    return values(grids, "model") + (["ur"] if "ur" in values(grids, "model.gate") else [])


def values(grids: Iterable[Grid], key: str) -> list[Any]:
    """Return the values that a setting has in grids, each once."""
    return list(dict.fromkeys(value for grid in grids for value in grid.values().get(key, [])))


def summary(reports: Sequence[Report]) -> str:
    """Summarise the paper as a whole. A run that several tables share counts once."""
    grids = [grid for report in reports for grid in report.table.runs]
    ended = {row.id: row.seconds for report in reports for row in report.rows[PAPER]}
    missing: dict[str, float | None] = {}
    for run, seconds in (each for report in reports for each in report.open_runs[PAPER]):
        missing[run.id] = missing.get(run.id) or seconds  # another table may know the price
    rungs = {
        row.id: row.seconds for report in reports for size in report.rows if size != PAPER for row in report.rows[size]
    }
    conclusions, printed = wording.counts(reports)
    body = [
        ["conclusions", conclusions],
        *([["printed values", printed]] if printed else []),
        ["runs at the paper's size", f"{len(ended.keys() - missing.keys())} of {len(ended | missing)}{_took(ended)}"],
        ["missing runs", wording.price(missing.values()) or "none"],
        ["runs on ladders", f"{len(rungs)}{_took(rungs)}"],
        ["models", ", ".join(f"[{name}](../models/{name}.md)" for name in models(grids))],
        ["tasks", ", ".join(f"[{name}](../tasks/{name}.md)" for name in values(grids, "task"))],
    ]
    return "\n".join(markdown.grid(["", ""], body))


def _took(runs: Mapping[str, float]) -> str:
    return f", which took {cost.duration(sum(runs.values()))}" if runs else ""
