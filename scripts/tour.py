"""Run the blocks of docs/tour.md in order, in an empty folder, and compare what they print with what the page shows.

A `python` block is executed with the names of those before it; a `bash` block is one command, `python SCRIPT ...`. The
`text` block under it is what it prints: numbers may differ, and a line `...` stands for any lines. A block
`text outcome` is what it printed once, and is not compared: verdicts follow from the numbers. Exits with status 1 at
the first block that prints something else.
"""

from __future__ import annotations

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PAGE = ROOT / "docs" / "tour.md"
BLOCK = re.compile(r"^```(python|bash|text|text outcome)\n(.*?)^```$", re.M | re.S)
NUMBER = re.compile(r"[-+]?(?<![\w.])\d[\d,]*\.?\d*(?:e[-+]?\d+)?%?")


@dataclass(frozen=True)
class Block:
    """A block of the page: "python" or "bash", its text, and what it is to print; None if the page does not say.

    outcome: it need not print just that, but something.
    """

    language: str
    text: str
    printed: str | None
    outcome: bool = False


def blocks(page: str) -> list[Block]:
    """The blocks of a page in order. Raises ValueError for a `text` block that belongs to none."""
    found: list[Block] = []
    for language, text in BLOCK.findall(page):
        if not language.startswith("text"):
            found.append(Block(language, text, None))
        elif found and found[-1].printed is None:
            found[-1] = replace(found[-1], printed=text, outcome=language == "text outcome")
        else:
            raise ValueError(f"a text block must follow the block that prints it: {text.splitlines()[:1]}")
    return found


def run(block: Block, names: dict[str, Any]) -> str:
    """Run a block in the current folder; returns what it prints."""
    if block.language == "bash":
        return _shell(block.text)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block.text, str(PAGE), "exec"), names)
    return out.getvalue()


def _shell(command: str) -> str:
    """Run `python SCRIPT ...`, a script of the checkout; its progress is shown. Raises CalledProcessError."""
    program, script, *words = shlex.split(command)
    if program != "python":
        raise ValueError(f"not a command of the form python SCRIPT ...: {command.strip()}")
    given = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, ROOT / script, *words], stdout=subprocess.PIPE, text=True, check=True, env=given
    ).stdout


def agrees(printed: str, shown: str) -> bool:
    """Whether two outputs have the same lines apart from their numbers; `...` is any lines."""
    parts = re.split(r"^\.\.\.\n", _masked(shown), flags=re.M)
    return re.fullmatch("(?:.*\n)*".join(map(re.escape, parts)), _masked(printed)) is not None


def _masked(text: str) -> str:
    """The text with each number as "#" and each run of spaces as one."""
    lines = (re.sub(r" +", " ", NUMBER.sub("#", line)).rstrip() for line in text.strip().splitlines())
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    ).parse_args()
    begun, names = time.monotonic(), {"__name__": "tour"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block in blocks(PAGE.read_text()):
            print(block.text, flush=True)
            printed = run(block, names)
            print("\n".join(f"    {line}" for line in printed.splitlines()), flush=True)
            if block.outcome and printed.strip():
                continue
            if block.printed is not None and not agrees(printed, block.printed):
                sys.exit(f"docs/tour.md shows something else:\n{block.printed}")
    print(f"The tour took {time.monotonic() - begun:.0f} s.")


if __name__ == "__main__":
    main()
