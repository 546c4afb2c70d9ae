"""`timescales-status RUN`: how one run was made, and the command that repeats it."""

import json
import shlex
import sys

import pytest
from configs import composer
from quick import QUICK, change_record

from timescales import commands, paths
from timescales.config import compose, folders, schema
from timescales.experiment import command
from timescales.paths import ROOT
from timescales.runs import store


@pytest.fixture
def status(monkeypatch, capsys):
    """Call `timescales-status ...`: what it prints, by the first word of each line, or its error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["timescales-status", *map(str, arguments)])
        capsys.readouterr()
        try:
            commands.show_status()
        except SystemExit as leaving:
            return leaving.code
        return dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())

    return call


def again(told):
    """The overrides of the command that was printed."""
    python, script, *overrides = shlex.split(told["again"])
    assert (python, script) == ("python", "train.py")
    return overrides


def id_of(overrides):
    return schema.identity(schema.resolved(composer(tuple(folders.places()))(overrides)))


def test_a_fresh_run_and_its_command(train, status, tmp_path):
    more = ["model=chrono", "optimizer=sgd", "+model.head_size=3", "seed=2", "logger=none", "model.num_layers=2"]
    assert train(*QUICK, *more).status == 0
    (directory,) = (tmp_path / "runs").iterdir()
    saved = json.loads((directory / "record.json").read_text())
    assert isinstance(saved["config"]["model"]["T_max"], int)  # the id has "auto"
    for word in (saved["id"], directory.name, f"runs/{directory.name}", directory):
        told = {key: value.strip() for key, value in status(word).items()}
        assert (told["run"], told["state"], told["stored in"]) == (directory.name, "finished", f"runs/{directory.name}")
        assert (told["commit"], told["steps"]) == (saved["commit"], "2")
        assert told["test/loss"] == f"{saved['metrics']['test/loss']:.4f}"
        overrides = again(told)
        assert set(overrides) == {*QUICK, *more} - {"task=copy", "logger=none"}  # which the files have anyway
    assert "finished, skipped" in train(*overrides, "logger=none").out


def test_an_extended_run_and_its_command(train, status, tmp_path):
    assert train(*QUICK, "logger=none").status == 0
    (origin,) = (tmp_path / "runs").iterdir()
    assert train(f"extend={origin}", "loop.max_steps=3").status == 0
    (longer,) = [path for path in (tmp_path / "runs").iterdir() if path != origin]
    told = status(longer.name)
    assert told["continues"].strip() == origin.name[-12:]
    assert again(told) == [f"extend={origin.name[-12:]}", "loop.max_steps=3"]
    assert "finished, skipped" in train(*again(told)).out
    (origin / "record.json").unlink()
    assert "continues the run" in status(longer.name)["again"]


def test_a_run_of_ones_own_model_has_its_folder_in_the_command(train, status, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "tutorial"))
    mine = ["--config-dir", str(ROOT / "docs" / "tutorial")]
    assert train(*mine, *QUICK, "model=decay", "logger=none").status == 0
    (directory,) = (tmp_path / "runs").iterdir()
    overrides = again(status(*mine, directory))
    assert overrides[:2] == mine
    assert "finished, skipped" in train(*overrides, "logger=none").out
    folders.use(None)
    assert status(directory)["again"].endswith("; if the file is your own: --config-dir FOLDER")


def test_an_interrupted_run_has_no_seconds_yet(train, status, tmp_path):
    assert train(*QUICK, "logger=none", "run_dir=out").status == 0
    assert "seconds" in status("out/")
    change_record(tmp_path / "out", status="interrupted", seconds=0.0)
    told = status("out/")
    assert (told["state"].strip(), "seconds" in told) == ("interrupted", False)


@pytest.mark.parametrize(("table", "row"), [("chien_table3", 0), ("gu_forgetting", 0), ("ours_block", 60)])
def test_a_committed_run_and_its_command(status, monkeypatch, tmp_path, table, row):
    monkeypatch.chdir(tmp_path)
    line = store.read_rows(ROOT / "results" / table / "runs.csv")[row]
    told = status(line.id)
    assert told["run"].strip().endswith(f"-s{line.seed}-{line.id}")
    assert f"results/{table} ({line.rung})" in told["stored in"]
    assert (told["commit"].strip(), told["seconds"].strip()) == (line.commit, f"{line.seconds:.0f}")
    overrides = again(told)
    assert id_of(overrides) == line.id
    for k, override in enumerate(overrides):  # none of them may be left out
        if "=" in override and not override.startswith(("model=", "task=", "optimizer=", "paper=")):
            assert id_of(overrides[:k] + overrides[k + 1 :]) != line.id, override


@pytest.mark.slow
def test_committed_runs_have_a_command():
    composer = compose.Composer()
    from timescales.papers import load

    for path in sorted(paths.RESULTS.glob("*/runs.csv")):
        for row in store.read_rows(path)[::5]:
            config = schema.resolved(composer(load.request(row.axes)))
            assert command.command(config, row.id, composer).startswith("python train.py"), (path, row.id)


def test_an_archived_run_is_found_and_has_no_command_if_it_cannot_be_composed_any_more(status, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    told = status("9c298cf93abf")
    assert again(told) == ["model=chrono", "task.T=500"]
    assert told["state"].strip() == "interrupted"
    assert "no command repeats this run" in status("ptb_word-mts-s0-f90dcae5f8a5")["again"]


def test_what_is_no_run_is_one_line(status, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for word in ("0123456789ab", "copy-lstm-s0-0123456789ab", "runs/nope"):
        line = f"error: {word}: no such run in runs/ or results/: timescales-status TABLE --list names a table's runs"
        assert status(word) == line
    assert "no such table" in status("nope")
    assert "are for tables: leave them out" in status("0123456789ab", "--measure")
