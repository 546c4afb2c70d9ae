"""Where data sets lie: `data_root`, else $TIMESCALES_DATA, else the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

from timescales.files import cache_dir


def data_root(given: str | os.PathLike | None) -> Path:
    """The folder that holds data sets; it need not exist yet."""
    if given:
        return Path(given).expanduser()
    if from_environment := os.environ.get("TIMESCALES_DATA"):
        return Path(from_environment).expanduser()
    return cache_dir() / "data"


class MissingData(ValueError):
    """A data set is not where it was looked for and could not be had."""
