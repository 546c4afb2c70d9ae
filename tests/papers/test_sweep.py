"""A table is a sweep: how it is narrowed, skips, shares and stops."""

import json
import re
import shutil
import signal
import time

import pytest
from quick import UNTRAINED, records

from timescales import analysis, errors, paths
from timescales.config import compose
from timescales.experiment import sweep
from timescales.papers import load
from timescales.reports import markdown, report, status
from timescales.runs import provenance, store
from timescales.runs.record import Record


def test_a_table_is_swept_probed_skipped_and_shared(train, quick, monkeypatch):
    outcome = train("table=quick", "logger=none")
    assert outcome.status == 0, outcome
    assert "4 runs: 0 already finished, 4 to train" in outcome.out
    seeds = re.findall(r"\[\d/4\].* runs/copy-l?p?l?stm-s(\d)", outcome.out)
    assert seeds[:4] == ["0", "0", "1", "1"]  # a value for every cell early
    assert len(records()) == 4
    for one in records():
        assert one["probes"] == {"steps/parameters": one["parameters"]}
        assert not {"table", "rung", "skip"} & set(one["config"])
        assert one["config"]["logger"]["table"] == "quick"  # the tag at W&B
    again = train("table=quick", "logger=none")
    assert "4 runs: 4 already finished, 0 to train" in again.out
    shared = ["task.T=3", "task.train_size=20", "task.valid_size=10", "task.test_size=10", "task.batch_size=10"]
    by_hand = train("task=copy", "model=lstm", "model.hidden_size=4", "loop.max_steps=2", *shared, "logger=none")
    assert "finished, skipped" in by_hand.out
    narrowed = train("table=quick", "model=plstm", "seed=0,1", "logger=none")
    assert "2 runs: 2 already finished" in narrowed.out
    assert "note: " not in narrowed.out
    monkeypatch.setattr(*UNTRAINED)
    beyond = train("table=quick", "model=plstm", "seed=0,5", "logger=none")
    assert "note: 1 of 2 runs are not part of table quick" in beyond.out
    other = train("table=quick", "model=gru", "seed=0", "logger=none")
    assert other.out.index("note: 1 of 1 runs are not part of table quick") < other.out.index("1 run: ")
    assert "was not swept" not in train("table=quick", "optimizer=sgd,adam", "seed=0", "logger=none").out
    some = train("table=quick", "model.epsilon=.1", "seed=0", "logger=none")
    assert "note: model.epsilon is left out for lstm: no such key there" in some.out
    assert "1 of 2 runs are not part of table quick" in some.out


def test_a_rung_is_another_set_of_runs(train, quick):
    outcome = train("table=quick", "rung=t4", "logger=none")
    assert "2 runs: 0 already finished, 2 to train" in outcome.out
    assert {(saved["config"]["task"]["T"], saved["seed"]) for saved in records()} == {(4, 200)}
    outcome = train("table=quick", "rung=small", "logger=none")
    assert "2 runs: 0 already finished, 2 to train" in outcome.out
    for word in ("rung=t2", "profile=small", "profile=tiny"):  # the first rung; the latter two are older words
        assert "2 runs: 2 already finished" in train("table=quick", word, "logger=none").out
    assert {saved["config"]["task"]["T"] for saved in records()} == {2, 4}
    wrong = train("table=quick", "rung=t3", "logger=none")
    assert (wrong.status, wrong.err.count("\n")) == (1, 1)
    assert "rung=t3" in wrong.err
    assert "t2, t4" in wrong.err
    assert "rung=t2" in train("rung=t2", "logger=none").err, "a rung is of a table"


def test_a_sweep_stops_in_time_and_the_next_call_goes_on(train, quick):
    long = ["loop.max_steps=100000", "task.train_size=10000", "hydra.sweeper.minutes=0.05"]
    outcome = train("table=quick", *long, "seed=0", "logger=none")
    assert outcome.status == 0, outcome
    assert "0 of 2 runs done: the same command continues" in outcome.out
    (path,) = quick.glob("runs/*/record.json")
    assert json.loads(path.read_text())["status"] == "interrupted"
    assert (path.parent / "last.pt").is_file()


def test_stale_runs_are_named_and_run_again_on_request(train, quick, monkeypatch):
    train("table=quick", "seed=0", "logger=none")
    monkeypatch.setattr(provenance, "golden", lambda task, model: "changed" if model == "lstm" else "same")
    for path in quick.glob("runs/*plstm*/record.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"golden": "same", "sha256": None}))
    outcome = train("table=quick", "seed=0", "logger=none")
    assert "2 already finished" in outcome.out
    assert re.search(r"1 of them are stale \(force=stale runs them again\): runs/copy-lstm-s0", outcome.out)
    again = train("table=quick", "seed=0", "force=stale", "logger=none")
    assert "1 already finished, 1 to train" in again.out
    assert "stale" not in train("table=quick", "seed=0", "logger=none").out


def test_skip_committed_leaves_out_what_results_hold(train, quick, monkeypatch):
    train("table=quick", "seed=0", "logger=none")
    saved = [Record.read(path.parent) for path in quick.glob("runs/*/record.json")]
    rows = [store.row(each, {"model": "x"}, "paper", ["last test/accuracy"]) for each in saved]
    (quick / "results" / "quick").mkdir(parents=True)
    (quick / "results" / "quick" / "runs.csv").write_text(store.rows_text(rows))
    shutil.rmtree(quick / "runs")
    monkeypatch.setattr(*UNTRAINED)
    outcome = train("table=quick", "skip=committed", "logger=none")
    assert "4 runs: 0 already finished, 2 to train, 2 in results/" in outcome.out
    assert "2 to train" in train("table=quick", "seed=0", "logger=none").out  # a fresh clone really runs


def test_a_task_that_is_not_there_is_named(train, quick):
    path = quick / "conf" / "table" / "quick.yaml"
    path.write_text(path.read_text().replace("task: copy", "task: [copy, handwriting]"))
    outcome = train("table=quick", "seed=0", "model=lstm", "logger=none")
    assert (outcome.status, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert "Could not find 'task/handwriting'" in outcome.err
    for seeds in ("seed=0", "seed=0,5"):  # what can run here; seed 5 is beyond the table
        assert train("table=quick", seeds, "model=lstm", "task=copy", "logger=none").status == 0


def test_a_table_without_a_ladder_and_without_assumptions(quick, train, table_text):
    text = re.sub("(?m)^  assumed:.*$", "", table_text[: table_text.index("  ladder:")])
    (quick / "conf" / "table" / "quick.yaml").write_text(text)
    outcome = train("table=quick", "rung=small", "logger=none")
    assert (outcome.status, outcome.err.count("\n")) == (1, 1)
    assert "quick has no ladder" in outcome.err
    assert train("table=quick", "seed=0", "logger=none").status == 0
    composer = compose.Composer()
    found = report.make("quick", composer, paths.RESULTS, paths.RUNS)
    (paper,) = status.status("quick", composer, paths.RESULTS, paths.RUNS)
    assert paper.line()[:5] == ["quick", "paper", 2, 0, 2]
    assert {size: len(axes) for size, axes in found.planned.items()} == {"paper": 4}
    assert (len(found.rows["paper"]), found.ladder_claims) == (2, [])
    text = markdown.table(found)
    assert "make small" not in text
    assert "At smaller sizes" not in text


def test_a_setting_may_be_of_the_task_of_the_table(quick, train, table_text):
    for copy, variable in (("{T: 3,", "{high: 3,"), ("task: copy", "task: variable_copy"), ("task.T", "task.high")):
        table_text = table_text.replace(copy, variable)
    (quick / "conf" / "table" / "quick.yaml").write_text(table_text)
    assert train("table=quick", "logger=none", "seed=0", "model=lstm", "task.low=1").status == 0
    (saved,) = records()
    assert saved["config"]["task"]["low"] == 1


def test_a_table_is_a_sweep_whatever_its_file_says(quick, train, monkeypatch, table_text):
    """A line less in the file must not make it the default run; without `_global_` it is named."""
    path = quick / "conf" / "table" / "quick.yaml"
    path.write_text(table_text.replace("# @package _global_\n", ""))
    outcome = train("table=quick", "logger=none")
    assert outcome.status == 1
    assert "# @package _global_" in outcome.err
    path.write_text(f"{table_text}\nloop: {{max_steps: 7}}\n")
    told = train("table=quick", "logger=none").err
    assert "loop: a table has only the key `table`; put settings into table.runs" in told
    path.write_text(table_text.replace("# @package _global_\n", ""))
    with pytest.raises(errors.ConfigError, match="must begin with the line"):
        load.table("quick")
    path.write_text(table_text.replace("{", "", 1))
    with pytest.raises(errors.ConfigError, match=r"quick.yaml\", line \d+, column"):
        load.table("quick")
    assert not list(quick.glob("runs/*"))


def test_ones_own_folder_must_be_there_and_name_nothing_twice(quick, train, monkeypatch):
    mine = quick / "mine"
    for name in (None, "table/quick.yaml", "model/lstm.yaml"):
        if name:
            (mine / name).parent.mkdir(parents=True)
            (mine / name).write_text("{}")
        outcome = train("--config-dir", str(mine), "table=quick", "logger=none")
        assert (outcome.status, outcome.err.count("\n")) == (1, 1)
        assert (f"conf/ has a {name}, too" if name else "not found") in outcome.err
        shutil.rmtree(mine, ignore_errors=True)


def test_a_metric_that_no_run_has_is_named(quick, train, table_text):
    path = quick / "conf" / "table" / "quick.yaml"
    path.write_text(table_text.replace("metric: test/accuracy", "metric: test/acuracy\n  success: valid/los < 9"))
    assert train("table=quick", "logger=none").status == 0
    composer = compose.Composer()
    found = report.make("quick", composer, paths.RESULTS, paths.RUNS)
    assert found.unread == [
        "none of its 4 runs here has test/acuracy; did you mean test/accuracy?",
        "none of its 4 runs here has valid/los; did you mean valid/loss?",
    ]


def test_the_time_of_a_sweep_is_over_where_sigint_is_ignored():
    """As in the background of a shell script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), sweep.stopping_after(1e-4):
            time.sleep(10.0)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_damaged_record_ends_no_analyses_of_other_runs(train, quick, monkeypatch):
    missing = analysis.measure_missing

    def damaged_at_once(directory, names):
        if "-lstm-" in directory.name:
            (directory / "record.json").write_text("{")
        missing(directory, names)

    monkeypatch.setattr(analysis, "measure_missing", damaged_at_once)
    outcome = train("table=quick", "logger=none", "seed=0")
    assert outcome.out.count("record.json is damaged") == 1
    assert "1 of 2 runs failed" in outcome.err
    (path,) = quick.glob("runs/*-plstm-*")
    assert "steps/parameters" in Record.read(path).probes
