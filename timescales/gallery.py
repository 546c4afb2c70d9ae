"""Everything in results/ on one page: a single HTML file that needs no server and no network. Never trains.

The page forbids itself to load anything (its content security policy): pictures are data URIs, curves are drawn as SVG
(charts.py), and text comes from Markdown in which HTML has no meaning. `gallery.css` and `gallery.js` beside this file
go into the page as they are.
"""

from __future__ import annotations

import base64
import csv
import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from timescales import charts, markdown, record, report, store, verdict
from timescales.paths import RESULTS

HERE = Path(__file__).parent
ROWS = 60  # of a CSV that is shown as a table
PICTURES = {".png": "image/png", ".svg": "image/svg+xml"}
WIDE = '<div class="wide" tabindex="0" role="region" aria-label="table">'  # scrolls in itself, by keyboard too
# How a verdict's word is coloured: it agrees, partly, not, or says nothing yet. The word itself is always there.
TONES = {
    "good": ("match", "better", "holds", "reproduced", "order shown"),
    "partly": ("in order", "reproduced in order", "unstable"),
    "bad": ("worse", "different", "refuted", "reversed", "contradicted", "not in order", "not reproduced"),
}


def page(reports: Sequence[report.Report], runs: Sequence[Path] = ()) -> str:
    """The whole page: every table of `reports`, whatever else lies in results/, and the analyses of run directories."""
    names = [r.table["name"] for r in reports]
    parts = [_table(r) for r in reports]
    others = [_folder(p) for p in sorted(RESULTS.iterdir()) if p.is_dir() and p.name not in names]
    if runs:
        parts += ["<h2>Trained runs</h2>", *(_run(directory) for directory in runs)]
    if others := [text for text in others if text]:
        parts += ["<h2>Beside the tables</h2>", *others]
    parts += ["<h2>Log</h2>", *_log(RESULTS / "LOG.md")]
    style, script = ((HERE / name).read_text() for name in ("gallery.css", "gallery.js"))
    words = sorted({word for r in reports for word in _words(r)})
    options = "".join(f"<option>{escape(word)}</option>" for word in words)
    whole = ", ".join(f"{n} {word}" for word, n in Counter(r.verdict for r in reports).most_common())
    count = sum(len({row["id"] for rows in r.rows.values() for row in rows}) for r in reports)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>timescales: results</title>
<link rel="icon" href="data:,">
<style>
{charts.colours()}
{style}</style>
</head>
<body>
<a class="skip" href="#tables">To the tables</a>
<header>
<h1>timescales: results</h1>
<p>Recurrent networks whose memory has a controlled time scale: the papers' tables, printed and measured.
{len(reports)} tables at paper size: {escape(whole)}; {count} runs. <em>Shown here</em> is a twin for a CPU, judged
by the order of the models.</p>
</header>
<search class="bar">
<label>Filter <input id="filter" type="search" placeholder="plstm async, a run's id, a word of the log"></label>
<label>Verdict <select id="verdict"><option value="">any</option>{options}</select></label>
<output id="count" for="filter verdict"></output>
</search>
<main>
<h2 id="tables">Tables and figures</h2>
{_index(reports)}
{"".join(parts)}
</main>
<script>
{script}</script>
</body>
</html>
"""


def _entry(name: str, title: str, badges: str, body: str, words: Iterable[str] = (), shut: bool = False) -> str:
    """A part of the page that the filter shows or hides as a whole."""
    return (
        f'<section class="entry" id="{_anchor(name)}" data-words="{escape("|".join(words))}">'
        f"<details{'' if shut else ' open'}><summary><h3>{escape(title)}</h3>{badges}</summary>"
        f"{body}</details></section>\n"
    )


def _index(reports: Sequence[report.Report]) -> str:
    """A card for each table, under its paper."""
    found: dict[str, list[str]] = {}
    for r in reports:
        name = r.table["name"]
        counts = [badge(word, n) for word, n in Counter(map(verdict.word_of, _judged(r))).items() if word != "blank"]
        text = (
            f'<li data-for="{_anchor(name)}"><a href="#{_anchor(name)}">{escape(name)}</a>'
            f'<p>{escape(r.table["title"])}</p><p class="dim">{escape(r.table["source"])}</p>'
            f"<p>{_whole(r)}</p><p>{' '.join(counts)}</p></li>"
        )
        found.setdefault(r.table["source"].split(",")[0].split(";")[0], []).append(text)
    return "".join(f'<h3>{escape(paper)}</h3><ul class="cards">{"".join(c)}</ul>' for paper, c in found.items())


def badge(said: str, count: int | None = None) -> str:
    """A verdict's word on its colour, and how often it was said."""
    word = said.partition(" (")[0].partition(",")[0].removesuffix(" so far")
    tone = next((tone for tone, words in TONES.items() if word in words), "open")
    return f'<span class="badge {tone}">{"" if count is None else f"{count} "}{escape(said)}</span>'


def _judged(r: report.Report) -> list[verdict.Cell | verdict.Judgement]:
    return [*r.cells, *r.claims]


def _whole(r: report.Report) -> str:
    return f"paper size {badge(r.verdict)} shown here {badge(r.shown_here())}"


def _words(r: report.Report) -> list[str]:
    """Every verdict of a table, once, without its brackets: what the choice of verdicts finds it by."""
    said = [r.verdict, r.shown_here(), *(found.verdict for found in (*_judged(r), *r.shown))]
    return sorted({text.partition(" (")[0] for text in said})


def _table(r: report.Report) -> str:
    """A table: its report, the curves of its runs, what else lies in its folder, and the runs themselves."""
    name = r.table["name"]
    folder = RESULTS / name
    text = markdown.table(r).partition("\n")[2]
    if not (folder / "figure.png").is_file():
        text = re.sub(r"!\[[^\]]*\]\(figure\.png\)\n", "", text)
    body = (
        html(text, folder)
        + charts.of_table(r)
        + _files(folder, ("table.md", "runs.csv", "figure.png", "sensitivity.csv"))
    )
    rows = [row for profile in r.rows.values() for row in profile]
    if rows:
        body += f"<details><summary>All {len(rows)} runs</summary>{_grid(*_runs(rows))}</details>"
    return _entry(name, f"{name}: {r.table['title']}", _whole(r), body, _words(r), shut=not rows)


def _runs(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    axes = list(dict.fromkeys(key for row in rows for key in row["axes"] if key != "seed"))
    known = {*store.COLUMNS, "axes", "stale", "curve", "blocks", "profile"}
    metrics = [key for key in dict.fromkeys(k for row in rows for k in row) if key not in known and "probe/" not in key]
    head = ["id", "size", *axes, "seed", "status", *metrics, "minutes", "machine", "commit"]
    body = [
        [row["id"], row["profile"], *(markdown.say(row["axes"].get(key, "")) for key in axes), str(row["seed"]),
         row["status"], *("" if row.get(key) is None else verdict.number(row[key]) for key in metrics),
         f"{row['seconds'] / 60:.1f}", str(row["machine"]), str(row["commit"])]
        for row in rows
    ]  # fmt: skip
    return head, body


def _folder(folder: Path) -> str:
    """What lies in a folder of results/ that is no table's."""
    body = _files(folder)
    return _entry(folder.name, folder.name, "", body) if body else ""


def _run(directory: Path) -> str:
    """A trained run: its outcome, its curve, and what its analyses have drawn."""
    found = record.read(directory)
    points = found["curve"] if found else []
    drawn = charts.of_run(directory.name, "this run", found, points)
    return _entry(
        f"run-{directory.name}", directory.name, "",
        f"<p>{escape(record.summary(found))}</p>{drawn}{_files(directory / 'analysis')}",
    )  # fmt: skip


def _log(path: Path) -> list[str]:
    """LOG.md, an entry for each of its dated notes."""
    if not path.is_file():
        return []
    notes = re.split(r"^## ", path.read_text(), flags=re.M)[1:]
    found = []
    for k, note in enumerate(notes):
        title, _, text = note.partition("\n")
        found.append(_entry(f"log-{len(notes) - k}", title, "", html(text, path.parent), shut=k > 0))
    return found


def _files(folder: Path, but: Sequence[str] = ()) -> str:
    """Every text, picture and CSV below a folder, except those of its own with these names, curves/ and blocks/."""
    kinds = [".md", *PICTURES, ".csv"]  # in this order
    paths = [p for p in sorted(folder.rglob("*")) if p.suffix in kinds and p.is_file()]
    paths.sort(key=lambda path: kinds.index(path.suffix))
    paths = [p for p in paths if not (p.parent == folder and p.name in but)]
    paths = [p for p in paths if not {"curves", "blocks"} & set(p.relative_to(folder).parts[:-1])]
    texts = {p: p.read_text() for p in paths if p.suffix == ".md"}
    parts = []
    for path in paths:
        name = path.relative_to(folder).as_posix()
        if path in texts:
            parts.append(html(texts[path], path.parent))
        elif path.suffix == ".csv":
            parts.append(_csv(path, name))
        elif not any(text and f"]({path.name})" in text for p, text in texts.items() if p.parent == path.parent):
            alt = f"{folder.name}, {path.stem.replace('_', ' ')}"  # no text of its own shows it
            parts.append(f"<figure>{picture(path, alt)}<figcaption>{escape(name)}</figcaption></figure>")
    return "".join(parts)


def _csv(path: Path, name: str) -> str:
    """A CSV: a curve if its first column is `step`, else a table that opens on demand."""
    with path.open(newline="") as file:
        head, *body = list(csv.reader(file)) or [[]]
    if head[:1] == ["step"]:
        from timescales.loggers import Curve

        lines = [dict(zip(head, line, strict=False)) for line in body]
        points = [{k: float(v) for k, v in line.items() if v and k != Curve.CHECK} for line in lines]
        return charts.of_run(path.parent.name, path.parent.name, record.read(path.parent), points)
    more = f", the first {ROWS} of {len(body)} rows" if len(body) > ROWS else ""
    return f"<details><summary>{escape(name)}{more}</summary>{_grid(head, body[:ROWS])}</details>"


def _grid(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(entry)}</th>' for entry in head)
    rows = "".join("<tr>" + "".join(f"<td>{escape(entry)}</td>" for entry in row) + "</tr>" for row in body)
    return f"{WIDE}<table><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table></div>"


def html(text: str, folder: Path) -> str:
    """Markdown as HTML: headings two levels lower, pictures of `folder` embedded, verdicts as badges, no dead links."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(text)
    head: list[str] = []  # of the table being read
    column, in_head = -1, False
    found: list[Token] = []
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1]) + 2, 6)}"
        elif token.type == "thead_open":
            head, in_head = [], True
        elif token.type == "thead_close":
            in_head = False
        elif token.type == "tr_open":
            column = -1
        elif token.type in ("th_open", "td_open"):
            column += 1
            if token.type == "th_open":
                token.attrSet("scope", "col")
            elif column < len(head):
                token.attrSet("data-head", head[column])  # on a phone a row is a stack, and each value says what it is
        elif token.type == "inline":
            if in_head:
                head.append(token.content)
            elif -1 < column < len(head) and head[column] == "verdict" and token.content:
                said, _, rest = token.content.partition(", p = ")
                shown = badge(said) + (f" p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{escape(rest)}" if rest else "")
                token.children = [Token("html_inline", "", 0, content=shown)]
            token.children = _within(token.children or [], folder)
        if token.type == "table_open":
            opened = token
            found.append(Token("html_block", "", 0, content=WIDE))
        found.append(token)
        if token.type == "table_close":
            if "verdict" in head:
                opened.attrSet("class", "judged")
            column, head = -1, []
            found.append(Token("html_block", "", 0, content="</div>"))
    return reader.renderer.render(found, reader.options, {})


def _within(children: Sequence[Token], folder: Path) -> list[Token]:
    """Inline tokens with their pictures put into the page, and without links to files that are not on it."""
    found, dropped = [], 0
    for token in children:
        if token.type == "image":
            path = folder / str(token.attrs["src"])
            inside = path.resolve().is_relative_to(RESULTS.resolve()) and path.suffix in PICTURES and path.is_file()
            text = picture(path, token.content) if inside else escape(token.content)
            found.append(Token("html_inline", "", 0, content=text))
        elif token.type == "link_open":
            target = _target(str(token.attrs["href"]))
            dropped += not target
            token.attrs = {"href": target}
            found += [token] if target else []
        elif token.type == "link_close" and dropped:
            dropped -= 1
        else:
            found.append(token)
    return found


def _target(href: str) -> str:
    """Where a link of results/*.md leads on the page; nowhere if to a file that is not on it."""
    if href.startswith(("http://", "https://", "#")):
        return href
    name = href.removeprefix("../").removesuffix("/table.md").strip("/")
    return f"#{_anchor(name)}" if "/" not in name and (RESULTS / name).is_dir() else ""


def _anchor(name: str) -> str:
    return re.sub(r"[^\w.-]", "-", name)


def picture(path: Path, alt: str) -> str:
    """An <img> that carries its picture, with its size where it is a PNG."""
    data = path.read_bytes()
    size = ""
    if path.suffix == ".png" and data[12:16] == b"IHDR":
        width, height = struct.unpack(">II", data[16:24])
        size = f' width="{width}" height="{height}"' + (' class="broad"' if width > 1.6 * height else "")
    text = base64.b64encode(data).decode()
    return f'<img src="data:{PICTURES[path.suffix]};base64,{text}" alt="{escape(alt)}"{size}>'
