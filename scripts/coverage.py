"""Write docs/coverage.md from docs/coverage.yaml: where each table and figure of the papers is. --check: compare."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from timescales.reports.markdown import grid  # noqa: E402

KINDS = ("table", "script", "analysis", "why_not")


def read() -> list[dict[str, Any]]:
    """The papers of docs/coverage.yaml, each with its items."""
    papers = OmegaConf.to_container(OmegaConf.load(ROOT / "docs" / "coverage.yaml"))
    assert isinstance(papers, list)
    return papers


def markdown(papers: list[dict[str, Any]]) -> str:
    """docs/coverage.md: a section for each paper, a row for each of its tables and figures."""
    lines = [
        "# Which table and figure of the papers is where",
        "",
        "Written by `scripts/coverage.py` from `docs/coverage.yaml`. `make reproduce TABLE=NAME` runs a table.",
        "",
        counts([item for paper in papers for item in paper["items"].values()]),
        "",
    ]
    for paper in papers:
        body = [[label, item["shows"], place(item)] for label, item in paper["items"].items()]
        lines += [f"## {paper['paper']}", "", *grid(["item", "shows", "here"], body), ""]
    return "\n".join(lines).rstrip() + "\n"


def counts(items: list[dict[str, str]]) -> str:
    """How many items have a table, a test or an analysis, and how many are left out."""
    planned = [item for item in items if "analysis" in item and file_of(item["analysis"]) is None]
    count = Counter(next(kind for kind in KINDS if kind in item) for item in items if item not in planned)
    return (
        f"{len(items)} tables, figures and printed results: {count['table']} have a table here, {count['script']} a "
        f"test, {count['analysis']} an analysis (`python scripts/analyse.py RUN_DIR`), {count['why_not']} are left "
        f"out. Analyses still planned, beside a table or not: {len(planned)}."
    )


def place(item: dict[str, str]) -> str:
    """Where an item is, with links."""
    words = {
        "table": lambda name: f"[{name}](../conf/table/{name}.yaml)",
        "script": lambda path: f"[{path}](../{path})",
        "analysis": analysis,
        "why_not": lambda text: f"left out: {text}",
    }
    return "; ".join(words[kind](item[kind]) for kind in KINDS if kind in item)


def analysis(text: str) -> str:
    """An item's "NAME, words" with a link to the analysis, or "planned, words"."""
    path = file_of(text)
    if path is None:
        return f"analysis: {text}"
    _, comma, words = text.partition(",")
    return f"analysis [{path.stem}](../{path.relative_to(ROOT)}){comma}{words}"


def file_of(text: str) -> Path | None:
    """The file of timescales/analysis that an item's "NAME, words" names; None for "planned, words"."""
    path = ROOT / "timescales" / "analysis" / f"{text.partition(',')[0]}.py"
    return path if path.is_file() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if coverage.md is not what it should be"
    )
    options = parser.parse_args()
    path, text = ROOT / "docs" / "coverage.md", markdown(read())
    if not options.check:
        path.write_text(text)
    elif not path.is_file() or path.read_text() != text:
        sys.exit("docs/coverage.md is not what docs/coverage.yaml gives: python scripts/coverage.py writes it again")


if __name__ == "__main__":
    main()
