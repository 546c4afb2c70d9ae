"""The source of a class of one's own: a run is stale once it has changed."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from quick import QUICK

from timescales.config.run import Run
from timescales.errors import ConfigError
from timescales.runs import found, provenance, source, store
from timescales.runs.record import Record

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial"
DECAY = ["--config-dir", str(TUTORIAL), *QUICK, "model=decay", "logger=csv"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder from which one's own modules are imported; each reading of a source is the first one."""
    folder = tmp_path / "mine"
    folder.mkdir()
    elsewhere = [path for path in sys.path if path != str(TUTORIAL)]  # scripts that a test imported may have added it
    monkeypatch.setattr(sys, "path", [str(folder), *elsewhere])
    monkeypatch.setattr(source, "code", source.code.__wrapped__)
    yield folder
    sys.modules.pop("decay", None)


def test_a_run_is_stale_once_its_cell_was_edited(train, folder):
    cell = folder / "decay.py"
    shutil.copy(TUTORIAL / "decay.py", cell)
    assert "finished: " in train(*DECAY).out
    assert "force=true" in train(*DECAY).out
    cell.write_text(f"# a comment\n\n{cell.read_text()}")
    assert "force=true" in train(*DECAY).out
    cell.write_text(cell.read_text().replace("1 / softplus", "2 / softplus"))
    changed = "stale: the source of decay.Decay, or its task's data, has changed since; force=stale"
    assert changed in train(*DECAY).out
    assert "1 of them are stale" in train("-m", *DECAY).out
    assert "finished, skipped" not in train(*DECAY, "force=stale").out
    assert "force=true" in train(*DECAY, "force=stale").out  # nothing is left to run again
    cell.unlink()
    assert "force=true" in train(*DECAY).out  # not known: no word of it


def test_an_interrupted_run_does_not_continue_with_another_source(train, folder):
    cell = folder / "decay.py"
    shutil.copy(TUTORIAL / "decay.py", cell)
    assert train(*DECAY, "run_dir=out").status == 0
    path = Path("out/record.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "interrupted", "sha256": None}))
    cell.write_text(cell.read_text().replace("1 / softplus", "2 / softplus"))
    outcome = train(*DECAY, "run_dir=out")
    assert outcome.err == (
        "error: out was begun before its numbers, or the source of decay.Decay, changed: force=stale restarts it\n"
    )


def test_files_beside_it_and_packages(folder):
    """Nothing is run: the file beside it raises an error."""
    (folder / "gate.py").write_text("import torch\nfrom gate_parts import rate\nclass Mine: ...\n")
    (folder / "gate_parts.py").write_text("rate = 1\nraise ValueError\n")
    (folder / "cells" / "new").mkdir(parents=True)
    (folder / "cells" / "new" / "a.py").write_text("from . import b\n")
    (folder / "cells" / "new" / "b.py").write_text("x = 1\n")
    codes = [source.code(target) for target in ("gate.Mine", "cells.new.a.Mine")]
    assert "rate = 1" in codes[0]
    assert "x = 1" in codes[1]
    assert source.code("nowhere.Mine") is source.code("gate.nowhere.Mine") is source.code("sys.Mine") is None
    (folder / "gate.py").write_text("class Mine: (\n")  # while it is being edited
    assert source.code("gate.Mine") == "class Mine: (\n"


def test_rows_and_older_records(folder):
    (folder / "gate.py").write_text("x = 1\n")
    config = {"task": {"name": "copy"}, "model": {"name": "gate", "_target_": "gate.Mine"}}
    names = provenance.names(config)
    assert names == ["copy", "gate", "gate.Mine"]
    today = provenance.golden(*names)
    assert today != provenance.golden("adding", *names[1:]) is not None
    (folder / "gate.py").write_text("x = 2\n")
    assert provenance.golden(*names) != today
    row = store.Row(id="a", status="finished", seed=0, axes={}, golden=today, run="copy/gate/gate.Mine")
    assert row.stale
    assert not replace(row, golden=provenance.golden(*names)).stale
    assert not replace(row, golden=None, run="copy/gate").stale  # from before sources were hashed
    assert not Record(id="a", status="finished", config=config).stale
    assert provenance.names({"task": {"name": "copy"}, "model": {"name": "lstm", "_target_": "timescales.LSTM"}}) == [
        "copy",
        "lstm",
    ]


def test_a_word_of_the_source_is_said_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "golden", lambda task, model: "today")
    config = {"task": {"name": "copy"}, "model": {"name": "lstm"}}
    Record(id="a", status="interrupted", config=config).write(tmp_path)
    with pytest.raises(ConfigError, match="was begun before its numbers changed: force=stale restarts it"):
        found.action(Run({"force": False, "resume": True, "task": {}}, "a", tmp_path), found.look(tmp_path))
