"""Show a progress bar for what takes long, such as a validation or an analysis."""

import sys
from collections.abc import Iterable
from typing import TypeVar

from tqdm import tqdm

DELAY = 2.0  # seconds without a bar
Item = TypeVar("Item")


def pause() -> float:
    """Return the least number of seconds between two drawings of a bar: half a minute without a terminal."""
    return 0.2 if sys.stderr.isatty() else 30.0


def progress(items: Iterable[Item], label: str, total: int | None = None) -> Iterable[Item]:
    """Iterate over the items, with a progress bar if they take more than two seconds.

    Without a terminal it is a line every half minute.
    """
    return tqdm(items, label, total, leave=False, delay=DELAY, dynamic_ncols=True, mininterval=pause())
