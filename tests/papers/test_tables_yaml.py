"""Every conf/table/*.yaml: its runs exist, its cells are filled, its claims can be judged, shared runs are shared."""

import functools
import json
from pathlib import Path

import pytest
from configs import config
from everyday import only
from made_up import made_row
from omegaconf import OmegaConf

from timescales import analysis, paths
from timescales.config import compose, folders
from timescales.config.run import run_of
from timescales.papers import cells, claims, load
from timescales.papers.table import SIZES, column, columns, expand, group
from timescales.runs import store

FOLDER = Path(__file__).resolve().parents[2] / "conf" / "table"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
TABLES = {name: load.table(name) for name in NAMES}
PROFILES = [None, "tiny"]
SMALL = [name for name in NAMES if TABLES[name].tiny]
ATLAS = {"ours_atlas", "ours_atlas_rates", "ours_atlas_plain", "ours_atlas_plain_rates"}  # hundreds of settings


@pytest.fixture(scope="module")
def id_of():
    """id_of(table, axes): of a run of a table; each is composed once."""
    with compose.composing() as composer:

        @functools.cache
        def of_text(name, text):
            return run_of(composer(load.request(TABLES[name], json.loads(text)))).id

        yield lambda name, axes: of_text(name, text_of(axes))


@pytest.fixture(scope="module")
def identities(id_of):
    """identities(table, profile): the ids of its runs by their axes, of one seed only, that exist in this tree."""
    known = {name: folders.choices(name) for name in ("task", "model", "optimizer")}

    @functools.cache
    def identities(name, profile=None):
        ids = {}
        for axes in expand(TABLES[name], profile):
            exists = all(axes.get(key, known[key][0]) in known[key] for key in known)
            if exists and (key := group(axes)) not in ids:
                ids[key] = id_of(name, axes)
        return ids

    return identities


def text_of(axes):
    return json.dumps(axes, sort_keys=True)


@pytest.mark.parametrize("name", only(set(NAMES) - {"ours_atlas", "ours_atlas_rates"}, NAMES))
def test_a_table_still_asks_for_every_run_that_is_committed_with_it(name, id_of):
    """What is composed today has the id under which it was committed."""
    asked = {(size, text_of(axes)): axes for size, profile in SIZES.items() for axes in expand(TABLES[name], profile)}
    for row in store.read_rows(paths.RESULTS / name / "runs.csv"):
        assert id_of(name, asked[row.profile, text_of(row.axes)]) == row.id


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_whole(name):
    table = TABLES[name]
    assert table.name == name
    assert set(OmegaConf.load(FOLDER / f"{name}.yaml")) == {"table"}
    if name.startswith("ours_"):  # made for a CPU as they are
        assert table.tiny is None
    else:
        assert {"set", "claims", "minutes"} <= set(OmegaConf.load(FOLDER / f"{name}.yaml").table.small)
    assert all(assumption.said for assumption in table.assumed.values())
    places = [json.dumps([cell.where, cell.metric, cell.compute], sort_keys=True) for cell in table.cells]
    assert len(places) == len(set(places)), "two cells are one"


def successful(table, axes):
    """A run that meets the table's success condition, if there is one, as a row without values."""
    values = {}
    if table.success is not None:
        values[column(table.success.metric, table.select)] = 1.0 if table.success.reached(1.0) else 0.0
    return made_row(values, axes=axes, seed=axes["seed"])


@pytest.mark.parametrize(("name", "profile"), [(name, None) for name in NAMES] + [(name, "tiny") for name in SMALL])
def test_every_claim_can_be_judged(name, profile):
    """On runs that succeed, with next to the same numbers, every claim is judged: each side has runs, and they pair."""
    table = TABLES[name].tiny if profile else TABLES[name]
    rows = []
    for k, run in enumerate(expand(table)):
        row = successful(table, run)
        read = columns(TABLES[name])
        apart = {key: row.values.get(key, 1.0) + 1e-6 * (k + 100 * i) for i, key in enumerate(read)}
        rows.append(made_row(apart, row))  # a tie is no order
    assert {result.verdict.word for result in claims.judge_claims(table.claims, [])} <= {"not run"}
    for result in claims.judge_claims(table.claims, rows):
        assert result.verdict.word != "not run", result.claim.text
        assert result.numbers is not None


@pytest.mark.parametrize("name", NAMES)
def test_what_a_table_measures_on_its_runs_exists(name):
    """Its probes are files of timescales/analysis; its metrics are theirs; the functions it computes with are there."""
    table = TABLES[name]
    assert set(table.probe) <= set(analysis.measurable())
    assert {m.split("/")[1] for m in columns(table) if m.startswith("probe/")} <= set(table.probe)
    for cell in table.cells:
        if cell.compute:
            assert cells.computed(cell.compute, []) is None


# Runs and minutes: nine gates in an LSTM, and five in a relational memory core, whose runs take five minutes each.
LARGER = {"gu_figure14": (28, 60)}


@pytest.mark.parametrize("name", SMALL)
def test_tiny_is_small(name):
    runs = expand(TABLES[name], "tiny")
    most, minutes = LARGER.get(name, (18, 30))  # 18: nine gates, LSTM and GRU
    assert 0 < len(runs) <= most
    assert len({axes["seed"] for axes in runs}) <= 2
    assert TABLES[name].tiny.minutes <= minutes


@pytest.mark.parametrize("name", only(set(NAMES) - ATLAS, NAMES))
def test_every_run_has_an_identity_of_its_own(name, identities):
    paper, tiny = (identities(name, profile) if name in SMALL or not profile else {} for profile in PROFILES)
    for ids in (paper, tiny):
        assert len(set(ids.values())) == len(ids), "two configurations of the table are one run"
    assert not set(paper.values()) & set(tiny.values()), "a tiny run would fill a cell of the paper"


SHARED = [
    ("chien_generalisation", "chien_copy"),
    ("chien_ablation", "chien_copy"),
    ("chien_reset_units", "chien_copy"),
    ("chien_async_curves", "chien_table3"),
    ("mahto_table1", "mahto_table2"),
    ("gu_figure6", "gu_table5"),
]


@pytest.mark.parametrize(("part", "whole"), SHARED)
def test_shared_runs_are_the_same_runs(part, whole, identities):
    assert set(identities(part).values()) <= set(identities(whole).values())
    seeds = [{axes["seed"] for axes in expand(TABLES[name])} for name in (part, whole)]
    assert seeds[0] <= seeds[1]


def test_a_table_shares_runs_with_the_command_line(identities):
    """The tables' copy runs are those of `train.py task=copy task.T=200 model=plstm`, without any other setting."""
    alone = run_of(config("model=plstm", "task=copy", "task.T=200")).id
    assert alone == "13403dd51704"
    assert alone in identities("chien_copy").values()


def test_runs_that_tables_of_one_paper_have_in_common(identities):
    """One language model is table 1's baseline and figure 1's model; alpha = .56, and T = 3 and 4, are table 1's."""
    table1 = set(identities("mahto_table1").values())
    for name, common in (("mahto_figure1", 1), ("mahto_alpha", 2), ("mahto_layers", 2)):
        assert len(table1 & set(identities(name).values())) == (common if table1 else 0)
