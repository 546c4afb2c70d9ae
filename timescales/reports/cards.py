"""Write a page for each paper: what is known about it, what its runs took, and how to run its tables.

`scripts/report.py` writes the pages to docs/papers, and their list to docs/papers/README.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import yaml

from timescales import paths
from timescales.errors import ConfigError
from timescales.papers.table import PAPER, Grid
from timescales.reports import index, markdown, readme, wording
from timescales.reports.report import Report, by_paper, full_size
from timescales.runs import cost

FOLDER = paths.ROOT / "docs" / "papers"
CITATIONS = paths.ROOT / "CITATION.cff"
STUDIES = "ours"  # the page of our own studies is written by hand
RESULTS = "../../results"  # as seen from FOLDER
COMMANDS = """\
make small TABLE={0}                # the first rung of its ladder: planned for a quarter of an hour on one core
make reproduce TABLE={0} HOURS=2    # the largest rung that fits into two hours here
make reproduce TABLE={0}            # the paper's size"""


class Entry(TypedDict):
    """A paper in CITATION.cff, with the fields that are used here."""

    authors: list[dict[str, str]]  # "family-names", "given-names"
    year: int
    title: str
    notes: str


def pages(reports: Sequence[Report]) -> dict[Path, str]:
    """Return the text of each paper's page, and of the list of papers, by path. reports: those of all tables."""
    papers = by_paper(reports)
    cards = {FOLDER / f"{paper}.md": card(paper, own) for paper, own in papers.items() if paper != STUDIES}
    path = FOLDER / "README.md"
    return cards | {path: readme.put(path.read_text(), {"papers": listed(papers)})}


def listed(papers: Mapping[str, Sequence[Report]]) -> str:
    """Make a table with a row for each paper and for our own studies."""
    titles = {paper: "our own studies" if paper == STUDIES else title(reference(paper)) for paper in papers}
    body = [[f"[{titles[paper]}]({paper}.md)", len(own), *counts(own)] for paper, own in papers.items()]
    return "\n".join(markdown.grid(["page", "tables", "conclusions", "printed values"], body))


def reference(paper: str) -> Entry:
    """Return the entry of a paper in CITATION.cff, by its first author. Raises ConfigError if there is none."""
    for entry in yaml.safe_load(CITATIONS.read_text())["references"]:
        if entry["authors"][0]["family-names"].lower() == paper:
            found: Entry = entry
            return found
    raise ConfigError(f"{CITATIONS.name}: references: none is by {paper}; add the paper of table/{paper}_*.yaml")


def title(entry: Entry) -> str:
    """Return authors, year and title: "Chien et al. 2021: Slower is Better"."""
    return f"{_authors(entry, most=2)} {entry['year']}: {entry['title']}"


def _authors(entry: Entry, most: int) -> str:
    """Return the authors' names, or the first author's name with "et al." if there are more than `most`."""
    *others, last = [author["family-names"] for author in entry["authors"]]
    if len(others) >= most:
        return f"{others[0]} et al."
    return f"{', '.join(others)} & {last}" if others else str(last)


def card(paper: str, reports: Sequence[Report]) -> str:
    """Write the page of a paper. reports: those of its tables."""
    entry = reference(paper)
    # The picture is that of the table with the most runs at the paper's size, then on the ladder.
    shown = max(reports, key=lambda report: (len(report.rows[PAPER]), len(report.all_rows)))
    name = shown.table.name
    lines = [f"# {title(entry)}", "", "Written by `make report` from the committed runs.", ""]
    published, _, arxiv = entry["notes"].partition("arXiv ")
    link = f"[arXiv {arxiv}](https://arxiv.org/abs/{arxiv})" if arxiv else ""
    lines += [f"{_authors(entry, most=99)}. {published}{link}.", "", *_summary(reports), ""]
    asked = index.questions(reports)
    if asked:
        body = [[question, answer, link.replace("](", f"]({RESULTS}/")] for question, answer, link in asked]
        lines += ["## Its questions", "", *markdown.grid(["question", "answer so far", "evidence"], body), ""]
    if markdown.verdicts_drawn(shown):
        link = f"[{name}]({RESULTS}/{name}/table.md)"
        lines += [f"![{shown.table.title}]({RESULTS}/{name}/verdicts.png)", "", f"*{shown.table.title}: {link}.*", ""]
    lines += ["## How to run it", "", "```bash", *COMMANDS.format(name).splitlines(), "```", ""]
    body = []
    for report in reports:
        link, _, *decided, runs, missing, rungs = index.row(report)
        hours = sum(row.seconds for row in report.rows[PAPER]) / 3600
        spent = f"{hours:.1f}" if hours else ""
        body.append([link.replace("](", f"]({RESULTS}/"), report.table.title, *decided, runs, spent, missing, rungs])
    head = ("table", "shows", "conclusions", "printed values", "runs", "hours", "missing", "rungs run")
    return "\n".join([*lines, "## Tables and figures", "", *markdown.grid(head, body)]) + "\n"


def models(grids: Iterable[Grid]) -> list[str]:
    """Return the models of grids that have a page. `model=gated model.gate=ur` counts as `ur` too."""
    grids = list(grids)
    return values(grids, "model") + (["ur"] if "ur" in values(grids, "model.gate") else [])


def values(grids: Iterable[Grid], key: str) -> list[Any]:
    """Return the values that a setting has in grids, each once."""
    return list(dict.fromkeys(value for grid in grids for value in grid.values().get(key, [])))


def _summary(reports: Sequence[Report]) -> list[str]:
    """Summarise the paper as a whole. A run that several tables share counts once."""
    grids = [grid for report in reports for grid in report.table.runs]
    ended, missing = full_size(reports)
    rungs = {
        row.id: row.seconds for report in reports for size in report.rows if size != PAPER for row in report.rows[size]
    }
    conclusions, values_ = counts(reports)
    body = [
        ["conclusions", conclusions],
        *([["printed values", values_]] if values_ else []),
        ["runs at the paper's size", f"{len(ended.keys() - missing.keys())} of {len(ended | missing)}{_hours(ended)}"],
        ["missing runs", wording.price(missing.values()) or "none"],
        ["runs on ladders", f"{len(rungs)}{_hours(rungs)}"],
        ["models", ", ".join(f"[{name}](../models/{name}.md)" for name in models(grids))],
        ["tasks", ", ".join(f"[{name}](../tasks/{name}.md)" for name in values(grids, "task"))],
    ]
    return markdown.grid(["", ""], body)


def _hours(runs: Mapping[str, float]) -> str:
    return f", which took {cost.duration(sum(runs.values()))}" if runs else ""


def counts(reports: Sequence[Report]) -> list[str]:
    """Count the decided conclusions, and the decided printed values, of several tables together, in words."""
    kind = "hypotheses" if reports[0].table.paper == "ours" else "conclusions"
    return [wording.counted(index.sum_of(reports, k), kind) for k, kind in enumerate((kind, "printed values"))]
