"""What Sphinx does not do by itself: equations as MathML, plain docstrings, short names that lead to their place."""

from __future__ import annotations

import functools
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from docutils import nodes
from sphinx.search.en import SearchEnglish
from sphinx.util.inspect import stringify_signature

SECTION = re.compile(r"(Arguments|Args|Attributes|Returns|Raises|Yields):$")  # below it are names with texts
ITEM = re.compile(r" {4}([\w*][\w*., ]*): ")
LABEL = re.compile(r"([A-Z][a-z]+): ")  # "Source: ...", a paragraph of its own
COLUMNS = re.compile(r"\S {3,}\S|\S  +#")  # a line that is aligned with its neighbours
ALIGNED = re.compile(r"^ {4,}\S")


def setup(app: Any) -> dict[str, bool]:
    """Connect the functions of this module to Sphinx, which calls this one."""
    # Pages share most of their words, and the stemmer is slow.
    SearchEnglish.stem = functools.lru_cache(None)(SearchEnglish.stem)  # type: ignore[method-assign]
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_block, None))
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-process-signature", signature_of_class)
    app.connect("missing-reference", find_short_name)
    app.connect("doctree-read", link_pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def visit_math(translator: Any, node: nodes.Node) -> None:
    """An equation within a line, which browsers show without a script."""
    from latex2mathml.converter import convert

    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.Node) -> None:
    """An equation by itself."""
    from latex2mathml.converter import convert

    text = node.astext().replace("{aligned}", "{align*}")  # the name that the converter knows
    translator.body.append(f'<div class="equation">{convert(text, display="block")}</div>')
    raise nodes.SkipNode


def link_pictures(app: Any, doctree: nodes.document) -> None:
    """A picture leads to its file, where it has its full size: Sphinx links those of which a size is given."""
    for picture in doctree.findall(nodes.image):
        picture["scale"] = 100


def process_docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with equations and shapes in columns; Sphinx reads reStructuredText."""
    borrowed = not (getattr(thing, "__module__", None) or "timescales").startswith("timescales")  # a function of torch
    if borrowed or (lines and lines[0].startswith("Alias for field number")):
        lines.clear()
    lines[:] = as_rst(lines)


def signature_of_class(app: Any, what: str, name: str, thing: Any, *_: Any) -> tuple[str, None] | None:
    """A class's signature as `inspect` has it; Sphinx takes that of `__new__`, which cells have for any arguments."""
    if what != "class" or thing.__new__ is object.__new__ or not thing.__module__.startswith("timescales."):
        return None
    if issubclass(thing, tuple) or "__init__" not in vars(thing):
        return None
    return stringify_signature(inspect.signature(thing), unqualified_typehints=True, show_return_annotation=False), None


def as_rst(lines: Sequence[str]) -> Iterator[str]:
    """A docstring as reStructuredText: indented or aligned lines as they are, all other text without markup."""
    section = literal = False
    for number, paragraph in enumerate(paragraphs(lines)):
        indented = all(map(ALIGNED.match, paragraph))
        section = bool(SECTION.match(paragraph[0])) or (section and indented)
        if not section and (indented or any(map(COLUMNS.search, paragraph))):
            yield from ([] if literal else ["::", ""])
            yield from (f"    {line}" for line in paragraph)
            literal = True
        else:
            literal = False
            if SECTION.match(paragraph[0]):
                yield from (f"**{paragraph.pop(0)}**", "")
            yield from map(in_section, paragraph) if section else with_label(paragraph, number > 0)
        yield ""


def in_section(line: str) -> str:
    """A line of a section, a name with its text or more of this text, as that of a list."""
    item = ITEM.match(line)
    return f"- **{in_text(item[1])}**: {in_text(line[item.end() :])}" if item else f"  {in_text(line.strip())}"


def with_label(paragraph: Sequence[str], labelled: bool) -> Iterator[str]:
    """Lines of text; the label with which they begin is bold."""
    first, *rest = paragraph
    label = LABEL.match(first) if labelled else None
    yield f"**{label[1]}:** {in_text(first[label.end() :])}" if label else in_text(first)
    yield from map(in_text, rest)


def paragraphs(lines: Sequence[str]) -> Iterator[list[str]]:
    """Lines that belong together: up to an empty line, a label, a list, or an indentation that changes."""
    found: list[str] = []
    for line in lines:
        begins = LABEL.match(line) or SECTION.match(line) or line.startswith("- ")
        turned = found and not SECTION.match(found[0]) and bool(ALIGNED.match(line)) != bool(ALIGNED.match(found[-1]))
        if found and (not line.strip() or begins or turned):
            yield found
            found = []
        if line.strip():
            found.append(line.rstrip())
    if found:
        yield found


def in_text(line: str) -> str:
    """A line of text in which only backticks mean anything."""
    parts = line.split("`")
    done = []
    for k, part in enumerate(parts):
        if k % 2 == 0:
            plain = re.sub(r"(\w)_(?!\w)", r"\1\\_", re.sub(r"([*|\\])", r"\\\1", part))
            done.append(plain)
        else:
            code = f"`{part}`" if re.fullmatch(r"[\w.]+", part) else f"``{part}``"
            follows = parts[k + 1][:1] if k + 1 < len(parts) else ""
            done.append(code + ("\\ " if follows.isalnum() else ""))
    return "".join(done)


@functools.lru_cache(1)
def by_last_part(names: tuple[str, ...]) -> dict[str, list[str]]:
    """Sort dotted names by their last part."""
    found = defaultdict(list)
    for name in names:
        found[name.rpartition(".")[2]].append(name)
    return found


def find_short_name(app: Any, env: Any, node: Any, inside: nodes.Node) -> nodes.Node | None:
    """Where `PLSTM` or `RNN.forward` leads from any page: the thing of this name, if there is one or one is public."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].removeprefix("timescales.")
    known = env.domaindata["py"]["objects"]
    names = by_last_part(tuple(known)).get(target.rpartition(".")[2], [])
    found = sorted((name for name in names if f".{name}".endswith(f".{target}")), key=len)
    if not found or (len(found) > 1 and "." not in target and not target[:1].isupper()):
        return None
    place = known[found[0]]
    address = f"{app.builder.get_relative_uri(node['refdoc'], place.docname)}#{place.node_id}"
    return nodes.reference("", "", inside, internal=True, refuri=address)
