"""Reports are a function of the records alone."""

import json
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import LADDER, TABLE, made_row, quoted, report_of, rows

from timescales import commands, paths
from timescales.config import compose, folders
from timescales.errors import ConfigError
from timescales.papers import load
from timescales.papers.table import Table
from timescales.paths import ROOT
from timescales.reports import forest, index, markdown, verdicts, wording, write
from timescales.runs import cost, metrics, store
from timescales.runs.record import Record

NO_LADDER = {"none": "There is no smaller size."}


def line_of(text, begin):
    """The cells of the first line of a Markdown table whose first cell is this."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {begin} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page_has_an_answer_the_claims_the_values_and_the_ladder(made):
    text = markdown.table(made())
    answer = next(line for line in text.splitlines() if "Is it reproduced?" in line)
    for words in ("Yes", "1 of 1 conclusions hold", "1 of 1 printed values agree"):
        assert words in answer
    assert "6 of 6 runs" in text
    # 90.4 and 60.1 with spreads of .1: 2.776 * .1 sqrt(2/3) = .23 about their difference.
    ladder, claims = text.split("## What the paper concludes")
    assert line_of(claims, "plstm better than lstm")[1:3] == ["+30.3 [30.1, 30.5] points", "holds"]
    assert line_of(claims, "plstm")[1:5] == ["90.4", "1", "90.4 [90.2, 90.6]", "agrees"]
    _, first, second, slope, trend = line_of(ladder, "plstm better than lstm")
    assert (first, second) == ("seen: +30.3 [30.1, 30.5]",) * 2
    assert (slope.split("[")[1], trend) == ("-0.16, 0.16]", "flat"), "within 1 point over the ladder"
    for words in ("T = 5. 6 of 6 runs", "The power law wins", "to see it", "`batch`: not stated; 128", "contradicts"):
        assert words in text
    assert line_of(text, "uRNN")[1:] == ["1.0", "somebody 2016"]
    assert "- paper: 6 runs, 0.1 h on abacus, 1 thread" in text


def test_a_page_names_commands_that_there_are(made, monkeypatch):
    assert "make small TABLE=made_up" in markdown.table(made())
    own = markdown.table(made(own=True))  # make knows no table of one's own
    assert "`python train.py --config-dir FOLDER table=made_up rung=NAME`" in own
    monkeypatch.setattr(paths, "in_checkout", lambda: False)
    assert "`timescales-train table=made_up rung=NAME`" in (text := markdown.table(made()))
    assert "make " not in own + text


def test_the_answer_goes_by_the_counts():
    def answer(plstm, lstm, claims, cells=()):
        table = TABLE | {"claims": [quoted(claim) for claim in claims], "cells": list(cells)}
        return wording.answer(report_of(table, {"paper": rows(plstm) + rows(lstm, "lstm")}))

    high, low, near = [0.9, 0.901, 0.902], [0.6, 0.601, 0.602], [0.9, 0.9, 0.903]
    for found, claims, lead in (
        ((high, low), ["plstm > lstm"], "Yes"),
        ((low, high), ["plstm > lstm"], "No"),
        ((high, low), ["plstm > lstm", "lstm > plstm"], "In part"),
        ((high, near), ["plstm > lstm"], "Not known yet"),
        ((high, low), ["plstm > lstm", "plstm > lstm @ seed=0"], "So far yes"),
        (((), ()), ["plstm > lstm"], "Not known yet"),
    ):
        assert answer(*found, claims).startswith(f"{lead}: "), lead
    cell = {"where": {"model": "plstm"}, "value": 90.1}
    assert answer(high, low, [], [cell]).startswith("Yes"), "without conclusions the values answer"
    assert answer(high, low, []).endswith(".")


@pytest.mark.parametrize(
    ("better", "more", "words"),
    [
        ("higher", {"times": 9}, "perplexity of all words higher than 9 times"),
        ("lower", {"times": 10}, "perplexity of all words lower than 1/10 of"),
        ("lower", {"by": 2}, "perplexity of all words lower by more than 2 than"),
    ],
)
def test_a_claim_about_an_analysis_says_by_how_much(better, more, words):
    of = {"metric": "probe/bins/all", "better": better, "at": "page 1", "quote": "Words."} | more
    claims = [of | {"claim": "plstm > lstm"}, of | {"claim": "plstm", "than": "probe/bins/below_100"}]
    two_sides, one_side = report_of(TABLE | {"claims": claims}, {}).table.claims
    that = " that" if "times" in more else ""
    assert wording.claim_in_words(two_sides) == f"plstm: {words}{that} for lstm"
    assert wording.claim_in_words(one_side) == f"plstm: {words} perplexity of words seen fewer than 100 times"


def test_a_test_that_cannot_decide_is_not_decided_by_chance():
    def tests(lstm, **table):
        claims = [quoted("plstm > lstm"), quoted("lstm > plstm")]
        found = {"paper": rows([0.9, 0.8, 0.7]) + rows(lstm, "lstm")}
        page = markdown.table(report_of(TABLE | {"claims": claims} | table, found))
        line = re.search(r"about (.*) of the (.) tests", page)
        return line and line.groups()

    assert tests([0.9, 0.8, 0.7]) == ("0.1", "2")
    assert tests([0.9, 0.8, 0.7], chance="test/accuracy < 0.5") is None, "three runs a side are too few for ranks"
    assert tests([0.9]) is None, "runs are missing"


def test_a_claim_about_failures_names_no_metric():
    claim = quoted({"claim": "lstm fails more often than plstm", "success": "test/accuracy > 0.5"})
    (made,) = report_of(TABLE | {"claims": [claim]}, {}).table.claims
    assert wording.claim_in_words(made) == "lstm fails more often than plstm"


def test_every_value_of_an_analysis_that_a_paper_speaks_of_has_words():
    claims = [claim for name in folders.choices("table") for claim in load.table(name).claims if not claim.words]
    values = {name for claim in claims for name in (claim.metric, claim.than) if name.startswith("probe/")}
    assert {"probe/bins/all", "probe/routing/none"} < values
    unworded = [name for name in values if not any(re.fullmatch(p, name[6:]) for p in wording.METRIC_WORDS)]
    assert unworded == []


def test_numbers_in_words():
    inf = float("inf")
    steps = TABLE | {"metric": "steps to valid/accuracy >= 0.9", "better": "lower", "unit": "steps"}
    claim = report_of(steps | {"claims": [quoted("plstm > lstm")]}, {}).table.claims[0]
    assert wording.effect(claim, forest.Interval(1, 2, 3), ratio=True) == "4 times as fast [2, 8]"
    assert wording.effect(claim, forest.Interval(1, 2, inf), ratio=True) == "at least 4 times as fast [2, more]"
    assert wording.effect(claim, forest.Interval(-inf, 2, inf), ratio=True) == "4 times as fast"
    assert wording.interval(forest.Interval(-0.5, 0.25, 1234.5), signed=True) == "+0.25 [-0.5, 1234]"
    assert wording.interval(forest.Interval(-inf, 3, inf)) == "3"
    assert wording.number(metrics.Censored(3000)) == ">3000"
    assert [wording.duration(s) for s in (20, 600, 5400, 72000)] == ["1 min", "10 min", "1.5 h", "20 h"]


def test_an_entry_of_several_lines_stays_in_its_row():
    assert markdown.grid(["a"], [["one\ntwo | three"]]) == ["| a |", "| --- |", "| one two \\| three |"]


def test_a_table_in_the_papers_layout():
    cells = [
        {"where": {"model": model, "task": task}, "value": value}
        for model, task, value in (("lstm", "copy", 60.0), ("lstm", "adding", 61.0), ("plstm", "copy", 90.1))
    ]
    runs = [{"task": ["copy", "adding"], "model": ["lstm", "plstm"], "seed": [0, 1, 2]}]
    table = TABLE | {"runs": runs, "cells": cells, "layout": {"columns": "task", "rows": ["model"]}}
    text = markdown.table(report_of(table, {"paper": rows([0.90, 0.901, 0.902])}))
    layout = text.split("## What the paper prints")[1]
    assert "|  | copy | adding |" in layout
    assert line_of(layout, "lstm")[1:] == ["60.0<br>*not run*", "61.0<br>*not run*"]
    assert line_of(layout, "plstm")[1] == "90.1<br>90.1 [89.9, 90.3]<br>*agrees*"
    assert "<br>" not in markdown.table(report_of(TABLE, {"paper": rows([0.90, 0.901, 0.902])}))


def test_what_depends_on_an_open_setting_is_told_under_each_of_its_values():
    shown = {"unit": {"said": "open", "shown": {"raw": "raw t", "half": "t/2"}}}
    runs = [{"task": "copy", "model": ["lstm", "plstm"], "unit": ["raw", "half"], "seed": [0, 1, 2]}]
    table = TABLE | {"runs": runs, "assumed": shown, "cells": [], "claims": [quoted("plstm > lstm")]}
    high, low = [0.9, 0.901, 0.902], [0.6, 0.601, 0.602]
    found = rows(high, unit="raw") + rows(low, "lstm", unit="raw") + rows(low, unit="half")
    report = report_of(table, {"paper": found + rows(high, "lstm", unit="half")})
    row = line_of(markdown.table(report), "plstm better than lstm")
    assert "undecided (holds, refuted)" in row
    assert "+30 [29.8, 30.2] points (raw t); -30 [-30.2, -29.8] points (t/2)" in row


def test_a_table_without_printed_values_shows_means():
    cells = [{"where": {"model": model}, "value": None} for model in ("plstm", "lstm")]
    text = markdown.table(report_of(TABLE | {"cells": cells}, {"paper": rows([0.5, 0.6, 0.7])}))
    assert (line_of(text, "plstm")[1], line_of(text, "lstm")[1]) == ("60 [35.2, 84.8], 3 runs", "")
    assert "verdict |" not in text
    text = markdown.table(report_of(TABLE | {"cells": cells}, {"paper": rows([0.9, 1.0])}))
    assert line_of(text, "plstm")[1] == "95 [31.5, 100], 2 runs", "no accuracy is above 100 %"
    cells.append({"label": "loss", "value": None, "metric": "test/loss", "unit": "nats"})
    found = [made_row({"last test/loss": 1.5}, row) for row in rows([0.9])]
    text = markdown.table(report_of(TABLE | {"cells": cells}, {"paper": found}))
    assert (line_of(text, "plstm")[1], line_of(text, "loss")[1]) == ("90, 1 run", "1.5 nats, 1 run")


def test_a_study_of_ours_without_hypotheses_is_no_table_of_a_paper():
    claims = [{"claim": "plstm > lstm", "ours": "to see it"}]
    cells = [{"where": {"model": "plstm"}, "value": None}]
    text = markdown.table(report_of(TABLE | {"name": "ours_made_up", "claims": claims, "cells": cells}, {}))
    assert "**Do the hypotheses hold?** There are none; what we expected stands below the claims." in text
    assert "At full size 0 of 6 runs have ended" in text
    text = markdown.table(report_of(TABLE | {"name": "ours_made_up", "cells": cells}, {}))
    assert "**Do the hypotheses hold?** There are none.\n" in text


def test_a_mean_of_steps_is_a_bound_if_a_run_never_got_there():
    metric = "steps to valid/accuracy >= 0.99"
    table = TABLE | {"metric": metric, "unit": "steps", "cells": [{"where": {"model": "lstm"}, "value": None}]}
    runs = [{"task": "copy", "model": "lstm", "seed": [0, 1, 2]}]
    values = (1000, 2000, metrics.Censored(6000))
    steps = [made_row({metric: x}, like=row) for x, row in zip(values, rows([0.5] * 3, "lstm"), strict=True)]
    text = markdown.table(report_of(table | {"runs": runs}, {"paper": steps}))
    assert line_of(text, "lstm")[1] == "at least 3000, 3 runs, of which 1 never got there"


def test_a_table_that_can_have_no_ladder_says_why():
    text = markdown.table(report_of(TABLE | {"ladder": {"none": "Its data are not published."}}, {}))
    assert "Its data are not published." in text
    assert "make small" not in text


def test_the_choice_of_learning_rates_is_told_as_it_was_made():
    chosen = {"set": {"optimizer.lr": [0.1, 0.2], "task.T": 5, "seed": 7}, "differs": "after an hour"}
    table = TABLE | {"claims": [quoted("plstm > lstm")], "ladder": LADDER | {"rates": chosen}}
    found = [*rows([0.9], first=7, **{"optimizer.lr": 0.1}), *rows([0.8], first=7, **{"optimizer.lr": 0.2})]
    text = markdown.table(report_of(table, {"rates": found, "t5": rows([0.9], first=200)}))
    assert "chosen on seed 7, by test/accuracy after an hour: plstm: 0.1: 0.9, 0.2: 0.8." in text


def test_what_was_chosen_by_is_shown_and_not_counted():
    claims = [{**quoted("plstm > lstm"), "calibrated": True}, quoted("lstm > plstm")]
    table = TABLE | {"assumed": {"x": {"said": "chosen", "calibrated": True}}, "cells": [], "claims": claims}
    report = report_of(table, {"paper": rows([0.9, 0.901, 0.902]) + rows([0.6, 0.601, 0.602], "lstm")})
    assert report.counts[0] == {"refuted": 1}
    assert "holds" in line_of(markdown.table(report), "plstm better than lstm†")


# --- pictures ---
def test_pictures_are_small_and_vanish_with_what_they_show(made):
    found = made()
    for path in write.pictures(found):
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert path.stat().st_size < 200_000
    files = [found.folder / name for name in ("figure.png", "verdicts.png", "ladder.png")]
    assert all(path.is_file() for path in files)
    nothing = replace(found, rows={size: [] for size in found.rows})
    assert write.pictures(nothing) == []
    assert not any(path.exists() for path in files)


def test_a_picture_has_a_line_for_each_claim_and_value_in_its_colour(made):
    claims = [quoted("plstm > lstm"), quoted("lstm > plstm"), quoted({"claim": "plstm > lstm", "by": 30.3})]
    figure = forest.verdicts(made(claims=claims, ladder=NO_LADDER))
    claims_on, values_on = figure.axes
    drawn = [(line.get_color(), *map(float, line.get_xdata())) for line in claims_on.lines if line.get_lw() == 2]
    assert [colour for colour, *_ in drawn] == [forest.GREEN, forest.RED, forest.GREY]
    assert drawn[0][1:] == pytest.approx((30.3 - 0.2267, 30.3 + 0.2267), abs=1e-3)
    assert drawn[1][1:] == pytest.approx((-30.3 - 0.2267, -30.3 + 0.2267), abs=1e-3)
    dots = [line for line in values_on.lines if line.get_marker() == "."]
    assert [list(line.get_xdata()) for line in dots] == [pytest.approx([-0.1, 0, 0.1])], "in margins of 1 point"


def test_the_ladders_picture_has_a_row_for_each_rung_and_the_papers_last(made):
    (ax,) = forest.ladder(made()).axes
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[:2] == ["t5", "t20"]
    assert ax.get_xlabel() == "percent"
    assert len(names) == 3
    ends = [tuple(map(float, line.get_xdata())) for line in ax.lines if line.get_lw() == 2]
    assert ends == [pytest.approx((30.3 - 0.2267, 30.3 + 0.2267), abs=1e-3)] * 3
    nine = [{"claim": "plstm > lstm", "by": k} for k in range(1, 10)]
    assert len(forest.ladder(made(ladder=LADDER | {"claims": nine})).axes) == 9


# --- what is on disk ---
def test_report_is_idempotent_and_rebuilt_from_what_is_committed(made, tmp_path):
    found = made()
    write.write(found)
    lines = (found.folder / "curves" / "paper00000.csv").read_text().splitlines()
    assert (len(lines), lines[1][:6], lines[-1][:9]) == (write.POINTS + 1, "1,0.1,", "300,30.0,")
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
    assert {row.rung for row in store.read_rows(found.folder / "runs.csv")} == {"paper", "t5", "t20"}


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
    assert made().values[0].verdicts[0].notes == []  # the run is committed on the whole data
    (tmp_path / "results" / "made_up" / "runs.csv").unlink()
    found = made()
    assert found.values[0].verdicts[0].notes == found.claims[0].verdicts[0].notes == ["part of the data"]
    assert "half of it" in markdown.table(found)
    write.write(found)
    committed = store.committed(found.results)[whole["id"]]
    assert (committed.status, committed.partial) == ("finished", "half of it")


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_run_that_did_not_end_is_no_result_and_hides_none(made, tmp_path, status):
    """An interruption, or an error of ours, says nothing of a model: what was committed of the run stays."""
    write.write(made())
    (path,) = (tmp_path / "runs").glob("copy-plstm-s0-paper*/record.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": status, "sha256": None}))
    assert [row.status for row in made().rows["paper"]] == ["finished"] * 6  # as committed
    (tmp_path / "results" / "made_up" / "runs.csv").unlink()
    found = made()
    assert len(found.rows["paper"]) == 5
    assert (found.values[0].verdicts[0].n, found.claims[0].verdicts[0].notes) == (2, ["5 of 6 runs"])


def test_a_users_last_report_keeps_the_runs_that_were_deleted_and_hides_no_failure(made, tmp_path):
    write.write(made(out=tmp_path / "reports"))
    deleted, failed = sorted((tmp_path / "runs").glob("copy-plstm-s?-paper*"))[:2]
    shutil.rmtree(deleted)
    path = failed / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "failed", "sha256": None}))
    names = [row.id for row in made(out=tmp_path / "reports").rows["paper"]]
    assert len(names) == 5
    assert deleted.name.endswith(tuple(names))
    assert not failed.name.endswith(tuple(names))


def test_a_run_of_a_rung_never_fills_a_paper_cell(made, tmp_path):
    for directory in (tmp_path / "runs").glob("*paper*"):
        shutil.rmtree(directory)
    found = made()
    assert [each.word for each in (*found.values, *found.claims)] == ["not run"] * 2
    assert found.counts == ({"not run": 1}, {"not run": 1})
    assert [step.word for step in found.ladder_claims[0].steps] == ["seen", "seen"]


def test_a_run_that_diverged_before_its_first_validation_is_reported(made, tmp_path):
    path = next((tmp_path / "runs").glob("*plstm-s1-paper*/record.json"))
    lost = {"status": "diverged", "curve": [], "steps": 7, "last": {}, "metrics": {}}
    path.write_text(json.dumps(json.loads(path.read_text()) | lost))
    assert made().values[0].verdicts[0].notes == ["1 of 3 failed"]
    assert metrics.metric(Record.read(path.parent), "steps to valid/accuracy >= 0.5") == 7


def test_a_value_may_have_a_condition_of_success_of_its_own(made):
    cell = {"where": {"model": "plstm"}, "value": 90.4, "success": "valid/accuracy > 0.2"}
    (value,) = made(success=None, cells=[cell], claims=[quoted("plstm > lstm")]).values
    assert (value.word, value.verdicts[0].n) == ("agrees", 3)


def test_a_check_names_what_the_committed_runs_do_not_give(made, tmp_path, monkeypatch, capsys):
    import report as reporting

    found = made()
    write.write(found)
    reporting.check([found], whole=False)
    assert capsys.readouterr().out.startswith("1 report")
    (tmp_path / "results" / "made_up" / "table.md").write_text("90.0")
    with pytest.raises(SystemExit, match=r"made_up/table\.md"):
        reporting.check([found], whole=False)
    monkeypatch.setattr(cost, "rows", lambda *_: [cost.Timing("of no table", *7 * [""])])
    with pytest.raises(SystemExit, match=r"1 kinds of runs in results/speed\.csv belong to no table"):
        reporting.check([], whole=True)


@pytest.mark.slow
def test_committed_reports_are_what_their_runs_give():
    command = [sys.executable, str(ROOT / "scripts" / "report.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
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


def test_a_users_report_is_written_beside_the_runs_and_says_what_was_seen(made, tmp_path, capsys):
    found = made(out=tmp_path / "runs" / "reports")
    commands.write_reports([found], None)
    folder = tmp_path / "runs" / "reports" / "made_up"
    written = {path.name for path in folder.iterdir()}
    assert written == {"table.md", "runs.csv", "curves", "verdicts.png", "ladder.png", "figure.png", ".drawn"}
    assert not (tmp_path / "results").exists()
    rules = re.search(r"\[the rules\]\((.*?)\)", (folder / "table.md").read_text())[1]
    assert (folder / rules).resolve() == paths.ROOT / "docs" / "statistics.md"
    assert {line["table"] for line in verdicts.read(folder.parent)} == {"made_up"}
    printed = capsys.readouterr().out
    assert "seen: +30.3" in printed
    assert printed.splitlines()[-1].strip().startswith(f"Report: {folder / 'table.md'}")
    nothing = replace(found, rows={size: [] for size in found.rows})
    assert len(commands.summary(nothing)) == 3


def test_where_reports_go(monkeypatch, tmp_path):
    def places(**options):
        given = {"config_dir": None, "out": None, "table": []} | options
        with commands.tables(Namespace(**given)) as found:
            return found.results, found.out

    assert places() == (paths.RESULTS, commands.USERS)
    assert commands.USERS == paths.RUNS / "reports"
    assert places(out=tmp_path) == (paths.RESULTS, tmp_path)
    own = ROOT / "docs" / "tutorial"
    assert places(config_dir=own) == (own / "results", own / "results")
    monkeypatch.setattr(paths, "in_checkout", lambda: False)
    assert places() == (Path("results"), Path("results"))


# --- the index ---


def asked(made, **changes):
    _, _, row = index.questions([made(**{"question": {"asks": "Is it better?", "by": ["plstm > lstm"]}} | changes)])
    return row.strip("| ").split(" | ")


def test_a_questions_answer_is_that_of_its_claims(made, tmp_path):
    question, answer, link = asked(made)
    assert (question, link) == ("Is it better?", "[made_up](made_up/table.md)")
    assert answer.startswith("**Yes**: ")
    assert "(+30.3 [30.1, 30.5] points)" in answer
    assert "seen at t5, seen at t20" in answer
    claims = [quoted("plstm > lstm"), quoted("lstm > plstm")]
    for by, lead in ((["lstm > plstm"], "No"), (["plstm > lstm", "lstm > plstm"], "In part")):
        told = asked(made, claims=claims, question={"asks": "Is it?", "by": by}, ladder=NO_LADDER)[1]
        assert told.startswith(f"**{lead}**"), told
        assert "At smaller sizes" not in told
    for directory in (tmp_path / "runs").glob("*paper*"):
        shutil.rmtree(directory)
    assert asked(made)[1].startswith("**Open** at the paper's size. At smaller sizes: ")
    assert len(index.questions([made()])) == 2, "it asks nothing"


def test_the_index_adds_up_the_counts_of_papers_and_keeps_studies_apart(made):
    found, other = made(), made(name="made_second", claims=[quoted("lstm > plstm")], ladder=NO_LADDER)
    study = made(name="ours_study", ladder=NO_LADDER)
    values = "2 of 2 printed values agree, 0 differ"
    assert wording.counts([found, other]) == ["1 of 2 conclusions hold, 1 are refuted", values]
    blocks = index.blocks([found, other, study])
    assert "ours_study" in blocks.pop("studies")
    assert "ours_study" not in "".join(blocks.values())
    assert "1 of 2 conclusions hold, 1 are refuted" in blocks["summary"]
    assert "t5: 6 of 6, t20: 6 of 6" in blocks["tables"]
    row = index.row(found)
    assert row[4:6] == ["6 of 6", ""]


def test_the_index_says_how_often_the_first_rung_predicts(made):
    assert "%" not in "".join(index.predicts([made()])), "one conclusion says nothing"
    claims = [quoted("plstm > lstm"), quoted("lstm > plstm"), quoted("plstm > lstm @ task=copy")]
    of = [claim["claim"] for claim in claims]
    told = [{"claim": "plstm > lstm", "of": of[0]}, {"claim": "lstm > plstm", "of": of[1]}]
    turned = {"claim": "lstm task=copy > plstm task=copy", "of": of[2]}  # not the sign of the paper's size
    text = "\n".join(index.predicts([made(claims=claims, ladder=LADDER | {"claims": [*told, turned]})]))
    line = next(line for line in text.splitlines() if line.startswith("| all "))
    assert "2 of 3" in line
    assert line.endswith("| 44 % |"), "a third of the smaller and two thirds of the larger are positive: 2/9 + 2/9"
    assert "nobody can say" in text


# --- reproduce.py ---
@pytest.fixture
def reproduce(monkeypatch, script, tmp_path):
    """Call scripts/reproduce.py on the table chien_copy, whose rungs take these hours: what it prints, and train.py's
    arguments."""
    import reproduce as reproducing

    called, hours = [], {"t20": 0.1, "t100": 1.0, "t200": 3.0, "t500": 30.0}

    def run(command, **_):
        called.append(command[2:])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(reproducing.subprocess, "run", run)
    monkeypatch.setattr(reproducing, "seconds_of", lambda table, size, composer: 3600 * hours[size])
    made = []
    monkeypatch.setattr(reproducing.report, "make", lambda *a, **k: made.append((a[0], a[2:], k)) or "a report")
    monkeypatch.setattr(reproducing.commands, "write_reports", lambda reports, composer: made.append(reports))

    def call(*arguments):
        called.clear()
        made.clear()
        return script("reproduce", "chien_copy", *arguments), [*called], [*made]

    return call


def test_reproduce_runs_a_size_and_reports_it_beside_the_runs(reproduce):
    for words, rung in (([], []), (["--rung", "small"], ["rung=t20"]), (["--rung", "t100"], ["rung=t100"])):
        _, called, made = reproduce(*words, "seed=200", "logger=csv")
        assert called == [["table=chien_copy", *rung, "seed=200", "logger=csv"]]
        assert made == [("chien_copy", (paths.RESULTS, paths.RUNS), {"out": commands.USERS}), ["a report"]]
    told, called, _ = reproduce("--rung", "t101")
    assert (called, told.count("\n")) == ([], 0)
    assert "rung=t101" in told
    assert "t100" in told


@pytest.mark.parametrize(("hours", "rung"), [(0.1, "t20"), (2, "t100"), (3, "t200"), (1000, "t500")])
def test_reproduce_chooses_the_largest_rung_that_fits(reproduce, hours, rung):
    told, called, _ = reproduce("--hours", hours)
    assert called == [["table=chien_copy", f"rung={rung}"]]
    prices = [line.split(" here")[0] for line in told.splitlines() if " here" in line]
    assert prices == ["t20: 6 min", "t100: 1.0 h", "t200: 3.0 h", "t500: 30 h"]
    assert "plstm faster than chrono" in told, "what it can say"


def test_reproduce_says_in_one_line_that_nothing_fits(reproduce):
    told, called, made = reproduce("--hours", 0.01)
    assert (called, made) == ([], [])
    line = told.splitlines()[0]
    assert "0.01 h" in line
    assert "6 min" in line


def test_the_price_of_a_rung_leaves_out_what_has_run(monkeypatch, tmp_path):
    """15 runs of three kinds; of one kind a run has ended, which is its price; the others are timed and end early."""
    import reproduce as reproducing

    from timescales.experiment import plan
    from timescales.papers import load

    table: Table = load.table("chien_copy")
    composer = compose.Composer()
    runs, _ = plan.table_runs(table, "t20", composer)
    ended = {runs[0].directory.name: made_row(id=runs[0].id, status="finished", seconds=50.0)}
    timed = []

    def read_state(path, row):
        return Namespace(outcome=ended.get(path.name), word="")

    def measure(kind, config):
        timed.append(kind)
        return cost.Timing(kind, "", "", "1", "15000", "", "", "100")

    monkeypatch.setattr(reproducing.found, "read_state", read_state)
    monkeypatch.setattr(reproducing.cost, "measure", measure)
    kinds = {run.cost_key for run in runs}
    assert len(kinds) == 3
    price = reproducing.seconds_of(table, "t20", composer)
    assert set(timed) == kinds - {runs[0].cost_key}
    assert price == pytest.approx(4 * 50 + 10 * 100 * 7500 / 15000)
    monkeypatch.setattr(plan, "table_runs", lambda *_: ([], ["task=nope: no such task"]))
    with pytest.raises(ConfigError, match="task=nope"):
        reproducing.seconds_of(table, "t20", composer)
