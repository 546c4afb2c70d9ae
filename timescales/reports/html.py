"""Markdown of results/ as HTML that needs nothing from elsewhere, and the parts that the gallery's pages share."""

from __future__ import annotations

import base64
import io
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from timescales import paths
from timescales.papers import reanalysed
from timescales.papers.verdict import Counts, Outcome, Verdict, Word
from timescales.reports import wording

PICTURES = {".png": "image/png", ".svg": "image/svg+xml"}
WIDE = '<div class="wide" tabindex="0" role="region" aria-label="table">'  # scrolls in itself, by keyboard too
GUIDE = "guide"  # the folder of the pages of docs/ in their HTML
THUMBNAIL = 480  # pixels of its width
# How a verdict's word is coloured: it agrees, partly, or not; any other says nothing yet. The word is always there.
TONES = {
    "good": (Word.AGREES, Word.HOLDS, Word.REPRODUCED, Word.ORDER_SHOWN, reanalysed.Word.AS_PRINTED),
    "partly": (
        *(Word.IMPRECISE, Word.CLOSE_HIGHER, Word.CLOSE_LOWER, Word.IN_ORDER),
        *(Word.PARTLY_DECIDED, Word.MIXED),
    ),
    "bad": (
        *(Word.HIGHER, Word.LOWER, Word.LESS_STABLE, Word.REFUTED, Word.TOO_SMALL, Word.REVERSED),
        *(Word.NOT_REPRODUCED, Word.NOT_IN_ORDER, reanalysed.Word.NOT_AS_PRINTED),
    ),
}
# The same of what a conclusion or a value counts as.
TONES_OF_OUTCOMES = {
    Outcome.HOLD: "good",
    Outcome.AGREE: "good",
    Outcome.CLOSE: "partly",
    Outcome.REFUTED: "bad",
    Outcome.TOO_SMALL: "bad",
    Outcome.DIFFER: "bad",
}


@dataclass(frozen=True)
class Site:
    """What the gallery's pages lead to: the pages of `results`, and the HTML of docs/ if it lies beside them.

    `docs` is the folder that scripts/docs.py has written, in the folder of the gallery; None: there is none.
    """

    results: Path
    docs: Path | None = None

    def page_of(self, path: Path) -> str:
        """The page of a file or folder of results/ or docs/; "" if it has none."""
        if path.is_relative_to(self.results.resolve()):
            name = path.relative_to(self.results.resolve()).parts[0]
            return {"README.md": "index.html", "LOG.md": "log.html"}.get(name) or self._page_named(name)
        if self.docs is not None and path.is_relative_to(paths.ROOT / "docs") and path.suffix == ".md":
            page = guide_page(path)
            return f"{self.docs.name}/{page.as_posix()}" if (self.docs / page).is_file() else ""
        return ""

    def _page_named(self, name: str) -> str:
        path = self.results / name
        known = path.is_dir() or (path.suffix == ".md" and path.is_file())
        return f"{anchor(name.removesuffix('.md'))}.html" if known else ""

    def link(self, page: str, words: str) -> str:
        """A link to a page of docs/, "models/plstm.md"; "" if it is not there."""
        target = self.page_of(paths.ROOT / "docs" / page)
        return f'<a href="{target}">{escape(words)}</a>' if target else ""


def guide_page(page: Path) -> Path:
    """Where scripts/docs.py writes a page of docs/, in its folder; a README is the page of its folder."""
    path = Path(GUIDE) / page.relative_to(paths.ROOT / "docs")
    return path.parent.with_suffix(".html") if page.name == "README.md" else path.with_suffix(".html")


def html(text: str, folder: Path, site: Site, badges: Mapping[str, str] | None = None) -> str:
    """Markdown as HTML: no heading above h2, pictures embedded, no dead links.

    Args:
        folder: where the text lies; its pictures and links are given relative to it.
        site: no picture from outside of its results is embedded, and links lead to its pages.
        badges: what a text in a column "verdict" becomes.
    """
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = _Tokens(folder, site, badges or {}, set(re.findall(r"\]\(#([^)]+)\)", text)))
    parsed = reader.parse(text)
    for k, token in enumerate(parsed):
        if token.type == "heading_open":
            tokens.name(token, parsed[k + 1].content)
        tokens.add(token)
    return reader.renderer.render(tokens.done, reader.options, {})


class _Tokens:
    """Markdown's tokens as they go onto the page, and where in a table the next one stands."""

    def __init__(self, folder: Path, site: Site, badges: Mapping[str, str], linked: set[str]) -> None:
        self.folder, self.site, self.badges, self.linked = folder, site, badges, linked
        self.done: list[Token] = []
        self.head: list[str] = []  # of the table being read
        self.column = -1
        self.in_head = False

    def name(self, heading: Token, text: str) -> None:
        """Give a heading an id if a link of the text leads to it."""
        name = re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")  # as GitHub names it
        if name in self.linked:
            heading.attrSet("id", name)
            self.linked.remove(name)

    def add(self, token: Token) -> None:
        """Change a token as needed, and keep it."""
        before, after = [], []
        match token.type:
            case "heading_open" | "heading_close":
                token.tag = f"h{max(int(token.tag[1]), 2)}"
            case "table_open":
                self.table = token
                before = [Token("html_block", "", 0, content=WIDE)]
            case "thead_open" | "thead_close":
                self.in_head = token.type == "thead_open"
                self.head = [] if self.in_head else self.head
            case "tr_open":
                self.column = -1
            case "th_open" | "td_open":
                self._open_cell(token)
            case "inline":
                self._read(token)
            case "table_close":
                if "verdict" in self.head:
                    self.table.attrSet("class", "judged")
                self.column, self.head = -1, []
                after = [Token("html_block", "", 0, content="</div>")]
        self.done += [*before, token, *after]

    def _head(self) -> str:
        """The head of the column in which the token stands; "" outside of a table."""
        return self.head[self.column] if -1 < self.column < len(self.head) else ""

    def _open_cell(self, token: Token) -> None:
        self.column += 1
        if token.type == "th_open":
            token.attrSet("scope", "col")
        elif self.column < len(self.head):  # on a phone a row is a stack, and each value says what it is
            token.attrSet("data-head", self._head())

    def _read(self, token: Token) -> None:
        """Text: of a table's head, a verdict, or anything else."""
        children = token.children or []
        if self.in_head:
            self.head.append(token.content)
        elif self._head() == "verdict" and (badge := self.badges.get(token.content)):
            children = [Token("html_inline", "", 0, content=badge)]
        token.children = self._within(children)

    def _within(self, children: Sequence[Token]) -> list[Token]:
        """Inline tokens with their pictures put into the page, and without links to files that are not on it."""
        kept: list[Token] = []
        dropped = 0
        for token in children:
            if token.type == "image":
                kept.append(Token("html_inline", "", 0, content=self._image(token)))
            elif token.type == "link_open":
                target = self._target(str(token.attrs["href"]))
                dropped += not target
                token.attrs = {"href": target}
                kept += [token] if target else []
            elif token.type == "link_close" and dropped:
                dropped -= 1
            else:
                kept.append(token)
        return kept

    def _image(self, token: Token) -> str:
        path = self.folder / str(token.attrs["src"])
        inside = path.resolve().is_relative_to(self.site.results.resolve())
        if inside and path.suffix in PICTURES and path.is_file():
            return picture(path, token.content)
        return escape(token.content)

    def _target(self, href: str) -> str:
        """Where a link leads; nowhere if to a file that has no page."""
        if href.startswith(("http://", "https://", "#")):
            return href
        path, sign, place = href.partition("#")
        page = self.site.page_of((self.folder / path).resolve())
        return f"{page}{sign}{place}" if "/" in page else page  # a place is kept on pages of docs/ alone


def anchor(name: str) -> str:
    """A name as it stands in an address."""
    return re.sub(r"[^\w.-]", "-", name)


def badge(verdict: Verdict) -> str:
    """A verdict on its colour."""
    return _badge(wording.text(verdict), _tone(verdict.word))


def chip(text: str, said: Word | Outcome | reanalysed.Word) -> str:
    """A text on the colour of a word, or of what something counts as."""
    return _badge(text, TONES_OF_OUTCOMES.get(said, "open") if isinstance(said, Outcome) else _tone(said))


def _badge(text: str, tone: str) -> str:
    return f'<span class="badge {tone}">{escape(text)}</span>'


def _tone(word: Word | reanalysed.Word) -> str:
    return next((tone for tone, words in TONES.items() if word in words), "open")


def chips(counts: Counts | None) -> str:
    """Lines of a <dl>: how many conclusions hold, are refuted or undecided, and how many values agree, ..."""
    if counts is None:
        return ""
    lines = {"Hypotheses" if counts.hypotheses else "Conclusions": counts.conclusions, "Values": counts.values}
    return "".join(
        f"<dt>{title}</dt><dd>{' '.join(chip(f'{found[name]} {name}', name) for name in Outcome if found[name])}</dd>"
        for title, found in lines.items()
        if found
    )


def picture(path: Path, alt: str) -> str:
    """An <img> that carries its picture, with its size where it is a PNG, and a box to tick for its full size.

    There is no link to the full size: browsers open no data URI, and a page needs no file beside it.
    """
    data = path.read_bytes()
    size = ""
    if path.suffix == ".png" and data[12:16] == b"IHDR":
        width, height = struct.unpack(">II", data[16:24])
        size = f' width="{width}" height="{height}"'
    image = f'<img src="{_inline(data, PICTURES[path.suffix])}" alt="{escape(alt)}"{size}>'
    return f'<span class="picture">{image}<label><input type="checkbox"> full size</label></span>'


def thumbnail(path: Path) -> str:
    """An <img> that carries a small copy of a PNG; what it shows is said beside it."""
    from PIL import Image

    data = io.BytesIO()
    with Image.open(path) as image:
        height = round(image.height * THUMBNAIL / image.width)
        image.convert("RGB").resize((THUMBNAIL, height)).save(data, "WEBP", quality=70)
    return f'<img src="{_inline(data.getvalue(), "image/webp")}" alt="" width="{THUMBNAIL}" height="{height}">'


def _inline(data: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def grid(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table of texts."""
    top = "".join(f'<th scope="col">{escape(entry)}</th>' for entry in head)
    rows = "".join("<tr>" + "".join(f"<td>{escape(entry)}</td>" for entry in row) + "</tr>" for row in body)
    return f"{WIDE}<table><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table></div>"
