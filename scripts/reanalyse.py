"""Compute what needs no training, results/reanalysed/: `python scripts/reanalyse.py`. Minutes of CPU time.

It reads the time scales that Mahto et al. 2021 released, Penn Treebank and WikiText-2 (see docs/data.md: they are
downloaded where they are not there), and draws the strings of Dyck-2. `make report` then judges tables by its numbers.
--check writes nothing, and fails where the committed numbers are others. --root: the folder of data sets.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import paths  # noqa: E402
from timescales.files import write_atomic  # noqa: E402
from timescales.papers import reanalysed  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the numbers are others")
    parser.add_argument("--root", help="the folder of data sets")
    options = parser.parse_args()
    from timescales.analysis import released  # after --help: it imports torch

    folder = paths.RESULTS / reanalysed.FOLDER
    try:
        text = reanalysed.text(released.sources(options.root))
    except ValueError as error:  # missing or damaged data
        sys.exit(f"error: {error}")
    if not options.check:
        folder.mkdir(exist_ok=True)
        write_atomic(folder / "values.csv", text.encode())
        print(f"written: {folder / 'values.csv'}; make report judges tables by it")
    elif text != (folder / "values.csv").read_text():
        sys.exit(f"{folder / 'values.csv'} has other numbers: python scripts/reanalyse.py writes them again")


if __name__ == "__main__":
    main()
