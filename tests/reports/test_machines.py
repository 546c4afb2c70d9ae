"""The comparison of runs that were trained twice (scripts/machines.py)."""

import pytest
from made_up import made_row

from scripts import machines
from timescales import paths
from timescales.runs import store


@pytest.fixture
def both():
    """both(value) pairs a small-scale run of chien_copy, of 2,500 steps to 35 %, with one that has another value."""
    rows = store.read_rows(paths.RESULTS / "chien_copy" / "runs.csv")
    column = "steps to valid/accuracy >= 0.35"
    row = next(row for row in rows if row.profile == "tiny")
    row = made_row({column: 2500}, row, machine="x86_64", threads=1)

    def both(value, **changes):
        return machines.Pair(row, made_row({column: value}, row, **changes), column, "steps", 1.0)

    return both


def test_a_run_that_gives_the_same_value_is_equal(both):
    pair = both(2500)
    assert pair.earlier.steps == 3000
    assert (pair.equal, pair.difference, pair.other_fate, pair.same_machine) == (True, 0.0, False, True)


def test_a_run_that_never_gets_there_has_another_fate_and_no_difference(both):
    pair = both(store.Censored(2500))
    assert (pair.equal, pair.difference, pair.other_fate) == (False, None, True)


def test_the_page_counts_runs_on_another_processor(both):
    page = machines.page({"chien_copy": [both(2700, machine="another"), both(2500, machine="another")]}, 90)
    assert "Of the 90\nsmall-scale runs 1 were" in page
    assert "- Earlier on another processor: 1 of 1 runs are equal" in page  # the two have one id
    assert "| [chien_copy](#chien_copy) | 2 | 1 | 200 | steps |  |" in page
    assert "| x86_64, 1 thread | 2500 | 2700 | +200 | 3000 |" in page


def test_only_runs_that_were_trained_again_are_compared(tmp_path, both):
    first = both(2500).earlier
    (tmp_path / "chien_copy").mkdir()
    (tmp_path / "chien_copy" / "runs.csv").write_text(store.rows_text([first]))
    again = made_row({"steps to valid/accuracy >= 0.35": 2700}, first, seconds=first.seconds + 1)
    assert [pair.difference for pair in machines.pairs("chien_copy", tmp_path, [again])] == [200]
    assert not list(machines.pairs("chien_copy", tmp_path, [first]))
