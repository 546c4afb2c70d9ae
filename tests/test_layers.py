"""Imports only go down: nothing imports from a layer above its own, and nothing imports in a circle."""

import ast
import itertools
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# From the bottom to the top; packages of one layer do not know each other.
LAYERS = (
    ("errors", "paths", "files"),
    ("nn", "tasks", "config", "plotting"),
    ("optim", "training"),
    ("runs",),
    ("analysis",),
    ("papers",),
    ("reports",),
    ("cli", "sweep", ""),
    ("__main__",),
)


def graph(package):
    """By module the modules of the package that it imports, at its top or inside a function."""
    files = {".".join(p.relative_to(package.parent).with_suffix("").parts): p for p in package.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in files.items()}
    found = {}
    for name, path in modules.items():
        found[name] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                asked = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: write the whole name of what is imported"
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                asked = [full if full in modules else node.module for full in whole]
            else:
                continue
            found[name] |= {module for module in asked if module in modules and module != name}
    return found


def layer(module):
    """Number of a module's layer, and its package."""
    package = module.split(".")[1] if "." in module else ""
    return next(k for k, packages in enumerate(LAYERS) if package in packages), package


def upward(imports):
    """Imports of a layer above, or of another package in the same layer."""
    edges = [(module, other) for module, others in imports.items() for other in others]
    wrong = []
    for module, other in edges:
        (own, package), (theirs, other_package) = layer(module), layer(other)
        beside = own == theirs and package != other_package and own > 0
        if theirs > own or beside:
            wrong.append(f"{module} imports {other}")
    return sorted(wrong)


def circles(imports):
    """Sets of modules that import each other, directly or through others."""
    reached = {module: set(others) for module, others in imports.items()}
    for _ in itertools.takewhile(bool, iter(lambda: _spread(reached), False)):
        pass
    found = {frozenset({module} | {o for o in others if module in reached[o]}) for module, others in reached.items()}
    return [sorted(circle) for circle in found if len(circle) > 1]


def _spread(reached):
    """Let each module reach what those reach that it reaches; returns whether anything was added."""
    grown = False
    for others in reached.values():
        more = set().union(*(reached[o] for o in others)) - others if others else set()
        grown, _ = grown or bool(more), others.update(more)
    return grown


def test_imports_only_go_down():
    assert upward(graph(ROOT / "timescales")) == []


def test_nothing_imports_in_a_circle():
    assert circles(graph(ROOT / "timescales")) == []


@pytest.mark.parametrize(
    ("files", "wrong", "ring"),
    [
        ({"nn/a.py": "def f():\n    from timescales.runs import b", "runs/b.py": ""}, 1, 0),  # lazy imports count
        ({"nn/a.py": "from timescales import tasks", "tasks/__init__.py": ""}, 1, 0),
        ({"runs/b.py": "import timescales.nn.a", "nn/a.py": ""}, 0, 0),
        ({"nn/a.py": "from timescales.nn import b", "nn/b.py": "from timescales.nn.a import x"}, 0, 1),
    ],
)
def test_the_test_sees_what_is_wrong(tmp_path, files, wrong, ring):
    for name, text in files.items():
        path = tmp_path / "timescales" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = graph(tmp_path / "timescales")
    assert (len(upward(found)), len(circles(found))) == (wrong, ring)
