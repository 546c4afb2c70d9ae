"""The wheel: built, installed into an environment of its own, and used from a folder that knows no checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import timescales
from timescales.config import compose
from timescales.config.run import run_of
from timescales.paths import ROOT

pytestmark = pytest.mark.slow  # a wheel is built and installed
SMALL = ["task.train_size=8", "task.valid_size=4", "task.test_size=4", "task.batch_size=4", "model.hidden_size=4"]
SMALL += ["loop.max_steps=2", "logger=none", "device=cpu"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of the programs of an environment with the wheel, and this one's packages but for the checkout."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/*/site-packages")
    # A folder that a .pth file names is searched, but .pth files in it, an editable install's, are not followed.
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    command = ["-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, *command], check=True)
    code, out, err = call(folder / "bin", folder, "python", "-c", "import timescales; print(timescales.__file__)")
    assert code == 0, err
    assert Path(out.strip()).is_relative_to(folder), "another package would be tested"
    return folder / "bin"


def call(installed, folder, *arguments, **environment):
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "HYDRA_FULL_ERROR")} | environment
    command = [installed / arguments[0], *arguments[1:]]
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def output(*arguments, **environment):
    """Call a program that must end well, as `call` does. Return what it prints."""
    status, out, err = call(*arguments, **environment)
    assert status == 0, err
    return out


def test_the_wheel_holds_what_runs_need(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    sources = {f"timescales/nn/engine/cpu/{name}" for name in ("loop.cpp", "products.cpp", "scan.cpp", "vectors.h")}
    assert sources | {"hydra_plugins/timescales_plugins.py", "timescales/train.py"} <= set(names)
    inside = {name.removeprefix("timescales/") for name in names if name.startswith("timescales/conf/")}
    assert inside == {str(path.relative_to(ROOT)) for path in (ROOT / "conf").rglob("*.yaml")}
    assert {name.split("/")[0] for name in names if "dist-info" not in name} == {"timescales", "hydra_plugins"}


def test_a_run_and_its_mistakes(installed, tmp_path):
    output(installed, tmp_path, "timescales-train", "model=plstm", "task=copy", "task.T=3", *SMALL)
    (path,) = tmp_path.glob("runs/copy-plstm-s0-*/record.json")
    record = json.loads(path.read_text())
    assert record["status"] == "finished"
    assert record["commit"] is None  # the version says what ran
    assert record["versions"]["timescales"] == timescales.__version__
    assert record["golden"]
    composer = compose.Composer()
    checkout = composer(["model=plstm", "task=copy", "task.T=3", *SMALL])
    assert record["id"] == run_of(checkout).id  # the version is no part of it
    for wrong, line in (("task.TT=3", "did you mean task.T?"), ("-m skip=committed", "a checkout has results/")):
        status, _, err = call(installed, tmp_path, "timescales-train", "task=copy", *wrong.split(), *SMALL)
        assert (status, len(err.strip().splitlines())) == (1, 1), err
        assert line in err


def test_a_sweep_and_a_table(installed, tmp_path):
    output(installed, tmp_path, "timescales-train", "-m", "model=lstm,plstm", "task=copy", "task.T=3", *SMALL)
    assert len(list(tmp_path.glob("runs/copy-*/record.json"))) == 2
    table = ["table=chien_table3", "rung=small", "model=plstm", "seed=200"]
    output(installed, tmp_path, "timescales-train", *table, *SMALL)
    assert len(list(tmp_path.glob("runs/frequency-plstm-s200-*/record.json"))) == 2  # in each of two grids
    assert not (installed.parent / "results").exists()


TABLE = """# @package _global_
table:
  {name: mine, title: a copy task, source: nobody, cells: [], assumed: {},
   metric: test/accuracy, select: last, better: higher, unit: percent, tolerance: 1.0,
   runs: [{task: copy, task.T: 3, SIZES, model: [lstm, decay], seed: [0, 1]}],
   claims: [{claim: "decay > lstm", ours: "to see a verdict"}],
   ladder: {over: task.T, rungs: {t2: {set: {task.T: 2}, claims: ["decay > lstm"]}}}}
"""


def test_a_cell_and_a_table_of_ones_own_and_their_report(installed, tmp_path):
    own = tmp_path / "own"
    for name in ("decay.py", "model/decay.yaml"):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "docs" / "tutorial" / name, own / name)
    (own / "table").mkdir()
    sizes = ", ".join(override.replace("=", ": ") for override in SMALL[:-2])
    (own / "table" / "mine.yaml").write_text(TABLE.replace("SIZES", sizes))
    table = ["--config-dir", str(own), "mine"]
    out = output(installed, tmp_path, "timescales-status", *table, "--list", "model=decay", PYTHONPATH=str(own))
    head, *lines = (line.split() for line in out.splitlines())
    assert head == ["model", "seed", "state", "directory"]
    assert [line[:3] for line in lines] == [["decay", "0", "missing"], ["decay", "1", "missing"]]
    train = ["timescales-train", "--config-dir", str(own), "table=mine", *SMALL[-2:]]
    output(installed, tmp_path, *train, PYTHONPATH=str(own))
    report = ["timescales-report", *table, "--out", "reports"]
    assert output(installed, tmp_path, *report, PYTHONPATH=str(own)).startswith("mine, a copy task")
    text = (tmp_path / "reports" / "mine" / "table.md").read_text()
    assert "timescales-train --config-dir FOLDER table=mine" in text
    assert "decay better than lstm" in text
    assert len((tmp_path / "reports" / "mine" / "runs.csv").read_text().splitlines()) == 1 + 4
    shutil.rmtree(tmp_path / "runs")  # the report is written again from its own runs.csv
    output(installed, tmp_path, *report, PYTHONPATH=str(own))
    assert (tmp_path / "reports" / "mine" / "table.md").read_text() == text


def test_a_report_of_the_wheel_is_that_of_the_checkout(installed, tmp_path):
    committed = ROOT / "results" / "chien_table3"
    shutil.copytree(committed, tmp_path / "results" / "chien_table3")
    shutil.copy(ROOT / "results" / "speed.csv", tmp_path / "results")  # the prices of runs to come
    (tmp_path / "results" / "chien_table3" / "table.md").unlink()
    assert output(installed, tmp_path, "timescales-report", "chien_table3").startswith("chien_table3, ")
    commands = re.compile(r"`(?:make|timescales-train) [^\n]*")  # make is a checkout's
    text = (tmp_path / "results" / "chien_table3" / "table.md").read_text()
    told = (committed / "table.md").read_text()
    assert "([the rules](../../docs/statistics.md))" in told
    told = told.replace("[the rules](../../docs/statistics.md)", "docs/statistics.md of the project has the rules")
    assert commands.sub("", text) == commands.sub("", told)
    assert "`timescales-train table=chien_table3 rung=NAME` runs a rung" in text
    assert "`make " not in text
    paper = output(installed, tmp_path, "timescales-status", "chien_table3").splitlines()[1].split()
    rows = (committed / "runs.csv").read_text().count(",paper,")
    assert (paper[:3], int(paper[3]) + int(paper[6])) == (["chien_table3", "paper", "0"], rows)


def test_a_folder_that_has_no_reports_is_one_line(installed, tmp_path):
    (tmp_path / "results" / "other").mkdir(parents=True)
    (tmp_path / "results" / "other" / "runs.csv").write_text("run,score\na,b\n")
    status, _, err = call(installed, tmp_path, "timescales-report", "chien_table3")
    line = "results/other/runs.csv is not a file of timescales-report: give another folder, --out FOLDER"
    assert (status, err) == (1, f"error: {line}\n")


def test_results_are_those_of_a_checkout_or_one_line_says_what_is_missing(installed, tmp_path):
    code = "import timescales; runs, verdicts = timescales.results({}); print(len(runs), len(verdicts))"
    status, _, err = call(installed, tmp_path, "python", "-c", code.format(""))
    assert status == 1
    assert "no results in" in err.strip().splitlines()[-1]
    assert "timescales.results(FOLDER)" in err.strip().splitlines()[-1]
    out = output(installed, tmp_path, "python", "-c", code.format(repr(str(ROOT / "results"))))
    ours = timescales.results()
    assert out.split() == [str(len(ours.runs)), str(len(ours.verdicts))]
