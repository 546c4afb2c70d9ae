"""Write docs/coverage.md from docs/coverage.yaml: what of the papers' tables and figures is here. --check: compare."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("table", "script", "analysis", "why_not")


def read() -> list[dict[str, Any]]:
    """The papers of docs/coverage.yaml, each with its items."""
    found = OmegaConf.to_container(OmegaConf.load(ROOT / "docs" / "coverage.yaml"))
    assert isinstance(found, list)
    return found


def markdown(papers: list[dict[str, Any]]) -> str:
    """docs/coverage.md: a section for each paper, a row for each of its tables and figures."""
    items = [item for paper in papers for item in paper["items"].values()]
    count = Counter(next(kind for kind in KINDS if kind in item) for item in items)
    planned = [item for item in items if "analysis" in item and not _analysis(item["analysis"])]
    alone = sum(next(kind for kind in KINDS if kind in item) == "analysis" for item in planned)
    lines = [
        "# What of the papers is here",
        "",
        "Written by `scripts/coverage.py` from `docs/coverage.yaml`. `make reproduce TABLE=<name>` runs a table.",
        "",
        f"{len(items)} tables, figures and printed results: {count['table']} have a table here, {count['script']} a "
        f"test, {count['analysis'] - alone} an analysis (`python scripts/analyse.py RUN_DIR`), {count['why_not']} are "
        f"left out. Analyses still planned, beside a table or not: {len(planned)}.",
        "",
    ]
    for paper in papers:
        lines += [f"## {paper['paper']}", "", "| item | shows | here |", "| --- | --- | --- |"]
        lines += [f"| {label} | {item['shows']} | {_here(item)} |" for label, item in paper["items"].items()] + [""]
    return "\n".join(lines).rstrip() + "\n"


def _here(item: dict[str, str]) -> str:
    said = {
        "table": lambda name: f"[{name}](../conf/table/{name}.yaml)",
        "script": lambda path: f"[{path}](../{path})",
        "analysis": _said,
        "why_not": lambda text: f"left out: {text}",
    }
    return "; ".join(said[kind](item[kind]) for kind in KINDS if kind in item)


def _analysis(text: str) -> Path | None:
    """The file of timescales/analysis that an item's "NAME, words" names; None for one that is "planned, words"."""
    path = ROOT / "timescales" / "analysis" / f"{text.partition(',')[0]}.py"
    return path if path.is_file() else None


def _said(text: str) -> str:
    path = _analysis(text)
    if path is None:
        return f"analysis: {text}"
    _, comma, words = text.partition(",")
    return f"analysis [{path.stem}](../{path.relative_to(ROOT)}){comma}{words}"


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
        sys.exit("docs/coverage.md is not what docs/coverage.yaml gives: python scripts/coverage.py writes it")


if __name__ == "__main__":
    main()
