"""Imports only go down: nothing imports from a layer above or beside its own, and nothing imports in a circle."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "timescales"

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


def imports(root):
    """Map each module of a package to the modules of it that its file imports, also inside functions."""
    files = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root.parent).with_suffix("").parts
        files[".".join(part for part in parts if part != "__init__")] = path
    graph = {}
    for name, path in files.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found = {module_of(target, files) for target in imported(ast.parse(path.read_text()), package)}
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
    """List the imports (importer, imported) that do not go down."""
    wrong = []
    for importer, targets in graph.items():
        for target in targets:
            same = part(importer) == part(target) or layer(importer) == layer(target) == 0
            if not same and layer(target) >= layer(importer):
                wrong.append((importer, target))
    return sorted(wrong)


def in_circles(graph):
    """List the modules that import themselves, directly or through others."""

    def reached(start):
        seen, todo = set(), [*graph[start]]
        while todo:
            module = todo.pop()
            if module not in seen:
                seen.add(module)
                todo += graph[module]
        return seen

    return sorted(module for module in graph if module in reached(module))


def test_imports_only_go_down_and_never_in_a_circle():
    graph = imports(PACKAGE)
    assert len(graph) > 150
    assert upward(graph) == []
    assert in_circles(graph) == []


@pytest.mark.parametrize(
    ("files", "wrong", "ring"),
    [
        ({"nn/a.py": "def f():\n    from timescales.runs import b", "runs/b.py": ""}, 1, 0),  # lazy imports count
        ({"nn/a.py": "from timescales import tasks", "tasks/__init__.py": ""}, 1, 0),
        ({"runs/b.py": "import timescales.nn.a", "nn/a.py": ""}, 0, 0),
        ({"nn/a.py": "from timescales.nn import b", "nn/b.py": "from timescales.nn.a import x"}, 0, 2),
        ({"nn/a.py": "from . import b", "nn/b.py": "from .a import x"}, 0, 2),
        ({"nn/a.py": "importlib.import_module('timescales.runs.b')", "runs/b.py": ""}, 1, 0),
        ({"nn/a.py": "importlib.import_module(f'timescales.runs.{b}')", "runs/__init__.py": ""}, 1, 0),
    ],
)
def test_the_test_sees_what_is_wrong(tmp_path, files, wrong, ring):
    for name, text in files.items():
        path = tmp_path / "timescales" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = imports(tmp_path / "timescales")
    assert (len(upward(graph)), len(in_circles(graph))) == (wrong, ring)
