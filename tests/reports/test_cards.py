"""The page of a paper: what it says of the tables' runs, and when it is out of date."""

import re

import pytest
from made_up import ORIGIN, TABLE, made_row, planned_run, quoted, report_of, rows

from timescales.errors import ConfigError
from timescales.papers.table import Grid
from timescales.reports import cards

MARKS = "<!-- {0}: written by make report -->\n\n<!-- /{0} -->\n"
OWN = [MARKS.format(name) for name in ("summary", "questions", "tables")]
PAGE = "\n".join(["# Made et al. 2021: A gate\n\nBy hand.\n", *OWN])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the pages: that of the made-up paper and the list, both with marks."""
    (tmp_path / "README.md").write_text(f"# Papers\n\n{MARKS.format('papers')}")
    (tmp_path / "made.md").write_text(PAGE)
    monkeypatch.setattr(cards, "FOLDER", tmp_path)
    return tmp_path


def reports():
    """Two tables of one paper. The second one has the first one's runs of plstm, and no others."""
    there = [made_row(ORIGIN, row, seconds=3600.0) for row in rows([0.90, 0.91, 0.92]) + rows([0.6] * 3, "lstm")]
    shared, other = (planned_run({"model": "gru", "seed": k}, "xy"[k]) for k in (0, 1))
    claims = [quoted("plstm > lstm"), quoted("plstm never fails"), {"claim": "lstm never fails", "ours": "to see"}]
    question = {"asks": "Is it better?", "by": ["plstm > lstm"]}
    table = TABLE | {"claims": claims, "success": "valid/accuracy > 0.5", "question": question}
    first = report_of(table, {"paper": there}, open_runs={"paper": [(shared, None)]})
    cells = [{"where": {"model": "lstm"}, "value": 60.0}, {"where": {"model": "plstm"}, "value": 90.0}]
    small = TABLE | {"name": "made_second", "cells": cells}
    timed = [(shared, 7200.0), (other, 3600.0)]
    second = report_of(small, {"paper": there[:3]}, open_runs={"paper": timed})
    return [second, first]


def stale(reports):
    """The pages that differ from what the reports give."""
    return [path for path, text in cards.pages(reports).items() if not path.is_file() or path.read_text() != text]


def test_what_a_page_says(folder):
    text = cards.pages(reports())[folder / "made.md"]
    assert text.startswith("# Made et al. 2021: A gate\n")
    assert "\nBy hand.\n" in text
    assert "| conclusions | 1 of 2 conclusions hold" in text
    assert "| Is it better? | **Yes**: plstm better than lstm: holds" in text
    assert text.count("[made_up](../../results/made_up/table.md) |") == 2
    assert "[made_up](../../results/made_up/table.md) | Made up |" in text
    assert "[lstm](../models/lstm.md), [plstm](../models/plstm.md)" in text
    assert "| tasks | [copy](../tasks/copy.md) |" in text


def test_a_run_of_two_tables_is_counted_once(folder):
    """Six runs have ended, nine by the tables; of the two open ones the shared one has its price from one table."""
    text = cards.pages(reports())[folder / "made.md"]
    assert "| runs at the paper's size | 6 of 8, which took 6.0 h |" in text
    assert "| missing runs | 2 runs: 3.0 h |" in text
    assert [int(n) for n in re.findall(r"\| (\d) of 6 \| \d\.0 \|", text)] == [3, 6]


def test_a_page_that_is_out_of_date_is_named(folder):
    found = reports()
    assert {path.name for path in stale(found)} == {"made.md", "README.md"}
    for path, text in cards.pages(found).items():
        path.write_text(text)
    assert stale(found) == []
    assert "| [Made et al. 2021: A gate](made.md) | 2 | 1 of 2 conclusions hold" in (folder / "README.md").read_text()
    page = folder / "made.md"
    page.write_text(page.read_text().replace("6.0 h", "7.0 h"))
    assert stale(found) == [page]


def test_a_paper_must_have_a_page(folder):
    (folder / "made.md").unlink()
    with pytest.raises(ConfigError, match=r"made\.md, which table/made_\*\.yaml needs: write it"):
        cards.pages(reports())


def test_models():
    grids = [Grid({"model": ["lstm", "gated"], "model.gate": ["-", "ur"]}), Grid({"model": "lstm"})]
    assert cards.models(grids) == ["lstm", "gated", "ur"]
