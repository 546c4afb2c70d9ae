"""Error rates of verdicts: how often each word comes out where the truth is known."""

import functools
import re
from dataclasses import replace
from math import comb
from pathlib import Path

import pytest

from timescales import paths
from timescales.papers.significance import (
    Moments,
    detectable,
    equivalent_within,
    error_of_difference,
    error_of_next,
    half_width,
    p_of_difference,
)
from timescales.papers.verdict import Word
from timescales.reports import error_rates as pages

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = paths.RESULTS / "statistics"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import error_rates

    return error_rates


@functools.cache
def cases(script):
    """By their keys."""
    found = list(script.cases())
    by_key = {case.key: case for case in found}
    assert len(by_key) == len(found)
    return by_key


def case_of(script, shape, truth, n):
    return cases(script)[shape, truth, n]


def share(tally, word, truth="as printed"):
    of = {said: number for (true, said), number in tally.cells.items() if true == truth}
    return sum(number for said, number in of.items() if said == word) / sum(of.values())


def test_where_all_is_as_printed_most_values_agree_and_hardly_one_differs(script):
    tally = script.judge(case_of(script, "chien_table3", "as printed", 5), 25)
    assert tally.errors["false difference"] <= 4  # 5 % are 1
    assert not {key for key in tally.claims if key[0] == ">" and key[2] in (Word.REFUTED, Word.TOO_SMALL)}
    assert share(tally, Word.AGREES) > 0.75
    assert share(tally, Word.CANNOT) > 0.05  # two of 18 have too wide a spread


def test_where_all_models_are_the_same_no_order_holds(script):
    tally = script.judge(case_of(script, "chien_table3", "all models the same", 5), 25)
    assert tally.errors["false holds"] <= 5


def test_a_table_whose_models_are_exchanged_is_not_reproduced(script):
    case = case_of(script, "chien_table3", "pLSTM and LSTM exchanged", 5)
    tally = script.judge(case, 10)
    assert not tally.tables[Word.REPRODUCED]
    assert sum(number for key, number in tally.claims.items() if key[2] == Word.REFUTED) > 10


@pytest.mark.parametrize(("n", "least"), [(3, 0.35), (5, 0.55), (10, 0.65)])
def test_eighteen_values_as_printed_and_away(script, n, least):
    """The paper's spread is itself of five runs. Before, none of them ever matched."""
    same = script.judge(case_of(script, "18 values", "as printed", n), 20)
    assert share(same, Word.AGREES) > least
    away = script.judge(case_of(script, "18 values", "2 sd away", n), 20)
    assert sum(number for (_, word), number in away.cells.items() if word == Word.AGREES) <= 0.1 * 18 * 20
    for truth in ("one of five runs has fallen", "three of five runs have fallen"):
        fallen = script.judge(case_of(script, "18 values", truth, n), 5)
        assert share(fallen, Word.LESS_STABLE, truth) == 1.0


def test_a_value_beyond_the_margin_seldom_agrees(script):
    tally = script.judge(case_of(script, "1 value, margin 2 sd", "1 margins away", 5), 100)
    assert tally.cells["outside the margin", Word.AGREES] <= 15
    near = script.judge(case_of(script, "1 value, margin 4 sd", "as printed", 5), 50)
    assert near.cells["as printed", Word.AGREES] >= 45


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
    (committed,) = pages.pick(found["claims"], *case.key)
    (again,) = script.lines_of(case, script.judge(case, committed["claims"]).claims, ["sign", "claim"], "claims")
    assert {key: value for key, value in committed.items() if value != 0} == again
    assert set(cases(script)) == {tuple(line[key] for key in pages.CASE) for line in found["tables"]}
    assert pages.page(found) == (COMMITTED / "README.md").read_text()


def test_the_numbers_that_the_page_on_statistics_prints():
    text = " ".join((ROOT / "docs" / "statistics.md").read_text().split())
    ours, printed = (
        Moments.of([92.1, 91.5, 92.9, 93.28, 92.74]),
        Moments(84.64, 2.1, 5),
    )  # results/chien_table3/runs.csv
    error, gap = error_of_next(printed, ours), ours.mean - printed.mean
    low, high = printed.mean - half_width(error), printed.mean + half_width(error)
    within = equivalent_within(gap, error_of_difference(ours, printed))
    assert (
        f"Expected are {low:.0f} to {high:.1f}, so our mean is outside (p = {p_of_difference(gap, error):.4f})." in text
    )
    assert f"X is {within:.1f}; M is {(92.57 - 84.64) / 2:.2f}" in text
    one = [equivalent_within(0.0, error_of_difference(Moments(0, 1, n), Moments(0, 1, 5))) for n in (3, 5, 10)]
    assert [round(x, 2) for x in one] == [1.52, 1.18, 1.02]
    assert [round(2 - x, 1) for x in one] == [0.5, 0.8, 1.0]
    assert f"with five runs a side d is {detectable(5):.1f}" in text
    for n, ways in re.findall(r"\| (\d) \| (\d+) \| 0", text):
        assert comb(2 * int(n), int(n)) == int(ways)
