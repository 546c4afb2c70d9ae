"""Every conf/table/*.yaml: its runs exist, its cells are filled, its claims can be judged, shared runs are shared."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import report_of
from omegaconf import OmegaConf

from timescales import analysis
from timescales.config import compose, folders, identity
from timescales.papers import cells, claims, load
from timescales.papers.table import column, columns, expand, group, matches

FOLDER = Path(__file__).resolve().parents[2] / "conf" / "table"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
TABLES = {name: load.table(name) for name in NAMES}
PROFILES = [None, "tiny"]
SMALL = [name for name in NAMES if TABLES[name].tiny]


@pytest.fixture(scope="module")
def identities():
    """identities(table, profile): the ids of its runs by their axes, of one seed only, that exist in this tree."""
    known = {name: folders.choices(name) for name in ("task", "model", "optimizer")}
    found = {}

    with compose.composing() as composer:

        def identities(name, profile=None):
            if (name, profile) not in found:
                ids = found[name, profile] = {}
                for run in expand(TABLES[name], profile):
                    exists = all(run.axes.get(key, known[key][0]) in known[key] for key in known)
                    if exists and (key := group(run.axes)) not in ids:
                        ids[key] = identity.identity(composer(run.overrides))
            return found[name, profile]

        yield identities


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_whole(name):
    table = TABLES[name]
    assert table.name == name
    assert set(OmegaConf.load(FOLDER / f"{name}.yaml")) == {"table"}
    if name.startswith("ours_"):  # made for a CPU as they are
        assert table.tiny is None
    else:
        assert {"set", "claims", "minutes"} <= set(OmegaConf.load(FOLDER / f"{name}.yaml").table.tiny)
    assert all(assumption.said for assumption in table.assumed.values())
    places = [json.dumps([cell.where, cell.metric, cell.compute], sort_keys=True) for cell in table.cells]
    assert len(places) == len(set(places)), "two cells are one"


def successful(table, run):
    """A run that meets the table's success condition, if there is one, as a row without values."""
    row = {"axes": run.axes, "seed": run.axes["seed"], "status": "finished", "stale": False}
    if table.success is not None:
        row[column(table.success.metric, table.select)] = 1.0 if table.success.reached(1.0) else 0.0
    return row


@pytest.mark.parametrize(("name", "profile"), [(name, None) for name in NAMES] + [(name, "tiny") for name in SMALL])
def test_every_claim_can_be_judged(name, profile):
    """On runs that all succeed, with next to the same numbers, no claim is open: each side has runs, and they pair."""
    table = TABLES[name].tiny if profile else TABLES[name]
    rows = []
    for k, run in enumerate(expand(table)):
        row = dict.fromkeys(columns(TABLES[name]), 1.0) | successful(table, run)
        apart = {key: row[key] + 1e-6 * (k + 100 * i) for i, key in enumerate(columns(TABLES[name]))}
        rows.append(row | apart)  # a tie is no order
    assert {result.verdict.word for result in claims.judge_claims(table.claims, [])} <= {"open"}
    for result in claims.judge_claims(table.claims, rows):
        assert result.verdict.word != "open", result.claim.text


def printed_part(table):
    """The table with those of its claims alone that are about what its cells print, run by run."""
    printed = {cell.metric for cell in table.cells if cell.value is not None and not cell.compute}
    of_cells = [claim for claim in table.claims if {claim.metric, claim.than or claim.metric} <= printed]
    return replace(table, claims=tuple(of_cells))


def decided_by_cells(table):
    """Whether the table's cells are printed run by run, and decide some of its claims."""
    return bool(printed_part(table).claims) and not any(cell.compute for cell in table.cells)


def test_what_is_no_score_is_neither_better_nor_worse():
    """Of a mean of p, a count of late units, the parameter of a law neither direction is better."""
    never = {name for name, table in TABLES.items() if table.cells and not any(cell.score for cell in table.cells)}
    assert never == {"chien_reset_units", "mahto_figure1"}
    assert all(cell.score for name in set(NAMES) - never for cell in TABLES[name].cells)


def printed_row(table, run):
    """A run with the printed values of the cells that it fills, as far from their means as its seed says."""
    row = successful(table, run)
    for cell in table.cells:
        if cell.value is None or not matches(run.axes, cell.where):
            continue
        sd = cell.sd or (cell.se * cell.n**0.5 if cell.se else 0.0)
        seeds = sorted({r.axes["seed"] for r in expand(table) if matches(r.axes, cell.where)})
        places = [seed - sum(seeds) / len(seeds) for seed in seeds]
        spread = (sum(place * place for place in places) / max(1, len(places) - 1)) ** 0.5 or 1.0
        row[cell.column] = (cell.value + sd * places[seeds.index(row["seed"])] / spread) / cell.scale
    return row


# How many printed values the paper's own numbers match. The others are compatible: they are maxima or of one run, or
# their spread is too large for so few runs (in chien_table3, two samples of five with the same mean and spread).
MATCHES = {
    "chien_imdb": 3,
    "chien_table1": 8,
    "chien_table2": 6,
    "chien_table3": 5,
    "gu_table2": 9,
    "gu_table5": 0,
    "mahto_dyck2": 2,
    "mahto_table1": 0,
    "mahto_table2": 1,
    "mahto_table3": 0,
}


@pytest.mark.parametrize("name", [name for name in NAMES if decided_by_cells(TABLES[name])])
def test_the_papers_own_numbers_contradict_nothing(name):
    """Runs with exactly the printed means and spreads: no cell differs, no claim is reversed or refuted."""
    table = printed_part(TABLES[name])
    rows = [printed_row(table, run) for run in expand(table)]
    found = report_of(table, {"paper": rows, "tiny": []}, {"paper": [row["axes"] for row in rows], "tiny": []})
    words = [str(c.verdict.word) for c in found.cells if c.cell.value is not None]
    assert set(words) <= {"match", "compatible"}
    assert words.count("match") == found.verdict.counts.agree == MATCHES[name]
    said = {claim.claim.text: str(claim.verdict.word) for claim in found.claims}
    assert set(said.values()) <= {"holds", "in order", "not shown"}, said


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
    assert len({run.axes["seed"] for run in runs}) <= 2
    assert TABLES[name].tiny.minutes <= minutes


@pytest.mark.parametrize("name", NAMES)
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
    seeds = [{run.axes["seed"] for run in expand(TABLES[name])} for name in (part, whole)]
    assert seeds[0] <= seeds[1]


def test_a_table_shares_runs_with_the_command_line(identities):
    """The tables' copy runs are those of `train.py task=copy task.T=200 model=plstm`, without any other setting."""
    with compose.composing() as composer:
        alone = identity.identity(composer(["model=plstm", "task=copy", "task.T=200"]))
    assert alone == "13403dd51704"
    assert alone in identities("chien_copy").values()


def test_runs_that_tables_of_one_paper_have_in_common(identities):
    """One language model is the baseline of table 1 and the model of figure 1; alpha = .56 is table 1's."""
    table1 = set(identities("mahto_table1").values())
    for name, common in (("mahto_figure1", 1), ("mahto_alpha", 2)):
        assert len(table1 & set(identities(name).values())) == (common if table1 else 0)
