"""The views at W&B in their serialised form, as they would be sent."""

import functools
import json
import re
import subprocess
import sys

import pytest

from timescales import paths, plotting
from timescales.config import compose, folders, schema
from timescales.papers import load
from timescales.papers.table import expand
from timescales.paths import ROOT
from timescales.reports import report


@pytest.fixture(scope="module")
def dashboard():
    pytest.importorskip("wandb_workspaces")
    import dashboard

    return dashboard


@functools.cache
def built(dashboard, name, size="paper"):
    composer = compose.Composer()
    found = report.make(name, composer, paths.RESULTS)
    return dashboard.table_view("someone", "timescales", found, size, composer)._to_model()


def filtered(model):
    """The key that a view's one filter is about, and the values that it allows."""
    todo, found = [model.spec.section.run_sets[0].filters], []
    while todo:
        node = todo.pop()
        found += [node] if isinstance(node, dict) and node.get("op") == "IN" else []
        todo += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    (leaf,) = found
    return leaf["key"], leaf["value"]


def by_type(model, kind):
    sections = model.model_dump(by_alias=True)["spec"]["section"]["panelBankConfig"]["sections"]
    return [panel["config"] for s in sections for panel in s["panels"] if panel["viewType"] == kind]


def test_a_tables_view_shows_its_runs_and_no_others(dashboard):
    model = built(dashboard, "chien_table3")
    key, groups = filtered(model)
    assert key == {"section": "run", "name": "group"}
    assert groups[-1] == "chien_table3"  # the run that carries its verdicts
    assert len(groups) == 31 + 1  # 155 runs of five seeds
    composer = compose.Composer()
    asked = ["task=frequency", "model=plstm", "task.sampling=async", "task.time_input=false", "seed=3"]
    cfg = composer(["table=chien_table3", *asked])
    assert schema.family(schema.resolved(cfg)) in groups
    cfg = composer(["table=chien_table3", *asked, "task.batch_size=77"])
    assert schema.family(schema.resolved(cfg)) not in groups
    assert not set(filtered(built(dashboard, "chien_table3", "epochs14"))[1][:-1]) & set(groups)


@pytest.mark.slow
def test_a_tables_view_has_its_values_curves_and_colours(dashboard):
    model = built(dashboard, "chien_table3")
    assert (model.display_name, model.entity, model.project) == ("chien_table3", "someone", "timescales")
    (text,) = by_type(model, "Markdown Panel")
    assert "92.57 (0.5)<br>" in text["value"]
    assert not {"figure.png", "verdicts.png", "ladder.png"} & set(re.findall(r"\w+\.png", text["value"]))  # not at W&B
    assert [bar["metrics"] for bar in by_type(model, "Bar Chart")] == [["last/test/accuracy"]]  # as the table selects
    assert [bar["metrics"] for bar in by_type(built(dashboard, "chien_table1"), "Bar Chart")] == [["test/accuracy"]]
    lines = by_type(model, "Run History Line Plot")
    assert [config["metrics"] for config in lines[:2]] == [["valid/accuracy"], ["valid/loss"]]
    assert {config["xAxis"] for config in lines} == {"global_step"}
    assert model.spec.section.settings.x_axis == "global_step"
    keys = [f"task.value.{name}" for name in ("sampling", "time_input", "time_unit", "negatives")]
    assert [key.name for key in model.spec.section.run_sets[0].grouping] == ["model.value.name", *keys]
    assert set(model.spec.section.custom_run_colors.values()) == set(plotting.COLOURS.values())


@pytest.mark.parametrize("name", ["chien_copy", "chien_ablation"])  # steps to a threshold; a probe
def test_what_no_summary_holds_gets_no_bars(dashboard, name):
    model = built(dashboard, name)
    assert by_type(model, "Bar Chart") == []
    assert ["valid/loss"] in [config["metrics"] for config in by_type(model, "Run History Line Plot")]


def test_every_view_is_written_and_read_again(dashboard, tmp_path, monkeypatch):
    """The front page and one view for each table, through the command line; W&B's own classes read them back."""
    from wandb_workspaces.workspaces import Workspace, internal

    def made(name, composer, results, runs):  # without its hundreds of runs, which other tests gather
        table = load.table(name)
        bare = {size: [] for size in table.sizes}
        return report.Report(table, bare, {size: expand(table, size) for size in table.sizes}, results, results)

    choices, every = folders.choices, folders.choices("table")
    tables = [*every[:1], *every[-2:]]
    monkeypatch.setattr(folders, "choices", lambda group: tables if group == "table" else choices(group))
    monkeypatch.setattr(report, "make", made)
    monkeypatch.setattr(sys, "argv", ["dashboard.py", "--out", str(tmp_path / "views"), "--project", "mine"])
    dashboard.main()
    written = {path.stem: path for path in (tmp_path / "views").iterdir()}
    assert set(written) == {"timescales", *tables}
    for name, path in written.items():
        model = internal.View.model_validate(json.loads(path.read_text()))
        assert Workspace._from_model(model).name == name
        assert model.project == "mine"
    front = internal.View.model_validate(json.loads(written["timescales"].read_text()))
    (text,) = by_type(front, "Markdown Panel")
    assert all(name in text["value"] for name in tables)


@pytest.mark.slow
def test_without_a_key_it_says_so_in_one_line(dashboard, tmp_path, monkeypatch):
    for name in ("WANDB_API_KEY", "WANDB_ENTITY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    command = [sys.executable, ROOT / "scripts" / "dashboard.py", "chien_imdb"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: W&B: No API key")
    assert "--out DIR" in done.stderr
    assert len(done.stderr.splitlines()) == 1
