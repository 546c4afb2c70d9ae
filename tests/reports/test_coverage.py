"""What becomes of each table and figure of the papers: nothing forgotten, nothing promised that is not there."""

import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from timescales import analysis

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted(path.stem for path in (ROOT / "conf" / "table").glob("*.yaml"))
PAPERS = OmegaConf.to_container(OmegaConf.load(ROOT / "docs" / "coverage.yaml"))
ITEMS = [(paper["paper"], label, item) for paper in PAPERS for label, item in paper["items"].items()]
KINDS = {"table", "script", "analysis", "why_not"}


def labels(kind, numbers):
    return [f"{kind} {n}" for n in numbers]


# From the five texts: their captions, what they cite of parts that are not at hand, and results printed in prose.
EXPECTED = [
    [
        *labels("Figure", [1, 2, 3, 4, 5, "A.1", "A.2", "A.3", "A.4", "A.5"]),
        *labels("Table", [1, 2, 3]),
        "Section 4.4",
        "Section 5.2",
        "Abstract",
    ],
    [*labels("Figure", [1, 2, 3]), "Table 1", "Section 4.3", "Supplement, copy", "Supplement, ablation"],
    [*labels("Table", [1, 2, 3, 4, 5]), *labels("Figure", [3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14])],
    [
        *labels("Table", [1, 2, 3]),
        *labels("Figure", range(1, 13)),
        *labels("Section", ["3.1.1", "3.1.2", "3.2.3", "A.2", "A.6"]),
    ],
    [*labels("Table", [1, 2]), *labels("Figure", range(1, 13)), "Section 5.2"],
]


@pytest.mark.parametrize("k", range(5))
def test_no_item_of_a_paper_is_forgotten(k):
    assert len(PAPERS) == len(EXPECTED)
    assert sorted(PAPERS[k]["items"]) == sorted(EXPECTED[k])


def test_every_table_belongs_to_a_paper_and_exists():
    assert {item["table"] for _, _, item in ITEMS if "table" in item} == set(TABLES)


@pytest.mark.parametrize(("paper", "label", "item"), ITEMS, ids=lambda value: str(value)[:20])
def test_an_item_says_what_it_shows_and_what_becomes_of_it(paper, label, item):
    assert set(item) - KINDS == {"shows"}
    assert set(item) & KINDS, f"{paper}, {label}"
    assert "why_not" not in item or not set(item) & (KINDS - {"why_not"})
    if "script" in item:
        assert (ROOT / item["script"]).is_file()
    if "analysis" in item:
        name = item["analysis"].partition(",")[0]
        assert name == "planned" or name in analysis.names("study", "compare"), name


def test_every_planned_analysis_is_counted():
    planned = sum(item.get("analysis", "").startswith("planned") for _, _, item in ITEMS)
    assert f"still planned, beside a table or not: {planned}." in (ROOT / "docs" / "coverage.md").read_text()


def test_coverage_md_is_what_the_yaml_gives():
    done = subprocess.run(
        [sys.executable, "scripts/coverage.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
