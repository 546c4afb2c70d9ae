"""Find the checkout, conf/, runs/ and results/. No other module knows where they are."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent  # the checkout; in an installation, the folder of all packages
RUNS = Path("runs")  # relative: every working directory has its own runs
RESULTS = ROOT / "results"


def in_checkout() -> bool:
    """Return whether this is a checkout, with conf/ and results/ beside the package."""
    return (ROOT / "conf" / "config.yaml").is_file()


def results() -> Path:
    """Return the folder of results: that of the checkout or, in an installation, the one in the current folder."""
    return RESULTS if in_checkout() else Path("results")


def lost_results(place: Path | None = None) -> str:
    """Return what to do if this checkout has no results/; "" if it has, and in an installation.

    place: where results were looked for; "" if that is another folder.
    """
    if place not in (None, RESULTS) or not in_checkout() or RESULTS.is_dir():
        return ""
    return f"{RESULTS} is missing: run `git checkout -- results` in {ROOT}"


def conf() -> Path:
    """Return the folder of configurations: beside train.py in a checkout, inside the package in an installation."""
    return (ROOT if in_checkout() else PACKAGE) / "conf"
