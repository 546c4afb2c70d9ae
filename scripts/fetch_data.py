"""Find or download data sets and check that they are complete: `python scripts/fetch_data.py all`.

With --check nothing is downloaded. Data sets are in --root, else in $TIMESCALES_DATA, else in the user's cache. The
exit status is 1 if one is missing or incomplete.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timescales.tasks.data.all import CORPORA
from timescales.tasks.data.corpus import Corpus, data_root


def check(corpus: Corpus, root: str | None, download: bool) -> bool:
    """Print a line about a data set. Returns whether it is there and complete."""
    try:
        path = corpus.locate(root) if download else corpus.find(data_root(root))
        if path is None:
            print(f"{corpus.name}: not under {data_root(root).resolve()}")
            return False
        counts = corpus.count(path)
    except ValueError as error:  # missing or damaged
        print(f"{corpus.name}: {error}")
        return False
    differs = corpus.differs(counts)
    words = differs or [f"{n:,} {what}" for what, n in counts.items() if what != "digest"]
    print(f"{corpus.name}: {path}: {'incomplete' if differs else 'complete'}: {', '.join(words)}")
    return not differs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    names = ["all", *CORPORA]
    parser.add_argument("names", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--check", action="store_true", help="download nothing")
    parser.add_argument("--root", help="the folder of data sets")
    options = parser.parse_args()
    wanted = list(CORPORA) if "all" in options.names else options.names
    complete = [check(CORPORA[name], options.root, not options.check) for name in wanted]
    sys.exit(0 if all(complete) else 1)


if __name__ == "__main__":
    main()
