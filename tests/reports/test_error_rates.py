"""Error rates of verdicts: how often each word comes out where the truth is known."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from timescales import paths
from timescales.papers.significance import Moments, beyond, two_one_sided, welch
from timescales.papers.verdict import Word
from timescales.reports import error_rates as pages

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = paths.RESULTS / "statistics"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import error_rates

    return error_rates


def case_of(script, shape, truth, n):
    (case,) = (case for case in script.cases() if case.key == (shape, truth, n))
    return case


def test_where_all_is_as_printed_hardly_a_table_has_a_value_that_differs(script):
    tally = script.judge(case_of(script, "chien_table3", "as printed", 5), 60)
    assert tally.errors["false difference"] <= 5  # 5 % are 3
    assert not {key for key in tally.claims if key[0] == ">" and key[2] == Word.REFUTED}
    again = script.judge(case_of(script, "chien_table3", "as printed, the paper's runs drawn, too", 5), 60)
    assert again.errors["false difference"] <= 6


def test_where_all_is_as_printed_hardly_a_table_is_contradicted(script):
    tally = script.judge(case_of(script, "chien_table3", "as printed", 10), 30)
    assert tally.tables[Word.CONTRADICTED] == tally.errors["false refuted"] == 0


def test_where_all_models_are_the_same_no_order_holds(script):
    tally = script.judge(case_of(script, "chien_table3", "all models the same", 5), 60)
    assert tally.errors["false holds"] <= 6


def test_a_table_whose_models_are_exchanged_is_contradicted(script):
    case = case_of(script, "chien_table3", "pLSTM and LSTM exchanged", 5)
    assert script.judge(case, 20).tables[Word.CONTRADICTED] == 20
    few = case_of(script, "chien_table3", "pLSTM and LSTM exchanged", 3)
    assert script.judge(few, 20).tables[Word.CONTRADICTED] == 0  # fewer runs than in the paper


def test_a_value_beyond_the_margin_seldom_matches(script):
    tally = script.judge(case_of(script, "1 value, margin 2 sd", "1 margins away", 5), 200)
    assert tally.cells["outside the margin", Word.MATCH] <= 20  # 5 % are 10
    near = script.judge(case_of(script, "1 value, margin 4 sd", "as printed", 5), 50)
    assert near.cells["as printed", Word.MATCH] == 50


@pytest.mark.parametrize(
    ("shape", "truth", "n", "word", "least", "most"),
    [
        ("1 claim A > B", "equal", 5, Word.HOLDS, 0, 20),
        ("1 claim A > B", "equal", 5, Word.REFUTED, 0, 20),
        ("1 claim A > B", "better by 4 sd", 5, Word.HOLDS, 195, 200),
        ("1 claim A > B on times", "equal", 5, Word.HOLDS, 0, 20),
        ("1 claim A > B on times", "B never gets there", 5, Word.HOLDS, 200, 200),
        ("1 claim A > B on times", "B never gets there", 3, Word.HOLDS, 0, 0),  # p cannot be below .05
        ("1 claim A ~ B", "1 tolerances apart, the spread is 0.5", 5, Word.HOLDS, 0, 20),
        ("1 claim A ~ B", "0 tolerances apart, the spread is 0.25", 5, Word.HOLDS, 195, 200),
        ("1 claim A fails", "a run fails with probability 1", 3, Word.HOLDS, 200, 200),
        ("1 claim A never fails", "a run fails with probability 0", 3, Word.HOLDS, 200, 200),
    ],
)
def test_words_of_claims_of_known_truth(script, shape, truth, n, word, least, most):
    tally = script.judge(case_of(script, shape, truth, n), 200)
    assert least <= sum(number for (_, _, said), number in tally.claims.items() if said == word) <= most


def test_the_truth_of_claims_and_values(script):
    def claim(shape, truth, n=5):
        case = case_of(script, shape, truth, n)
        return script.truth_of_claim(case.table.claims[0], case)

    assert claim("1 claim A > B", "better by 1 sd") == "true"
    assert claim("1 claim A > B", "equal") == "equal"
    case = case_of(script, "1 claim A > B", "better by 1 sd", 5)
    worse = replace(case, means=[-mean for mean in case.means])
    assert script.truth_of_claim(worse.table.claims[0], worse) == "opposite"
    assert claim("1 claim A > B on times", "B takes twice as long") == "true"
    assert claim("1 claim A ~ B", "0.5 tolerances apart, the spread is 1") == "within the tolerance"
    assert claim("1 claim A ~ B", "1 tolerances apart, the spread is 1") == "outside the tolerance"
    assert claim("1 claim A fails", "a run fails with probability 0.4") == "untrue"
    printed = case_of(script, "chien_table3", "as printed", 5)
    assert {script.truth_of_claim(c, printed) for c in printed.table.claims} == {"true", "within the tolerance"}
    assert {script.truth_of_cell(c, printed) for c in printed.table.cells} == {"as printed"}


def test_the_committed_numbers_are_those_of_the_script(script):
    """One case is drawn again; the page is written again from the CSV files."""
    found = pages.read(COMMITTED)
    case = case_of(script, "1 claim A > B", "better by 2 sd", 5)
    (again,) = script.lines_of(case, script.judge(case, 1000).claims, ["sign", "claim"], "claims")
    (committed,) = pages.pick(found["claims"], *case.key)
    assert {key: value for key, value in committed.items() if value != 0} == again
    assert {case.key for case in script.cases()} == {tuple(line[key] for key in pages.CASE) for line in found["tables"]}
    assert pages.page(found) == (COMMITTED / "README.md").read_text()


def test_the_numbers_that_the_page_on_statistics_prints():
    text = (ROOT / "docs" / "statistics.md").read_text()
    values = [49.32, 51.32, 51.84, 50.84, 59.42]  # results/chien_table3/runs.csv
    test = welch(Moments.of(values), Moments(71.7, 22.2, 5))
    ps = f"is {two_one_sided(test, 22.2):.2f}, p of a difference beyond it {beyond(test, 22.2):.0f}"
    assert ps in " ".join(text.split())
    one_spread = two_one_sided(welch(Moments(0.0, 1.0, 5), Moments(0.0, 1.0, 5)), 1.0)
    assert f"p is {one_spread:.2f}" in text
    for n, ways in re.findall(r"^\| (\d) \| (\d+) \| 0", text, re.MULTILINE):
        from math import comb

        assert comb(2 * int(n), int(n)) == int(ways)
