"""Find data sets, or download them, and count what they hold: `python scripts/fetch_data.py all`.

--check only looks. They lie in --root, else in $TIMESCALES_DATA, else in the user's cache. Exit status 1 if any is
missing or not whole.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timescales.tasks.data import cifar, glove, imdb, mnist, text
from timescales.tasks.data.corpus import Corpus, data_root

ALL = (mnist.CORPUS, cifar.CORPUS, imdb.CORPUS, glove.CORPUS, text.PTB, text.WIKITEXT2, text.TEXT8)
CORPORA = {corpus.name: corpus for corpus in ALL}


def look(corpus: Corpus, root: str | None, check: bool) -> bool:
    """Print one line about a data set; whether it is there and whole."""
    try:
        path = corpus.find(data_root(root)) if check else corpus.locate(root)
        if path is None:
            print(f"{corpus.name}: not under {data_root(root).resolve()}")
            return False
        found = corpus.count(path)
    except ValueError as error:  # missing or damaged: says so in one line
        print(f"{corpus.name}: {error}")
        return False
    differs = corpus.differs(found)
    counts = (
        ", ".join(differs) if differs else ", ".join(f"{n:,} {what}" for what, n in found.items() if what != "digest")
    )
    print(f"{corpus.name}: {path}: {'not whole' if differs else 'whole'}: {counts}")
    return not differs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="+", choices=["all", *CORPORA], metavar="NAME", help=", ".join(["all", *CORPORA])
    )
    parser.add_argument("--check", action="store_true", help="look and count, download nothing")
    parser.add_argument("--root", help="the folder of data sets")
    given = parser.parse_args()
    names = list(CORPORA) if "all" in given.names else given.names
    fine = [look(CORPORA[name], given.root, given.check) for name in names]
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
