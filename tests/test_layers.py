"""Imports only go down: nothing imports from a layer above or beside its own, and nothing imports in a circle."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import imports  # noqa: E402


@pytest.fixture(scope="module")
def graph():
    return imports.imports()


def test_imports_only_go_down(graph):
    assert imports.upward(graph) == []


def test_nothing_imports_in_a_circle(graph):
    assert imports.circles(graph) == []


@pytest.mark.parametrize(
    ("files", "wrong", "ring"),
    [
        ({"nn/a.py": "def f():\n    from timescales.runs import b", "runs/b.py": ""}, 1, 0),  # lazy imports count
        ({"nn/a.py": "from timescales import tasks", "tasks/__init__.py": ""}, 1, 0),
        ({"runs/b.py": "import timescales.nn.a", "nn/a.py": ""}, 0, 0),
        ({"nn/a.py": "from timescales.nn import b", "nn/b.py": "from timescales.nn.a import x"}, 0, 1),
        ({"nn/a.py": "from . import b", "nn/b.py": "from .a import x"}, 0, 1),
        ({"nn/a.py": "importlib.import_module('timescales.runs.b')", "runs/b.py": ""}, 1, 0),
    ],
)
def test_the_test_sees_what_is_wrong(tmp_path, files, wrong, ring):
    for name, text in files.items():
        path = tmp_path / "timescales" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = imports.imports(tmp_path / "timescales")
    assert (len(imports.upward(graph)), len(imports.circles(graph))) == (wrong, ring)


@pytest.mark.full  # six seconds
def test_the_picture_in_architecture_md(tmp_path, script):
    said = script("imports", "--png", tmp_path / "imports.png")
    assert (tmp_path / "imports.png").stat().st_size > 10_000
    assert "circles           0" in said
    assert "docs/img/imports.png" in (ROOT / "ARCHITECTURE.md").read_text()
    assert (ROOT / "docs" / "img" / "imports.png").is_file()
