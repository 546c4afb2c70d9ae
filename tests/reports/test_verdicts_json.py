"""verdicts.json and timescales.results(): every verdict and every run, for programs."""

import json
import math
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from made_up import TABLE, quoted, report_of, rows

import timescales
from timescales import paths
from timescales.analysis.study import Source
from timescales.errors import ConfigError
from timescales.papers import reanalysed
from timescales.reports import verdicts
from timescales.reports.verdicts import Line

ROOT = Path(__file__).resolve().parents[2]
TYPES = {"string": str, "integer": int, "number": (int, float), "null": type(None), "array": list, "object": dict}


def wrong(value, schema, place="$"):
    """What of a value is not as a JSON schema says; the parts of a schema that ours has."""
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(isinstance(value, TYPES[name]) for name in types) or isinstance(value, bool):
        return [f"{place}: {value!r} is no {types}"]
    found = [f"{place}: {value!r}"] if "enum" in schema and value not in schema["enum"] else []
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{place}: {value}")
    if isinstance(value, list):
        return found + [line for k, item in enumerate(value) for line in wrong(item, schema["items"], f"{place}[{k}]")]
    if isinstance(value, dict):
        assert schema["additionalProperties"] is False
        known = schema["properties"]
        found += [f"{place}.{key}" for key in {*value} ^ {*known} if key not in known or key in schema["required"]]
        return found + [line for key in {*value} & {*known} for line in wrong(value[key], known[key], f"{place}.{key}")]
    return found


def made(**changes):
    """A report of three runs of each of two models, by their accuracies in per cent: 90.1 and 80."""
    found = [*rows([0.9, 0.901, 0.902]), *rows([0.79, 0.80, 0.81], model="lstm")]
    return report_of(
        TABLE | {"cells": [{"where": {"model": "plstm"}, "value": 90.0, "sd": 0.3, "n": 3}]} | changes,
        {"paper": found, "tiny": []},
    )


def test_a_value_is_a_line():
    line = next(line for line in verdicts.lines(made()) if line.kind == "value")
    result = made().cells[0]
    assert (line.table, line.item, line.evidence, line.of) == ("made_up", "model=plstm", "runs", "paper")
    assert (line.printed, line.first, line.second, line.n) == (90.0, pytest.approx(90.1), None, 3)
    assert line.word == result.verdict.word
    assert line.X == result.verdict.gap.within > abs(90.1 - 90.0)
    assert line.p == result.verdict.p_against.corrected
    assert (line.at, line.quote) == ("nobody 2021, table 0", "")


def test_claims_are_lines_of_three_kinds():
    hypothesis = {"claim": "plstm > lstm", "hypothesis": "it should", "dated": "2026-11-25"}
    claims = [quoted("plstm > lstm"), quoted("lstm > plstm"), hypothesis, {"claim": "lstm > plstm", "ours": "to see"}]
    for claim, kind, at in zip(
        claims,
        ("conclusion", "conclusion", "hypothesis", "question"),
        ("nobody 2021, section 1",) * 2 + ("2026-11-25", ""),
        strict=True,
    ):
        report = made(claims=[claim])
        line = next(line for line in verdicts.lines(report) if line.kind == kind)
        found = report.claims[0].verdict
        assert (line.item, line.word, line.at, line.n) == (claim["claim"], found.word, at, 3)
        assert line.quote == claim.get("quote", "")
        first, second = (90.1, 80.0) if claim["claim"].startswith("plstm") else (80.0, 90.1)
        assert (line.first, line.second) == (pytest.approx(first), pytest.approx(second))
        assert line.p == (found.p_for if line.word == "holds" else found.p_against).corrected < 0.05
    assert {line.word for line in verdicts.lines(made(claims=claims[:2])) if line.kind == "conclusion"} == {
        "holds",
        "refuted",
    }


def test_the_table_and_its_small_scale_version_are_lines():
    lines = [line for line in verdicts.lines(made()) if line.kind == "table"]
    assert [(line.of, line.word) for line in lines] == [
        ("paper", made().verdict.word),
        ("tiny", made().small_verdict.word),
    ]


def test_what_needs_no_training_is_a_line(tmp_path):
    folder = tmp_path / "reanalysed"
    folder.mkdir()
    source = Source("published model", "theirs", {"task": "copy", "model": "plstm"}, {"last test/accuracy": 0.8})
    (folder / "values.csv").write_text(reanalysed.text([source]))
    report = made()
    object.__setattr__(report, "results", tmp_path)
    line = next(line for line in verdicts.lines(report) if line.evidence == "reanalysed")
    assert (line.of, line.kind, line.word) == ("theirs", "value", "not as printed")
    assert (line.printed, line.first) == (90.0, 80.0)


def test_files_keep_the_lines_of_other_tables(tmp_path):
    verdicts.write([made()], tmp_path)
    before = verdicts.read(tmp_path)
    assert {line["table"] for line in before} == {"made_up"}
    verdicts.write([made(name="a_table")], tmp_path)
    verdicts.write([made(claims=[quoted("plstm > lstm")])], tmp_path)
    after = verdicts.read(tmp_path)
    assert [line["table"] for line in after] == sorted(["a_table"] * len(before) + ["made_up"] * (len(before) + 1))
    assert wrong(after, json.loads((tmp_path / verdicts.SCHEMA).read_text())) == []
    assert verdicts.read(tmp_path / "nowhere") == []
    verdicts.write([made()], tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_json_has_finite_numbers_alone():
    assert verdicts._rounded({"a": math.inf, "b": math.nan, "c": 1 / 3, "n": 3, "word": "x"}) == {
        "a": None,
        "b": None,
        "c": 0.333333,
        "n": 3,
        "word": "x",
    }


def test_the_committed_file_is_as_its_schema_says():
    lines = verdicts.read(paths.RESULTS)
    schema = json.loads((paths.RESULTS / verdicts.SCHEMA).read_text())
    assert schema == verdicts.schema()
    assert wrong(lines, schema) == []
    assert {line["table"] for line in lines} == {path.stem for path in (ROOT / "conf" / "table").glob("*.yaml")}
    wrong_line = dict(lines[0], kind="guess", n=-1, X="much", more=1)
    assert len(wrong([wrong_line], schema)) == 4
    del wrong_line["word"]
    assert "$[0].word" in wrong([wrong_line], schema)


def test_all_runs_and_verdicts_are_rows():
    runs, said = timescales.results()
    lines = [line for path in paths.RESULTS.glob("*/runs.csv") for line in path.read_text().splitlines()[1:]]
    assert len(runs) == len(lines)
    assert len(said) == len(verdicts.read(paths.RESULTS))
    assert list(said.columns) == [key.name for key in fields(Line)]
    row = runs[(runs.id == "83ec1dd2a8b0") & (runs.table == "ours_delay")].iloc[0]
    assert (row["size"], row["model"], row["task.delay"], row["seed"]) == ("paper", "lstm", 20, 0)
    assert row["best test/accuracy"] == 0.2458


def test_the_lines_of_the_page_give_the_numbers_of_the_report():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "results.md").read_text(), re.S)
    import matplotlib

    matplotlib.use("Agg")
    seen = {}
    exec(blocks[0] + blocks[2] + blocks[1], seen)
    said = timescales.results().verdicts
    cells = said[(said.table == "ours_delay") & (said.kind == "value")].set_index("item")["first"]
    for delay, by_model in seen["means"].iterrows():
        for model, mean in by_model.items():
            item = f"{model}, delay {delay:.0f}: model={model}, task.delay={delay:.0f}"
            assert 100 * mean == pytest.approx(cells[item], rel=1e-5), item
    assert seen["means"].shape == (3, 5)
    assert len(blocks[1].strip().splitlines()) == 3


def test_without_results_one_line_says_what_to_give(tmp_path):
    with pytest.raises(ConfigError, match=r"no results in .*timescales.results\(FOLDER\).*timescales-report") as error:
        timescales.results(tmp_path)
    assert "\n" not in str(error.value)
    verdicts.write([made()], tmp_path)
    assert len(timescales.results(tmp_path).runs) == 0
    assert len(timescales.results(tmp_path).verdicts) == len(verdicts.lines(made()))


def test_pandas_is_imported_when_results_are_read():
    code = "import sys, timescales; timescales.results; print('pandas' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "False"
