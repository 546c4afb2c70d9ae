"""Every conf/table/*.yaml: its runs exist, its cells are filled, its claims can be judged, shared runs are shared."""

import csv
import functools
import hashlib
import json
from pathlib import Path

import pytest
from configs import config
from made_up import made_row, report_of

from timescales import analysis, paths
from timescales.config import compose, schema
from timescales.config.run import run_of
from timescales.experiment import plan
from timescales.papers import judge, load
from timescales.papers.parse import stands_for
from timescales.papers.table import PAPER, RATES, column, columns, expand, group
from timescales.runs import store

NAMES = sorted(path.stem for path in (paths.conf() / "table").glob("*.yaml"))
TABLES = {name: load.table(name) for name in NAMES}
OF_PAPERS = [name for name in NAMES if not name.startswith("ours_")]
WITH_RUNGS = [name for name in NAMES if len(TABLES[name].sizes) > 1]
BUT_ATLAS = [name for name in NAMES if not name.startswith("ours_atlas")]


@functools.cache
def runs_of(name, size=PAPER):
    """The runs of a table, each as its axes and its id, name and family: whole configurations would take a GB."""
    composer = compose.Composer()
    runs, wrong = plan.table_runs(TABLES[name], size, composer)
    assert wrong == []
    return [(run.axes, run.id, run.name, run.family) for run in runs]


def text_of(axes):
    return json.dumps(axes, sort_keys=True)


@functools.cache
def ids_of(name, size=PAPER):
    """The ids of a table's runs by their axes."""
    return {text_of(axes): id for axes, id, *_ in runs_of(name, size)}


@pytest.mark.parametrize("name", NAMES)
def test_a_table_still_asks_for_every_run_that_is_committed_with_it(name):
    """What is composed today has the id under which it was committed."""
    for row in store.read_rows(paths.RESULTS / name / "runs.csv"):
        assert ids_of(name, row.rung)[text_of(row.axes)] == row.id


@pytest.mark.slow
@pytest.mark.parametrize("name", BUT_ATLAS)
def test_a_committed_run_has_its_id_if_it_is_composed_by_itself(name):
    """As a launcher's process composes it; of each setting one seed."""
    rows = {(row.rung, group(row.axes)): row for row in store.read_rows(paths.RESULTS / name / "runs.csv")}
    composer = compose.Composer()
    for row in rows.values():
        assert run_of(composer(load.request(row.axes))).id == row.id


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_whole(name):
    table = TABLES[name]
    assert table.name == name
    assert all(assumption.said for assumption in table.assumed.values())
    places = [json.dumps([cell.where, cell.metric, cell.compute], sort_keys=True) for cell in table.cells]
    assert len(places) == len(set(places)), "two cells are one"
    # Its probes are files of timescales/analysis; its metrics are theirs; the functions it computes with are there.
    assert set(table.probe) <= set(analysis.measurable())
    assert {m.split("/")[1] for m in columns(table) if m.startswith("probe/")} <= set(table.probe)
    assert all(judge.estimate(cell, []) is None for cell in table.cells if cell.compute)
    lines = [claim.of for size, part in table.sizes.items() if size != PAPER for claim in part.claims if claim.of]
    for line in [*lines, *(table.question.by if table.question else ())]:
        assert stands_for(table.claims, line) is not None, f"{line}: it must name one claim of the paper"


@pytest.mark.parametrize(("name", "size"), [(name, size) for name in NAMES for size in TABLES[name].sizes])
def test_every_claim_can_be_judged(name, size):
    """On runs that succeed, with next to the same numbers, every claim has an effect: each side has runs, of seeds."""
    table = TABLES[name].sizes[size]
    runs, rows, values = expand(TABLES[name], size), [], {}
    if table.success is not None:
        values[column(table.success.metric, table.select)] = 1.0 if table.success.reached(1.0) else 0.0
    for k, run in enumerate(runs):
        read = columns(TABLES[name])
        apart = {key: values.get(key, 1.0) + 1e-6 * (k + 100 * i) for i, key in enumerate(read)}
        rows.append(made_row(apart, axes=run, seed=run["seed"]))
    pair = TABLES[name].ladder is not None and TABLES[name].ladder.pair == "seed" and size != PAPER
    for claim in table.claims:
        assert judge.judge_claim(claim, [], runs).word == "not run"
        found = judge.judge_claim(claim, rows, runs, pair)
        assert found.interval is not None, claim.text
        assert found.word != "not run"
        assert found.n > 0
        if size != PAPER and name != "mahto_table3":
            assert found.interval.low > -float("inf"), f"{claim.text}: too few seeds for an interval"


@pytest.mark.parametrize("name", OF_PAPERS)
def test_a_table_of_a_paper_has_a_ladder_or_says_why_not(name):
    found = TABLES[name].ladder
    assert found is not None
    assert bool(found.rungs) is not bool(found.none)
    for rung in found.rungs.values():
        assert rung.differs, "what is smaller"
        assert rung.claims, "what can be seen"
        assert any(claim.of for claim in rung.claims), "which claim of the paper it stands for"


@pytest.mark.parametrize("name", WITH_RUNGS)
def test_the_first_rung_has_five_fresh_seeds_of_each_setting_and_none_counts_one_that_something_was_chosen_by(name):
    first = TABLES[name].size_of("small")
    seeds = {}
    for axes in expand(TABLES[name], first):
        seeds.setdefault(group(axes), set()).add(axes["seed"])
    if not name.startswith("ours_"):
        assert {tuple(sorted(own)) for own in seeds.values()} == {(200, 201, 202, 203, 204)}
    for size in TABLES[name].sizes:
        seeds = {axes["seed"] for axes in expand(TABLES[name], size)}
        if size == RATES:
            assert max(seeds) < 200
        elif size != PAPER:
            assert min(seeds) >= 200


@pytest.mark.parametrize("name", WITH_RUNGS)
def test_claims_of_a_rung_are_judged_once_each(name):
    """No two of them stand for the same claim: only one of them would be on the ladder."""
    for size, part in TABLES[name].sizes.items():
        keys = [claim.of or claim.text for claim in part.claims]
        assert size == PAPER or len(keys) == len(set(keys))
    ladder_claims = report_of(TABLES[name], {}).ladder_claims
    assert {step.name for judged in ladder_claims for step in judged.steps} == set(TABLES[name].ladder.rungs)


@pytest.mark.parametrize("name", NAMES)
def test_every_run_has_an_identity_of_its_own(name):
    sizes = {size: ids_of(name, size) for size in TABLES[name].sizes}
    for ids in sizes.values():
        assert len(set(ids.values())) == len(ids), "two configurations of the table are one run"
    for size, ids in sizes.items():
        assert size == PAPER or not set(sizes[PAPER].values()) & set(ids.values()), "a rung would fill a paper's cell"


def test_a_setting_is_composed_once_for_all_its_seeds():
    """The ids are those of each run composed by itself."""
    composer = compose.Composer()
    for name, size in (("chien_copy", "t20"), ("gu_figure6", "h32"), ("mahto_table1", "units64")):
        runs, wrong = plan.table_runs(TABLES[name], size, composer)
        assert wrong == []
        assert [run.axes for run in runs] == expand(TABLES[name], size)
        for run in runs[::3]:
            assert run.id == run_of(composer(load.request(run.axes))).id
            assert run.config["seed"] == run.axes["seed"]
            assert run.directory.name.endswith(f"-s{run.axes['seed']}-{run.id}")


def test_a_table_shares_runs_with_the_command_line():
    """The tables' copy runs are those of `train.py task=copy task.T=200 model=plstm`, without any other setting."""
    alone = run_of(config("model=plstm", "task=copy", "task.T=200")).id
    assert alone == "13403dd51704"
    assert alone in ids_of("chien_copy").values()


# --- The ids of committed records, and of all runs of all tables ------------------------------------------------------
# Its configuration had one key less when it was hashed.
OLDER = "ptb_word-mts-s0-f90dcae5f8a5"
RECORDS = [path for path in sorted(paths.RESULTS.rglob("record.json")) if path.parent.name != OLDER]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_a_committed_record_has_the_id_of_its_configuration(path):
    record = json.loads(path.read_text())
    config, ids = record["config"], {schema.identity(record["config"])}
    if "T_max" in config["model"]:  # chrono's is hashed as it is composed; the record has the number
        ids.add(schema.identity({**config, "model": config["model"] | {"T_max": "auto"}}))
    assert record["id"] in ids


IDS = list(csv.DictReader(Path(__file__).with_name("ids.csv").open()))


@pytest.mark.parametrize("table", sorted({*NAMES, *(row["table"] for row in IDS)}))
def test_runs_of_a_table_keep_their_ids_names_and_families(table):
    """A run that gets another id is trained again, by everybody. ids.csv has a digest of each table's runs by size."""
    rows = [row for row in IDS if row["table"] == table]
    assert rows, "every table of conf/table is in the list"
    for row in rows:
        runs = runs_of(table, row["size"])
        assert len(runs) == int(row["runs"])
        text = "\n".join(" ".join(described) for _, *described in runs)
        assert hashlib.sha256(text.encode()).hexdigest()[:16] == row["sha256"], row["size"]
