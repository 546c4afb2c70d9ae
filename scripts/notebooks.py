"""Write the tour and the tutorial as notebooks into docs/notebooks: `pages.py notebooks`.

Their sources are docs/tour.md, whose `text` blocks are what the cells before them print, and docs/tutorial/tutorial.py,
which is run for its outputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "notebooks"
TOUR = ROOT / "docs" / "tour.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "tutorial.py"
COLAB = "https://colab.research.google.com/github/"
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```\n(?:\n```text(?: outcome)?\n(.*?)^```\n)?", re.M | re.S)
# The first cell. A tour works in an empty folder; the tutorial writes to runs/ of the checkout.
CHECKOUT = """\
import os, sys, tempfile
from pathlib import Path

{clone}root = next(folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "train.py").is_file())
sys.path.insert(0, str(root))
os.environ["PYTHONPATH"] = str(root)
os.chdir({place})
"""
CLONE = """\
if "google.colab" in sys.modules:
    !git clone --quiet --depth 1 {url} timescales && pip install --quiet -e "timescales[train]"
    os.chdir("timescales")
"""


def repository() -> str:
    """The address of the public repository, the `repository-code` of CITATION.cff; "" if it names none."""
    found = re.search(r"^repository-code: *[\"']?([^\"'\s]+)", (ROOT / "CITATION.cff").read_text(), re.M)
    return found[1].rstrip("/") if found else ""


def badge(name: str) -> str:
    """A link that opens a notebook in Colab; "" without a repository on GitHub."""
    owner, found, project = repository().partition("https://github.com/")[2].partition("/")
    return f"[Open in Colab]({COLAB}{owner}/{project}/blob/main/docs/notebooks/{name}.ipynb)" if found else ""


def checkout(place: str) -> Any:
    """The cell that finds the checkout, on Colab after cloning it, and goes to its folder."""
    from nbformat.v4 import new_code_cell

    clone = CLONE.format(url=repository()) if repository() else ""
    return new_code_cell(CHECKOUT.format(clone=clone, place=place).rstrip())


def tour() -> Any:
    """docs/tour.md as a notebook, with the outputs that the page shows."""
    import jupytext

    outputs: list[str | None] = []

    def cell(found: re.Match[str]) -> str:
        language, text, printed = found.groups()
        outputs.append(printed)
        command = re.sub(r"^python (\S+)", r'!"{sys.executable}" {root}/\1', text, flags=re.M)
        return f"```python\n{text if language == 'python' else command}```\n"

    book = jupytext.reads(linked(BLOCK.sub(cell, TOUR.read_text())), "md")
    for code, printed in zip([c for c in book.cells if c.cell_type == "code"], outputs, strict=True):
        code.outputs = [stream(printed)] if printed else []
    book.cells.insert(1, checkout("tempfile.mkdtemp()"))
    return finished(book)


def tutorial() -> Any:
    """docs/tutorial/tutorial.py as a notebook without outputs."""
    import jupytext

    book = jupytext.reads(TUTORIAL.read_text(), "py:percent")
    book.cells.insert(1, checkout("root"))
    return finished(book)


BOOKS: dict[str, Callable[[], Any]] = {"tour": tour, "tutorial": tutorial}


def linked(text: str) -> str:
    """Markdown of docs/ with links that hold from the folder of the notebooks."""
    return re.sub(r"\]\((?!https?:|#)", "](../", text)


def stream(text: str) -> Any:
    """What a cell prints."""
    from nbformat.v4 import new_output

    return new_output("stream", name="stdout", text=text)


def finished(book: Any) -> Any:
    """A notebook in the form in which it is committed: the same bytes each time."""
    for k, cell in enumerate(book.cells):
        cell.id = f"cell-{k}"
        cell.metadata = {}
    book.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    book.nbformat, book.nbformat_minor = 4, 5
    return book


def execute(book: Any) -> Any:
    """Run a notebook in a kernel of its own, in the checkout. Raises CellExecutionError if a cell fails."""
    from nbclient import NotebookClient

    NotebookClient(book, timeout=1800, resources={"metadata": {"path": str(ROOT)}}).execute()
    for cell in book.cells:
        if cell.cell_type == "code":
            printed = "".join(out.text for out in cell.outputs if out.output_type == "stream" and out.name == "stdout")
            cell.outputs, cell.execution_count = [stream(printed)] if printed else [], None
    return finished(book)


def as_page(book: Any) -> str:
    """A notebook as Markdown, with what each cell prints."""
    parts = []
    for cell in book.cells:
        code = cell.cell_type == "code"
        parts.append(f"```python\n{cell.source}\n```" if code else cell.source)
        parts += [f"```text\n{out.text.rstrip()}\n```" for out in (cell.outputs if code else [])]
    return "\n\n".join(parts) + "\n"


def add_pages(source: Path) -> None:
    """On the site: the tutorial's page with its outputs, and on both pages how to get the notebook."""
    book = read("tutorial")
    del book.cells[1]  # finds the checkout
    (source / "docs" / "tutorial" / "README.md").write_text(as_page(book))
    for name, page in (("tour", "tour.md"), ("tutorial", "tutorial/README.md")):
        path = source / "docs" / page
        title, _, text = path.read_text().partition("\n")
        link = f"[a notebook]({'../' * page.count('/')}notebooks/{name}.ipynb)"
        words = ", ".join(filter(None, [f"This page as {link}", badge(name)]))
        path.write_text(f"{title}\n\n{words}.\n{text}")


def texts(check: bool) -> Iterator[tuple[Path, str]]:
    """Yield the notebooks and their texts. check: the tutorial is not run, and keeps its outputs."""
    import nbformat

    for name, make in BOOKS.items():
        path, book = FOLDER / f"{name}.ipynb", make()
        if name == "tutorial" and not check:
            book = execute(book)
        kept = name == "tutorial" and check and path.is_file() and cells(book) == cells(read(name))
        yield path, path.read_text() if kept else nbformat.writes(book) + "\n"


def read(name: str) -> Any:
    """Read a committed notebook."""
    import nbformat

    return nbformat.read(FOLDER / f"{name}.ipynb", 4)


def cells(book: Any) -> list[tuple[str, str]]:
    """Return what the cells of a notebook hold, without outputs."""
    return [(cell.cell_type, cell.source) for cell in book.cells]
