"""Markdown of results/ as HTML that needs nothing from elsewhere, for the gallery."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

PICTURES = {".png": "image/png", ".svg": "image/svg+xml"}
WIDE = '<div class="wide" tabindex="0" role="region" aria-label="table">'  # scrolls in itself, by keyboard too


def html(text: str, folder: Path, results: Path, badges: Mapping[str, str] | None = None) -> str:
    """Markdown as HTML: headings two levels lower, pictures embedded, no dead links.

    Args:
        folder: where the text lies; its pictures are given relative to it.
        results: no picture from outside of it is embedded.
        badges: what a text in a column "verdict" becomes.
    """
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = _Tokens(folder, results, badges or {})
    for token in reader.parse(text):
        tokens.add(token)
    return reader.renderer.render(tokens.done, reader.options, {})


class _Tokens:
    """Markdown's tokens as they go onto the page, and where in a table the next one stands."""

    def __init__(self, folder: Path, results: Path, badges: Mapping[str, str]) -> None:
        self.folder, self.results, self.badges = folder, results, badges
        self.done: list[Token] = []
        self.head: list[str] = []  # of the table being read
        self.column = -1
        self.in_head = False

    def add(self, token: Token) -> None:
        """Change a token as needed, and keep it."""
        before, after = [], []
        match token.type:
            case "heading_open" | "heading_close":
                token.tag = f"h{min(int(token.tag[1]) + 2, 6)}"
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
        inside = path.resolve().is_relative_to(self.results.resolve())
        if inside and path.suffix in PICTURES and path.is_file():
            return picture(path, token.content)
        return escape(token.content)

    def _target(self, href: str) -> str:
        """Where a link of results/*.md leads on the page; nowhere if to a file that is not on it."""
        if href.startswith(("http://", "https://", "#")):
            return href
        name = href.removeprefix("../").removesuffix("/table.md").strip("/")
        return f"#{anchor(name)}" if "/" not in name and (self.results / name).is_dir() else ""


def anchor(name: str) -> str:
    """The id of the entry of this name."""
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


def grid(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table of texts."""
    top = "".join(f'<th scope="col">{escape(entry)}</th>' for entry in head)
    rows = "".join("<tr>" + "".join(f"<td>{escape(entry)}</td>" for entry in row) + "</tr>" for row in body)
    return f"{WIDE}<table><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table></div>"
