"""Rows of runs.csv: what a record gives, and what is committed; what runs of a kind cost."""

import itertools
import types
from dataclasses import astuple, replace

import pytest
from made_up import made_row

from timescales import paths
from timescales.config import compose, identity
from timescales.reports import wording
from timescales.runs import cost, metrics, provenance, store
from timescales.runs.record import Record


def test_values_of_two_trainings_of_a_run_are_never_mixed(tmp_path):
    for name, seconds, metric in (("a", 1.0, "last x"), ("b", 2.0, "last y"), ("c", 1.0, "last z")):
        (tmp_path / name).mkdir()
        line = made_row({metric: 0.5}, id="1", seconds=seconds, commit="c")
        (tmp_path / name / "runs.csv").write_text(store.rows_text([line]))
    found = store.committed(tmp_path)["1"]
    assert (found.value("last x"), found.value("last z"), found.value("last y")) == (0.5, 0.5, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("best test/accuracy", 0.9),
        ("last test/accuracy", 0.8),
        ("last test/loss", None),
        ("probe/a/b", 3.0),
        ("steps to valid/accuracy >= 0.5", 20),
        ("steps to valid/loss <= 0.1", 30),
        # never: the 40 after which it ended, not the 90 that it might have taken
        ("steps to valid/accuracy >= 0.99", metrics.Censored(40)),
    ],
)
def test_what_a_table_reads_from_a_record(name, value):
    curve = [
        {"step": 10, "valid/accuracy": 0.1, "valid/loss": 1.0},
        {"step": 20, "valid/accuracy": 0.6, "valid/loss": 0.2},
        {"step": 30, "epoch": 1.0, "valid/accuracy": 0.7, "valid/loss": 0.05},
    ]
    record = Record(id="a", status="finished", curve=curve, steps=40, probes={"a/b": 3.0})
    record.change(metrics={"test/accuracy": 0.9}, last={"test/accuracy": 0.8})
    found = metrics.metric(record, name)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ([100, 140, ">900"], 140),
        ([100, ">120", 900], ">120"),
        ([">100", 140, 150], ">140"),  # the first may be the last
        ([90, 150, ">200", 300], ">175"),
        ([90, 150, 200, ">300"], 175),
        ([">9", ">9"], ">9"),
    ],
)
def test_a_median_of_times_says_where_it_may_be_larger(values, median):
    numbers = [metrics.Censored(v[1:]) if isinstance(v, str) else v for v in values]
    found = metrics.median(numbers)
    assert (isinstance(found, metrics.Censored), wording.number(found)) == (isinstance(median, str), str(median))


def test_the_lstm_that_stopped_early_is_censored_where_it_stopped():
    """The copy task ended it as failed after 412,114 of 782,000 steps."""
    found = store.committed()["8c702aa0450c"]
    assert found.steps == 412114
    assert str(found.value("steps to valid/accuracy >= 0.99")) == ">412114"


def test_no_committed_run_is_censored_later_than_it_stopped():
    for found in store.committed().values():
        never = {key: value for key, value in found.values.items() if isinstance(value, metrics.Censored)}
        assert set(never.values()) <= {found.steps}, found.id


def test_a_threshold_never_reached_stays_so_in_a_file(tmp_path):
    """A number for what computes, ">90" for what reads."""
    name = "steps to valid/accuracy >= 0.99"
    (tmp_path / "runs.csv").write_text(
        store.rows_text([made_row({name: metrics.Censored(90)}, id="a"), made_row({name: 90}, id="b")])
    )
    assert f"{name}\na," in (tmp_path / "runs.csv").read_text().replace(",".join(store.COLUMNS) + ",", "")
    first, second = (found.value(name) for found in store.read_rows(tmp_path / "runs.csv"))
    assert (first, type(first), wording.number(first)) == (90, metrics.Censored, ">90")
    assert (second, type(second), wording.number(second)) == (90, int, "90")


def test_a_committed_run_counts_if_it_ended_on_data_that_will_do():
    rows = [made_row(status=state, partial=part) for part in ("", "a part") for state in ("diverged", "failed")]
    assert [found.counts(allow_partial=False) for found in rows] == [True, False, False, False]
    assert [found.counts(allow_partial=True) for found in rows] == [True, False, True, False]


def test_a_kind_is_timed_once_on_each_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    timed = cost.Timing("u", "copy/lstm", "abacus", "1", "9", "1", "1", "90")
    cost.write([timed])
    cost.write([replace(timed, machine="loom"), replace(timed, seconds="80")])
    assert [(row.machine, row.seconds) for row in cost.rows()] == [("abacus", "80"), ("loom", "90")]
    for here, seconds in (("abacus", 80.0), ("loom", 90.0)):
        monkeypatch.setattr(provenance, "processor", lambda here=here: here)
        assert cost.known() == {"u": seconds}


def test_the_longest_whole_run_of_a_kind_is_its_price(monkeypatch):
    monkeypatch.setattr(cost, "rows", lambda *_: [])
    others = [("b", made_row(seconds=30.0, partial="MNIST subset")), ("c", made_row(seconds=30.0, status="diverged"))]
    assert cost.prices([("a", made_row(seconds=30.0)), ("a", made_row(seconds=20.0)), *others]) == {"a": 30.0}


def test_what_no_run_has_a_value_of_makes_no_column():
    rows = [made_row({"best test/loss": 1.0, "probe/x": None}), made_row({"probe/x": None}, id="b")]
    head = store.rows_text(rows).splitlines()[0].split(",")
    assert head == [*store.COLUMNS, "best test/loss"]


def test_the_cost_of_a_run_with_one_batch_an_epoch(monkeypatch):
    """Its few steps are of several epochs; here each step takes a second, and each of three validation batches."""
    words = ["task=copy", "task.T=3", "task.train_size=8", "task.valid_size=1001", "task.batch_size=8"]
    monkeypatch.setattr(cost, "time", types.SimpleNamespace(monotonic=itertools.count().__next__))
    with compose.composing() as composer:
        found = cost.measure(
            "a kind", identity.resolved(composer([*words, "loop.max_epochs=5", "model.hidden_size=4", "device=cpu"]))
        )
    assert astuple(found)[4:] == ("5", "1", "3", "20")
