"""What is wrong with a table's file is one line that names the key and the fix."""

import copy
import re

import made_up
import pytest
import yaml
from made_up import made_row, measure_of, quoted
from omegaconf import OmegaConf

from timescales import errors, paths
from timescales.papers import load
from timescales.papers.parse import parse, parse_claim
from timescales.papers.table import expand
from timescales.runs import metrics
from timescales.runs.record import Record

WHOLE = OmegaConf.to_container(OmegaConf.load(paths.conf() / "table" / "chien_table3.yaml"))["table"]
SHOWN = [key for key, assumption in WHOLE["assumed"].items() if assumption.pop("shown", None)]
# Each cell and claim once: the runs as assumed, without the settings that are shown.
grid = {key: value for key, value in WHOLE["runs"][0].items() if key not in SHOWN}
WHOLE["runs"] = [grid | {"task.time_input": [True, False]}]
del WHOLE["ladder"], WHOLE["question"]  # they name claims
WHOLE["cells"] = [cell for cell in WHOLE["cells"] if cell["where"]["model"] != "phased"]  # of runs of their own


def changed(**changes):
    """A whole table with other values of some keys."""
    return {key: value for key, value in {**copy.deepcopy(WHOLE), **changes}.items() if value is not REMOVED}


REMOVED = object()


def refused(node):
    """The line that refuses a table."""
    with pytest.raises(errors.ConfigError) as error:
        parse(node)
    line = str(error.value)
    assert line.startswith("table/chien_table3.yaml: ")
    assert "\n" not in line
    return line


LIST, MAPPING = "must be a list; not", "must be keys with their values"
TABLES = [
    ({"unit": REMOVED}, "table.unit is missing; see timescales/papers/table.py"),
    ({"unit": REMOVED, "select": REMOVED}, "table.select, table.unit are missing; see timescales/papers/table.py"),
    ({"units": 1}, "table.units: no such key; did you mean unit?"),
    ({"select": "bst"}, "table.select must be one of best, last; not bst"),
    ({"tolerance": True}, "table.tolerance must be a number; not true"),
    ({"layout": {"columns": "model"}}, "table.layout.rows is missing; see timescales/papers/table.py"),
    ({"question": {"asks": "Does it?"}}, "table.question.by is missing"),
    ({"question": {"asks": "Does it?", "by": ["plstm wins"]}}, "'plstm wins' must be the line of exactly one claim"),
    ({"claims": None}, f"table.claims {LIST}"),
    ({"unit": "%"}, "table.unit: '%' shows a fraction unchanged; to show it times 100 write percent"),
    ({"success": "valid/accuracy > nan"}, "cannot read 'valid/accuracy > nan'; write it like valid/accuracy >= 0.99"),
    ({"metric": "steps to valid/accuracy"}, "cannot read 'valid/accuracy'; write it like valid/accuracy >= "),
    ({"notes": [{"a": "b"}]}, "table.notes: {'a': 'b'} is not a string: put quotes"),
    ({"reduce": "best_lr"}, "reduce: best_lr needs optimizer.lr in each of the table's runs"),
    ({"data": [5]}, f"table.data[0] {MAPPING}; not 5"),
    ({"assumed": None}, f"table.assumed {MAPPING}; not null"),
    ({"assumed": {"select": "not stated"}}, f"table.assumed.select {MAPPING}; not 'not stated'"),
    ({"assumed": {"select": {"try": ["best"]}}}, "table.assumed.select.said is missing"),
    ({"assumed": {"select": {"said": "a", "try": "best"}}}, f"table.assumed.select.try {LIST}"),
    ({"assumed": {"select": {"said": "a", "try": ["bst"]}}}, "select.try must be a list of best or last, not ['bst']"),
    ({"assumed": {"select": {"said": "a", "shown": {1: 0.5}}}}, "assumed.select.shown.1 must be a string; not 0.5"),
    ({"cited": [{"label": "a", "value": 1, "source": "b", "sd": 1, "se": 1}]}, "cited[0] has both sd and se: give one"),
    ({"figure": {"kind": "line"}}, "table.figure[0].x is missing"),
    ({"figure": {"kind": "cell"}}, "figure[0].kind must be one of curves, line, probe, times; not cell"),
]


@pytest.mark.parametrize(("changes", "words"), TABLES)
def test_a_bad_table_names_its_key_and_the_fix(changes, words):
    assert words in refused(changed(**changes))


CELLS = [
    ({"sd": 1, "n": 0}, ".n must be at least 1, not 0"),
    ({"sd": -1, "n": 3}, ".sd must be at least 0, not -1"),
    ({"sd": 1.0}, ".n is missing: the number of runs behind sd; null if not printed"),
    ({"sd": 1.0, "n": 1}, ".n: one run has no sd"),
    ({"sd": 1.0, "se": 0.5, "n": 4}, " has both sd and se: give one"),
    ({"value": float("nan")}, ".value must be a finite number, not nan"),
    ({"value": "2,0"}, ".value must be a number or null; not '2,0'"),
    ({"value": REMOVED}, ".value is missing"),
    ({"tolerance": float("inf")}, ".tolerance must be a finite number, not inf"),
    ({"unit": "Accuracy in per cent"}, ".unit: 'Accuracy in per cent' shows a fraction"),
    ({"std": 1.0}, ".std: no such key; did you mean sd?"),
]


@pytest.mark.parametrize(("cell", "words"), CELLS)
def test_a_bad_cell_names_its_key_and_the_fix(cell, words):
    node = {key: value for key, value in ({"value": 1} | cell).items() if value is not REMOVED}
    assert f"table.cells[0]{words}" in refused(changed(cells=[node]))


def test_a_cell_that_no_run_fills_is_named():
    assert "no run fills the cell {'model': 'ur'}" in refused(changed(cells=[{"where": {"model": "ur"}, "value": 1}]))
    for figure, words in (
        ({"kind": "curves", "trivial_baselines": 0.3}, "[0].trivial_baselines must be true or false; not 0.3"),
        ({"kind": "times", "trivial_baselines": True}, "trivial_baselines: only kind: curves"),
        ({"kind": "curves", "where": {"model": "ur"}}, "no run is in the figure with where: {'model': 'ur'}"),
    ):
        assert words in refused(changed(figure=figure))
    line = refused(changed(cells=[{"value": 1, "metric": "steps to x = 1"}]))
    assert "cannot read 'x = 1'; write it like valid/accuracy >= 0.99" in line


GREATER, ALIKE = {"claim": "plstm > lstm"}, {"claim": "plstm ~ lstm"}
CLAIMS = [
    (5, "table.claims[0] must be keys with their values; not 5"),
    (GREATER | {"tolerence": 5}, "claims[0].tolerence: no such key; did you mean tolerance?"),
    (GREATER | {"better": "more"}, "claims[0].better must be one of higher, lower; not more"),
    (GREATER | {"times": 0}, "claims[0].times must be above 0, not 0"),
    (GREATER | {"unit": "%"}, "claims[0].unit: '%' shows a fraction unchanged"),
    (GREATER | {"metric": "steps to x>1"}, "cannot read 'x>1'; write it like "),
    (GREATER | {"tolerance": 2}, "'plstm > lstm' is decided by a test: leave out tolerance"),
    (GREATER | {"than": "test/loss"}, "cannot read the claim 'plstm > lstm': with `than`, name one side"),
    ({"claim": "plstm", "than": 5}, "claims[0].than must be a string; not 5"),
    (ALIKE | {"metric": "test/loss"}, "'plstm ~ lstm' has its own metric: give, in its unit"),
    (ALIKE | {"times": 2}, "'plstm ~ lstm' is decided by its tolerance: leave out times"),
    (ALIKE | {"by": 2}, "'plstm ~ lstm' is decided by its tolerance: leave out by"),
    (GREATER | {"success": "accuracy"}, "cannot read 'accuracy'; write it like valid/accuracy >= 0.99"),
    (GREATER | {"quote": "pLSTM wins"}, "needs both quote (the words of the paper) and at"),
    (GREATER | {"quote": "a", "at": "b", "ours": "c"}, "has quote and ours: leave out one"),
    (GREATER | {"hypothesis": "a"}, "needs both hypothesis (what we expect and why) and dated"),
    (GREATER | {"hypothesis": "a", "dated": "today"}, '(when it was written): "2026-11-25"'),
    (GREATER | {"ours": 5}, "claims[0].ours must be a string; not 5"),
    (GREATER, "the claim 'plstm > lstm' has no source: give quote and at, hypothesis and dated, or ours"),
    ("lstm never fails", "'lstm never fails' needs success: \"valid/accuracy > 0.5\""),
    ("plstm chrono > lstm", "claims[0]: 'plstm chrono' has model twice; several values are model=[a,b]"),
    ("plstm > lstm @ seed=0 seed=1", "claims[0]: 'seed=0 seed=1' has seed twice"),
    ("plstm wins", "cannot read the claim 'plstm wins': write it as A > B @ key=value"),
    ("plstm > lstm @ task.sampling=sync_10", "no runs decide the claim 'plstm > lstm @ task.sampling=sync_10': name"),
    ("plstm > plstm", "runs are on both sides of the claim 'plstm > plstm': name every setting in which its sides"),
    ("plstm > seed=0", "runs are on both sides of the claim 'plstm > seed=0'"),
    ("plstm > lstm @ model=chrono", "no runs decide the claim 'plstm > lstm @ model=chrono'"),
]


@pytest.mark.parametrize(("claim", "words"), CLAIMS)
def test_a_bad_claim_names_its_key_and_the_fix(claim, words):
    assert words in refused(changed(claims=[claim]))


def test_a_claim_about_failing_goes_by_success_alone():
    claim = {"claim": "lstm fails", "metric": "test/loss", "tolerance": 1}
    line = refused(changed(success="valid/accuracy > 0.5", claims=[claim]))
    assert "'lstm fails' is decided by success: leave out metric, tolerance" in line
    line = refused(changed(success="valid/accuracy > 0.5", claims=["ur fails"]))
    assert "no runs decide the claim 'ur fails'" in line


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ({"seeds": [1, 2]}, "table.runs[0].seeds: runs that only differ in it are one run; write seed: [0, 1, 2]"),
        ({"++seeds": [1, 2]}, "table.runs[0].seeds: runs that only differ in it are one run; write seed: [0, 1, 2]"),
        ({"loop.checkpoint_every": [1, 2]}, "loop.checkpoint_every: runs that only differ in it are one run; give it"),
        ({"engine": ["eager", "fused"]}, "table.runs[0].engine: runs that only differ in it are one run; give it on"),
    ],
)
def test_a_grid_over_what_makes_no_other_run_is_refused(grid, words):
    assert words in refused(changed(runs=[WHOLE["runs"][0] | grid]))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cells": [{"value": None, "sd": None, "n": None}], "success": None},
        {"runs": [{**grid, "engine": "eager"} for grid in WHOLE["runs"]]},
        *({"cells": [cell]} for cell in ({"value": 1, "sd": 1.0, "n": None}, {"value": 1, "sd": 0.0, "n": 2})),
        *({"cells": [cell]} for cell in ({"value": 1, "unit": "percentile"}, {"value": -1, "tolerance": 0})),
        {"cited": [{"label": "a", "value": 1, "source": "b", "sd": 1}]},  # they have no n
        {"success": "valid/accuracy > 0.5", "claims": [quoted("lstm never fails")]},
    ],
)
def test_a_good_table_is_taken(changes):
    assert parse(changed(**changes)).name == "chien_table3"


def test_cells_and_claims_take_from_their_table_what_they_do_not_say():
    cells = [{"value": 1}, {"value": 2, "metric": "test/loss", "unit": "nats", "better": "lower", "tolerance": 3}]
    claims = ["plstm > lstm", {"claim": "plstm > lstm", "metric": "valid/loss", "better": "lower", "times": 2}]
    rung = {"at": 1, "set": {"task.time_input": False}, "select": "best", "claims": ["plstm > lstm"]}
    ladder = {"over": "x", "rungs": {"one": rung}}
    table = parse(changed(cells=cells, claims=list(map(quoted, claims)), ladder=ladder))
    first, second = table.cells
    assert (first.column, first.scale, first.better, first.tolerance) == ("last test/accuracy", 100, "higher", 0.5)
    assert (second.column, second.scale, second.better, second.tolerance) == ("last test/loss", 1, "lower", 3)
    assert [claim.column for claim in table.claims] == ["last test/accuracy", "last valid/loss"]
    assert table.claims[1].text == "plstm > lstm (valid/loss, 2 times)"
    assert [claim.column for claim in table.sizes["one"].claims] == ["best test/accuracy"]


def test_a_claim_decides_if_it_quotes_the_paper():
    quoted = {"claim": "plstm never fails", "quote": "pLSTM never fails", "at": "section 1"}
    table = parse(changed(success="valid/accuracy > 0.5", claims=[quoted, {"claim": "plstm > lstm", "ours": "to see"}]))
    assert [claim.decides for claim in table.claims] == [True, False]
    assert (table.claims[0].quote, table.claims[0].at) == ("pLSTM never fails", "section 1")
    assert [claim.text for claim in table.claims] == ["plstm never fails", "plstm > lstm"]


def test_a_line_is_read_into_sides_sign_and_place():
    claims = ["plstm task.time_input=false > lstm @ task.sampling=async", "lstm never fails", "plstm ~ lstm"]
    table = parse(changed(claims=list(map(quoted, claims)), success="valid/accuracy > 0.5"))
    first, second, third = table.claims
    assert first.sides == ({"model": "plstm", "task.time_input": False}, {"model": "lstm"})
    assert (first.sign, first.place) == (">", {"task.sampling": "async"})
    assert (second.sides, second.sign, third.sign) == (({"model": "lstm"},), "never fails", "~")


def test_a_table_that_cannot_be_reported_is_not_trained(quick, train, table_text):
    """The command line refuses a bad table, of either size, in one line; nothing is trained."""
    path = quick / "conf" / "table" / "quick.yaml"
    path.write_text(table_text.replace("  unit: ", "  # unit: "))
    for words in (["table=quick"], ["table=quick", "rung=t2"]):
        outcome = train(*words, "logger=none")
        assert (outcome.status, outcome.err.count("\n")) == (1, 1)
        assert outcome.err.startswith("error: table/quick.yaml: table.unit is missing; see timescales/papers/table.py")
    path.write_text(table_text.replace("[lstm, plstm]", "[lstm, plstm"))
    assert re.search(r"error: .*quick.yaml\", line \d+, column \d+", train("table=quick", "logger=none").err)
    path.write_text(table_text.replace("name: quick", "name: slow"))
    assert "quick.yaml: it must have table.name: quick" in train("table=quick", "logger=none").err
    assert not list(quick.glob("runs/*"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"probe": ["stops"]}, "table.probe: no analysis stops; did you mean steps?"),
        ({"cells": [{"value": 1, "compute": "reset_units.nope"}]}, "no function reset_units.nope in "),
        ({"cells": [{"value": 1, "compute": "reset_units.t"}]}, "timescales/analysis; did you mean two_delays.t?"),
    ],
)
def test_an_analysis_that_is_not_there_is_named(quick, table_text, change, words):
    node = yaml.safe_load(table_text)
    node["table"] |= change
    (quick / "conf" / "table" / "quick.yaml").write_text(f"# @package _global_\n{yaml.safe_dump(node)}")
    with pytest.raises(errors.ConfigError, match=re.escape(words)):
        load.table("quick")


def test_a_script_refuses_a_bad_table_in_one_line(quick, script, table_text):
    path = quick / "conf" / "table" / "quick.yaml"
    path.write_text(table_text.replace("tolerance: 1.0", "tolerance: two"))
    (quick / "results").mkdir(exist_ok=True)
    words = "error: table/quick.yaml: table.tolerance must be a number; not two"
    assert script("status", "quick", "--list") == words
    assert script("report", "quick") == words


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 0.001), (".5", 0.5), ("1_000", 1000), ("True", True), ("~", None), ("[0,1]", [0, 1]), ("'1'", "1")],
)
def test_a_value_in_a_claim_is_read_as_in_the_yaml_beside_it(text, value):
    (there,) = OmegaConf.to_container(OmegaConf.create(f"where: [{{optimizer.lr: {text}}}]"))["where"]
    claim = parse_claim("table/x.yaml: claims[0]", f"plstm optimizer.lr={text} > lstm @ seed={text}", measure_of(WHOLE))
    assert claim.sides[0]["optimizer.lr"] == claim.place["seed"] == there["optimizer.lr"] == value


def test_what_is_no_yaml_is_a_text():
    claim = parse_claim("table/x.yaml: claims[0]", "gated model.gate=- > gated model.gate=c", measure_of(WHOLE))
    assert claim.sides[0]["model.gate"] == "-"


def test_what_a_setting_was_calibrated_on_belongs_to_a_setting_that_says_so():
    on = [{**WHOLE["cells"][0], "calibrated": True}]
    with pytest.raises(errors.ConfigError, match="add it to the setting of assumed that was chosen by it"):
        parse(changed(cells=on, assumed={"pad": {"said": "in front"}}))
    table = parse(changed(cells=on, assumed={"pad": {"said": "in front", "calibrated": True}}))
    assert (table.cells[0].calibrated, table.assumed["pad"].calibrated) == (True, True)


# --- Tables as data: which runs they ask for, and what they read of them ----------------------------------------------
RUNS = [{"task": "copy", "model": ["lstm", "plstm"], "seed": [0, 1]}, {"task": "smnist", "model": "lstm", "seed": 0}]
NODE = made_up.TABLE | {"name": "t", "runs": RUNS}
TABLE = parse(NODE)


def test_a_table_is_the_union_of_its_grids():
    runs = expand(TABLE)
    copies = [{"task": "copy", "model": model, "seed": seed} for model in ("lstm", "plstm") for seed in (0, 1)]
    assert runs == [*copies, {"task": "smnist", "model": "lstm", "seed": 0}]
    assert load.request(runs[3]) == ["task=copy", "model=plstm", "seed=1"]


@pytest.mark.parametrize(
    ("narrow", "expected"),
    [
        ({"model": ["plstm"]}, [("copy", "plstm", 0), ("copy", "plstm", 1)]),  # the second grid has no plstm
        ({"seed": [1]}, [("copy", "lstm", 1), ("copy", "plstm", 1)]),
        ({"task": ["smnist"]}, [("smnist", "lstm", 0)]),
        ({"task": ["smnist"], "model": ["lstm"], "seed": [0]}, [("smnist", "lstm", 0)]),
        ({"seed": [7]}, [("copy", "lstm", 7), ("copy", "plstm", 7), ("smnist", "lstm", 7)]),  # beyond the table
        ({"seed": [7, 1], "model": ["lstm"]}, [("copy", "lstm", 7), ("copy", "lstm", 1), ("smnist", "lstm", 7)]),
        ({"loop.max_steps": [3], "seed": [0]}, [("copy", "lstm", 0), ("copy", "plstm", 0), ("smnist", "lstm", 0)]),
    ],
)
def test_narrowing(narrow, expected):
    runs = expand(TABLE, "paper", narrow)
    assert [(r["task"], r["model"], r["seed"]) for r in runs] == expected
    assert all(r.get("loop.max_steps") == (3 if "loop.max_steps" in narrow else None) for r in runs)


@pytest.mark.parametrize(("sign", "counts"), [("<", "n.."), ("<=", "nn."), (">", "..n"), (">=", ".nn")])
def test_each_sign_of_a_condition_means_itself(sign, counts):
    """Below, at and above the threshold; n: it holds there."""
    table = parse(NODE | {"success": f"valid/loss {sign} 0.5", "select": "best"})
    curve = [{"step": 1, "epoch": 1.0, "valid/accuracy": 0.25}, {"step": 2, "epoch": 2.0}]
    found = Record(id="a", status="finished", curve=curve, steps=4)
    for value, means in zip((0.4, 0.5, 0.6), counts, strict=True):
        assert table.succeeded(made_row({"best valid/loss": value})) is (means == "n")
        found.curve[1]["valid/loss"] = value
        steps = metrics.metric(found, f"steps to valid/loss {sign} 0.5")
        assert str(steps) == ("2" if means == "n" else ">4")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("valid/loss", ValueError),
        ("valid/loss = 1", KeyError),
        ("valid/loss > 1.2.3", ValueError),
        ("valid/loss > 1 2", ValueError),
    ],
)
def test_a_condition_that_cannot_be_read_raises_an_error(wrong, error):
    with pytest.raises(error):
        metrics.threshold(wrong)
