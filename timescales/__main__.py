"""`timescales-train`, or `python -m timescales`: train.py, of the checkout or of the installed package."""

import runpy

from timescales import paths


def main() -> None:
    """Run train.py as a program; it is beside conf/."""
    runpy.run_path(str(paths.conf().parent / "train.py"), run_name="__main__")


if __name__ == "__main__":
    main()
