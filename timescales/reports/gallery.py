"""Everything in results/ as pages: a front page, one for each table, one for whatever else lies there. Never trains.

Each page is a single file that needs no server and no network, and forbids itself to load anything (its content
security policy): pictures are data URIs, curves are drawn as SVG (charts.py), and text comes from Markdown in which
HTML has no meaning. `gallery.css` goes into all pages, `gallery.js`, the search, into the front page.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from typing import NamedTuple

from timescales.papers.verdict import ClaimResult, Outcome, Verdict, Word, items, sum_of
from timescales.reports import charts, table_page, wording
from timescales.reports.html import PICTURES, Site, anchor, badge, chip, chips, grid, html, picture, thumbnail
from timescales.reports.report import Report, by_paper, name_of
from timescales.runs.record import Record

HERE = Path(__file__).parent
ROWS = 60  # of a CSV that is shown as a table
ZERO = ' class="zero"'
SENTENCES = 3  # of an outcome that are shown at once
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#main">To the content</a>
{body}
</body>
</html>
"""
HEADER = """<header>
<nav><a href="index.html">timescales: results</a>{links}</nav>
<h1>{title}</h1>
</header>
<main id="main">
{body}
</main>"""
FRONT = """<header>
<nav>{links}</nav>
<h1>timescales: results</h1>
<p>Recurrent networks with long memory: {tables} tables and figures, of papers and of our own studies. {runs} runs,
{paper} at paper size and {small} of small-scale versions, are compared with what was printed, concluded or
expected.</p>
{findings}</header>
<search class="bar">
<label>Search <input id="filter" type="search" placeholder="plstm async, a run's id, a word of the log"></label>
<label>Verdict <select id="verdict"><option value="">any</option>{options}</select></label>
<output id="count" for="filter verdict"></output>
</search>
<main id="main">
<section id="summary">
<h2>What holds, what does not, what is open</h2>
<div class="outcomes">{outcomes}</div>
{papers}
<p class="dim">A conclusion holds, is refuted, or is too small for the paper to have seen it, if a test says so after
the correction for the other tests of its table. All others that were run are undecided. {verdicts} The
<em>small-scale version</em> of a table runs on a CPU in minutes; its verdict is about the ranking of the models alone,
and counts for nothing here. The runs of the table above are at paper size, and one that several tables share is
counted for each of them.</p>
</section>
{cards}
{others}
</main>
<script>
{script}</script>"""
# What a word says of a claim that is undecided.
UNDECIDED = {
    Word.UNDECIDED: "both sides tie",
    Word.IN_ORDER: "as claimed, not significant",
    Word.NOT_SHOWN: "“no different from”: neither shown nor excluded",
    Word.REVERSED: "the opposite, not significant",
    Word.REFUTED: "by fewer runs than the paper has",
    Word.TOO_SMALL: "by fewer runs than the paper has",
}
# What is said of a claim that nothing counts of.
UNCOUNTED = {
    Outcome.NOT_RUN: "some of its runs are missing, or of older code",
    Outcome.CANNOT: "by no planned number of runs",
    Outcome.CALIBRATED: "a setting was chosen by looking at it",
}


@dataclass(frozen=True)
class Entry:
    """A page, or a note of the log, to which the front page leads."""

    link: str
    title: str
    body: str  # HTML, in which the search finds words


def pages(reports: Sequence[Report], site: Site, runs: Sequence[Path] = ()) -> dict[str, str]:
    """The text of every page by its file's name.

    There is a page for each of `reports`, for each other folder and text of `site.results`, and for each of `runs`,
    directories of trained runs, with their analyses.
    """
    tables = {report.table.name: _table(report, site) for report in reports}
    folders = [path for path in sorted(site.results.iterdir()) if path.is_dir() and path.name not in tables]
    texts = [path for path in sorted(site.results.glob("*.md")) if path.name not in ("README.md", "LOG.md")]
    others = [*(_run(path, site) for path in runs), *(_folder(path, site) for path in folders)]
    others += [_note(path, site) for path in texts]
    log = _log(site)
    found = {entry.link: _page(entry.title, entry.body, site) for entry in [*tables.values(), *others]}
    found["log.html"] = _page("Log", _list(log) + "".join(note.body for note in log), site)
    found["index.html"] = _front(reports, tables, others, log, site)
    return found


def _page(title: str, body: str, site: Site) -> str:
    return _whole(f"{title} - timescales", HEADER.format(title=escape(title), body=body, links=_links(site)))


def _whole(title: str, body: str) -> str:
    style = f"{charts.colours()}\n{(HERE / 'gallery.css').read_text()}"
    return PAGE.format(policy=POLICY, title=escape(title), style=style, body=body)


def _links(site: Site) -> str:
    """Links to the documentation, where it is there."""
    return site.link("README.md", "Documentation") + site.link("statistics.md", "How verdicts are made")


def _front(
    reports: Sequence[Report], tables: dict[str, Entry], others: Sequence[Entry], log: Sequence[Entry], site: Site
) -> str:
    words = sorted({word for report in reports for word in _words(report)})
    papers = {name_of(own)[0].upper() + name_of(own)[1:]: own for own in by_paper(reports).values()}
    lists = {"Other results": others, "Log": log}
    body = FRONT.format(
        links=_links(site),
        tables=len(reports),
        runs=_runs(reports, "paper", "tiny"),
        paper=_runs(reports, "paper"),
        small=_runs(reports, "tiny"),
        findings=_findings(log),
        options="".join(f"<option>{escape(word)}</option>" for word in words),
        outcomes=_outcomes(reports),
        papers=_counts(papers),
        verdicts=f"Tables at paper size: {_frequent(report.verdict for report in reports)}.",
        cards="".join(
            f'<section><h2>{escape(paper)}</h2><ul class="cards">'
            f"{''.join(_card(report, tables[report.table.name]) for report in own)}</ul></section>"
            for paper, own in papers.items()
        ),
        others="".join(
            f"<section><h2>{title}</h2>{_list(entries, searched=True)}</section>"
            for title, entries in lists.items()
            if entries
        ),
        script=(HERE / "gallery.js").read_text(),
    )
    return _whole("timescales: results", body)


def _runs(reports: Sequence[Report], *sizes: str) -> int:
    """How many runs of these sizes have ended; one that several tables share is counted once."""
    return len({row.id for report in reports for size in sizes for row in report.rows[size]})


def _findings(log: Sequence[Entry]) -> str:
    """A link to the first note of the log, which has the findings; "" without a log."""
    if not log:
        return ""
    return f'<p><strong>Start here: <a href="{escape(log[0].link)}">{escape(log[0].title)}</a></strong></p>\n'


def _frequent(verdicts: Iterable[Verdict]) -> str:
    return ", ".join(f"{n} {escape(word)}" for word, n in Counter(map(wording.word, verdicts)).most_common())


class Judged(NamedTuple):
    """A conclusion or hypothesis of a table: what it counts as, its first result, and the place of this result."""

    report: Report
    outcome: Outcome
    result: ClaimResult
    number: int


def _outcomes(reports: Sequence[Report]) -> str:
    """Conclusions and hypotheses by outcome: those that are decided one by one, the words of the others."""
    claims = [
        Judged(report, outcome, results[0], report.claims.index(results[0]))
        for report in reports
        for outcome, results in items([result for result in report.claims if result.claim.decides])
    ]
    by = {outcome: [claim for claim in claims if claim.outcome == outcome] for outcome in Outcome}
    hold, fall, undecided = by[Outcome.HOLD], by[Outcome.REFUTED] + by[Outcome.TOO_SMALL], by[Outcome.UNDECIDED]
    words = Counter(claim.result.verdict.word for claim in undecided)
    why = [f"<li>{chip(f'{n} {word}', word)} {UNDECIDED[word]}</li>" for word, n in words.most_common()]
    depend = by[Outcome.DEPENDS]
    shown = [f"<li>{chip(f'{len(depend)} {Outcome.DEPENDS}', Outcome.DEPENDS)}</li>"] if depend else []
    waiting = [claim for outcome in UNCOUNTED for claim in by[outcome]]
    told = [f"<li>{chip(f'{len(by[o])} {o}', o)} {said}</li>" for o, said in UNCOUNTED.items() if by[o]]
    return (
        _outcome("hold", "good", hold, _shortened([_decided(claim) for claim in hold]))
        + _outcome("refuted or too small", "bad", fall, _shortened([_decided(claim) for claim in fall]))
        + _outcome("undecided", "open", undecided + depend, f"<ul>{''.join(why + shown)}</ul>")
        + _outcome("not counted", "open", waiting, f"<ul>{''.join(told)}</ul>")
    )


def _outcome(title: str, tone: str, claims: Sequence[Judged], items: str) -> str:
    ours = sum(bool(claim.result.claim.hypothesis) for claim in claims)
    return (
        f'<section class="outcome {tone}"><h3><b>{len(claims)}</b> {title}</h3>'
        f'<p class="dim">{len(claims) - ours} conclusions of papers, {ours} hypotheses of ours</p>{items}</section>'
    )


def _shortened(items: Sequence[str]) -> str:
    """A list of which the first items are shown at once."""
    first, rest = "".join(items[:SENTENCES]), items[SENTENCES:]
    more = f"<details><summary>{len(rest)} more</summary><ul>{''.join(rest)}</ul></details>" if rest else ""
    return f"<ul>{first}</ul>{more}"


def _decided(judged: Judged) -> str:
    """A claim with a link to its table's page, its restrictions and numbers, and one line of the sentence behind it."""
    name, claim = judged.report.table.name, judged.result.claim
    said = f"“{claim.quote}”" if claim.quote else claim.hypothesis
    marks = "".join(f' <span class="badge partly">{escape(m)}</span>' for m in wording.remarks(judged.result.verdict))
    return (
        f'<li><a href="{anchor(name)}.html#claim-{judged.number}"><code>{escape(claim.text)}</code></a>{marks}'
        f'<span class="numbers">{escape(wording.numbers(judged.result))}</span>'
        f'<span class="dim">{escape(name)}: {escape(said)}</span></li>'
    )


COUNTED = {
    "conclusions": (
        *(Outcome.HOLD, Outcome.REFUTED, Outcome.TOO_SMALL),
        *(Outcome.DEPENDS, Outcome.UNDECIDED, Outcome.NOT_RUN),
    ),
    "values": (Outcome.AGREE, Outcome.CLOSE, Outcome.DIFFER, Outcome.DEPENDS, Outcome.UNDECIDED, Outcome.NOT_RUN),
}  # by fields of Counts


def _counts(papers: dict[str, list[Report]]) -> str:
    """A row of counts for each paper; each number knows its head, for narrow windows."""
    columns = [(kind, name) for kind, names in COUNTED.items() for name in names]
    rows = []
    for paper, own in papers.items():
        counts = sum_of([report.verdict.counts for report in own if report.verdict.counts])
        runs = f"{sum(len(r.rows['paper']) for r in own)} of {sum(len(r.planned['paper']) for r in own)}"
        row = [f'<td data-head="tables">{len(own)}</td><td data-head="runs">{runs}</td>']
        for kind, name in columns:
            head, number = f"{kind} {name}", getattr(counts, kind)[name]
            row.append(f'<td data-head="{head}"{"" if number else ZERO}>{number}</td>')
        note = ' <span class="dim">(hypotheses)</span>' if counts.hypotheses else ""
        rows.append(f'<tr><th scope="row">{escape(paper)}{note}</th>{"".join(row)}</tr>')
    kinds = "".join(f'<th scope="colgroup" colspan="{len(names)}">{kind}</th>' for kind, names in COUNTED.items())
    names = "".join(f'<th scope="col">{name}</th>' for _, name in columns)
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="counts by paper"><table class="counts judged"><thead>'
        f"<tr><td></td><td></td><td></td>{kinds}</tr>"
        f'<tr><td></td><th scope="col">tables</th><th scope="col">runs</th>{names}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _card(report: Report, entry: Entry) -> str:
    """A table: what it shows, its verdict, and below a line its small-scale version."""
    path, link = report.folder / "figure.png", escape(entry.link)
    image = thumbnail(path) if path.is_file() else "<span>no runs yet</span>"
    return (
        f"<li{_searched(entry.title + ' ' + entry.body, _words(report))}>"
        f'<a class="thumbnail" href="{link}" tabindex="-1" aria-hidden="true">{image}</a>'
        f'<h3><a href="{link}">{escape(report.table.title)}</a></h3>'
        f'<p class="dim">{escape(report.table.name)}: {escape(report.table.source)}</p>'
        f'<dl class="verdicts"><dt>Paper size</dt><dd>{badge(report.verdict)}</dd>{chips(report.verdict.counts)}'
        f'</dl><dl class="verdicts small"><dt>Small-scale</dt><dd>{badge(report.small_verdict)}</dd></dl></li>'
    )


def _list(entries: Sequence[Entry], searched: bool = False) -> str:
    """Links to entries; searched: the search finds them."""
    items = (
        f"<li{_searched(entry.title + ' ' + entry.body) if searched else ''}>"
        f'<a href="{escape(entry.link)}">{escape(entry.title)}</a></li>'
        for entry in entries
    )
    return f'<ul class="list">{"".join(items)}</ul>'


def _searched(body: str, verdicts: Iterable[str] = ()) -> str:
    """Attributes for the search: the distinct words of a page but those of its drawings, and its verdicts."""
    text = unescape(re.sub(r"<svg.*?</svg>|<[^>]+>", " ", body, flags=re.S)).lower()
    words = " ".join(dict.fromkeys(text.split()))
    return f' class="entry" data-text="{escape(words)}" data-verdicts="{escape("|".join(verdicts))}"'


def _words(report: Report) -> list[str]:
    """Every verdict of a table, once, without its remarks: what the choice of verdicts finds it by."""
    judged = [result.verdict for results in (report.cells, report.claims, report.small_claims) for result in results]
    verdicts: list[Verdict] = [report.verdict, report.small_verdict, *judged]
    return sorted(set(map(wording.word, verdicts)))


def _table(report: Report, site: Site) -> Entry:
    name = report.table.name
    body = table_page.body(report, site)
    body += _files(report.folder, site, ("table.md", "runs.csv", "figure.png", "sensitivity.csv"))
    return Entry(f"{anchor(name)}.html", f"{name}: {report.table.title}", body)


def _folder(folder: Path, site: Site) -> Entry:
    """What lies in a folder of results/ that is no table's."""
    return Entry(f"{anchor(folder.name)}.html", folder.name, _files(folder, site))


def _run(directory: Path, site: Site) -> Entry:
    """A trained run: its outcome, its curve, and what its analyses have drawn."""
    found = Record.read(directory)
    curve = charts.of_run(directory.name, "this run", found, found.curve if found else [])
    body = f"<p>{escape(found.summary if found else 'no record')}</p>{curve}{_files(directory / 'analysis', site)}"
    return Entry(f"run-{anchor(directory.name)}.html", directory.name, body)


def _note(path: Path, site: Site) -> Entry:
    """A text of results/, under its own title."""
    title, _, text = path.read_text().partition("\n")
    return Entry(f"{anchor(path.stem)}.html", title.lstrip("# "), html(text, path.parent, site))


def _log(site: Site) -> list[Entry]:
    """LOG.md, an entry for each of its dated notes."""
    path = site.results / "LOG.md"
    notes = re.split(r"^## ", path.read_text(), flags=re.M)[1:] if path.is_file() else []
    entries = []
    for k, note in enumerate(notes):
        title, _, text = note.partition("\n")
        name = f"log-{len(notes) - k}"
        body = f'<article id="{name}"><h2>{escape(title)}</h2>{html(text, path.parent, site)}</article>'
        entries.append(Entry(f"log.html#{name}", title, body))
    return entries


def _files(folder: Path, site: Site, but: Sequence[str] = ()) -> str:
    """Every text, picture and CSV below a folder, except those of its own with these names, curves/ and blocks/."""
    kinds = [".md", *PICTURES, ".csv"]  # in this order
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in kinds and path.is_file()]
    paths.sort(key=lambda path: kinds.index(path.suffix))
    paths = [path for path in paths if not (path.parent == folder and path.name in but)]
    paths = [path for path in paths if not {"curves", "blocks"} & set(path.relative_to(folder).parts[:-1])]
    texts = {path: path.read_text() for path in paths if path.suffix == ".md"}
    return "".join(_file(path, folder, site, texts) for path in paths)


def _file(path: Path, folder: Path, site: Site, texts: dict[Path, str]) -> str:
    """A file of a folder; a picture only if no text beside it shows it."""
    name = path.relative_to(folder).as_posix()
    if path in texts:
        return html(texts[path], path.parent, site)
    if path.suffix == ".csv":
        return _csv(path, name)
    if any(text and f"]({path.name})" in text for p, text in texts.items() if p.parent == path.parent):
        return ""
    alt = f"{folder.name}, {path.stem.replace('_', ' ')}"
    return f"<figure>{picture(path, alt)}<figcaption>{escape(name)}</figcaption></figure>"


def _csv(path: Path, name: str) -> str:
    """A CSV: a curve if its first column is `step`, else a table that opens on demand."""
    with path.open(newline="") as file:
        head, *body = list(csv.reader(file)) or [[]]
    if head[:1] == ["step"]:
        from timescales.runs.loggers import Curve

        lines = [dict(zip(head, line, strict=False)) for line in body]
        points = [{k: float(v) for k, v in line.items() if v and k != Curve.CHECK} for line in lines]
        return charts.of_run(path.parent.name, path.parent.name, Record.read(path.parent), points)
    more = f", the first {ROWS} of {len(body)} rows" if len(body) > ROWS else ""
    return f"<details><summary>{escape(name)}{more}</summary>{grid(head, body[:ROWS])}</details>"
