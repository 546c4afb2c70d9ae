"""Where the checkout, conf/, runs/ and results/ are: the only place that knows. Imports no torch."""

from __future__ import annotations

import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent  # the checkout; in an installation the folder of all packages
RUNS = Path("runs")  # relative: every working directory has its own runs
RESULTS = ROOT / "results"


def in_checkout() -> bool:
    """Whether this is a checkout, with conf/ and results/ beside the package."""
    return (ROOT / "conf" / "config.yaml").is_file()


def conf() -> Path:
    """The folder of configurations: beside train.py in a checkout, inside the package in an installation."""
    return (ROOT if in_checkout() else PACKAGE) / "conf"


def user_folders() -> list[Path]:
    """The folder of the user's own configurations, --config-dir on the command line; empty if there is none."""
    given = re.findall(r"(?:^|\n)(?:--config-dir|-cd)[=\n]([^\n]+)", "\n".join(sys.argv[1:]))
    return [Path(folder).resolve() for folder in given[-1:]]
