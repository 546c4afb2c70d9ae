"""A page for each paper: what it claims, what our runs say of that, what they took, and what is missing.

`scripts/report.py` writes the pages into docs/papers, and their list into docs/papers/README.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import yaml

from timescales import paths
from timescales.errors import ConfigError
from timescales.papers.reanalysed import in_words
from timescales.papers.table import Grid
from timescales.papers.verdict import sum_of
from timescales.reports import markdown, readme, wording
from timescales.reports.report import Report, by_paper, price

FOLDER = paths.ROOT / "docs" / "papers"
CITATIONS = paths.ROOT / "CITATION.cff"
STUDIES = "ours"  # the page of our own studies is written by hand
RESULTS = "../../results"  # as seen from FOLDER
ARXIV = "https://arxiv.org/abs/"
TABLES_HEAD = ("table", "shows", "at paper size", "conclusions and values", "small-scale", "runs", "hours", "missing")


class Entry(TypedDict):
    """A paper in CITATION.cff, as far as it is read here."""

    authors: list[dict[str, str]]  # "family-names", "given-names"
    year: int
    title: str
    notes: str


def pages(reports: Sequence[Report]) -> dict[Path, str]:
    """The text of each paper's page, and of the list of all, by path. reports: those of all tables."""
    papers = by_paper(reports)
    cards = {FOLDER / f"{paper}.md": card(paper, own) for paper, own in papers.items() if paper != STUDIES}
    index = FOLDER / "README.md"
    return cards | {index: readme.put(index.read_text(), {"papers": listed(papers)})}


def stale(reports: Sequence[Report]) -> list[Path]:
    """The pages that are not what the reports give."""
    return [path for path, text in pages(reports).items() if not path.is_file() or path.read_text() != text]


def listed(papers: Mapping[str, Sequence[Report]]) -> str:
    """A row for each paper and for our own studies."""
    head = ["page", "tables", "conclusions and values", "at paper size", "small-scale"]
    titles = {paper: "our own studies" if paper == STUDIES else title(reference(paper)) for paper in papers}
    body = [
        [f"[{titles[paper]}]({paper}.md)", len(own), _counts(own), *readme.verdicts(own)]
        for paper, own in papers.items()
    ]
    return "\n".join(markdown.grid(head, body))


def reference(paper: str) -> Entry:
    """The paper's entry in CITATION.cff, by its first author. Raises ConfigError if there is none."""
    for entry in yaml.safe_load(CITATIONS.read_text())["references"]:
        if entry["authors"][0]["family-names"].lower() == paper:
            found: Entry = entry
            return found
    raise ConfigError(f"{CITATIONS.name}: references: none is by {paper}; add the paper of table/{paper}_*.yaml")


def title(entry: Entry) -> str:
    """Authors, year and title: "Chien et al. 2021: Slower is Better"."""
    return f"{_authors(entry, most=2)} {entry['year']}: {entry['title']}"


def _authors(entry: Entry, most: int) -> str:
    """The authors' names, or the first one's with "et al." if there are more than `most`."""
    *others, last = [author["family-names"] for author in entry["authors"]]
    if len(others) >= most:
        return f"{others[0]} et al."
    return f"{', '.join(others)} & {last}" if others else str(last)


def _notes(entry: Entry) -> str:
    """Where the paper was published, with a link to arXiv."""
    before, arxiv, number = entry["notes"].partition("arXiv ")
    return f"{before}[{arxiv}{number}]({ARXIV}{number})" if arxiv else before


def card(paper: str, reports: Sequence[Report]) -> str:
    """The page of a paper. reports: those of its tables."""
    entry, shown = reference(paper), main(reports)
    name = shown.table.name
    lines = [f"# {title(entry)}", "", "Written by `make report` from the committed runs.", ""]
    lines += [f"{_authors(entry, most=99)}. {_notes(entry)}.", "", *_summary(reports), ""]
    if shown.table.figure and shown.all_rows:
        link = f"{RESULTS}/{name}"
        lines += [f"![{shown.table.title}]({link}/figure.png)", "", f"*{shown.table.title}: {_link(shown)}.*", ""]
    lines += ["## How to run it", "", "```bash", *_commands(name), "```", ""]
    lines += ["## Tables and figures", "", *markdown.grid(TABLES_HEAD, [_table_row(each) for each in reports]), ""]
    lines += ["## What the paper claims, and what our runs say", "", CLAIMS, ""]
    for each in reports:
        lines += _claims(each)
    return "\n".join(lines).rstrip() + "\n"


CLAIMS = """\
The claims of each table with the paper's words, then the printed values that runs can be compared with. All are at
paper size. *Not run*: runs are missing. *Undecided*: all are there, and decide nothing. *Cannot be decided*: by no
planned run. [statistics.md](../statistics.md) defines all words. The reports that the titles link have the p values,
the small-scale versions, what the papers do not state, and what else we look at."""


def main(reports: Sequence[Report]) -> Report:
    """The table whose figure the page shows: the one with the most runs at paper size, then of the small-scale version,
    then with the most conclusions and values."""

    def size(report: Report) -> tuple[int, int, int]:
        return len(report.rows["paper"]), len(report.rows["tiny"]), len(report.cells) + len(report.claims)

    return max(reports, key=size)


def models(grids: Iterable[Grid]) -> list[str]:
    """The models of grids that have a page; `model=gated model.gate=ur` is that of `ur`, too."""
    grids = list(grids)
    return values(grids, "model") + (["ur"] if "ur" in values(grids, "model.gate") else [])


def values(grids: Iterable[Grid], key: str) -> list[Any]:
    """The values that a setting takes in grids, each once."""
    return list(dict.fromkeys(value for grid in grids for value in grid.values().get(key, [])))


def _summary(reports: Sequence[Report]) -> list[str]:
    """What became of the paper as a whole. A run that several tables share is counted once."""
    grids = [grid for report in reports for grid in report.table.runs]
    paper, small = readme.verdicts(reports)
    ended, missing = _ended(reports, "paper"), _open_runs(reports)
    finished = len(ended.keys() - missing.keys())
    tiny = _ended(reports, "tiny")
    told = in_words([found for report in reports for found in report.reanalysed])
    body = [
        ["tables at paper size", paper],
        ["small-scale versions", small],
        ["conclusions and values", _counts(reports)],
        *([[f"[without a training]({RESULTS}/reanalysed/README.md)", told]] if told else []),
        ["runs at paper size", _took(f"{finished} of {len(ended | missing)}", ended)],
        ["missing runs", wording.price(price(missing.values())) or "none"],
        ["small-scale runs", _took(str(len(tiny)), tiny)],
        ["models", ", ".join(f"[{name}](../models/{name}.md)" for name in models(grids))],
        ["tasks", ", ".join(f"[{name}](../tasks/{name}.md)" for name in values(grids, "task"))],
    ]
    return [*markdown.grid(["", ""], body), "", SUMMARY]


SUMMARY = """\
A run that several tables share is counted once here, and in each of them below. Hours are those of the machines that
the reports name; what missing runs take is an upper bound, from runs of the same kind or from a few timed steps."""


def _counts(reports: Sequence[Report]) -> str:
    return wording.counts(sum_of([report.verdict.counts for report in reports if report.verdict.counts]))


def _ended(reports: Sequence[Report], size: str) -> dict[str, float]:
    """The seconds of each run that has ended, by id."""
    return {row.id: row.seconds for report in reports for row in report.rows[size]}


def _open_runs(reports: Sequence[Report]) -> dict[str, float | None]:
    """The seconds of the missing runs by id; of a run that several tables have, those that are known if any are."""
    runs = [open_run for report in reports for open_run in report.useful_runs]
    return {run.id: seconds for run, seconds in sorted(runs, key=lambda open_run: open_run[1] is not None)}


def _took(count: str, runs: Mapping[str, float]) -> str:
    return f"{count}, which took {_hours(runs)}" if runs else count


def _hours(runs: Mapping[str, float]) -> str:
    return f"{sum(runs.values()) / 3600:.1f} h" if runs else ""


def _commands(name: str) -> list[str]:
    """How to run one table; the others have their names in the list below."""
    commands = {
        f"make plan TABLE={name}": "list its runs, and which of them are there",
        f"make reproduce TABLE={name}": "run it at paper size, and write its report",
        f"make small TABLE={name}": "its small-scale version, on a CPU",
    }
    width = max(map(len, commands))
    return [f"{command:{width}}    # {what}" for command, what in commands.items()]


def _link(report: Report) -> str:
    name = report.table.name
    return f"[{name}]({RESULTS}/{name}/table.md)" if report.all_rows else name


def _table_row(report: Report) -> list[str]:
    ended = {row.id: row.seconds for row in report.rows["paper"]}
    words = [wording.text(report.verdict), wording.counts(report.verdict.counts), wording.text(report.small_verdict)]
    runs = f"{len(ended)} of {len(report.planned['paper'])}"
    return [_link(report), report.table.title, *words, runs, _hours(ended), wording.price(report.price_of({}))]


def _claims(report: Report) -> list[str]:
    """A table's conclusions with the paper's words, each sentence once, and its printed values."""
    sentences: dict[str, list[list[str]]] = {}
    for result in (result for result in report.claims if result.claim.quote):
        row = [f"`{result.claim.text}`", wording.text(result.verdict), wording.numbers(result)]
        sentences.setdefault(markdown.source_of(result), []).append(row)
    body = [[sentence if k == 0 else "", *row] for sentence, rows in sentences.items() for k, row in enumerate(rows)]
    lines = [*markdown.grid(["the paper", "claim", "verdict", "ours"], body), ""] if body else []
    lines += _values(report)
    heading = [f"### {_link(report)}: {report.table.title}", "", f"{report.table.source}.", ""]
    return heading + (lines or ["The text at hand has neither conclusions nor values for it.", ""])


def _values(report: Report) -> list[str]:
    """The printed values that have runs, and how many have none."""
    printed = [row[:5] for row in markdown.value_rows(report) if row[1]]
    compared = [row for row in printed if row[3]]
    table = markdown.grid(["setting", f"paper ({report.table.unit})", "ours", "n", "verdict"], compared)
    without = len(printed) - len(compared)
    lines = [*table, ""] if compared else []
    return lines + ([f"{without} printed value{'s' if without > 1 else ''} without runs yet.", ""] if without else [])
