"""What becomes of each table and figure of the papers: nothing forgotten, nothing promised that is not there."""

import coverage_page as coverage
from made_up import made_row
from omegaconf import OmegaConf

from timescales import analysis
from timescales.papers import load
from timescales.papers.table import expand
from timescales.paths import ROOT

TABLES = sorted(path.stem for path in (ROOT / "conf" / "table").glob("*.yaml"))
PAPERS = OmegaConf.to_container(OmegaConf.load(ROOT / "docs" / "coverage.yaml"))
ITEMS = [(paper["paper"], label, item) for paper in PAPERS for label, item in paper["items"].items()]
KINDS = {"table", "about", "script", "analysis", "no_claim", "why_not"}


def test_an_item_says_what_it_shows_and_what_becomes_of_it():
    studies = {name for name in TABLES if name.startswith("ours_")}
    assert {item["table"] for _, _, item in ITEMS if "table" in item} == set(TABLES) - studies
    for paper, label, item in ITEMS:
        assert set(item) - KINDS == {"shows"}, (paper, label)
        assert set(item) & KINDS, (paper, label)
        assert "why_not" not in item or not set(item) & (KINDS - {"why_not"}), (paper, label)
        assert ("no_claim" in item) == (set(item) & KINDS - {"no_claim"} == {"analysis"}), "what judges it?"
        if "script" in item:
            assert (ROOT / item["script"].split()[0]).is_file()
        if "analysis" in item:
            name = item["analysis"].partition(",")[0]
            assert name == "planned" or name in analysis.names("study", "compare"), name


def test_claims_or_values_of_its_table_are_about_an_item():
    for label, item in [(label, item) for _, label, item in ITEMS if "about" in item]:
        found = coverage.judged(item)
        assert found.claims or found.cells, label
        assert 0 <= found.runs <= found.planned, label
        assert (found.planned == 0) == item["about"].startswith("data/") == (found.standing == "data"), label


def test_runs_count_that_have_the_numbers(monkeypatch):
    """Of four runs of a claim's model one has not the analysis, one is small-scale, one of another model."""
    table = load.table("mahto_table2")
    axes = [axes for axes in expand(table) if axes["task"] == "ptb_word" and axes["model"] == "mts"]
    other = next(axes for axes in expand(table) if axes["model"] == "lstm")
    number = {"probe/routing/none": 1.0}
    rows = [made_row(number, axes=axes[0]), made_row({"probe/routing/none": None}, axes=axes[1])]
    rows += [made_row(number, axes=axes[2], rung="t20"), made_row(number, axes=other)]
    monkeypatch.setattr(coverage, "table_of", lambda name: (table, rows))
    item = {"table": "mahto_table2", "about": "probe/routing @ task=ptb_word"}
    found = coverage.judged(item)
    assert (len(found.claims), found.runs, found.planned, found.small, found.standing) == (4, 1, 5, 1, "some")
    published = "; [published models](../results/reanalysed/README.md)"
    assert coverage.runs(item) == f"1 of 5; 1 on the ladder{published}"
    assert "[4 claims](../results/mahto_table2/table.md) (`probe/routing @ task=ptb_word`)" in coverage.judge(item)
    monkeypatch.setattr(coverage, "table_of", lambda name: (table, rows[2:]))
    assert (coverage.judged(item).standing, coverage.runs(item)) == ("ladder", f"none of 5; 1 on the ladder{published}")
    assert not coverage.judged({"table": "mahto_table2", "about": "test/perplexity"}).published
