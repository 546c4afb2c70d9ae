"""What becomes of each table and figure of the papers: nothing forgotten, nothing promised that is not there."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import made_row
from omegaconf import OmegaConf

from timescales import analysis, paths
from timescales.config import compose
from timescales.papers import judge, load
from timescales.papers.table import Assumption, columns, expand
from timescales.reports import sensitivity
from timescales.runs import provenance, store

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted(path.stem for path in (ROOT / "conf" / "table").glob("*.yaml"))
PAPERS = OmegaConf.to_container(OmegaConf.load(ROOT / "docs" / "coverage.yaml"))
ITEMS = [(paper["paper"], label, item) for paper in PAPERS for label, item in paper["items"].items()]
KINDS = {"table", "about", "script", "analysis", "no_claim", "why_not"}


@pytest.fixture(scope="module")
def coverage():
    """scripts/coverage_page.py as a module."""
    sys.path.insert(0, str(ROOT / "scripts"))
    return importlib.import_module("coverage_page")


def test_every_table_belongs_to_a_paper_or_our_own_study_and_exists():
    studies = {name for name in TABLES if name.startswith("ours_")}
    assert {item["table"] for _, _, item in ITEMS if "table" in item} == set(TABLES) - studies


def test_an_item_says_what_it_shows_and_what_becomes_of_it():
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


def test_claims_or_values_of_its_table_are_about_an_item(coverage):
    for label, item in [(label, item) for _, label, item in ITEMS if "about" in item]:
        found = coverage.judged(item)
        assert found.claims or found.cells, label
        assert 0 <= found.runs <= found.planned, label
        assert (found.planned == 0) == item["about"].startswith("data/") == (found.standing == "data"), label


def test_runs_count_that_have_the_numbers(coverage, monkeypatch):
    """Of four runs of a claim's model one has not the analysis, one is small-scale, one of another model."""
    table = load.table("mahto_table2")
    axes = [axes for axes in expand(table) if axes["task"] == "ptb_word" and axes["model"] == "mts"]
    other = next(axes for axes in expand(table) if axes["model"] == "lstm")
    number = {"probe/routing/none": 1.0}
    rows = [
        made_row(number, axes=axes[0]),
        made_row({"probe/routing/none": None}, axes=axes[1]),
        made_row(number, axes=axes[2], rung="t20"),
        made_row(number, axes=other),
    ]
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


# --- Settings that the paper does not state, varied -------------------------------------------------------------------


def test_sensitivity_judges_a_setting_that_one_model_alone_has(tmp_path, monkeypatch):
    """model.forget_init is the LSTM's, model.epsilon_form the pLSTM's: the two are compared all the same."""
    with compose.composing() as composer:
        table = load.table("chien_copy").sizes["t20"]
        about = {"run": "copy/lstm", "values": dict.fromkeys(columns(table), 1.0)}
        row = store.Row(id="", status="finished", seed=0, axes={}, golden=provenance.golden("copy", "lstm"), **about)
        variations = sensitivity.variations(table, composer)
        ids = [run.id for variation in variations for run in sensitivity.runs_of(table, composer, variation)]
        monkeypatch.setattr(store, "committed", lambda results: {run_id: replace(row, id=run_id) for run_id in ids})
        found = sensitivity.gather(table, composer, paths.RESULTS, tmp_path)  # with the committed sensitivity.csv
        same = replace(table, assumed={"loop.checkpoint_every": Assumption(said="how often", tries=(7,))})
        assert sensitivity.variations(same, composer) == [sensitivity.Variation()]  # it changes no run
        row = replace(row, golden="of older code")
        old = sensitivity.gather(table, composer, tmp_path, tmp_path)
        assert all(row.stale for rows in old.values() for row in rows)
    assert {"model.forget_init=1.0", "model.epsilon_form=authors"} < set(found)
    for words, rows in found.items():
        for claim in table.claims:
            assert judge.judge_claim(claim, rows, [row.axes for row in rows]).interval is not None, (words, claim.text)
    head = ["setting", "runs", *(claim.text for claim in table.claims)]
    assert f"| {' | '.join(head)} |" in sensitivity.page(table, found).splitlines()


def test_overrides_choose_and_change_the_runs():
    with compose.composing() as composer:
        table = load.table("chien_copy").sizes["t20"]
        overrides = ["seed=200", "model=lstm,plstm", "model.epsilon=.1", "task.layout=authors"]
        part = sensitivity.narrowed(table, overrides, composer)
        assert "task.layout" in {variation.key for variation in sensitivity.variations(table, composer)}
        varied = sensitivity.variations(part, composer)
        assert "task.layout" not in {variation.key for variation in varied}
        for variation in varied:
            runs = [run.axes for run in sensitivity.runs_of(part, composer, variation)]
            assert [(axes["model"], axes["seed"]) for axes in runs] == [("lstm", 200), ("plstm", 200)]
            assert [axes.get("model.epsilon") for axes in runs] == [None, 0.1]  # the LSTM has none
            assert {axes["task.layout"] for axes in runs} == {"authors"}


def test_a_part_is_printed_and_not_written(script):
    files = sorted((paths.RESULTS / "chien_copy").glob("sensitivity.*"))
    before = [path.read_bytes() for path in files]
    printed = script("sensitivity", "chien_copy", "--no-run", "seed=200")
    assert "| as assumed |" in printed
    assert "with seed=200; not written" in printed
    assert [path.read_bytes() for path in files] == before
    assert "did you mean seed?" in script("sensitivity", "chien_copy", "seeed=0")
