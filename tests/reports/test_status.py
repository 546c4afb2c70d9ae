"""What is done of tables, what is left, and what that costs."""

import subprocess
import sys

import pytest
from made_up import LADDER, ORIGIN, TABLE, made_record, made_row, planned_run, quoted, report_of, rows

from timescales.config import compose
from timescales.errors import ConfigError
from timescales.experiment import plan
from timescales.papers import load
from timescales.papers.parse import parse
from timescales.papers.table import expand
from timescales.paths import ROOT
from timescales.reports import gather, index, status, wording
from timescales.runs import cost, provenance, store

NODE = TABLE | {"claims": [quoted("plstm > lstm")], "ladder": LADDER}


@pytest.fixture
def said(script, monkeypatch, tmp_path):
    """The lines of `scripts/status.py ...`, called in a folder without runs."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: script("status", *words).splitlines()


def test_status_counts_what_is_committed(said):
    """In a folder without runs the committed ones are seen, however many, and what is missing has its price."""
    head, paper, _ = said("chien_table3")[:3]
    assert head.split()[:7] == ["table", "size", "done", "committed", "missing", "interrupted", "stale"]
    assert paper.split()[:2] == ["chien_table3", "paper"]
    finished, committed, missing, begun, stale = map(int, paper.split()[2:7])
    there = store.read_rows(ROOT / "results" / "chien_table3" / "runs.csv")
    assert committed + stale == sum(row.rung == "paper" for row in there) > 0
    assert (finished, begun) == (0, 0)
    assert committed + stale + missing == 155
    assert bool(paper.split()[8:]) == (missing > 0)  # after the failed ones


def test_status_knows_a_folder_of_ones_own(said):
    lines = [line.split()[:5] for line in said("--config-dir", ROOT / "docs" / "tutorial")[1:3]]
    assert lines == [["decay_waves", "paper", "0", "0", "9"], ["decay_waves", "epochs10", "0", "0", "6"]]


def test_status_adds_up_what_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "golden", lambda task, model: None)
    monkeypatch.setattr(load, "table", lambda name: parse(NODE | {"name": name, "needs": ["ptb"]}))
    places = tmp_path / "results", tmp_path / "runs"
    states = {"finished": 3600.0, "diverged": 60.0, "failed": 60.0, "interrupted": 60.0}  # three of lstm, one of plstm
    composer = compose.Composer()
    runs, _ = plan.table_runs(load.table("chien_copy"), "paper", composer)
    for run, (state, seconds) in zip(runs, states.items(), strict=False):
        axes = (run.axes["seed"], run.axes["model"], 0.9)
        made_record(tmp_path / "runs" / run.name, run.id, *axes, status=state, seconds=seconds)
    paper, rung, larger = status.status("chien_copy", composer, *places, absent=["ptb"])
    kinds = [run.cost_key for run in runs]
    fetch = "python scripts/fetch_data.py ptb"
    assert paper.line() == ["chien_copy", "paper", 1, 0, 2, 1, 0, 2, "1.0 h + 3 runs not measured", fetch]
    assert rung.line() == ["chien_copy", "t5", 0, 0, 6, 0, 0, 0, "6 runs not measured", fetch]
    assert larger.size == "t20"
    assert (kinds[0] in paper.unknown, kinds[5] in paper.unknown) == (False, True)
    words = ["finished", "diverged", "failed", "interrupted", "missing", "missing"]
    assert [row[2] for row in paper.plan({})] == ["state", *words]
    assert paper.plan({"seed": [0], "model": ["plstm"]})[1][:3] == ["plstm", "0", "interrupted"]
    with pytest.raises(ConfigError, match=r"sed: no setting of .*; did you mean seed\?"):
        paper.plan({"sed": [0]})
    with pytest.raises(ConfigError, match=r"model=lstmm: no such run in .*; there are lstm, plstm"):
        paper.plan({"model": ["lstmm"]})


def listed(*words):
    """The lines of `scripts/status.py ... --list`, in a process of its own that must not import torch."""
    script = str(ROOT / "scripts" / "status.py")
    code = f"""
import runpy, sys
sys.argv = [{script!r}, "--list", *{words!r}]
runpy.run_path({script!r}, run_name="__main__")
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tests", capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout or done.stderr).splitlines()


@pytest.mark.slow
def test_the_runs_of_a_table_are_listed_without_torch(said):
    code, lines = listed("chien_table3", "model=plstm", "seed=0,1", "task.sampling=async", "task.time_input=true")
    assert code == 0, lines
    head, *body = (line.split() for line in lines)
    assert set(head) == {"model", "time_input", "time_unit", "negatives", "sampling", "seed", "state", "directory"}
    runs = [dict(zip(head, row, strict=True)) for row in body]
    both = [(unit, seed) for unit in ("longest", "raw") for seed in "01"]
    assert sorted((run["time_unit"], run["seed"]) for run in runs) == both
    assert {(run["model"], run["sampling"]) for run in runs} == {("plstm", "async")}
    assert {run["state"] for run in runs} <= {"committed", "stale", "missing"}
    assert all(run["directory"].startswith(f"frequency-plstm-s{run['seed']}-") for run in runs)
    small = said("chien_table3", "--list", "--rung", "small")
    assert said("chien_table3", "--list", "--rung", "epochs14") == small
    assert len(small) == 1 + 20
    assert "rung=nope" in said("chien_table3", "--list", "--rung", "nope")[0]


def test_a_list_is_of_one_table_that_there_is(said):
    code, lines = listed("chien_tabel3")
    assert (code, len(lines)) == (1, 1)
    assert "did you mean chien_table3?" in lines[0]
    assert "--list is for one table: give its name" in said("--list")[0]
    assert "no viable alternative at input '[1'" in said("chien_table3", "--list", "seed=[1")[0]


@pytest.mark.parametrize("words", [["seed=0"], ["--rung", "small"]])
def test_what_an_overview_does_not_read_is_an_error(said, capsys, words):
    lines = said("gu_table2", *words)
    assert words[0].split("=")[0] in "".join(lines)
    assert "done" not in lines[0]  # the head of the overview


def test_the_price_of_what_is_open(tmp_path):
    head = ",".join(cost.COLUMNS)
    slow, fast = ("u,copy/lstm,abacus,1,9,1,1,90000", "u,copy/lstm,loom,1,9,1,1,36000")
    (tmp_path / "speed.csv").write_text(f"{head}\n{fast}\n{slow}\n")
    there = [made_row(ORIGIN, row, seconds=600.0, id=id) for row, id in zip(rows([0.9, 0.91]), "34", strict=True)]
    there += [made_row(like=there[0], id="5", status="failed", seconds=1e6)]
    there += [made_row(like=there[0], id="4", seconds=3.0)]

    def planned(kinds):
        return [planned_run(axes, str(k), kinds[axes["model"]]) for k, axes in enumerate(expand(parse(TABLE)))]

    def prices(runs):
        found = report_of(TABLE, {"paper": there[:2]}, open_runs={"paper": runs})
        return wording.price(found.open_seconds()), index.row(found)[5]

    # Of the others one has failed: it is open; of two that ended the longer one counts.
    kinds, table = {"lstm": "l", "plstm": "p"}, parse(TABLE)
    told = "1 run: 10 min, 3 runs not timed"  # that of plstm takes as long as those that have ended
    assert prices(gather.open_runs(table, planned(kinds), there, tmp_path)) == (told, told)
    old = gather.open_runs(table, planned(kinds), [made_row(like=there[0], stale=True), *there[1:]], tmp_path)
    assert [run.axes["seed"] for run, _ in old if run.axes["model"] == "plstm"] == [0, 2]  # of older code: open again
    timed = kinds | {"lstm": "u"}  # by the fastest machine
    assert prices(gather.open_runs(table, planned(timed), there, tmp_path))[0] == "4 runs: 30 h"
    rung = {"set": {"task.T": 5}, "claims": [], "steps": 3}  # of the 9 that were timed
    early = parse(TABLE | {"ladder": {"over": "task.T", "rungs": {"t5": rung}}}).sizes["t5"]
    seconds = {run.axes["seed"]: s for run, s in gather.open_runs(early, planned(timed), [], tmp_path) if s}
    assert seconds == dict.fromkeys((0, 1, 2), 12000.0)
