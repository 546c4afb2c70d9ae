"""The ids of committed records, and of all runs of all tables."""

import csv
import hashlib
import json
from pathlib import Path

import pytest

from timescales import paths
from timescales.config import compose, identity
from timescales.experiment import plan
from timescales.papers import load

# Its configuration had one key less when it was hashed.
OLDER = "ptb_word-mts-s0-f90dcae5f8a5"
RECORDS = [path for path in sorted(paths.RESULTS.rglob("record.json")) if path.parent.name != OLDER]


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


IDS = list(csv.DictReader(Path(__file__).with_name("ids.csv").open()))


@pytest.mark.parametrize("table", sorted({row["table"] for row in IDS}))
def test_runs_of_a_table_keep_their_ids_names_and_families(table):
    """A run that gets another id is trained again, by everybody. ids.csv has a digest of each table's runs by size."""
    with compose.composing() as composer:
        for row in (row for row in IDS if row["table"] == table):
            runs, wrong = plan.table_runs(load.table(table), row["size"], composer)
            assert (wrong, len(runs)) == ([], int(row["runs"]))
            text = "\n".join(f"{run.id} {run.name} {run.family}" for run in runs)
            assert hashlib.sha256(text.encode()).hexdigest()[:16] == row["sha256"], row["size"]


def test_every_table_of_conf_is_in_the_list():
    assert {row["table"] for row in IDS} == {path.stem for path in (paths.conf() / "table").glob("*.yaml")}
