"""verdicts.json and timescales.results(): every verdict and every run, for programs."""

import json
import math
import re
import statistics
import subprocess
import sys
from dataclasses import fields

import pytest
from made_up import LADDER, TABLE, quoted, report_of, rows

import timescales
from timescales import paths
from timescales.analysis.study import Source
from timescales.config import folders
from timescales.errors import ConfigError
from timescales.papers import load, reanalysed
from timescales.paths import ROOT
from timescales.reports import verdicts
from timescales.reports.verdicts import Line
from timescales.runs import store
from timescales.runs.metrics import Censored


def made(**changes):
    """A report of three runs of each of two models, by their accuracies in per cent: 90.1 and 80."""
    found = [*rows([0.9, 0.901, 0.902]), *rows([0.79, 0.80, 0.81], model="lstm")]
    cell = {"where": {"model": "plstm"}, "value": 90.0, "sd": 0.3, "n": 3}
    return report_of(TABLE | {"cells": [cell]} | changes, {"paper": found})


def test_a_value_is_a_line():
    line = next(line for line in verdicts.lines(made()) if line.kind == "value")
    (found,) = made().values[0].verdicts
    assert (line.table, line.item, line.evidence, line.of) == ("made_up", "model=plstm", "runs", "paper")
    assert (line.word, line.printed, line.n, line.counted) == ("agrees", 90.0, 3, True)
    assert (line.low, line.mid, line.high) == tuple(found.interval) == pytest.approx((89.85, 90.1, 90.35), abs=0.01)
    assert (line.region_low, line.region_high) == (89.4, 90.6)
    assert (line.at, line.quote) == ("nobody 2021, table 0", "")


def test_claims_are_lines_of_three_kinds():
    hypothesis = {"claim": "plstm > lstm", "hypothesis": "it should", "dated": "2026-11-25"}
    claims = [quoted("plstm > lstm"), quoted("lstm > plstm"), hypothesis, {"claim": "lstm > plstm", "ours": "to see"}]
    lines = [line for line in verdicts.lines(made(claims=claims)) if line.kind != "value"]
    assert [(line.kind, line.item, line.word, line.at) for line in lines] == [
        ("conclusion", "plstm > lstm", "holds", "nobody 2021, section 1"),
        ("conclusion", "lstm > plstm", "refuted", "nobody 2021, section 1"),
        ("hypothesis", "plstm > lstm", "holds", "2026-11-25"),
        ("question", "lstm > plstm", "refuted", "nobody 2021, table 0"),
    ]
    assert [line.mid for line in lines] == pytest.approx([10.1, -10.1, 10.1, -10.1])
    assert {(line.region_low, line.region_high) for line in lines} == {(0.0, math.inf)}
    assert [bool(line.quote) for line in lines] == [True, True, False, False]


def test_each_rung_of_a_claim_is_a_line():
    report = made(claims=[quoted("plstm > lstm")], ladder=LADDER)
    at = {"first": 200, "task.T": 5}
    report.rows["t5"].extend(rows([0.9, 0.901, 0.902], **at) + rows([0.6, 0.61, 0.62], "lstm", **at))
    lines = [(line.of, line.word, line.n) for line in verdicts.lines(report) if line.kind != "value"]
    assert lines == [("paper", "holds", 3), ("t5", "seen", 3), ("t20", "not run", 0)]
    assert {word for _, word, _ in lines} <= set(verdicts.WORDS)


def test_the_slope_over_two_rungs_is_a_line():
    """From +30 points at T = 5 to +10 at T = 20: two doublings, so -10 with each."""
    report = made(claims=[quoted("plstm > lstm")], ladder=LADDER)
    for name, T, lower in (("t5", 5, 0.6), ("t20", 20, 0.8)):
        own, other = ([x, x + 0.01, x + 0.02] for x in (0.9, lower))
        at = {"first": 200, "task.T": T}
        report.rows[name].extend(rows(own, **at) + rows(other, "lstm", **at))
        for row in report.rows[name]:
            vars(row)["id"] = f"{name}{row.id}"
    line = next(line for line in verdicts.lines(report) if line.of == "slope")
    assert (line.word, line.n, line.item) == ("shrinks", 3, "plstm > lstm")
    assert line.mid == pytest.approx(-10)
    assert line.low < -10 < line.high < 0
    assert line.region_low == -line.region_high


def test_what_needs_no_training_is_a_line(tmp_path):
    folder = tmp_path / "reanalysed"
    folder.mkdir()
    source = Source("published model", "theirs", {"task": "copy", "model": "plstm"}, {"last test/accuracy": 0.8})
    (folder / "values.csv").write_text(reanalysed.text([source]))
    report = made()
    object.__setattr__(report, "results", tmp_path)
    line = next(line for line in verdicts.lines(report) if line.evidence == "reanalysed")
    assert (line.of, line.kind, line.word) == ("theirs", "value", "not as printed")
    assert (line.printed, line.mid) == (90.0, 80.0)


def test_files_keep_the_lines_of_other_tables(tmp_path):
    verdicts.write([made()], tmp_path)
    before = verdicts.read(tmp_path)
    assert {line["table"] for line in before} == {"made_up"}
    verdicts.write([made(name="a_table")], tmp_path)
    verdicts.write([made(claims=[quoted("plstm > lstm")])], tmp_path)
    after = verdicts.read(tmp_path)
    assert [line["table"] for line in after] == sorted(["a_table"] * len(before) + ["made_up"] * (len(before) + 1))
    assert verdicts.read(tmp_path / "nowhere") == []
    verdicts.write([made()], tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_lines_are_as_the_schema_says_and_have_finite_numbers_alone(tmp_path):
    assert [verdicts._rounded(value) for value in (math.inf, math.nan, 1 / 3, 3, "x")] == [None, None, 0.333333, 3, "x"]
    names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    keys = verdicts.schema()["items"]["properties"]
    verdicts.write([made(claims=[quoted("plstm > lstm")])], tmp_path)
    for line in (*verdicts.read(tmp_path), *verdicts.read(paths.RESULTS)):
        assert line.keys() == keys.keys()
        for key, value in line.items():
            types = {names[type(value)], "number" if type(value) is int else ""}
            allowed = keys[key]["type"]
            assert types & {*([allowed] if isinstance(allowed, str) else allowed)}, (key, value)
            assert value in keys[key].get("enum", [value])
            assert value is None or isinstance(value, str) or value >= keys[key].get("minimum", value)


def test_the_committed_file_has_tables_that_there_are_and_the_schema_of_today():
    assert json.loads((paths.RESULTS / verdicts.SCHEMA).read_text()) == verdicts.schema()
    assert {line["table"] for line in verdicts.read(paths.RESULTS)} <= {*folders.choices("table")}


def test_all_runs_and_verdicts_are_rows():
    runs, said = timescales.results()
    lines = [line for path in paths.RESULTS.glob("*/runs.csv") for line in path.read_text().splitlines()[1:]]
    assert len(runs) == len(lines)
    assert len(said) == len(verdicts.read(paths.RESULTS))
    assert list(said.columns) == [key.name for key in fields(Line)]
    row = runs[(runs.id == "83ec1dd2a8b0") & (runs.table == "ours_delay")].iloc[0]
    assert (row["size"], row["model"], row["task.delay"], row["seed"]) == ("paper", "lstm", 20, 0)
    assert row["best test/accuracy"] == 0.2458


def test_a_run_that_never_reached_a_threshold_is_marked():
    runs = timescales.results().runs.set_index(["table", "id"])
    found = store.read_rows(paths.RESULTS / "chien_copy" / "runs.csv")
    steps = "steps to valid/accuracy >= 0.99"
    for row in found:
        assert runs.loc[("chien_copy", row.id), steps] == row.value(steps), row.id
        assert runs.loc[("chien_copy", row.id), f"{steps}, never"] == isinstance(row.value(steps), Censored), row.id
    assert sum(isinstance(row.value(steps), Censored) for row in found) > 9
    assert runs[steps].isna().any(), "a table without this metric"
    assert runs[steps].dtype == float


def test_the_lines_of_the_page_give_the_numbers_of_the_report():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "results.md").read_text(), re.S)
    import matplotlib

    matplotlib.use("Agg")
    seen = {}
    exec(blocks[0] + blocks[2] + blocks[1], seen)
    table = load.table("ours_delay")
    found = store.read_rows(paths.RESULTS / "ours_delay" / "runs.csv")
    shown = {}
    for each in report_of(table, {"paper": found}).values:
        shown[each.item.where["task.delay"], each.item.where["model"]] = statistics.fmean(each.verdicts[0].values)
    for delay, by_model in seen["means"].iterrows():
        for model, mean in by_model.items():
            assert 100 * mean == pytest.approx(shown[delay, model], rel=1e-5), (delay, model)
    assert seen["means"].shape == (3, 5)
    assert len(blocks[1].strip().splitlines()) == 3


def test_without_results_one_line_says_what_to_give(tmp_path):
    with pytest.raises(ConfigError, match=r"no results in .*timescales.results\(FOLDER\).*timescales-report") as error:
        timescales.results(tmp_path)
    assert "\n" not in str(error.value)
    verdicts.write([made()], tmp_path)
    assert len(timescales.results(tmp_path).runs) == 0
    assert len(timescales.results(tmp_path).verdicts) == len(verdicts.lines(made()))


@pytest.mark.slow
def test_pandas_is_imported_when_results_are_read():
    code = "import sys, timescales; timescales.results; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
