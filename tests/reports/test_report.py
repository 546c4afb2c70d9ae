"""Reports are a function of the records alone."""

import json
import shutil
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import ORIGIN, TABLE, made_row, report_of, rows
from perfect_rows import perfect_rows

from timescales import commands
from timescales.papers import load
from timescales.papers.parse import parse
from timescales.papers.table import columns, expand
from timescales.papers.verdict import Verdict, Word, judge_small
from timescales.reports import markdown, write
from timescales.reports.index import index as index_of
from timescales.reports.wording import text as said
from timescales.runs import cost, metrics, store
from timescales.runs.record import Record

ROOT = Path(__file__).resolve().parents[2]


def test_what_another_selection_would_give_stands_beside_it():
    table = {**TABLE, "assumed": {"select": {"said": "not stated", "try": ["best"]}}}
    assert columns(parse(table)) == ["last test/accuracy", "best test/accuracy"]
    a, b = (made_row(ORIGIN, row) for row in rows([0.5, 0.5]))
    runs = {"paper": [made_row({"best test/accuracy": 0.902}, a), b], "tiny": []}  # one was committed without it
    text = markdown.table(report_of(table, runs))
    assert "| verdict | agrees to within | p different | p spread | ours if select=best | missing runs |" in text
    assert "| 0.5 | 50 (0) | 2 | 50 | 50 50 | lower (n=2) | 40 | 0 (0) |  | 90.2: undecided (n=1) |" in text
    assert "select=" not in markdown.table(report_of(TABLE, runs))
    failing = {**table, "success": "valid/accuracy > 0.4"}  # a run that succeeded does so whatever is selected
    text = markdown.table(report_of(failing, runs))
    assert "| 50 50 | lower (n=2) | 40 | 0 (0) |  | 90.2: undecided (n=1) |" in text


def test_a_table_without_printed_values_has_no_columns_that_compare():
    cells = [{"where": {"model": model}, "value": None} for model in ("plstm", "lstm")]
    planned = {"paper": [row.axes for row in rows([0.5])], "tiny": []}
    runs = {"paper": [made_row(ORIGIN, row) for row in rows([0.5, 0.7])], "tiny": []}
    text = markdown.table(report_of({**TABLE, "cells": cells}, runs, planned))
    assert "| model | ours | n | median | every seed |\n" in text
    assert "| plstm | 60 (14) | 2 | 60 | 50 70 |\n| lstm |  |  |  |  |\n" in text
    assert "blank" not in text
    assert "agrees to within" not in text
    cells[1]["value"] = 90.0  # one printed value, and all columns are there
    text = markdown.table(report_of({**TABLE, "cells": cells}, runs, planned))
    assert (
        "| model | paper | 95 % | margin | ours | n | median | every seed | verdict | agrees to within | p diff" in text
    )
    assert "*Agrees to within*: the smallest margin" in text


def test_a_report_says_what_holds_under_one_setting_what_is_calibrated_and_what_needs_no_training():
    def head(name, keep):
        table = load.table(name)
        every = perfect_rows(table)
        kept = [row for row in every if keep(row.axes)]
        planned = {"paper": [row.axes for row in every]}
        return markdown.decided(report_of(table, {"paper": kept, "tiny": []}, planned, ROOT / "results"))

    alone = head("chien_table3", lambda axes: axes["task.negatives"] != "uniform")
    assert alone[0] == (
        "`plstm > lstm @ task.sampling=async task.time_input=false`: "
        "holds under the released generator's periods, not run under the text's periods"
    )
    told = head("gu_forgetting", lambda axes: True)
    assert told[0] == "`model.gate=- fails @ loop.max_steps=10000`: holds"
    assert told[1] == "`model.gate=r never fails @ loop.max_steps=50000`: holds (calibrated)"
    (about,) = head("mahto_figure1", lambda axes: False)
    assert about == "without a training: 2 *as printed*, 1 *not as printed*"


def test_a_small_version_shows_no_order_before_all_its_runs_are_there():
    small = {"set": {"task.T": 5}, "claims": ["plstm > lstm"]}
    planned = {"paper": [], "tiny": expand(parse({**TABLE, "tiny": small}), "tiny")}
    there = [
        made_row(ORIGIN, row)
        for row in rows([0.9, 0.91, 0.92], **{"task.T": 5}) + rows([0.1] * 3, "lstm", **{"task.T": 5})
    ]
    for k, word in ((5, "unfinished"), (6, "order shown")):
        found = report_of({**TABLE, "tiny": small}, {"paper": [], "tiny": there[:k]}, planned)
        assert said(found.small_verdict) == word
    near = [made_row(ORIGIN, row) for row in rows([0.9, 0.91, 0.915], "lstm", **{"task.T": 5})]
    turned = {**TABLE, "tiny": {**small, "claims": ["lstm > plstm"]}}
    found = report_of(turned, {"paper": [], "tiny": there[:3] + near}, planned)
    assert (said(found.small_claims[0].verdict), said(found.small_verdict)) == ("reversed", "not in order")
    failing = {**TABLE, "tiny": {**small, "success": "valid/accuracy > 0.905"}}
    text = markdown.table(report_of(failing, {"paper": [], "tiny": there}, planned))
    assert "| plstm | 91.5 (0.71) | 3 | 90 91 92 | 1 failed, not in the mean | 0.1 |" in text
    assert "| lstm |  | 3 | 10 10 10 | 3 failed, not in the mean | 0.1 |" in text


def test_report_says_what_the_records_hold(made):
    found = made()
    write.write(found)
    text = (found.folder / "table.md").read_text()
    counts = "1 of 1 conclusions hold; 1 of 1 values agree"
    assert f"At paper size: **reproduced** ({counts}).\nSmall-scale version: **in order**." in text
    # No spread is printed: by ours 4.30 * .1 sqrt(2/3) = .35 with 2 degrees of freedom, and 2.92 * .0816 = .24.
    line = "| plstm | 90.4 | 90.05 to 90.75 | 1 | 90.4 (0.1) | 3 | 90.4 | 90.3 90.4 90.5 | agrees | 0.2384 | 1 (1) |"
    assert line in text
    conclusions, ours = text.split("### What the paper does not conclude, and we look at")
    assert "| plstm > lstm | holds | " in conclusions
    assert '| 90.4 (n=3) against 60.1 (n=3) | "The power law wins" (nobody 2021, section 1) |' in conclusions
    assert "| lstm never fails | holds |  |  | 0 of 3 runs fail | to see it |" in ours
    assert "| plstm > lstm | in order (n=1) |  |  | 90.1 (n=1) against 60 (n=1) |" in text
    assert "- `batch`: not stated; 128" in text
    assert "- The paper contradicts itself." in text
    assert "| uRNN | 1.0 | somebody 2016 |" in text
    assert "- paper: 0.10 h on abacus, 1 thread" in text
    index = index_of([found])
    assert f"| [made_up](made_up/table.md) | nobody 2021, table 0 | reproduced | {counts} | in order |  |" in index
    assert "- At paper size: 1 *reproduced*.\n- Small-scale version: 1 *in order*.\n" in index
    assert "make small TABLE=made_up " in text
    own = markdown.table(made(own=True))  # make knows no table of one's own
    assert "train.py --config-dir FOLDER table=made_up profile=small" in own
    assert "make " not in own
    lines = (found.folder / "curves" / "paper00000.csv").read_text().splitlines()
    assert len(lines) == write.POINTS + 1
    assert lines[1].startswith("1,0.1,")
    assert lines[-1].startswith("300,30.0,")


def test_report_is_idempotent_and_rebuilt_from_what_is_committed(made, tmp_path):
    found = made()
    write.write(found)
    first = {p: p.read_bytes() for p in sorted(found.results.rglob("*")) if p.is_file()}
    write.write(made())
    assert first == {p: p.read_bytes() for p in sorted(found.results.rglob("*")) if p.is_file()}
    shutil.rmtree(tmp_path / "runs")
    for local in (True, False):
        again = made(local)
        assert markdown.table(again) == markdown.table(found)
        assert again.curve(again.rows["paper"][0])[-1]["step"] == 300
        write.write(again)
    assert first == {p: p.read_bytes() for p in sorted(found.results.rglob("*")) if p.is_file()}


def test_rows_of_runs_that_cannot_be_composed_here_stay(made):
    found = made()
    write.write(found)
    path = found.folder / "runs.csv"
    before = path.read_text()
    fewer = {size: [row for row in of_size if row.axes["model"] != "plstm"] for size, of_size in found.rows.items()}
    write.write(replace(found, rows=fewer, missing=["model=plstm: no such model"]))
    assert sorted(path.read_text().splitlines()) == sorted(before.splitlines())
    write.write(replace(found, rows=fewer))
    assert "plstm" not in path.read_text()


def test_runs_on_a_part_of_the_data_are_marked_until_the_whole_is_there(made, tmp_path):
    write.write(made())
    (path,) = (tmp_path / "runs").glob("copy-plstm-s0-paper*/record.json")
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | {"partial": ["half of it"]}))
    found = made()  # the run is committed on the whole data
    assert (said(found.cells[0].verdict), said(found.verdict)) == ("agrees", "reproduced")
    (tmp_path / "results" / "made_up" / "runs.csv").unlink()
    found = made()
    assert said(found.cells[0].verdict) == "agrees (part of the data)"
    assert said(found.verdict) == "reproduced (part of the data)"
    assert "paper: not the whole data: half of it" in markdown.table(found)
    assert said(found.claims[0].verdict) == "holds (part of the data)"
    write.write(found)
    assert not store.committed(found.results)[whole["id"]].counts(allow_partial=False)
    assert store.committed(found.results)[whole["id"]].counts(allow_partial=True)
    path.write_text(json.dumps(whole))
    assert said(made().verdict) == "reproduced"


def test_an_interrupted_run_is_no_result_and_a_lost_one_stays_as_committed(made, tmp_path):
    write.write(made())
    (path,) = (tmp_path / "runs").glob("copy-plstm-s0-paper*/record.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "interrupted", "sha256": None}))
    found = made()
    assert len(found.rows["paper"]) == 6  # as committed
    (tmp_path / "results" / "made_up" / "runs.csv").unlink()
    assert len(made().rows["paper"]) == 5


def test_a_run_that_broke_off_is_no_result_and_hides_none(made, tmp_path):
    """An error of ours says nothing of a model: its cell stays open, and what was committed of the run stays."""
    write.write(made())
    path = next((tmp_path / "runs").glob("*plstm-s1-paper*/record.json"))
    broken = json.loads(path.read_text()) | {"status": "failed", "error": "MemoryError: no more"}
    path.write_text(json.dumps(broken))
    found = made()
    assert [row.status for row in found.rows["paper"]] == ["finished"] * 6
    assert found.cells[0].sample.n == 3
    rows_file = tmp_path / "results" / "made_up" / "runs.csv"
    lines = [line for line in rows_file.read_text().splitlines() if broken["id"] not in line]
    rows_file.write_text("\n".join(lines) + "\n")
    found = made()
    assert (len(found.rows["paper"]), found.cells[0].sample.n, found.cells[0].sample.failed) == (5, 2, 0)
    assert said(found.verdict) == "reproduced"  # its conclusion is decided


def test_a_tiny_run_never_fills_a_paper_cell(made, tmp_path):
    for directory in (tmp_path / "runs").glob("*paper*"):
        shutil.rmtree(directory)
    found = made()
    assert [said(c.verdict) for c in found.cells] == ["not run"]
    assert said(found.verdict) == "not run"
    assert said(found.small_verdict) == "in order"
    table, rows = found.table, found.rows["tiny"]
    # The size may be the reason: a small-scale version says nothing against a paper.
    assert judge_small(table, [Verdict(Word.REFUTED)], rows, complete=True).word == "not in order"
    assert judge_small(table, [], rows, complete=True).word == "no order expected"


def test_a_run_that_diverged_before_its_first_validation_is_reported(made, tmp_path):
    path = next((tmp_path / "runs").glob("*plstm-s1-paper*/record.json"))
    lost = {"status": "diverged", "curve": [], "steps": 7, "last": {}, "metrics": {}}
    path.write_text(json.dumps(json.loads(path.read_text()) | lost))
    assert said(made().cells[0].verdict) == "less stable (1 of 3 failed, median inside)"
    assert metrics.metric(Record.read(path.parent), "steps to valid/accuracy >= 0.5") == 7


def test_a_check_names_what_the_committed_runs_do_not_give(made, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import report as reporting

    found = made()
    write.write(found)
    reporting.check([found], whole=False)
    assert capsys.readouterr().out == "1 report is what its runs give\n"
    (tmp_path / "results" / "made_up" / "table.md").write_text("90.0")
    with pytest.raises(SystemExit, match=r"not what the committed runs give: .*made_up/table\.md"):
        reporting.check([found], whole=False)
    monkeypatch.setattr(cost, "rows", lambda *_: [cost.Timing("of no table", *7 * [""])])
    with pytest.raises(SystemExit, match=r"1 kinds of runs in results/speed\.csv are of no table"):
        reporting.check([], whole=True)


def test_times_are_reported_as_medians():
    """Three runs that got there after 100 and 140 steps, and not within 412,114: the median is 140."""
    name = "steps to valid/accuracy >= 0.99"
    steps = {"metric": name, "better": "lower", "unit": "steps"}
    table = TABLE | steps | {"cells": [], "tiny": {"set": {"task.T": 5}, "claims": ["plstm > lstm"]}}
    values = [100, 140, metrics.Censored(412114)]
    found = [
        made_row({**ORIGIN, name: v}, row) for row, v in zip(rows([0.9] * 3, **{"task.T": 5}), values, strict=True)
    ]
    text = markdown.table(report_of(table, {"paper": [], "tiny": found}))
    assert "| 140 | 3 | 100 140 >412114 |  | 0.1 |" in text
    assert "`>N`: a run that never reached the threshold, and took N steps." in text
    text = markdown.table(report_of(table, {"paper": [], "tiny": found[1:]}))
    assert "| >206127 | 2 | 140 >412114 |  | 0.1 |" in text


@pytest.mark.full
def test_committed_reports_are_what_their_runs_give():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "report.py"), "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_place_where_no_report_can_be_written_is_one_line(tmp_path):
    place = tmp_path / "file"
    place.touch()
    options = Namespace(config_dir=None, out=place, table=[])
    line = r"^error: \S*/file/chien_table3: Not a directory; .* --out"
    with pytest.raises(SystemExit, match=line), commands.tables(options):
        (place / "chien_table3").mkdir()
    with pytest.raises(FileNotFoundError), commands.tables(options):  # a fault of ours keeps its traceback
        (tmp_path / "nothing").read_text()
