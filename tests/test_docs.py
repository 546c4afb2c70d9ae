"""`make docs`: the API reference without a warning, and the tutorial with what it prints."""

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    pytest.importorskip("pdoc")
    folder = tmp_path_factory.mktemp("docs")
    done = subprocess.run([sys.executable, ROOT / "scripts" / "docs.py", folder], cwd=folder, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def text(path):
    return html.unescape(re.sub(r"<[^>]+>", "", path.read_text()))


def test_equations_and_shapes_are_shown_as_they_are_written(built):
    import timescales

    for page, thing in (("timescales", timescales.PLSTM), ("timescales/nn/rnn", timescales.RNN.forward),
                        ("timescales/nn/cells/plstm", timescales.PLSTMCell)):  # fmt: skip
        shown = text(built / f"{page}.html")
        lines = [line.strip() for line in thing.__doc__.splitlines() if line.strip()]
        at = [shown.find(line) for line in lines]
        assert -1 not in at, lines[at.index(-1)]
        assert shown[at[0] : at[-1]].count("\n") >= len(lines) - 1


def test_every_module_has_its_page(built):
    pages = {str(path.relative_to(built).with_suffix("")) for path in built.rglob("*.html")}
    modules = {str(path.relative_to(ROOT).with_suffix("")).removesuffix("/__init__")
               for path in (ROOT / "timescales").rglob("*.py")}  # fmt: skip
    assert modules - pages == {"timescales/__main__", "timescales/nn/engine/pointwise"}


def test_what_the_tutorial_prints(built):
    shown = text(built / "tutorial.html")
    assert re.search(r"^finished 4\d\d\d parameters", shown, re.M)
    curve = re.findall(r"^epoch +\d+  valid/loss ([\d.]+)  valid/accuracy ([\d.]+)", shown, re.M)
    assert len(curve) == 4
    assert 0.5 < float(curve[0][0]) < 1.0
    assert "output (20, 4, 8) and a state for each of 2 layers" in shown
    assert "tensor([10., 10., 10., 10., 10., 10., 10., 10.])" in shown
    assert "4 runs: 2 finished, skipped; 2 to run" in shown
    accuracy = {model: float(value) for model, value in re.findall(r"^\| (lstm|decay) \| ([\d.]+)", shown, re.M)}
    assert accuracy["decay"] > max(75, accuracy["lstm"] + 10)
    assert re.search(r"^\| decay > lstm \| (holds|in order) \(n=2\)", shown, re.M)
    assert "small-scale: order shown" in shown
