"""The ids of committed runs: what is composed today has the id under which it was committed."""

import json

import pytest

from timescales import paths
from timescales.config import compose, folders, identity
from timescales.config.run import run_of
from timescales.papers import load
from timescales.papers.table import SIZES, expand
from timescales.runs import store

# Its configuration had one key less when it was hashed.
OLDER = "ptb_word-mts-s0-f90dcae5f8a5"
RECORDS = [path for path in sorted(paths.RESULTS.rglob("record.json")) if path.parent.name != OLDER]


@pytest.fixture(scope="module")
def composer():
    with compose.composing() as composer:
        yield composer


def text_of(axes):
    return json.dumps(axes, sort_keys=True)


@pytest.mark.parametrize("name", folders.choices("table"))
def test_a_table_still_asks_for_every_run_that_is_committed_with_it(name, composer):
    table = load.table(name)
    asked = {(size, text_of(axes)): axes for size, profile in SIZES.items() for axes in expand(table, profile)}
    for row in store.read_rows(paths.RESULTS / name / "runs.csv"):
        axes = asked[row.profile, text_of(row.axes)]
        assert run_of(composer(load.request(table, axes))).id == row.id


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_a_committed_record_has_the_id_of_its_configuration(path):
    record = json.loads(path.read_text())
    config = record["config"]
    if "T_max" in config["model"]:  # chrono's is hashed as it is composed; the record has the number
        ids = {
            identity.identity({**config, "model": config["model"] | {"T_max": T_max}})
            for T_max in ("auto", config["model"]["T_max"])
        }
        assert record["id"] in ids
        return
    assert identity.identity(config) == record["id"]
