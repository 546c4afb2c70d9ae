"""The table of names in timescales/analysis is that of its modules, and is known without torch."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from timescales import analysis

KINDS = ("measure", "study", "compare")
SHARED = {"__init__", "groups", "needs", "observe", "released", "run", "study", "weights"}


def test_every_module_is_in_the_table():
    modules = {path.stem for path in Path(analysis.__file__).parent.glob("*.py")}
    assert modules - SHARED == set(analysis.ANALYSES)
    assert list(analysis.ANALYSES) == sorted(analysis.ANALYSES)


@pytest.mark.parametrize("name", analysis.ANALYSES)
def test_the_table_has_the_functions_of_each_module(name):
    module = importlib.import_module(f"timescales.analysis.{name}")
    listed = analysis.ANALYSES[name]
    assert [kind for kind in KINDS if hasattr(module, kind)] == [kind for kind in KINDS if kind in listed]
    assert all(callable(getattr(module, function)) for function in listed)


def test_names_are_those_of_any_of_the_functions():
    assert analysis.names("t") == ["reset_units"]
    assert set(analysis.names("measure", "compare")) > set(analysis.names("compare")) > {"learning_curves"}
    assert analysis.names("?") == []


def test_names_need_no_torch():
    code = "import sys; from timescales import analysis; analysis.names('measure'); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
