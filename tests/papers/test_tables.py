"""Tables as data: which runs they ask for, how the sweeper narrows, skips, shares and stops."""

import itertools
import json
import re
import sys
import time
import types

import pytest

from timescales import analysis, errors, paths
from timescales.config import compose, identity, overrides, schema
from timescales.config.identity import kind, resolved
from timescales.papers import load, verdict
from timescales.papers.claims import check as check_claims
from timescales.papers.claims import judge
from timescales.papers.table import check as check_table
from timescales.papers.table import expand, twin
from timescales.reports import markdown, report
from timescales.runs import cost, metrics, provenance, record, store

TABLE = {
    "name": "t",
    "runs": [
        {"task": "copy", "model": ["lstm", "plstm"], "seed": [0, 1]},
        {"task": "smnist", "model": "lstm", "seed": 0},
    ],
    "tiny": {"set": {"task.T": [3, 4], "seed": 0}, "claims": []},
}
# A table of runs that take a moment.
YAML = """# @package _global_
loop: {max_steps: 2}
task: {T: 3, train_size: 20, valid_size: 10, test_size: 10, batch_size: 10}
model: {hidden_size: 4}
table:
  name: quick
  title: Quick
  source: nobody
  runs:
    - {task: copy, model: [lstm, plstm], seed: [0, 1]}
  metric: test/accuracy
  select: last
  better: higher
  unit: percent
  n_min: 2
  tolerance: 1.0
  cells:
    - {where: {model: lstm}, value: 10.0}
    - {where: {model: plstm}, value: 10.0}
  claims: ["plstm > lstm"]
  assumed: {optimizer.lr: {said: not stated, try: [0.1]}}
  probe: [steps]
  tiny:
    set: {task.T: 2, seed: 0}
    claims: ["plstm ~ lstm"]
"""


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """A table `quick` beside the others, results/ in an empty folder, and one question to its runs."""
    import shutil
    import types

    shutil.copytree(paths.conf(), tmp_path / "conf")
    (tmp_path / "conf" / "table" / "quick.yaml").write_text(YAML)
    monkeypatch.setattr(paths, "conf", lambda: tmp_path / "conf")
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    probe = types.ModuleType("timescales.analysis.steps")
    probe.measure = lambda model, task: {"parameters": float(sum(p.numel() for p in model.parameters()))}
    monkeypatch.setitem(sys.modules, "timescales.analysis.steps", probe)
    there = analysis.names
    monkeypatch.setattr(analysis, "names", lambda *functions: [*there(*functions), "steps"])
    import train as entry

    # The entry point's path of configurations was read when it was imported.
    monkeypatch.setattr(sys.modules["train"], "main", _main(entry, tmp_path / "conf"))
    return tmp_path


def _main(entry, conf):
    import hydra

    inner = entry.main.__wrapped__
    return hydra.main(version_base="1.3", config_path=str(conf), config_name="config")(inner)


def test_a_table_is_the_union_of_its_grids():
    runs = expand(TABLE)
    assert [run.axes for run in runs] == [
        {"task": "copy", "model": "lstm", "seed": 0}, {"task": "copy", "model": "lstm", "seed": 1},
        {"task": "copy", "model": "plstm", "seed": 0}, {"task": "copy", "model": "plstm", "seed": 1},
        {"task": "smnist", "model": "lstm", "seed": 0},
    ]  # fmt: skip
    assert runs[3].overrides == ["table=t", "task=copy", "model=plstm", "seed=1"]


def test_tiny_values_replace_those_of_every_grid_and_the_command_line_replaces_them():
    tiny = expand(TABLE, "tiny")
    assert [(r.axes["task"], r.axes["model"], r.axes["task.T"], r.axes["seed"]) for r in tiny] == [
        ("copy", "lstm", 3, 0), ("copy", "lstm", 4, 0), ("copy", "plstm", 3, 0), ("copy", "plstm", 4, 0),
        ("smnist", "lstm", 3, 0), ("smnist", "lstm", 4, 0),
    ]  # fmt: skip
    assert {r.axes["task.T"] for r in expand(TABLE, "tiny", {"task.T": [9]})} == {9}
    both = {"set": [{"model": "lstm", "model.hidden_size": 6}, {"model": "plstm", "model.hidden_size": [7, 8]}]}
    pairs = [(r.axes["model"], r.axes["model.hidden_size"]) for r in expand({**TABLE, "tiny": both}, "tiny")]
    assert dict.fromkeys(pairs) == dict.fromkeys([("lstm", 6), ("plstm", 7), ("plstm", 8)])
    with pytest.raises(errors.ConfigError, match="profile=small"):
        expand(TABLE, "small")


def test_sensitivity_judges_a_setting_that_one_model_alone_has(monkeypatch):
    """model.forget_init is the LSTM's, model.epsilon_form the pLSTM's: the two are compared all the same."""
    monkeypatch.syspath_prepend(str(paths.ROOT / "scripts"))
    import sensitivity

    with compose.composing() as composer:
        table = load.table("chien_copy")
        row = {
            "status": "finished",
            "seed": 0,
            "run": "copy/lstm",
            "golden": provenance.golden("copy", "lstm"),
            "partial": "",
        }
        row |= dict.fromkeys(verdict.metrics(table), 1.0)
        runs = [slug for narrow in [{}, *({key: [value]} for key, value in sensitivity.settings(table, composer))]
                for _, slug in sensitivity.runs_of(table, composer, narrow)]  # fmt: skip
        ids = [slug.rpartition("-")[2] for slug in runs]
        monkeypatch.setattr(store, "committed", lambda: {run_id: row | {"id": run_id} for run_id in ids})
        found = sensitivity.gather(table, composer)
        same = table | {"assumed": {"loop.checkpoint_every": {"said": "how often", "try": [7]}}}
        assert sensitivity.settings(same, composer) == []  # it changes no run
        row["golden"] = "of older code"
        monkeypatch.setattr(store, "read_rows", lambda path: [])
        assert all(row["stale"] for rows in sensitivity.gather(table, composer).values() for row in rows)
    assert {"model.forget_init=1.0", "model.epsilon_form=authors"} < set(found)
    for words, rows in found.items():
        claims = [judge(said, twin(table), rows) for said in twin(table)["claims"]]
        assert [claim.verdict for claim in claims if claim.verdict.startswith("open")] == [], words
    columns = ["setting", "runs", *(claim.text for claim in claims)]
    assert f"| {' | '.join(columns)} |" in sensitivity.page(table, found).splitlines()


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
    runs = expand(TABLE, None, narrow)
    assert [(r.axes["task"], r.axes["model"], r.axes["seed"]) for r in runs] == expected
    assert all(r.axes.get("loop.max_steps") == (3 if "loop.max_steps" in narrow else None) for r in runs)


@pytest.mark.parametrize(
    "value",
    [1, 1.5, 1e-05, -3, True, None, "ur", "-", "a b", "it's", "a,b", "null", "1.5", "", [1150, 1150, 400], [[1], []],
     {"law": "chrono", "T_max": 750}, "a\\", "ünï", "$x", "a=b"],
)  # fmt: skip
def test_a_value_survives_being_spelled_as_an_override(value):
    with compose.composing() as composer:
        assert composer.parse(f"task.name={overrides.spell(value)}").value() == value


def test_composing_is_what_hydra_composes():
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    cases = [
        ["model=plstm", "task=copy", "task.T=50", "seed=3"], ["task=frequency", "model=plstm", "optimizer=sgd"],
        ["task=pmnist", "model=lstm", "model.hidden_size=[8,9]", "+model.extra=1", "loop.clip_norm=null"],
        ["paper=gu", "model=ur", "model.forget_init={law:chrono,T_max:750}", "run_dir=x"],
    ]  # fmt: skip
    with compose.composing() as composer:
        ours = [(composer(case), identity.identity(composer(case))) for case in cases]
    with initialize_config_dir(str(paths.conf()), version_base="1.3"):
        for case, (found, run_id) in zip(cases, ours, strict=True):
            cfg = hydra_compose("config", case)
            assert OmegaConf.to_container(cfg, resolve=True) == OmegaConf.to_container(found, resolve=True)
            assert identity.identity(cfg) == run_id


def test_runs_of_a_table_are_the_runs_of_the_plain_command():
    """So a run is shared by every table that asks for it, and by who trained it by hand."""
    with compose.composing() as composer:
        (run,) = expand(load.table("chien_table3"), None, {
            "seed": [2], "model": ["plstm"], "task.sampling": ["async"], "task.time_input": [False]})  # fmt: skip
        by_hand = composer(["model=plstm", "task=frequency", "seed=2"])
        assert identity.slug(composer(run.overrides)) == identity.slug(by_hand)


def test_kind_is_the_identity_without_what_costs_nothing():
    with compose.composing() as composer:
        one, two = (composer(["task=copy", f"seed={k}", f"optimizer.lr={k}"]) for k in (1, 2))
        assert kind(one) == kind(two) != kind(composer(["task=copy", "task.T=6"]))
        assert (one.seed, one.optimizer.lr) == (1, 1)


def test_what_may_change_a_number_changes_the_identity():
    plain = {"task": {}, "loop": {}}
    for key in vars(schema.Loop()):
        same = identity.identity(plain | {"loop": {key: 7}}) == identity.identity(plain)
        assert same is (key == "checkpoint_every"), key
    for key, value in {"seed": 1, "precision": "tf32", "deterministic": True, "paper": {"name": "gu"}}.items():
        assert identity.identity(plain | {key: value}) != identity.identity(plain), key


def test_a_table_is_swept_probed_skipped_and_shared(train, quick):
    outcome = train("table=quick", "logger=none")
    assert outcome.status == 0, outcome
    assert "4 runs: 0 finished, skipped; 4 to run" in outcome.out
    seeds = re.findall(r"\[\d/4\].* runs/copy-l?p?l?stm-s(\d)", outcome.out)
    assert seeds[:4] == ["0", "0", "1", "1"]  # a value for every cell early
    found = [json.loads(p.read_text()) for p in quick.glob("runs/*/record.json")]
    assert len(found) == 4
    for one in found:
        assert one["probes"] == {"steps/parameters": one["parameters"]}
        assert not {"table", "profile", "skip"} & set(one["config"])
        assert one["config"]["logger"]["table"] == "quick"  # the tag at W&B
    again = train("table=quick", "logger=none")
    assert "4 runs: 4 finished, skipped; 0 to run" in again.out
    shared = ["task.T=3", "task.train_size=20", "task.valid_size=10", "task.test_size=10", "task.batch_size=10"]
    by_hand = train("task=copy", "model=lstm", "model.hidden_size=4", "loop.max_steps=2", *shared, "logger=none")
    assert "finished, skipped" in by_hand.out
    narrowed = train("table=quick", "model=plstm", "seed=0,1", "logger=none")
    assert "2 runs: 2 finished, skipped" in narrowed.out
    assert "beyond" not in narrowed.out
    beyond = train("table=quick", "model=plstm", "seed=0,5", "logger=none")
    assert "1 of 2 runs are beyond quick: they fill no cell of it" in beyond.out


def test_tiny_is_another_set_of_runs(train, quick):
    outcome = train("table=quick", "profile=tiny", "logger=none")
    assert "2 runs: 0 finished, skipped; 2 to run" in outcome.out
    configs = [json.loads(p.read_text())["config"] for p in quick.glob("runs/*/record.json")]
    assert {c["task"]["T"] for c in configs} == {2}


def test_a_sweep_stops_in_time_and_the_next_call_goes_on(train, quick):
    begun = time.monotonic()
    outcome = train("table=quick", "loop.max_steps=100000", "task.train_size=10000", "seed=0", "logger=none",
                    "hydra.sweeper.minutes=0.05")  # fmt: skip
    assert time.monotonic() - begun < 60
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
    assert "2 finished, skipped" in outcome.out
    assert re.search(r"1 of the skipped are stale \(force=stale runs them again\): runs/copy-lstm-s0", outcome.out)
    again = train("table=quick", "seed=0", "force=stale", "logger=none")
    assert "1 finished, skipped; 1 to run" in again.out
    assert "stale" not in train("table=quick", "seed=0", "logger=none").out


def test_half_a_stale_run_is_not_continued(train, quick, monkeypatch):
    one = ["task=copy", "task.T=3", "task.train_size=20", "task.valid_size=10", "loop.max_steps=2", "logger=none"]
    assert train(*one).status == 0
    (path,) = quick.glob("runs/*/record.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "interrupted", "sha256": None}))
    monkeypatch.setattr(provenance, "golden", lambda task, model: "changed")
    assert "was begun before its numbers changed: force=stale restarts it" in train(*one).err
    assert train(*one, "force=stale").status == 0


def test_skip_committed_leaves_out_what_results_hold(train, quick):
    train("table=quick", "seed=0", "logger=none")
    rows = [
        store.row(json.loads(p.read_text()), {"model": "x"}, None, ["last test/accuracy"])
        for p in quick.glob("runs/*/record.json")
    ]
    (quick / "results" / "quick").mkdir(parents=True)
    (quick / "results" / "quick" / "runs.csv").write_text(store.rows_text(rows))
    import shutil

    shutil.rmtree(quick / "runs")
    outcome = train("table=quick", "skip=committed", "logger=none")
    assert "4 runs: 0 finished, skipped; 2 to run; 2 committed, skipped" in outcome.out
    assert "2 to run" in train("table=quick", "seed=0", "logger=none").out  # a fresh clone really runs


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["table=quik"], "table=quik: no such table; did you mean quick?"),
        (["table=quick", "task.TT=3"], "task.TT: no such key; did you mean task.T?"),
        (["table=quick", "model=lstn"], "model=lstn: no such model; did you mean lstm?"),
        (["table=quick", "profile=tny"], "profile must be one of null, tiny; not tny; did you mean tiny?"),
        (["table=quick", "skip=everything"], "skip must be one of local, committed; not everything"),
        (["profile=tiny"], "profile=tiny is a table's: give table=NAME too"),
        (["force=stalle"], "force must be one of true, false, stale; not stalle; did you mean stale?"),
        (["-m", "table=quick,chien_table3"], "table=A,B: one table at a time"),
        (["table=quick", "hydra.sweeper.minutes=0"], "hydra.sweeper.minutes must be a number above 0, or null; not 0"),
        (
            ["table=quick", "hydra.sweeper.minutes=soon"],
            "hydra.sweeper.minutes must be a number above 0, or null; not soon",
        ),
    ],
)
def test_what_is_mistyped_costs_one_line(train, quick, arguments, line):
    outcome = train(*arguments, "logger=none")
    assert outcome.status == 1
    assert line in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert not list(quick.glob("runs/*"))


def test_a_task_that_is_not_there_is_named(train, quick):
    path = quick / "conf" / "table" / "quick.yaml"
    path.write_text(path.read_text().replace("task: copy", "task: [copy, handwriting]"))
    outcome = train("table=quick", "seed=0", "model=lstm", "logger=none")
    assert outcome.status == 1
    assert "task=handwriting: no such task" in outcome.out
    assert "1 of 2 runs failed" in outcome.err
    assert len(list(quick.glob("runs/*/record.json"))) == 1


def test_a_table_that_cannot_be_reported_is_named():
    whole = {**load.table("chien_table3")}
    check_table(whole)
    with pytest.raises(errors.ConfigError, match=r"chien_table3.yaml: table.unit is missing"):
        check_table({k: v for k, v in whole.items() if k != "unit"})
    with pytest.raises(
        errors.ConfigError, match=r"table.select, table.unit are missing; timescales/papers/table.py says"
    ):
        check_table({k: v for k, v in whole.items() if k not in ("unit", "select")})
    tiny = {**whole["tiny"], "select": "bst"}
    for part in ({"select": "bst"}, {"better": "neither"}, {"reduce": "bst"}, {"tiny": tiny}):
        with pytest.raises(errors.ConfigError, match=r"must be \w+(, \w+)* or \w+, not (bst|neither)"):
            check_table({**whole, **part})
    for assumed, words in (
        (None, r"table.assumed must be keys with their values; not None"),
        (["select"], r"table.assumed must be keys with their values; not \['select'\]"),
        ({"select": "not stated"}, r"table.assumed.select must be keys with their values, not 'not stated'"),
        ({"select": {"try": ["best"]}}, r"table.assumed.select.said is missing"),
        ({"select": {"said": "not stated", "try": "best"}}, r"table.assumed.select.try must be a list"),
        (
            {"select": {"said": "not stated", "try": ["bst"]}},
            r"select.try must be a list of best or last, not \['bst'\]",
        ),
    ):
        with pytest.raises(errors.ConfigError, match=words):
            check_table({**whole, "assumed": assumed})
    with pytest.raises(errors.ConfigError, match=r"table.units: no such key"):
        check_table({**whole, "units": 1})
    check_table({**whole, "cells": [{"value": None, "sd": None, "n": None}], "success": None})
    check_table({**whole, "runs": [{**grid, "engine": "eager"} for grid in whole["runs"]]})
    for cell, words in (
        ({"sd": 1, "n": 0}, r"cells\[0\].n must be at least 1, not 0"),
        ({"se": 1, "n": -4}, r"cells\[0\].n must be at least 1, not -4"),
        ({"sd": -1, "n": 3}, r"cells\[0\].sd must be at least 0, not -1"),
        ({"se": -1, "n": 3}, r"cells\[0\].se must be at least 0, not -1"),
        ({"sd": 1.0}, r"cells\[0\].n is missing: of how many runs sd is; null where that is not printed"),
        ({"se": 1.0}, r"cells\[0\].n is missing: of how many runs se is"),
        ({"sd": 1.0, "n": 1}, r"cells\[0\].n: one run has no sd"),
        ({"sd": 1.0, "se": 0.5, "n": 4}, r"cells\[0\] has sd and se: give one"),
        ({"failed": -1}, r"cells\[0\].failed must be at least 0, not -1"),
        ({"n_min": 0}, r"cells\[0\].n_min must be at least 1, not 0"),
        ({"value": float("nan")}, r"cells\[0\].value must be a finite number, not nan"),
        ({"tolerance": float("inf")}, r"cells\[0\].tolerance must be a finite number, not inf"),
        ({"tolerance": -0.5}, r"cells\[0\].tolerance must be at least 0, not -0.5"),
        ({"unit": "%"}, r"cells\[0\].unit: with '%' a fraction is shown as it is; percent shows 100 times it"),
        ({"unit": "Accuracy in per cent"}, "with 'Accuracy in per cent' a fraction"),
    ):
        with pytest.raises(errors.ConfigError, match=words):
            check_table({**whole, "cells": [{"value": 1, **cell}]})
    for cell in ({"sd": 1.0, "n": None}, {"sd": 0.0, "n": 2}, {"unit": "percentile"}, {"value": -1, "tolerance": 0}):
        check_table({**whole, "cells": [{"value": 1, **cell}]})
    for minutes in (0, -1):
        with pytest.raises(errors.ConfigError, match=r"table\.tiny\.minutes must be above 0"):
            check_table({**whole, "tiny": {**whole["tiny"], "minutes": minutes}})
    with pytest.raises(errors.ConfigError, match="cannot read 'valid/accuracy > nan'"):
        check_table({**whole, "success": "valid/accuracy > nan"})
    with pytest.raises(errors.ConfigError, match=r"claims\[0\].times must be above 0, not 0"):
        check_claims({**whole, "claims": [{"claim": "plstm > lstm", "times": 0}]})
    with pytest.raises(errors.ConfigError, match=r"table\.claims\[0\]\.unit: with '%' a fraction is shown as it is"):
        check_claims({**whole, "claims": [{"claim": "plstm > lstm", "unit": "%"}]})
    with pytest.raises(errors.ConfigError, match=r"table\.unit: with '%' a fraction is shown as it is"):
        check_table({**whole, "unit": "%"})
    with pytest.raises(errors.ConfigError, match=r"cited\[0\] has sd and se: give one"):
        check_table({**whole, "cited": [{"label": "a", "value": 1, "source": "b", "sd": 1, "se": 1}]})
    check_table({**whole, "cited": [{"label": "a", "value": 1, "source": "b", "sd": 1}]})  # they have no n
    with pytest.raises(errors.ConfigError, match="no run fills the cell"):
        check_table({**whole, "cells": [{"where": {"model": "ur"}, "value": 1}]})
    with pytest.raises(errors.ConfigError, match=r"no runs decide the claim 'plstm > lstm @ task.sampling=sync_10'"):
        check_claims({**whole, "claims": ["plstm > lstm @ task.sampling=sync_10"]})
    for claim in ("ur fails", "plstm > lstm @ model=chrono", "plstm task.time_input=true > lstm task.sampling=async"):
        with pytest.raises(errors.ConfigError, match=f"no runs decide the claim '{claim}'"):
            check_claims({**whole, "tiny": {**whole["tiny"], "claims": [claim]}})
    for claim, words in (
        ({"claim": "plstm ~ lstm", "metric": "test/loss"}, "'plstm ~ lstm' has a metric of its own: say in its unit"),
        ({"claim": "plstm ~ lstm", "times": 2}, "'plstm ~ lstm' says no difference: leave out times"),
        ({"claim": "plstm > lstm", "tolerance": 2}, "'plstm > lstm' is decided by a test: leave out tolerance"),
        ("lstm never fails", "'lstm never fails' needs success: \"valid/accuracy > 0.5\""),
    ):
        with pytest.raises(errors.ConfigError, match=words):
            check_claims({**whole, "claims": [claim]})
    check_claims({**whole, "reduce": "max", "claims": [{"claim": "plstm > lstm", "tolerance": 2}]})
    failing = {**whole, "success": "valid/accuracy > 0.5"}
    check_claims({**failing, "claims": ["lstm never fails"]})
    more = {"claim": "lstm fails", "metric": "test/loss", "failures": "count"}
    with pytest.raises(errors.ConfigError, match="goes by the table's success alone: leave out failures, metric"):
        check_claims({**failing, "claims": [more]})
    with pytest.raises(errors.ConfigError, match=r"best_lr asks for optimizer\.lr in each of the table's runs"):
        check_table({**whole, "reduce": "best_lr"})


@pytest.mark.parametrize(("sign", "counts"), [("<", "n.."), ("<=", "nn."), (">", "..n"), (">=", ".nn")])
def test_each_sign_of_a_condition_means_itself(sign, counts):
    """Below, at and above the threshold; n: it holds there."""
    table = {"success": f"valid/loss {sign} 0.5", "select": "best"}
    found = {"curve": [{"step": 1, "epoch": 1.0, "valid/accuracy": 0.25}, {"step": 2, "epoch": 2.0}],
             "config": {"loop": {"max_epochs": 4, "max_steps": None}}}  # fmt: skip
    for value, means in zip((0.4, 0.5, 0.6), counts, strict=True):
        row = {"status": "finished", "best valid/loss": value}
        assert verdict.outcome(row, table) is (means == "n")
        found["curve"][1]["valid/loss"] = value
        steps = metrics.metric(found, f"steps to valid/loss {sign} 0.5")
        assert str(steps) == ("2" if means == "n" else ">4")
    for wrong in ("valid/loss", "valid/loss = 1", "valid/loss > 1.2.3", "valid/loss > 1 2"):
        with pytest.raises((ValueError, KeyError)):
            metrics.condition(wrong)


def test_a_twin_reads_what_it_selects():
    whole = load.table("chien_table3") | {"assumed": {}}  # which names another selection
    assert verdict.metrics(whole) == ["last test/accuracy"]
    twin = {**whole, "tiny": {**whole["tiny"], "select": "best"}}
    assert verdict.metrics(twin) == ["last test/accuracy", "best test/accuracy"]


def test_a_table_that_cannot_be_reported_is_not_trained(quick, train):
    path = quick / "conf" / "table" / "quick.yaml"
    path.write_text(YAML.replace("  unit: ", "  # unit: "))
    for words in (["table=quick"], ["table=quick", "profile=tiny"]):
        outcome = train(*words, "logger=none")
        assert (outcome.status, outcome.err) == (
            1,
            "error: table/quick.yaml: table.unit is missing; timescales/papers/table.py says what each is\n",
        )
    for right, wrong, words in [
        ("plstm ~ lstm", "plstm wins", "cannot read the claim 'plstm wins'"),
        ('["plstm ~ lstm"]', "[{metric: test/loss}]", "table.tiny.claims[0].claim is missing"),
        ('["plstm > lstm"]', "[plstm > lstm, 5]", "table.claims[1] must be keys with their values, not 5"),
        (
            '["plstm > lstm"]',
            "[{claim: plstm > lstm, tolerence: 5}]",
            "tolerence: no such key; did you mean tolerance?",
        ),
        ('["plstm > lstm"]', "[{claim: plstm > lstm, better: more}]", "better must be higher or lower, not more"),
        ('["plstm > lstm"]', "[{claim: plstm > lstm, better: neither}]", "must be higher or lower, not neither"),
        ('["plstm > lstm"]', "[{claim: plstm > lstm, times: many}]", "claims[0].times must be a number; not 'many'"),
        ('["plstm > lstm"]', "[{claim: plstm, than: 5}]", "claims[0].than must be a text; not 5"),
        ("value: 10.0", "std: 1.0, value: 10.0", "table.cells[0].std: no such key; did you mean sd?"),
        (
            "value: 10.0",
            'value: "2,0"',
            "table.cells[0].value must be a number, or null where none is printed; not '2,0'",
        ),
        ("{model: lstm}, value: 10.0", "{model: lstm}", "table.cells[0].value is missing"),
        ("  n_min: 2", "  n_min: true", "table.n_min must be a whole number; not True"),
        ("  n_min: 2", "  n_min: 2\n  figure: {kind: line}", "table.figure[0].x is missing"),
        ("  n_min: 2", "  n_min: 2\n  figure: {kind: probe, probe: steps}", "table.figure[0].xlabel is missing"),
        ("  n_min: 2", "  n_min: 2\n  notes: [a: b]", "table.notes: quote what has a colon; {'a': 'b'} is no text"),
        ("value: 10.0", "value: 1, compute: reset_units.nope", "no function reset_units.nope in timescales/analysis"),
        ("value: 10.0", "value: 1, metric: steps to x = 1", "cannot read 'x = 1'; write it like valid/accuracy >= "),
        ('["plstm > lstm"]', "[{claim: plstm > lstm, metric: steps to x>1}]", "cannot read 'x>1'; write it like "),
        ('["plstm > lstm"]', "[{claim: plstm > lstm, failures: leave}]", "claims[0].failures must be count, not leave"),
        ("seed: [0, 1]}", "++seeds: [1, 2]}", "table.runs[0].seeds: runs that differ in it alone are one run; write"),
        ("seed: [0, 1]}", "loop.checkpoint_every: [1, 2]}", "loop.checkpoint_every: runs that differ in it alone are"),
        ("  n_min: 2", "  n_min: two", "table.n_min must be a whole number; not 'two'"),
        (
            "  n_min: 2",
            "  n_min: 2\n  figure: {kind: cell}",
            "figure[0].kind must be cells, curves, line or probe, not",
        ),
        ("  probe: [steps]", "  probe: [stops]", "table.probe: no measurement stops; did you mean steps?"),
        (
            "seed: [0, 1]}",
            "seeds: [1, 2]}",
            "table.runs[0].seeds: runs that differ in it alone are one run; write seed: ",
        ),
        ("seed: [0, 1]}", "seed: 0, engine: [eager, fused]}", "table.runs[0].engine: runs that differ in it alone are"),
        ("seed: [0, 1]}", "seed: [0, 1}", "quick.yaml, line 10, column 53: expected "),
        ('["plstm > lstm"]', "null", "table.claims must be a list; [] where there are none"),
        (
            "metric: test/accuracy",
            "metric: steps to valid/accuracy",
            "cannot read 'valid/accuracy'; write it like valid/accuracy >= ",
        ),
        ("    set: {task.T: 2", "    sucess: x\n    set: {task.T: 2", "table.tiny.sucess: no such key"),
        ("    set: {task.T: 2", "    success: valid/loss<1\n    set: {task.T: 2", "cannot read 'valid/loss<1'"),
        ("    set: {task.T: 2, seed: 0}\n", "", "table.tiny.set is missing; timescales/papers/table.py says"),
    ]:
        assert right in YAML
        path.write_text(YAML.replace(right, wrong))
        outcome = train("table=quick", "logger=none")
        assert (outcome.status, outcome.err.count("\n")) == (1, 1)
        assert words in outcome.err
    path.write_text(YAML.replace("name: quick", "name: slow"))
    assert "quick.yaml: it must have table.name: quick" in train("table=quick", "logger=none").err
    assert not list(quick.glob("runs/*"))


def test_a_table_without_a_twin_and_without_assumptions(quick, train, monkeypatch):
    monkeypatch.syspath_prepend(str(paths.ROOT / "scripts"))
    import status

    (quick / "conf" / "table" / "quick.yaml").write_text(
        re.sub("(?m)^  assumed:.*$", "", YAML[: YAML.index("  tiny:")])
    )
    outcome = train("table=quick", "profile=tiny", "logger=none")
    assert (outcome.status, outcome.err) == (1, "error: profile=tiny: quick has no tiny twin (its key `tiny`)\n")
    assert train("table=quick", "seed=0", "logger=none").status == 0
    with compose.composing() as composer:
        found = report.make("quick", composer)
        assert [line[:5] for line in status.status("quick", composer, {})] == [["quick", "paper", 2, 0, 2]]
    assert {size: len(axes) for size, axes in found.asked.items()} == {"paper": 4, "tiny": 0}
    assert (found.shown_here(), len(found.rows["paper"]), found.rows["tiny"]) == ("no twin", 2, [])
    text = markdown.table(found)
    assert "Shown here: **no twin**" in text
    assert "make tiny" not in text
    assert "is assumed" not in text


def test_a_table_keeps_to_its_seeds_and_stacks_them(quick, train, monkeypatch):
    from timescales.training import stack

    groups = []
    original = stack.together
    monkeypatch.setattr(stack, "together", lambda runs: groups.append(len(runs)) or original(runs))
    outcome = train("table=quick", "seeds=5", "engine=eager", "logger=none")
    assert outcome.status == 0, outcome
    assert "4 runs: 0 finished, skipped; 4 to run" in outcome.out
    assert groups == [2, 2]
    found = [json.loads(path.read_text()) for path in (quick / "runs").glob("*/record.json")]
    assert sorted((run["config"]["model"]["name"], run["seed"]) for run in found) == [
        ("lstm", 0), ("lstm", 1), ("plstm", 0), ("plstm", 1)
    ]  # fmt: skip
    assert all("steps/parameters" in run["probes"] for run in found)


def test_what_is_wrong_with_many_runs_is_said_once(quick, train):
    path = quick / "conf" / "table" / "quick.yaml"
    path.write_text(YAML.replace("seed: [0, 1]}", "task.bach_size: 3, seed: [0, 1]}"))
    outcome = train("table=quick", "logger=none")
    assert outcome.status == 1
    assert (outcome.out.count("failed: "), outcome.out.count("did you mean task.batch_size?")) == (1, 1)
    assert "(and 3 more)" in outcome.out
    assert "4 of 4 runs failed" in outcome.err


def test_a_key_may_be_added_to_all_runs(quick, train):
    assert train("table=quick", "logger=none", "seed=0", "model=lstm", "+model.head_size=3").status == 0
    (path,) = quick.glob("runs/*/record.json")
    assert record.read(path.parent)["config"]["model"]["head_size"] == 3


def test_a_table_is_a_sweep_whatever_its_file_says(quick, train, monkeypatch):
    """A line less in the file must not make it the default run; without `_global_` it is named."""
    path = quick / "conf" / "table" / "quick.yaml"
    path.write_text(YAML.replace("# @package _global_\n", ""))
    outcome = train("table=quick", "logger=none")
    assert outcome.status == 1
    assert "# @package _global_" in outcome.err
    with pytest.raises(errors.ConfigError, match="must begin with the line"):
        load.table("quick")
    path.write_text(YAML.replace("{", "", 1))
    with pytest.raises(errors.ConfigError, match=r"quick.yaml, line \d+, column"):
        load.table("quick")
    assert not list(quick.glob("runs/*"))


def test_ones_own_folder_must_be_there_and_name_nothing_twice(quick, train, monkeypatch):
    mine = quick / "mine"
    for words, names in (("no such folder", ()), ("conf/ has a table/quick.yaml, too", ("table/quick.yaml",)),
                         ("conf/ has a model/lstm.yaml, too", ("model/lstm.yaml",))):  # fmt: skip
        for name in names:
            (mine / name).parent.mkdir(parents=True, exist_ok=True)
            (mine / name).write_text("{}")
        outcome = train("--config-dir", str(mine), "table=quick", "logger=none")
        assert (outcome.status, outcome.err.count("\n")) == (1, 1)
        assert words in outcome.err
        monkeypatch.setattr(sys, "argv", ["report.py", "--config-dir", str(mine)])
        with pytest.raises(errors.ConfigError, match=re.escape(words)):
            load.table("chien_copy")
        for name in names:
            (mine / name).unlink()


def test_a_metric_that_no_run_has_is_named(quick, train):
    path = quick / "conf" / "table" / "quick.yaml"
    path.write_text(YAML.replace("metric: test/accuracy", "metric: test/acuracy\n  success: valid/los < 9"))
    assert train("table=quick", "logger=none").status == 0
    with compose.composing() as composer:
        found = report.make("quick", composer)
    assert found.unread == [
        "none of its 4 runs here has test/acuracy; did you mean test/accuracy?",
        "none of its 4 runs here has valid/los; did you mean valid/loss?",
    ]


def test_the_cost_of_a_run_with_one_batch_an_epoch(monkeypatch):
    """Its few steps are of several epochs; here each step takes a second, and each of three validation batches."""
    words = ["task=copy", "task.T=3", "task.train_size=8", "task.valid_size=1001", "task.batch_size=8"]
    monkeypatch.setattr(cost, "time", types.SimpleNamespace(monotonic=itertools.count().__next__))
    with compose.composing() as composer:
        found = cost.measure(
            "a kind", resolved(composer([*words, "loop.max_epochs=5", "model.hidden_size=4", "device=cpu"]))
        )
    assert [found[key] for key in cost.COLUMNS[4:]] == [5, "1", "3", "20"]
