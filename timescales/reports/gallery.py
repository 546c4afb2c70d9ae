"""Everything in results/ on one page: a single HTML file that needs no server and no network. Never trains.

The page forbids itself to load anything (its content security policy): pictures are data URIs, curves are drawn as SVG
(charts.py), and text comes from Markdown in which HTML has no meaning. `gallery.css` and `gallery.js` beside this file
go into the page as they are.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from timescales.papers.table import Row
from timescales.papers.verdict import Verdict, Word
from timescales.reports import charts, markdown
from timescales.reports.html import PICTURES, anchor, grid, html, picture
from timescales.reports.report import Report
from timescales.runs import record, store

HERE = Path(__file__).parent
ROWS = 60  # of a CSV that is shown as a table
# How a verdict's word is coloured: it agrees, partly, or not; any other says nothing yet. The word is always there.
TONES = {
    "good": (Word.MATCH, Word.HOLDS, Word.REPRODUCED, Word.CONCLUSIONS_HOLD, Word.ORDER_SHOWN),
    "partly": (Word.COMPATIBLE, Word.BETTER, Word.IN_ORDER, Word.PARTLY_REPRODUCED),
    "bad": (
        *(Word.WORSE, Word.DIFFERENT, Word.UNSTABLE, Word.REFUTED, Word.REVERSED),
        *(Word.CONTRADICTED, Word.VALUES_DIFFER, Word.NOT_IN_ORDER),
    ),
}
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>timescales: results</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#tables">To the tables</a>
<header>
<h1>timescales: results</h1>
<p>Recurrent networks whose memory has a controlled time scale: the papers' tables, printed and measured.
{summary} The <em>small-scale version</em> of a table runs on a CPU; its verdict is about the ranking of the models
alone.</p>
</header>
<search class="bar">
<label>Filter <input id="filter" type="search" placeholder="plstm async, a run's id, a word of the log"></label>
<label>Verdict <select id="verdict"><option value="">any</option>{options}</select></label>
<output id="count" for="filter verdict"></output>
</search>
<main>
<h2 id="tables">Tables and figures</h2>
{index}
{entries}
</main>
<script>
{script}</script>
</body>
</html>
"""


def page(reports: Sequence[Report], results: Path, runs: Sequence[Path] = ()) -> str:
    """The whole page: every table of `reports`, whatever else lies in results/, and the analyses of run directories."""
    words = sorted({word for report in reports for word in _words(report)})
    return PAGE.format(
        policy=POLICY,
        style=f"{charts.colours()}\n{(HERE / 'gallery.css').read_text()}",
        summary=_summary(reports),
        options="".join(f"<option>{escape(word)}</option>" for word in words),
        index=_index(reports),
        entries="".join(_entries(reports, results, runs)),
        script=(HERE / "gallery.js").read_text(),
    )


def _summary(reports: Sequence[Report]) -> str:
    verdicts = Counter(report.verdict.word for report in reports).most_common()
    whole = ", ".join(f"{n} {word}" for word, n in verdicts)
    count = sum(len({row["id"] for row in report.all_rows}) for report in reports)
    return f"{len(reports)} tables at paper size: {escape(whole)}; {count} runs."


def _entries(reports: Sequence[Report], results: Path, runs: Sequence[Path]) -> list[str]:
    names = [report.table.name for report in reports]
    parts = [_table(report) for report in reports]
    if runs:
        parts += ["<h2>Trained runs</h2>", *(_run(directory, results) for directory in runs)]
    folders = [path for path in sorted(results.iterdir()) if path.is_dir() and path.name not in names]
    if others := list(filter(None, (_folder(path, results) for path in folders))):
        parts += ["<h2>Beside the tables</h2>", *others]
    return [*parts, "<h2>Log</h2>", *_log(results / "LOG.md")]


def _entry(name: str, title: str, badges: str, body: str, words: Iterable[str] = (), shut: bool = False) -> str:
    """A part of the page that the filter shows or hides as a whole."""
    return (
        f'<section class="entry" id="{anchor(name)}" data-words="{escape("|".join(words))}">'
        f"<details{'' if shut else ' open'}><summary><h3>{escape(title)}</h3>{badges}</summary>"
        f"{body}</details></section>\n"
    )


def _index(reports: Sequence[Report]) -> str:
    """A card for each table, under its paper."""
    papers: dict[str, list[str]] = {}
    for report in reports:
        paper = report.table.source.split(",")[0].split(";")[0]
        papers.setdefault(paper, []).append(_card(report))
    return "".join(
        f'<h3>{escape(paper)}</h3><ul class="cards">{"".join(cards)}</ul>' for paper, cards in papers.items()
    )


def _card(report: Report) -> str:
    name, table = report.table.name, report.table
    count = Counter(verdict.word for verdict in _judged(report))
    counts = [_badge(f"{n} {word}", word) for word, n in count.items() if word != Word.BLANK]
    return (
        f'<li data-for="{anchor(name)}"><a href="#{anchor(name)}">{escape(name)}</a>'
        f'<p>{escape(table.title)}</p><p class="dim">{escape(table.source)}</p>'
        f"<p>{_whole(report)}</p><p>{' '.join(counts)}</p></li>"
    )


def badge(verdict: Verdict) -> str:
    """A verdict on its colour."""
    return _badge(markdown.text(verdict), verdict.word)


def _badge(text: str, word: Word) -> str:
    tone = next((tone for tone, words in TONES.items() if word in words), "open")
    return f'<span class="badge {tone}">{escape(text)}</span>'


def _badges(report: Report) -> dict[str, str]:
    """The badges of a report's verdicts, by their texts in table.md."""
    verdicts = [*_judged(report), *(result.verdict for result in report.small_claims)]
    return {markdown.text(verdict): badge(verdict) for verdict in verdicts}


def _judged(report: Report) -> list[Verdict]:
    return [result.verdict for results in (report.cells, report.claims) for result in results]


def _whole(report: Report) -> str:
    counts = escape(markdown.counts(report.verdict.counts))
    return f"paper size {badge(report.verdict)} {counts} small-scale version {badge(report.small_verdict)}"


def _words(report: Report) -> list[str]:
    """Every verdict of a table, once, without its remarks: what the choice of verdicts finds it by."""
    small = [report.small_verdict, *(result.verdict for result in report.small_claims)]
    return sorted({verdict.word for verdict in [report.verdict, *_judged(report), *small]})


def _table(report: Report) -> str:
    """A table: its report, the curves of its runs, what else lies in its folder, and the runs themselves."""
    name, folder, rows = report.table.name, report.folder, report.all_rows
    text = markdown.table(report).partition("\n")[2]
    if not (folder / "figure.png").is_file():
        text = re.sub(r"!\[[^\]]*\]\(figure\.png\)\n", "", text)
    body = html(text, folder, report.results, _badges(report)) + charts.of_table(report)
    body += _files(folder, report.results, ("table.md", "runs.csv", "figure.png", "sensitivity.csv"))
    if rows:
        body += f"<details><summary>All {len(rows)} runs</summary>{grid(*_runs(rows))}</details>"
    return _entry(name, f"{name}: {report.table.title}", _whole(report), body, _words(report), shut=not rows)


def _runs(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    axes = list(dict.fromkeys(key for row in rows for key in row["axes"] if key != "seed"))
    known = {*store.COLUMNS, "axes", "stale", "curve", "blocks", "profile"}
    metrics = [key for key in dict.fromkeys(k for row in rows for k in row) if key not in known and "probe/" not in key]
    head = ["id", "size", *axes, "seed", "status", *metrics, "minutes", "machine", "commit"]
    return head, [_run_row(row, axes, metrics) for row in rows]


def _run_row(row: Row, axes: Sequence[str], metrics: Sequence[str]) -> list[str]:
    settings = [markdown.say(row["axes"].get(key, "")) for key in axes]
    values = ["" if row.get(key) is None else markdown.number(row[key]) for key in metrics]
    origin = [f"{row['seconds'] / 60:.1f}", str(row["machine"]), str(row["commit"])]
    return [row["id"], row["profile"], *settings, str(row["seed"]), row["status"], *values, *origin]


def _folder(folder: Path, results: Path) -> str:
    """What lies in a folder of results/ that is no table's."""
    body = _files(folder, results)
    return _entry(folder.name, folder.name, "", body) if body else ""


def _run(directory: Path, results: Path) -> str:
    """A trained run: its outcome, its curve, and what its analyses have drawn."""
    found = record.read(directory)
    curve = charts.of_run(directory.name, "this run", found, found["curve"] if found else [])
    body = f"<p>{escape(record.summary(found))}</p>{curve}{_files(directory / 'analysis', results)}"
    return _entry(f"run-{directory.name}", directory.name, "", body)


def _log(path: Path) -> list[str]:
    """LOG.md, an entry for each of its dated notes."""
    if not path.is_file():
        return []
    notes = re.split(r"^## ", path.read_text(), flags=re.M)[1:]
    entries = []
    for k, note in enumerate(notes):
        title, _, text = note.partition("\n")
        body = html(text, path.parent, path.parent)
        entries.append(_entry(f"log-{len(notes) - k}", title, "", body, shut=k > 0))
    return entries


def _files(folder: Path, results: Path, but: Sequence[str] = ()) -> str:
    """Every text, picture and CSV below a folder, except those of its own with these names, curves/ and blocks/."""
    kinds = [".md", *PICTURES, ".csv"]  # in this order
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in kinds and path.is_file()]
    paths.sort(key=lambda path: kinds.index(path.suffix))
    paths = [path for path in paths if not (path.parent == folder and path.name in but)]
    paths = [path for path in paths if not {"curves", "blocks"} & set(path.relative_to(folder).parts[:-1])]
    texts = {path: path.read_text() for path in paths if path.suffix == ".md"}
    return "".join(_file(path, folder, results, texts) for path in paths)


def _file(path: Path, folder: Path, results: Path, texts: dict[Path, str]) -> str:
    """A file of a folder; a picture only if no text beside it shows it."""
    name = path.relative_to(folder).as_posix()
    if path in texts:
        return html(texts[path], path.parent, results)
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
        return charts.of_run(path.parent.name, path.parent.name, record.read(path.parent), points)
    more = f", the first {ROWS} of {len(body)} rows" if len(body) > ROWS else ""
    return f"<details><summary>{escape(name)}{more}</summary>{grid(head, body[:ROWS])}</details>"
