"""Fault injection: what becomes of killed runs, full disks, damaged files and nonsense on the command line?

    python tests/faults/run.py                       # everything, at full counts
    python tests/faults/run.py --only kill,fuzz      # some parts; the others' results stay
    python tests/faults/run.py --share 0.1 --dry     # a tenth of the counts; nothing is written

Parts: kill (kill -9 at random moments, then the same command), disk (full, read-only, forbidden), damage (files of runs
that are cut or changed), corpora (the same of data sets and their caches), fuzz (random overrides are composed; some
take a step).

Every case follows from --seed and its own number, which is printed where it fails. Small models, one thread. Writes
results/faults.md; the exit status is 1 if there was a fault. Each command runs in a process of its own, which is forked
from this one so that it need not load torch again. What it writes to disk passes through `faulty_files.FaultyFiles`,
which can end the process, or raise an error, in any operation on a file.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import tempfile
import time
from pathlib import Path

from harness import ROOT, Bench, FaultTests, Report  # first: it extends sys.path

# isort: split
import torch
from damage import Damage
from data_sets import DataSets
from disks import Disks
from fuzz import RandomOverrides
from kills import Kills

import timescales
from timescales import files
from timescales.runs import provenance
from timescales.tasks.data import imdb

PAGE = ROOT / "results" / "faults.md"
HEAD = "# What runs, files and configurations withstand\n\nWritten by `make faults`.\n\n"
PARTS: dict[str, type[FaultTests]] = {
    "kill": Kills,
    "disk": Disks,
    "damage": Damage,
    "corpora": DataSets,
    "fuzz": RandomOverrides,
}


def main() -> None:
    options = parse_options()
    load_once()
    sections, commit = read_sections(), provenance._commit()  # of the code that is loaded now
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="faults.") as folder:
        bench = Bench(Path(folder))
        for name in (name for name in PARTS if name in options.parts):
            tests = PARTS[name](bench, options.seed, options.share)
            begun = time.monotonic()
            tests.run()
            minutes = (time.monotonic() - begun) / 60
            sections[name] = section(name, options, tests.report, f"{minutes:.0f} minutes, commit {commit}")
            faults += tests.report.faults
            print(f"\n{sections[name]}", flush=True)
            if not options.dry:
                body = "\n".join(sections[part] for part in PARTS if part in sections)
                files.write_atomic(PAGE, f"{HEAD}{body}".encode())
    sys.exit(f"{len(faults)} faults" if faults else 0)


def parse_options() -> argparse.Namespace:
    """The command line; `parts` are the names of the parts to run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {','.join(PARTS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the full counts")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    options.parts = options.only.split(",")
    if wrong := [name for name in options.parts if name not in PARTS]:
        sys.exit(f"error: --only {wrong[0]}: no such part; there are {', '.join(PARTS)}")
    return options


def load_once() -> None:
    """Load everything that the forked processes share."""
    torch.set_num_threads(1)
    imdb.tokenizer = lambda: str.split  # all that spaCy would do with these reviews
    for made in (timescales.LSTM, timescales.PLSTM, timescales.URLSTM, timescales.GRU):
        made(1, 1)(torch.zeros(2, 1, 1))  # compiles its kernel
    torch.optim.SGD([torch.zeros(1)])  # torch imports more for its first optimizer


def section(name: str, options: argparse.Namespace, report: Report, end: str) -> str:
    """One part of the page."""
    command = f"python tests/faults/run.py --only {name} --seed {options.seed}"
    command += f" --share {options.share}" if options.share != 1 else ""
    errors = "\n".join(f"- {row}: `{line}`" for row, line in report.errors.items())
    faults = "\n".join(f"- {fault}" for fault in report.faults) or "No faults."
    machine = f"Python {platform.python_version()}, torch {torch.__version__}, {platform.system()}"
    paragraphs = [
        f"## {PARTS[name].title}",
        f"`{command}`",
        PARTS[name].description,
        report.table() if report.counts else "",
        *report.paragraphs,
        f"The first line of each:\n\n{errors}" if errors else "",
        faults,
        f"{datetime.date.today()}, {machine}, {provenance.processor()}, one thread, {end}.",
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


def read_sections() -> dict[str, str]:
    """The parts of the page as it is, by name."""
    if not PAGE.is_file():
        return {}
    names = {part.title: name for name, part in PARTS.items()}
    blocks = [f"## {block}".rstrip() + "\n" for block in PAGE.read_text().split("\n## ")[1:]]
    titles = [block.splitlines()[0].removeprefix("## ") for block in blocks]
    return {names[title]: block for title, block in zip(titles, blocks, strict=True) if title in names}


if __name__ == "__main__":
    main()
