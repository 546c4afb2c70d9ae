"""Folders that are not where they should be: the reason and the fix are right."""

import re
import shutil

import pytest

import timescales
from timescales import files, paths
from timescales.errors import ConfigError


@pytest.fixture
def without_results(monkeypatch, tmp_path):
    """A checkout whose results/ was deleted."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").touch()
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    return re.escape(f"{tmp_path}/results is missing: run `git checkout -- results` in {tmp_path}")


def test_without_results_a_checkout_is_told_how_they_come_back(without_results):
    with pytest.raises(ConfigError, match=f"^{without_results}$"):
        timescales.results()
    with pytest.raises(ConfigError, match=f"^chien_table3/plstm: {without_results}$"):
        timescales.load("chien_table3/plstm")
    (paths.RESULTS).mkdir()
    assert paths.lost_results() == ""
    with pytest.raises(ConfigError, match="there are no weights chien_table3/plstm in"):
        timescales.load("chien_table3/plstm")
    paths.RESULTS.rmdir()
    shutil.rmtree(paths.ROOT / "conf")  # an installation has no results to bring back
    assert paths.lost_results() == ""


@pytest.mark.parametrize(
    ("words", "begin"),
    [
        *((words, "") for words in ("report chien_copy", "report --check", "status chien_copy --measure")),
        *((words, "") for words in ("pages atlas", "pages atlas --check", "pages atlas --price")),
        ("status 13403dd51704", "13403dd51704: no such run in runs/ or results/: "),
        ("status chien_copy", None),
    ],
)
def test_scripts_say_how_results_come_back_and_write_none(monkeypatch, tmp_path, script, words, begin):
    """In this checkout with its results/ deleted, in a folder without runs."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    advice = f"{tmp_path}/results is missing: run `git checkout -- results` in {paths.ROOT}"
    begin = "without committed runs and costs: " if begin is None else f"error: {begin}"
    assert script(*words.split()).splitlines()[-1] == begin + advice
    assert not paths.RESULTS.exists()


def test_a_folder_below_a_link_to_nothing_is_named_with_the_target(train, tmp_path):
    (tmp_path / "runs").symlink_to("/nowhere/else")
    for path in (tmp_path / "runs", tmp_path / "runs" / "copy-lstm-s0" / "deeper"):
        with pytest.raises(FileNotFoundError) as error:
            files.make_folder(path)
        assert error.value.filename == str(tmp_path / "runs")
        assert error.value.strerror == "it is a link to /nowhere/else, which is not there"
    done = train("task=copy", "model=lstm", "loop.max_steps=1", "logger=none")
    assert done.status == 1
    assert done.err.splitlines()[-1].startswith("error: runs: it is a link to /nowhere/else, which is not there; ")
