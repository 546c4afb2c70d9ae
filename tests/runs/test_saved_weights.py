"""Trained weights as files: what a report leaves of a run, and `timescales.load`."""

import copy
import functools
import re
from pathlib import Path

import pytest
import torch

import timescales
from timescales import tasks
from timescales.errors import ConfigError, MissingData
from timescales.reports.weights import CARD
from timescales.runs import store, weights
from timescales.training import build, loop

RESULTS = Path(__file__).resolve().parents[2] / "results"
COMMITTED = sorted(RESULTS.glob("*/weights/*.safetensors"))
SMALL = ["task=copy", "task.T=3", "task.train_size=8", "task.valid_size=4", "task.test_size=4", "task.batch_size=4"]
SMALL += ["model.hidden_size=4", "loop.max_steps=2", "logger=none", "device=cpu"]


@pytest.fixture
def trained(train, tmp_path):
    """The directory of a run."""
    assert train("model=plstm", *SMALL).status == 0
    (directory,) = (tmp_path / "runs").glob("copy-plstm-*")
    return directory


@pytest.fixture
def folder(trained, tmp_path):
    """A folder of weights with one run, and an entry of a run that was left out."""
    tensors, about = weights.of_run(trained)
    made = tmp_path / "weights"
    made.mkdir()
    content = weights.packed(tensors, about)
    settings = {"model": "plstm", "task.T": 3}
    entries = [weights.Entry(about["id"], 0, "paper", len(content), True, settings)]
    entries += [weights.Entry("0" * 12, 1, "paper", 99, False, settings)]
    (made / entries[0].file).write_bytes(content)
    (made / "index.csv").write_text(weights.index_text(entries))
    return made


def test_a_file_has_what_the_run_had(trained, tmp_path):
    tensors, about = weights.of_run(trained)
    path = tmp_path / "a.safetensors"
    path.write_bytes(weights.packed(tensors, about))
    assert path.read_bytes() == weights.packed(*weights.read(path))  # the same weights, the same bytes
    assert "data_root" not in about["config"]
    assert "run_dir" not in about["config"]
    state = torch.get_rng_state()
    model = timescales.load(path)
    assert torch.equal(state, torch.get_rng_state())
    best = torch.load(trained / "best.pt", weights_only=True)["model"]
    assert all(torch.equal(value, best[name]) for name, value in model.state_dict().items())
    assert not model.training
    assert model.card["id"] == trained.name.rpartition("-")[2]


def test_a_run_is_found_by_its_path_name_and_id(trained):
    run_id = trained.name.rpartition("-")[2]
    for name in (trained, trained.name, run_id):
        assert timescales.load(name).card["id"] == run_id
    (trained / "best.pt").unlink()
    with pytest.raises(ConfigError, match=rf"{trained.name} has no weights .* force=true"):
        timescales.load(trained)


def test_a_folder(folder):
    assert timescales.load(folder).card["seed"] == 0
    assert timescales.load(f"{folder}/plstm", where={"task.T": 3}).card["config"]["model"]["name"] == "plstm"
    run_id = timescales.load(folder).card["id"]
    assert timescales.load(f"{folder}/{run_id}", seed=7).card["id"] == run_id
    for name, seed in ((folder, 1), (f"{folder}/{'0' * 12}", 0)):
        with pytest.raises(ConfigError, match="the weights of 000000000000 are not available"):
            timescales.load(name, seed=seed)
    with pytest.raises(ConfigError, match="no run has model=lstm; there are plstm"):
        timescales.load(f"{folder}/lstm")
    with pytest.raises(ConfigError, match=r"no run has task\.T=5; there are 3"):
        timescales.load(f"{folder}/plstm", where={"task.T": 5})
    with pytest.raises(ConfigError, match=r"no run with seed=5 and \{'model': 'plstm'\}; seeds that have weights: 0"):
        timescales.load(f"{folder}/plstm", seed=5)


def test_what_is_not_there_or_none_of_ours_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="give TABLE/MODEL such as"):
        timescales.load("nothing/plstm")
    (tmp_path / "a.safetensors").write_bytes(b"not one")
    with pytest.raises(ConfigError, match="has no weights that timescales wrote"):
        timescales.load(tmp_path / "a.safetensors")


HEADER = "id,seed,size,bytes,kept,settings\n"


@pytest.mark.parametrize("text", ["name,price\nplstm,3\n", f"{HEADER}a,0,paper,9,yes,3\n", f"{HEADER}{'a' * 200_000}"])
def test_an_index_of_something_else_is_one_line(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "index.csv").write_text(text)
    with pytest.raises(ConfigError, match=r"index\.csv is no list of weights that timescales wrote"):
        timescales.load("plstm")


@pytest.mark.parametrize("about", [[], {}, {"config": 1}, {"config": {"model": {}, "task": {}}}])
def test_a_header_that_says_too_little_is_one_line(tmp_path, about):
    path = tmp_path / "a.safetensors"
    path.write_bytes(weights.packed({"w": torch.zeros(1)}, about))
    with pytest.raises(ConfigError, match="has no weights that timescales wrote"):
        timescales.load(path)


def test_where_the_data_of_a_task_are_missing_its_spec_is_left_out(trained, monkeypatch):
    def missing(self, **arguments):
        raise MissingData("no copy of it")

    monkeypatch.setattr(tasks.Copy, "__init__", functools.wraps(tasks.Copy.__init__)(missing))
    assert weights.of_run(trained)[1]["spec"] is None


def test_a_report_leaves_the_weights_of_runs_by_seed_as_far_as_there_is_room(trained, tmp_path, monkeypatch):
    from made_up import TABLE, made_row

    from timescales.papers.parse import parse
    from timescales.reports import weights as committed
    from timescales.reports.report import Report

    run_id = trained.name.rpartition("-")[2]
    runs = (("b" * 12, 1, trained), (run_id, 0, trained), ("c" * 12, 0, None))  # the last one is not in runs/
    rows = [made_row(id=id, axes={"model": "plstm"}, seed=seed, directory=place) for id, seed, place in runs]
    report = Report(parse(TABLE), {"paper": rows}, {"paper": []}, tmp_path / "results", tmp_path / "results")
    size = len(weights.packed(*weights.of_run(trained)))
    monkeypatch.setattr(committed, "TABLE_BYTES", int(1.5 * size))
    committed.write(report)
    folder = report.folder / "weights"
    assert sorted(path.name for path in folder.glob("*.safetensors")) == [f"{run_id}.safetensors"]
    index = weights.read_index(folder / "index.csv")
    assert {entry.id: entry.kept for entry in index} == {run_id: True, "b" * 12: False}
    assert f"| {'b' * 12}: left out, no room |" in (folder / "README.md").read_text()
    assert "the paper's size" in (folder / f"{run_id}.md").read_text()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert committed.write(report) == []  # nothing is new
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert timescales.load(f"{folder}/plstm").card["table"] == "made_up"


def test_the_committed_weights_stay_small_and_are_those_of_their_rows():
    assert COMMITTED
    assert sum(path.stat().st_size for path in COMMITTED) < 30_000_000
    for path in COMMITTED:
        about = weights.about_file(path)
        rows = {row.id: row for row in store.read_rows(path.parents[1] / "runs.csv")}
        row = rows[path.stem]
        assert (about["id"], about["trained"]["commit"], about["golden"]) == (row.id, row.commit, row.golden)
        assert row.value("best test/accuracy") in (None, about["metrics"]["test/accuracy"])
        card = (path.parent / f"{path.stem}.md").read_text()
        (code,) = re.findall(r"```python\n.*?```\n", CARD, re.S)
        assert code.format(id=path.stem) in card
    for index in RESULTS.glob("*/weights/index.csv"):
        kept = {entry.id: entry.bytes for entry in weights.read_index(index) if entry.kept}
        assert kept == {path.stem: path.stat().st_size for path in index.parent.glob("*.safetensors")}


def test_a_table_and_a_model_give_a_trained_model_with_its_numbers():
    where = {"task.sampling": "async", "task.negatives": "uniform"}
    model = timescales.load("chien_table3/plstm", seed=0, where=where)
    with pytest.warns(UserWarning, match="runs of chien_table3/plstm fit; the first was loaded"):
        timescales.load("chien_table3/plstm", seed=0)
    task = build.construct("task", copy.deepcopy(model.card["config"]["task"]), seed=0, device="cpu", data_root=None)
    found = loop.evaluate(model, task, "test", None)["accuracy"]
    assert found == pytest.approx(model.card["metrics"]["test/accuracy"], abs=0.002)  # 10 of 5,000 on other processors


def test_the_code_of_the_page_runs(capsys):
    page = (RESULTS.parent / "docs" / "results.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    (code,) = [block for block in blocks if "timescales.load" in block]
    exec(compile(code, "docs/results.md", "exec"), {})
    *_, accuracy = capsys.readouterr().out.split()
    (said,) = re.findall(r"# of the run: ([\d.]+)", code)
    assert f"{float(accuracy):.3f}" == said
