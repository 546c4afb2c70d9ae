"""Write all of results/ as web pages into runs/gallery: `python scripts/gallery.py [RUN_DIR ...] [--out FOLDER]`.

Run directories bring what their analyses have drawn. Open index.html in a browser: no server, no network.
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
from timescales.reports.html import Site  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="*", type=Path, help="directories of trained runs")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "gallery")
    options = parser.parse_args()
    docs = options.out / "docs"  # what `scripts/docs.py OUT/docs --site` has written
    try:
        for directory in options.run:
            if not (directory / "record.json").is_file():
                raise ConfigError(f"{directory} is no run: it has no record.json")
        with compose.composing() as composer:
            reports = [report.make(name, composer, paths.RESULTS) for name in folders.choices("table")]
        pages = gallery.pages(reports, Site(paths.RESULTS, docs if docs.is_dir() else None), options.run)
    except ConfigError as error:
        sys.exit(f"error: {error}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        files.write_atomic(options.out / name, text.encode())
    sizes = {name: len(text.encode()) / 1e6 for name, text in pages.items()}
    front, total = sizes["index.html"], sum(sizes.values())
    print(f"{options.out / 'index.html'}: {front:.2f} MB; {len(pages)} pages, {total:.1f} MB")


if __name__ == "__main__":
    main()
