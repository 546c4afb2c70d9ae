"""The code of a page of docs/ that shows how to write something of one's own: its blocks and files."""

import contextlib
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page):
    """The blocks of a page, each as (language, text)."""
    return re.findall(r"^```(python|yaml|bash)\n(.*?)^```$", (DOCS / page).read_text(), re.M | re.S)


def files(of_page):
    """The files that blocks show, by the name in a comment: "# mine/leak.py"."""
    named = [(re.search(r"^# (mine/.*)$", text, re.M), text) for _, text in of_page]
    return {name[1]: text for name, text in named if name}


@contextlib.contextmanager
def written(shown, folder, monkeypatch, module):
    """A folder with these files, from which their module can be imported until the end."""
    for name, text in shown.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder / "mine"))
    yield folder
    sys.modules.pop(module, None)
