"""The source of a class of one's own: a run is stale once it has changed."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from quick import QUICK, change_record

from timescales import analysis
from timescales.errors import ConfigError
from timescales.files import digest_of
from timescales.runs import provenance, record, store
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
    monkeypatch.setattr(provenance, "code", provenance.code.__wrapped__)
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
    changed = "stale: the code that decides its numbers or the source of decay.Decay has changed since; force=stale"
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
    change_record(Path("out"), status="interrupted")
    cell.write_text(cell.read_text().replace("1 / softplus", "2 / softplus"))
    changed = "the code that decides its numbers or the source of decay.Decay has changed since this run began"
    assert train(*DECAY, "run_dir=out").err == f"error: out: {changed}: restart it with force=stale\n"


def test_files_beside_it_and_packages(folder):
    """Nothing is run: the file beside it raises an error."""
    (folder / "gate.py").write_text("import torch\nfrom gate_parts import rate\nclass Mine: ...\n")
    (folder / "gate_parts.py").write_text("rate = 1\nraise ValueError\n")
    (folder / "cells" / "new").mkdir(parents=True)
    (folder / "cells" / "new" / "a.py").write_text("from . import b\n")
    (folder / "cells" / "new" / "b.py").write_text("x = 1\n")
    codes = [provenance.code(target) for target in ("gate.Mine", "cells.new.a.Mine")]
    assert "rate = 1" in codes[0]
    assert "x = 1" in codes[1]
    assert all(provenance.code(name) is None for name in ("nowhere.Mine", "gate.nowhere.Mine", "sys.Mine"))
    (folder / "gate.py").write_text("class Mine: (\n")  # while it is being edited
    assert provenance.code("gate.Mine") == "class Mine: (\n"


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
    ours = {"task": {"name": "copy"}, "model": {"name": "lstm", "_target_": "timescales.LSTM"}}
    assert provenance.names(ours) == ["copy", "lstm"]


# --- Files of one's own as data: a record names them, and a run whose file has changed is not continued ---------------
SMALL = ["task=text", "task.data=book.txt", "task.batch_size=4", "task.length=10", "task.embedding=4"]
SMALL += ["model.hidden_size=4", "loop.max_epochs=1", "logger=none", "device=cpu", "run_dir=out"]


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("the river rose in the night\n" * 60)
    return path


def test_the_record_names_the_file_and_a_finished_run_is_stale_when_it_has_changed(train, book):
    done = train(*SMALL)
    assert done.status == 0, done
    saved = record.Record.read(book.parent / "out")
    assert saved["data"] == {str(book): digest_of(book)}
    assert f"{book}: characters: 1,344 for train, 168 for valid, 168 for test" in done.out
    assert (saved["partial"], saved.changed_files) == ([], [])
    assert "finished, skipped: out (force=true runs it again)" in train(*SMALL).out
    book.write_text("a unit that forgets slowly\n" * 80)
    assert f"finished, skipped: out (stale: {book} has changed since; force=stale runs it again)" in train(*SMALL).out
    assert train(*SMALL, "force=stale").status == 0
    assert record.Record.read(book.parent / "out")["data"] == {str(book): digest_of(book)}
    assert "(force=true runs it again)" in train(*SMALL).out
    book.unlink()  # where it went is not known: its numbers stay
    assert "(force=true runs it again)" in train(*SMALL).out


def test_a_run_is_not_continued_on_a_file_that_has_changed(train, book, tmp_path):
    """Nor where only the checkpoint knows its file, as after a move: it is elsewhere, under the path of another one."""
    assert train(*SMALL).status == 0
    out = book.parent / "out"
    change_record(out, status="interrupted")
    text = book.read_text()
    book.write_text(text.replace("night", "month"))
    done = train(*SMALL, "loop.max_epochs=1")
    assert done.status == 1
    changed = f"error: out: {book} has changed since this run began: restart it with force=stale"
    assert done.err.splitlines()[-1] == changed
    known = record.Record.read(out)["data"]
    change_record(out, data={str(tmp_path / "moved.txt"): "0" * 16})
    line = f"error: out was begun on another {book}: restart it on this one with force=true"
    assert train(*SMALL).err.splitlines()[-1] == line
    change_record(out, data=known)
    book.write_text(text)
    assert train(*SMALL).status == 0


def test_other_data_are_neither_analysed_nor_added_to_a_run(train, book):
    assert train(*SMALL).status == 0
    assert train("extend=out", "loop.max_epochs=2", "logger=none", "run_dir=longer").status == 0
    assert record.Record.read(book.parent / "longer")["data"] == {str(book): digest_of(book)}
    book.write_text("a unit that forgets slowly\n" * 80)
    done = train("extend=out", "loop.max_epochs=3", "logger=none", "run_dir=other")
    assert (done.status, f"extend=out: {book} has changed since" in done.err) == (1, True)
    with pytest.raises(ConfigError, match=f"out was trained on another {book}: restore it, or retrain"):
        analysis.load(book.parent / "out")
