"""Show what is done of each table and what the rest costs: `python scripts/status.py [TABLE ...] [--measure]`.

The same as the command `timescales-status` of an installation; --help describes its options.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import commands  # noqa: E402


def main() -> None:
    commands.show_status()


if __name__ == "__main__":
    main()
