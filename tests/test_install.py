"""The wheel: built, installed into an environment of its own, and used from a folder that knows no checkout."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SMALL = [
    "task.train_size=8",
    "task.valid_size=4",
    "task.test_size=4",
    "task.batch_size=4",
    "model.hidden_size=4",
    "loop.max_steps=2",
    "logger=none",
    "device=cpu",
]


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
    return folder / "bin"


def call(installed, folder, *arguments):
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "HYDRA_FULL_ERROR")}
    done = subprocess.run(
        [installed / arguments[0], *arguments[1:]], cwd=folder, env=clean, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_the_wheel_holds_what_runs_need(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {
        "timescales/nn/engine/loop.cpp",
        "timescales/nn/engine/scan.cpp",
        "timescales/nn/engine/vectors.h",
        "timescales/nn/engine/measured.csv",
        "timescales/reports/gallery.css",
        "hydra_plugins/timescales_sweeper.py",
        "hydra_plugins/timescales_joblib.py",
        "timescales/train.py",
    } <= set(names)
    inside = {name.removeprefix("timescales/") for name in names if name.startswith("timescales/conf/")}
    assert inside == {str(path.relative_to(ROOT)) for path in (ROOT / "conf").rglob("*.yaml")}
    assert {name.split("/")[0] for name in names if "dist-info" not in name} == {"timescales", "hydra_plugins"}


def test_it_is_the_installed_package_that_runs(installed, tmp_path):
    status, out, err = call(installed, tmp_path, "python", "-c", "import timescales; print(timescales.__file__)")
    assert status == 0, err
    assert Path(out.strip()).is_relative_to(installed.parent)


def test_a_run_and_its_mistakes(installed, tmp_path):
    status, _, err = call(installed, tmp_path, "timescales-train", "model=plstm", "task=copy", "task.T=3", *SMALL)
    assert status == 0, err
    (path,) = tmp_path.glob("runs/copy-plstm-s0-*/record.json")
    record = json.loads(path.read_text())
    assert record["status"] == "finished"
    assert record["commit"] is None  # the version says what ran
    assert record["versions"]["timescales"]
    assert record["golden"]
    for wrong, line in (("task.TT=3", "did you mean task.T?"), ("skip=committed", "which a checkout has")):
        status, _, err = call(installed, tmp_path, "timescales-train", "task=copy", wrong, *SMALL)
        assert (status, len(err.strip().splitlines())) == (1, 1), err
        assert line in err


def test_a_sweep_and_a_table(installed, tmp_path):
    status, _, err = call(
        installed, tmp_path, "timescales-train", "-m", "model=lstm,plstm", "task=copy", "task.T=3", *SMALL
    )
    assert status == 0, err
    assert len(list(tmp_path.glob("runs/copy-*/record.json"))) == 2
    status, _, err = call(
        installed, tmp_path, "timescales-train", "table=chien_table3", "profile=tiny", "model=plstm", "seed=0", *SMALL
    )
    assert status == 0, err
    assert len(list(tmp_path.glob("runs/frequency-plstm-*/record.json"))) == 1
    assert not (installed.parent / "results").exists()
