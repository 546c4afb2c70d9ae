"""Run the tour, `python scripts/notebooks.py`; write tour and tutorial as notebooks, `pages.py notebooks`.

The tour is docs/tour.md. A `python` block is executed with the names of those before it, in an empty folder; a `bash`
block is one command, `python SCRIPT ...`. The `text` block under it is what it prints: numbers may differ, and a line
`...` stands for any lines. A block `text outcome` is what it printed once, and is not compared. Exits with status 1 at
the first block that prints something else. The tutorial is docs/tutorial/tutorial.py, which is run for its outputs.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "notebooks"
TOUR = ROOT / "docs" / "tour.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "tutorial.py"
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```\n(?:\n```text( outcome)?\n(.*?)^```\n)?", re.M | re.S)
NUMBER = re.compile(r"[-+]?(?<![\w.])\d[\d,]*\.?\d*(?:e[-+]?\d+)?%?")
# The first cell. A tour works in an empty folder; the tutorial writes to runs/ of the checkout.
CHECKOUT = """\
import os, sys, tempfile
from pathlib import Path

root = next(folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "train.py").is_file())
sys.path.insert(0, str(root))
os.environ["PYTHONPATH"] = str(root)
os.chdir({place})
"""


class Block(NamedTuple):
    """A block of the tour: "python" or "bash", its text, and what it prints; None if the page does not say.

    outcome: " outcome" where it need not print just that, but something.
    """

    language: str
    text: str
    outcome: str | None
    printed: str | None


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in order. Raises ValueError for a `text` block that belongs to none."""
    if lost := re.search(r"^```text.*", BLOCK.sub("", page), re.M | re.S):
        raise ValueError(f"a block of text must follow the block that prints it: {lost[0].splitlines()[1:2]}")
    return [Block(*found.groups()) for found in BLOCK.finditer(page)]


def run(block: Block, names: dict[str, Any]) -> str:
    """Run a block in the current folder. Return what it prints. Raises CalledProcessError."""
    if block.language == "bash":
        program, script, *words = shlex.split(block.text)
        if program != "python":
            raise ValueError(f"not a command of the form python SCRIPT ...: {block.text.strip()}")
        given = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.check_output([sys.executable, ROOT / script, *words], text=True, env=given)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block.text, str(TOUR), "exec"), names)
    return out.getvalue()


def agrees(printed: str, shown: str) -> bool:
    """Tell whether two outputs have the same lines apart from numbers and spaces; `...` is any lines."""

    def masked(text: str) -> str:
        lines = (re.sub(r" +", " ", NUMBER.sub("#", line)).rstrip() for line in text.strip().splitlines())
        return "".join(f"{line}\n" for line in lines)

    parts = re.split(r"^\.\.\.\n", masked(shown), flags=re.M)
    return re.fullmatch("(?:.*\n)*".join(map(re.escape, parts)), masked(printed)) is not None


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    ).parse_args()
    begun, names = time.monotonic(), {"__name__": "tour"}
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block in blocks(TOUR.read_text()):
            print(block.text, flush=True)
            printed = run(block, names)
            print("\n".join(f"    {line}" for line in printed.splitlines()), flush=True)
            wrong = not printed.strip() if block.outcome else not agrees(printed, block.printed or printed)
            if wrong:
                sys.exit(f"docs/tour.md shows something else:\n{block.printed}")
    print(f"The tour took {time.monotonic() - begun:.0f} s.")


def checkout(place: str) -> Any:
    """Make the cell that finds the checkout and goes to a folder."""
    from nbformat.v4 import new_code_cell

    return new_code_cell(CHECKOUT.format(place=place).rstrip())


def tour() -> Any:
    """docs/tour.md as a notebook, with the outputs that the page shows."""
    import jupytext

    outputs: list[str | None] = []

    def cell(found: re.Match[str]) -> str:
        language, text, _, printed = found.groups()
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
    """Make a notebook's output of what a cell prints."""
    from nbformat.v4 import new_output

    return new_output("stream", name="stdout", text=text)


def finished(book: Any) -> Any:
    """Write a notebook as it is committed: the same bytes each time."""
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
    """Write a notebook as Markdown, with what each cell prints."""
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
        path.write_text(f"{title}\n\nThis page as {link}.\n{text}")


def texts(check: bool) -> Iterator[tuple[Path, str]]:
    """Yield the notebooks and their texts. check: the tutorial is not run, and keeps its outputs."""
    import nbformat

    for name, make in BOOKS.items():
        path, book = FOLDER / f"{name}.ipynb", make()
        if name == "tutorial" and not check:
            book = execute(book)
        unchanged = name == "tutorial" and check and path.is_file() and cells(book) == cells(read(name))
        yield path, path.read_text() if unchanged else nbformat.writes(book) + "\n"


def read(name: str) -> Any:
    """Read a committed notebook."""
    import nbformat

    return nbformat.read(FOLDER / f"{name}.ipynb", 4)


def cells(book: Any) -> list[tuple[str, str]]:
    """Return what the cells of a notebook hold, without outputs."""
    return [(cell.cell_type, cell.source) for cell in book.cells]


if __name__ == "__main__":
    main()
