"""The project's own rules: who imports what, docstrings, the commands that pages show."""

import ast
import functools
import graphlib
import importlib
import re
import subprocess
import sys

import pytest

from timescales.paths import ROOT

PACKAGE = ROOT / "timescales"
MODULES = sorted(PACKAGE.rglob("*.py"))
PLUGINS = sorted((ROOT / "hydra_plugins").glob("*.py"))


@pytest.fixture(scope="module", autouse=True)
def _trees_are_forgotten():
    """They take 40 MB."""
    yield
    parsed.cache_clear()


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


@functools.cache
def imports(path, at_top=False):
    """Names of the modules that a file imports, in full; at_top: only those it imports when it is imported itself."""
    names, todo = set(), [parsed(path)]
    while todo:
        node = todo.pop()
        for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"  # it is never imported
        if at_top and (for_types or isinstance(node, ast.FunctionDef)):
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        todo += [inner for inner in ast.iter_child_nodes(node) if not isinstance(inner, ast.expr)]
    return names


def distributions(path, at_top=False):
    """The first words of what a file imports: torch, hydra, ..."""
    return {name.split(".")[0] for name in imports(path, at_top)}


def test_only_the_configuration_imports_hydra_and_omegaconf():
    allowed = {PACKAGE / "papers" / "load.py", PACKAGE / "errors.py"}
    allowed |= {path for folder in ("config", "experiment") for path in (PACKAGE / folder).glob("*.py")}
    assert [path for path in MODULES if {"hydra", "omegaconf"} & distributions(path) and path not in allowed] == []


# What one module alone imports. So every picture goes through `empty_figure`, which gives it the fixed style.
OWNERS = {
    "compose.py": ("hydra._internal",),
    "plotting.py": ("matplotlib.figure", "matplotlib.pyplot"),
    "wandb_run.py": ("wandb", "wandb_workspaces"),
    "tensorboard_run.py": ("tensorboard", "torch.utils.tensorboard"),
    "trackio_run.py": ("trackio",),
}


@pytest.mark.parametrize("owner", OWNERS)
def test_one_module_imports(owner):
    files = [*MODULES, *PLUGINS, ROOT / "train.py", *(ROOT / "docs").rglob("*.py")]
    files += (ROOT / "scripts").rglob("*.py") if owner == "plotting.py" else []
    owned = tuple(f"{name}." for name in OWNERS[owner])
    assert [path.name for path in files if any(f"{name}.".startswith(owned) for name in imports(path))] == [owner]


PRIVATE = re.compile(r"\btorch(\.\w+)*(\.| import )_[A-Za-z]|\._(schema|overloadpacket|is_zerotensor|input_metadata)\b")


def test_one_module_uses_private_names_of_torch():
    assert [path.name for path in MODULES if PRIVATE.search(path.read_text())] == ["torch_private.py"]
    for private in ("torch._C.f", "from torch.utils import _pytree", "from torch.utils._pytree import x"):
        assert PRIVATE.search(private)


MUTABLE = {"dict", "list", "set", "Counter", "defaultdict", "deque", "WeakKeyDictionary"}  # what makes such an object


def module_state():
    """Each name at the level of a module that stands for an object made empty, to be filled later."""
    for path in MODULES:
        for node in parsed(path).body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            empty = value is not None and ast.unparse(value) in ("{}", "[]")
            made = isinstance(value, ast.Call) and not value.args and ast.unparse(value.func).split(".")[-1] in MUTABLE
            if empty or made:
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                yield f"{path.relative_to(PACKAGE)}:{ast.unparse(target)}"


def test_what_modules_keep_is_listed():
    """`nn/engine/caches.py` says what the engines keep, and for how long."""
    assert sorted(module_state()) == [
        "config/folders.py:_own",
        "nn/engine/caches.py:TRIAL_RESULTS",
        "nn/engine/caches.py:WARNED",
        "nn/engine/cpu/compiler.py:FAILED",
        "nn/engine/cpu/shared_library.py:LOADED",
        "nn/engine/equations.py:CACHE",
        "runs/wandb_run.py:_unreached",
    ]
    assert not [path for path in MODULES if re.search(r"^\s+global ", path.read_text(), re.M)]


LIGHT = ["__init__.py", "errors.py", "paths.py", "files.py", "config", "papers"]
LIGHT += [f"experiment/{name}.py" for name in ("__init__", "plan", "sweep", "train", "extend", "command")]
LIGHT += [f"runs/{name}.py" for name in ("__init__", "record", "lock", "found", "store", "metrics", "provenance")]
LIGHT += ["runs/cost.py"]


@pytest.mark.parametrize("name", LIGHT)
def test_a_finished_run_is_skipped_without_heavy_imports(name):
    heavy = {"torch", "wandb", "pandas", "numpy", "matplotlib", "torchvision", "datasets", "tensorboard", "trackio"}
    for path in [PACKAGE / name] if name.endswith(".py") else (PACKAGE / name).glob("*.py"):
        assert not heavy & distributions(path, at_top=True), path


def test_no_module_needs_an_optional_package_when_it_is_imported():
    optional = {"wandb", "datasets", "torchvision", "torchtext", "pandas", "matplotlib", "scipy", "spacy"}
    optional |= {"tensorboard", "trackio", "huggingface_hub"}
    assert {path.name for path in MODULES if optional & distributions(path, at_top=True)} == set()
    assert {path.name for path in MODULES if "torch.utils.tensorboard" in imports(path, at_top=True)} == set()


def modules_imported_by(folder):
    """List the modules of the package that the files of a folder import, each as (file, module)."""
    files = sorted((PACKAGE / folder).rglob("*.py"))
    return [(path.name, name) for path in files for name in imports(path) if name.startswith("timescales.")]


def test_cells_know_no_engine():
    """What the engines read, cell.py and gates.py, knows no layer either."""
    allowed = ("timescales.nn.cells", "timescales.nn.inits", "timescales.errors")
    allowed += ("timescales.torch_private", "timescales.nn.signatures", "timescales.nn.registry")
    layers = ("timescales.nn.rnn", "timescales.nn.drop_in")
    found = [(path, name) for path, name in modules_imported_by("nn/cells") if name != "timescales.nn"]
    assert [(path, name) for path, name in found if not name.startswith(allowed + layers)] == []
    assert [(path, n) for path, n in found if path in ("cell.py", "gates.py") and n.startswith(layers)] == []


def test_engines_know_cells_files_and_errors_only():
    allowed = ("timescales.nn.cells", "timescales.nn.engine", "timescales.torch_private", "timescales.files")
    allowed += ("timescales.errors",)  # ConfigError is the error that every package may raise
    found = [(path, name) for path, name in modules_imported_by("nn/engine") if name != "timescales.nn"]
    assert [(path, name) for path, name in found if not name.startswith(allowed)] == []


def test_public_names_exist_and_have_docstrings():
    import timescales

    names = ["rnn", *(f"cells.{path.stem}" for path in (PACKAGE / "nn" / "cells").glob("[!_]*.py"))]
    modules = [importlib.import_module(f"timescales.nn.{name}") for name in names]
    layers = {name: value for module in modules for name, value in vars(module).items() if isinstance(value, type)}
    layers = {name for name, value in layers.items() if issubclass(value, timescales.RNN | timescales.Cell)}
    layers -= {"PowerLawCell", "GatedCell", "InitsPerLayer", "DropIn"}  # base classes
    others = {"RNNState", "accelerate", "explain", "free_memory", "load", "one_cell_per_layer", "restore", "results"}
    assert layers | others | {"__version__"} == set(timescales.__all__) == set(dir(timescales))
    assert set(timescales.nn.cells.__all__) == {*layers, "Weights"} - {"RNN", "CellRNN"}
    for name in timescales.__all__:
        value = getattr(timescales, name)
        assert name == "__version__" or value.__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'LSTMM'"):
        timescales.LSTMM  # noqa: B018


# Methods that every subclass has: the base class describes them.
DESCRIBED = {"State", "Act", "act", "step", "timescales", "weights", "forward", "backward", "bias", "size"}
DESCRIBED |= {"extra_repr", "batch", "loss", "metrics", "chance", "optimum", "correct", "stop", "log", "finish"}
DESCRIBED |= {"derived", "words", "start_of", "position"}


def test_public_functions_have_docstrings():
    bare = []
    for path in MODULES:
        module = parsed(path)
        inner = [n for c in module.body if isinstance(c, ast.ClassDef) and c.name[0] != "_" for n in c.body]
        for node in [*module.body, *inner]:
            public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            if public and not ast.get_docstring(node) and node.name not in DESCRIBED:
                bare.append(f"{path.name}:{node.name}")
    assert bare == []


def first_of(override):
    """Of several values the first; a list is one value."""
    return override if "[" in override else override.split(",")[0]


SHOWN = [path for path in (ROOT / "docs").rglob("*.md") if "```bash" in path.read_text()]
SHOWN = ["README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in SHOWN)]


@pytest.mark.parametrize("page", SHOWN)
def test_shown_commands_are_real(page):
    """Every make target exists, every train.py command composes, every script is there."""
    from configs import composer

    from timescales import paths
    from timescales.config import schema
    from timescales.config.compose import parse
    from timescales.config.run import run_of
    from timescales.experiment import plan
    from timescales.papers import load

    targets = set(re.findall(r"^([a-z.][a-z0-9.-]*):", (ROOT / "Makefile").read_text(), re.M))
    blocks = re.findall(r"```(?:sh|bash)\n(.*?)```", (ROOT / page).read_text(), re.S)
    commands = [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]
    assert any(commands)
    for command in filter(None, commands):
        words = command.split()
        while "=" in words[0]:
            words.pop(0)
        if "--config-dir" in words:  # a gate of the user's own: test_own_gate.py runs it
            continue
        if words[0] == "make":
            assert {w for w in words[1:] if "=" not in w} <= targets, command
        elif words[0].endswith("python") and words[1] == "train.py":
            settings = [w for w in words if "=" in w and not w.startswith(("-", "hydra.", "hydra/"))]
            # Of a range, such as interval(1,2), only the key.
            given = [w.strip("'").partition("=")[0] + "=1" if "(" in w else first_of(w) for w in settings]
            made, chosen = composer((paths.conf(),)), {parse(text).key_or_group: parse(text).value() for text in given}
            if "table" in chosen:
                narrow = [text for text in given if schema.is_of_identity(parse(text).key_or_group)]
                table = load.table(chosen["table"])
                assert plan.of_table(table, table.size_of(chosen.get("rung")), made, narrow), command
            else:
                run_of(made(given))
        elif words[0].endswith("python"):
            assert words[1] == "-m" or (ROOT / words[1]).is_file(), command


@pytest.mark.slow
def test_readme_example_runs():
    """The twenty lines that use the package as a library."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(code.splitlines()) <= 24
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    losses = [float(x) for x in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert losses[-1] < 0.2 * losses[0]


def test_options_are_given_in_full():
    """An option that is added later changes what no command means: `allow_abbrev=False` of each parser."""
    files = [*MODULES, *sorted((ROOT / "scripts").rglob("*.py")), *sorted((ROOT / "tests" / "faults").glob("*.py"))]
    parsers = [
        (path.name, {word.arg: ast.unparse(word.value) for word in node.keywords})
        for path in files
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ArgumentParser")
    ]
    assert len(parsers) > 15
    assert [name for name, given in parsers if given.get("allow_abbrev") != "False"] == []


def test_make_help_lists_every_target():
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    phony = " ".join(re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)).split()
    assert re.findall(r"^  make (\S+)", listed, re.M) == phony
    assert re.findall(r"^\w+$", listed, re.M) == ["use", "reproduce", "develop"]


def test_planted_faults_fit_the_code(script):
    assert script("mutate", "--check") == "80 faults fit the code\n"


# --- Imports only go down: nothing imports from a layer above or beside its own, and nothing imports in a circle ------
# From bottom to top, as in ARCHITECTURE.md. A module imports from lower layers and from its own package.
# "timescales" is the package's own `__init__`.
LAYERS = (
    ("errors", "extras", "paths", "files", "torch_private"),  # may import each other
    ("nn", "tasks", "config"),
    ("models", "plotting"),
    ("optim", "training"),
    ("runs",),
    ("analysis",),
    ("papers",),
    ("experiment",),
    ("reports",),
    ("atlas",),
    ("timescales",),
    ("__main__", "commands"),
)


def graph_of(root):
    """Map each module of a package to the modules of it that its file imports, also inside functions."""
    files = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root.parent).with_suffix("").parts
        files[".".join(part for part in parts if part != "__init__")] = path
    graph = {}
    for name, path in files.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found = {module_of(target, files) for target in imported(parsed(path), package)}
        graph[name] = found - {name, None}
    return graph


def imported(tree, package):
    """Yield the dotted names that a file of a package imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func) and node.args:
            (first, *_) = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
            if isinstance(first, ast.Constant):
                yield str(first.value).rstrip(".")  # of f"timescales.analysis.{name}" the package


def module_of(name, known):
    """Return the module that a dotted name is in; None if it is in another package."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def part(module):
    """Return the package or top-level module that a module belongs to: "nn" for timescales.nn.cells.lstm."""
    return module.split(".")[1] if "." in module else module


def layer(module):
    return next(number for number, parts in enumerate(LAYERS) if part(module) in parts)


def upward(graph):
    """List the imports (importer, imported) that do not go down. Modules of the lowest layer may import each other."""
    pairs = [(importer, target) for importer, targets in graph.items() for target in targets]
    others = [(importer, target) for importer, target in pairs if part(importer) != part(target)]
    return sorted((importer, target) for importer, target in others if layer(target) >= max(layer(importer), 1))


def test_imports_only_go_down_and_never_in_a_circle():
    graph = graph_of(PACKAGE)
    assert len(graph) > 150
    assert upward(graph) == []
    graphlib.TopologicalSorter(graph).prepare()  # raises an error that names the modules of a circle
