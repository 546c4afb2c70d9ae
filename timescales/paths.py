"""Where the checkout, conf/, runs/ and results/ are: the only place that knows. Imports no torch."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent  # the checkout; in an installation the folder of all packages
RUNS = Path("runs")  # relative: every working directory has its own runs
RESULTS = ROOT / "results"


def in_checkout() -> bool:
    """Whether this is a checkout, with conf/ and results/ beside the package."""
    return (ROOT / "conf" / "config.yaml").is_file()


def lost_results() -> str:
    """Say what to do about a checkout without its results/; nothing where they are there, and in an installation."""
    if not in_checkout() or RESULTS.is_dir():
        return ""
    return f"{RESULTS} is not there: `git checkout -- results` in {ROOT} brings it back"


def conf() -> Path:
    """The folder of configurations: beside train.py in a checkout, inside the package in an installation."""
    return (ROOT if in_checkout() else PACKAGE) / "conf"
