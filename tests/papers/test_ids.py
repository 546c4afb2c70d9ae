"""The ids of committed records. Those of tables' runs are compared in test_tables_yaml.py, which composes them."""

import json

import pytest

from timescales import paths
from timescales.config import identity

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
