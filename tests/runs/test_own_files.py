"""Files of one's own as data: a record names them, and a run whose file has changed is not continued."""

import json

import pytest

from timescales import analysis
from timescales.errors import ConfigError
from timescales.files import digest_of
from timescales.runs import record

SMALL = [
    *(
        "task=text",
        "task.data=book.txt",
        "task.batch_size=4",
        "task.length=10",
        "task.embedding=4",
        "model.hidden_size=4",
    ),
    *("loop.max_epochs=1", "logger=none", "device=cpu", "run_dir=out"),
]


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("the river rose in the night\n" * 60)
    return path


def test_the_record_names_the_file_and_what_was_read_is_printed(train, book):
    done = train(*SMALL)
    assert done.status == 0, done
    saved = record.Record.read(book.parent / "out")
    assert saved["data"] == {str(book): digest_of(book)}
    assert f"{book}: characters: 1,344 for train, 168 for valid, 168 for test" in done.out
    assert saved["partial"] == []
    assert saved.changed_files == []


def test_a_finished_run_on_a_file_that_has_changed_is_stale(train, book):
    train(*SMALL)
    assert "finished, skipped: out (force=true runs it again)" in train(*SMALL).out
    book.write_text("a unit that forgets slowly\n" * 80)
    assert f"finished, skipped: out (stale: {book} has changed since; force=stale runs it again)" in train(*SMALL).out
    again = train(*SMALL, "force=stale")
    assert again.status == 0, again
    assert record.Record.read(book.parent / "out")["data"] == {str(book): digest_of(book)}
    assert "(force=true runs it again)" in train(*SMALL).out
    book.unlink()  # where it went is not known: its numbers stay
    assert "(force=true runs it again)" in train(*SMALL).out


def interrupted(out):
    """Make a finished run look like one that was stopped before its end."""
    content = json.loads((out / "record.json").read_text())
    del content["sha256"]
    (out / "record.json").write_text(json.dumps(content | {"status": "interrupted"}))


def test_a_run_is_not_continued_on_a_file_that_has_changed(train, book):
    assert train(*SMALL).status == 0
    out = book.parent / "out"
    interrupted(out)
    text = book.read_text()
    book.write_text(text.replace("night", "month"))
    done = train(*SMALL, "loop.max_epochs=1")
    assert done.status == 1
    assert done.err.splitlines()[-1] == f"error: out was begun before {book} changed: force=stale restarts it"
    book.write_text(text)
    assert train(*SMALL).status == 0


def test_a_checkpoint_knows_its_file_where_the_record_does_not(train, book, tmp_path):
    """As after a move: the file is elsewhere, under the path of another one."""
    assert train(*SMALL).status == 0
    out = book.parent / "out"
    interrupted(out)
    content = json.loads((out / "record.json").read_text())
    (out / "record.json").write_text(json.dumps(content | {"data": {str(tmp_path / "moved.txt"): "0" * 16}}))
    book.write_text("a unit that forgets slowly\n" * 80)
    done = train(*SMALL)
    assert done.status == 1
    assert done.err.splitlines()[-1] == f"error: out was begun on another {book}: force=true restarts it on this one"


def test_other_data_are_neither_analysed_nor_added_to_a_run(train, book):
    assert train(*SMALL).status == 0
    longer = train("extend=out", "loop.max_epochs=2", "logger=none", "run_dir=longer")
    assert longer.status == 0, longer
    assert record.Record.read(book.parent / "longer")["data"] == {str(book): digest_of(book)}
    book.write_text("a unit that forgets slowly\n" * 80)
    done = train("extend=out", "loop.max_epochs=3", "logger=none", "run_dir=other")
    assert (done.status, f"extend=out: {book} has changed since" in done.err) == (1, True)
    with pytest.raises(ConfigError, match=f"out was trained on another {book}: put it back, or force=stale"):
        analysis.load(book.parent / "out")
