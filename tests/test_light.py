"""The install without extras: torch, numpy and what these two need are enough for the layers, and for no command."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys

import pytest
from packaged import PROJECT, ROOT, modules, needed, normalised
from packaging.requirements import Requirement

from timescales import extras

# Runs a program in which only the standard library and some other modules can be imported.
BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        known = first in sys.stdlib_module_names or first.startswith("_sysconfigdata") or first in {allowed!r}
        if not known:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""
# A first forward and backward pass of some layers; with the fused engine where a compiler is here.
LAYERS = """
import timescales, torch
from timescales import JANET, LRU, LSTM, PLSTM, RMC, GRU
x = torch.randn(7, 3, 4)
for kind in (LSTM, PLSTM, GRU, JANET, LRU, RMC):
    for engine in ("eager", *({engines} if kind in (LSTM, PLSTM) else ())):
        rnn = kind(4, 8, num_layers=2, engine=engine)
        output, state = rnn(x)
        output.square().sum().backward()
        assert output.shape == (7, 3, 8) and all(p.grad is not None for p in rnn.parameters())
        print(kind.__name__, engine)
loaded = {{name.partition(".")[0] for name in sys.modules}}
assert not loaded & {{*{left_out}}}, loaded & {{*{left_out}}}
"""


def run(code, folder, *arguments):
    environment = {k: v for k, v in os.environ.items() if k != "HYDRA_FULL_ERROR"}
    environment |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    (folder / "program.py").write_text(code)
    command = [sys.executable, str(folder / "program.py"), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def blocker():
    """The beginning of a program that has the base dependencies alone, torch and numpy."""
    assert sorted(Requirement(text).name for text in PROJECT["dependencies"]) == ["numpy", "torch"]
    allowed = modules(needed(PROJECT["dependencies"]).values()) | {"timescales", "train"}
    assert {"torch", "numpy", "sympy", "typing_extensions"} <= allowed
    assert not allowed & {*extras.EXTRAS}
    return BLOCKER.format(allowed=sorted(allowed))


@pytest.mark.slow
def test_layers_work_with_torch_and_numpy_alone(blocker, tmp_path):
    engines = ("fused",) if shutil.which("g++") or shutil.which("clang++") else ()
    done = run(blocker + LAYERS.format(engines=engines, left_out=sorted(extras.EXTRAS)), tmp_path)
    assert done.returncode == 0, done.stderr
    expected = [f"{name} {engine}" for name in ("LSTM", "PLSTM") for engine in ("eager", *engines)]
    assert set(expected) <= set(done.stdout.splitlines())


@pytest.mark.parametrize("command", ["__main__ import main", "commands import report", "commands import show_status"])
def test_a_command_says_which_extra_it_needs(blocker, tmp_path, command):
    done = run(f"{blocker}from timescales.{command} as command; command()", tmp_path, "--help")
    (line,) = done.stderr.strip().splitlines()
    assert re.match(r"error: (hydra|tqdm|omegaconf) is not installed: pip install 'timescales-rnn\[train\]', ", line)
    assert done.returncode == 1


@pytest.mark.parametrize(
    "code", ["timescales.results()", "timescales.load('chien_table3/plstm')", "from timescales.analysis import load"]
)
def test_results_say_which_extra_they_need(blocker, tmp_path, code):
    done = run(f"{blocker}import timescales; {code}", tmp_path)
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("ModuleNotFoundError: ")
    assert "pip install 'timescales-rnn[train]'" in line


@pytest.mark.slow
def test_help_and_star_have_every_public_name(blocker, tmp_path):
    """These take all names, also those of functions that need an extra: only a call of one says so."""
    code = "import pydoc, timescales\nfrom timescales import *\nprint(pydoc.plain(pydoc.render_doc(timescales)))"
    done = run(blocker + code + "\nassert PLSTM and load", tmp_path)
    assert done.returncode == 0, done.stderr
    said = re.findall(r"  (\w+)\(.*\n +Not available: \w+ is not installed: pip install '.*\[train\]'", done.stdout)
    assert said == ["load", "results"]


def test_a_module_of_ones_own_that_is_missing_keeps_its_error(blocker, tmp_path):
    done = run(blocker + "from timescales import extras\nwith extras.command():\n    import mine", tmp_path)
    assert done.stderr.strip().splitlines()[-1] == "ModuleNotFoundError: No module named 'mine'"


def test_imports_are_not_searched_for_garbage(tmp_path):
    """Neither while a command imports nor later; what is made after an import is searched again."""
    code = "import gc\nfrom timescales import extras\n"
    code += "with extras.quick_imports():\n    import decimal\n    assert not gc.isenabled()\n"
    code += "assert gc.isenabled()\nfrozen = gc.get_freeze_count()\nassert frozen > 1000\n"
    code += "with extras.quick_imports():\n    import decimal\nassert gc.get_freeze_count() == frozen\n"
    code += "gc.disable()\nwith extras.quick_imports():\n    pass\nassert not gc.isenabled()"
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_extras_are_those_of_the_project():
    """Each module that `extras` names is installed by a distribution of the extra that it is said to be in."""
    assert len({*extras.TRAIN}) == len(extras.TRAIN)
    assert {module for module, extra in extras.EXTRAS.items() if extra == "train"} == {*extras.TRAIN}
    of_module = importlib.metadata.packages_distributions()
    for module, extra in extras.EXTRAS.items():
        listed = {normalised(Requirement(text).name) for text in PROJECT["optional-dependencies"][extra]}
        if module in of_module:  # else the extra is not installed here
            assert {normalised(name) for name in of_module[module]} & listed, module
    assert PROJECT["name"] == extras.NAME
    assert f"{extras.NAME}[train]" in PROJECT["optional-dependencies"]["dev"]
