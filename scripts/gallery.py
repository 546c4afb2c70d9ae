"""Write runs/gallery.html, all of results/ on one page: `python scripts/gallery.py [RUN_DIR ...] [--out FILE]`.

Run directories bring what their analyses have drawn. Open the file in a browser: no server, no network.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales import files, paths  # noqa: E402
from timescales.config import compose, folders  # noqa: E402
from timescales.errors import ConfigError  # noqa: E402
from timescales.reports import gallery, report  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="*", type=Path, help="directories of trained runs")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "gallery.html")
    options = parser.parse_args()
    try:
        for directory in options.run:
            if not (directory / "record.json").is_file():
                raise ConfigError(f"{directory} is no run: it has no record.json")
        with compose.composing() as composer:
            reports = [report.make(name, composer, paths.RESULTS) for name in folders.choices("table")]
        text = gallery.page(reports, paths.RESULTS, options.run).encode()
    except ConfigError as error:
        sys.exit(f"error: {error}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomic(options.out, text)
    print(f"{options.out}: {len(reports)} tables, {len(text) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
