"""Which module imports which: counts, the rules that they break, and the picture in ARCHITECTURE.md.

`python scripts/imports.py` prints the counts, `--png FILE` also draws the packages as boxes in layers. Imports inside
functions and under `if TYPE_CHECKING` count as well. Exit status 1 if there is a circle or an import that runs up.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PACKAGE = ROOT / "timescales"

# From bottom to top. A module imports from lower layers and from its own package, never from a package beside it.
# "timescales" is the package's own `__init__`, which exports the classes of `nn` and `results`.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "extras", "paths", "files", "torch_private"),
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
SHARED = LAYERS[0]  # may import each other; the picture draws them as one box

Graph = Mapping[str, set[str]]


def modules(root: Path = PACKAGE) -> dict[str, Path]:
    """Every module of the package, by its dotted name; a package's name stands for its `__init__`."""
    named = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        named[".".join(part for part in parts if part != "__init__")] = path
    return named


def imports(root: Path = PACKAGE) -> dict[str, set[str]]:
    """For each module of the package the modules of the package that it imports, anywhere in its file."""
    known = modules(root)
    graph = {}
    for name, path in known.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        targets = {_module(target, known) for target in _imported(ast.parse(path.read_text()), package)}
        graph[name] = {target for target in targets if target is not None} - {name}
    return graph


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """The dotted names that a file imports; `package` is what its relative imports start from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) == "import_module" and node.args:
            yield _beginning(node.args[0])


def _beginning(argument: ast.expr) -> str:
    """A string, or what an f-string begins with: of f"timescales.analysis.{name}" the package is known."""
    first = argument.values[0] if isinstance(argument, ast.JoinedStr) and argument.values else argument
    return str(first.value).rstrip(".") if isinstance(first, ast.Constant) else ""


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _module(name: str, known: Mapping[str, Path]) -> str | None:
    """The module of the package that a dotted name lies in; None if it lies elsewhere."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def part(module: str) -> str:
    """The package or top-level module that a module belongs to: "nn" for timescales.nn.cells.lstm."""
    return module.split(".")[1] if "." in module else module


def layer(module: str) -> int:
    """The layer of a module, counted from 1. Raises KeyError for a part that `LAYERS` does not name."""
    for number, parts in enumerate(LAYERS, 1):
        if part(module) in parts:
            return number
    raise KeyError(f"{module}: LAYERS in scripts/imports.py does not name its package {part(module)}")


def circles(graph: Graph) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others; none is the rule."""
    reached = {module: _reachable(graph, module) for module in graph}
    groups = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in graph
        if module in reached[module]
    }
    return sorted(sorted(group) for group in groups)


def _reachable(graph: Graph, start: str) -> set[str]:
    """What can be reached from a module in one step or more."""
    reached: set[str] = set()
    todo = list(graph[start])
    while todo:
        module = todo.pop()
        if module not in reached:
            reached.add(module)
            todo += graph[module]
    return reached


def upward(graph: Graph) -> list[tuple[str, str]]:
    """Imports (importer, imported) that run to a higher layer, or to another package of the same layer."""
    return sorted((a, b) for a, targets in graph.items() for b in targets if not _allowed(a, b))


def _allowed(importer: str, imported: str) -> bool:
    a, b = part(importer), part(imported)
    return a == b or (a in SHARED and b in SHARED) or layer(imported) < layer(importer)


def functions(root: Path = PACKAGE) -> dict[str, int]:
    """Lines of every function and method, from `def` to its last line with the docstring, by "path:line name"."""
    lengths = {}
    for path in modules(root).values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                place = f"{path.relative_to(root.parent)}:{node.lineno} {node.name}"
                lengths[place] = node.end_lineno - node.lineno + 1
    return lengths


def summary(root: Path = PACKAGE) -> str:
    """The counts, one a line, and every circle and upward import by name."""
    graph, lengths = imports(root), functions(root)
    files = {path: len(path.read_text().splitlines()) for path in modules(root).values()}
    longest, largest = max(lengths, key=lengths.__getitem__), max(files, key=files.__getitem__)
    lines = [
        f"files             {len(files)}, the longest has {files[largest]} lines ({largest.relative_to(root.parent)})",
        f"imports           {sum(map(len, graph.values()))} within the package",
        f"circles           {len(circles(graph))}",
        f"upward imports    {len(upward(graph))}",
        f"functions         {len(lengths)}, median {statistics.median(lengths.values()):g} lines",
        f"longest function  {lengths[longest]} lines ({longest})",
    ]
    lines += [f"  circle: {', '.join(group)}" for group in circles(graph)]
    lines += [f"  upward: {importer} imports {imported}" for importer, imported in upward(graph)]
    return "\n".join(lines)


BOX, ROW, WIDTH = 0.5, 1.0, 2.0  # height of a box, distance of two layers, width of a box
# Where the boxes stand, from left to right, so that few arrows cross a box; other parts stand in the middle.
ACROSS = {
    "__main__": 4.2,
    "cli": 4.2,
    "sweep": -1.4,
    "timescales": -4.9,
    "reports": 1.6,
    "papers": 3.0,
    "analysis": -0.4,
    "runs": 1.2,
    "training": -0.9,
    "optim": -3.4,
    "nn": -4.6,
    "tasks": -1.8,
    "config": 1.8,
    "plotting": 4.6,
}


def boxes(graph: Graph) -> dict[str, tuple[float, float]]:
    """The middle of each part's box; the shared modules have one box, named by all of them."""
    there = {part(module) for module in graph}
    places = {", ".join(name for name in SHARED if name in there): (0.0, 0.0)}
    for number, parts in enumerate(LAYERS[1:], 1):
        places |= {name: (ACROSS.get(name, 0.0), number * ROW) for name in parts if name in there}
    return places


def draw(figure: Any, graph: Graph) -> None:
    """The packages as boxes in layers, with an arrow from each package to those that it imports.

    Arrows to the shared modules at the bottom are left out: nearly every package has one.
    """
    from matplotlib.patches import FancyBboxPatch

    places, count = boxes(graph), Counter(map(part, graph))
    figure.set_size_inches(8.5, 6.8)
    ax = figure.subplots()
    edges = {(part(a), part(b)) for a, targets in graph.items() for b in targets}
    for a, b in sorted(edges):
        if a != b and a not in SHARED and b not in SHARED:
            _arrow(ax, places[a], places[b])
    for name, (x, y) in places.items():
        width = 11.2 if y == 0 else WIDTH
        corner = (x - width / 2, y - BOX / 2)
        look: dict[str, Any] = {"boxstyle": "round,pad=0.02", "fc": "#eef2f7", "ec": "#2471a3", "zorder": 2}
        ax.add_patch(FancyBboxPatch(corner, width, BOX, **look))
        files = f" ({count[name]})" if count[name] > 1 else ""
        ax.text(x, y, name + files, ha="center", va="center", fontsize=10)
    for number in range(len(LAYERS)):
        ax.text(-6.4, number * ROW, str(number + 1), ha="center", va="center", fontsize=10, color="#666666")
    ax.set(xlim=(-6.8, 6.0), ylim=(-0.5, len(LAYERS) * ROW - 0.4))
    ax.axis("off")


def _arrow(ax: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """An arrow from the lower edge of a box to the upper edge of another; arrows of one box start side by side."""
    aside = max(-0.4, min(0.4, 0.1 * (end[0] - start[0]))) * WIDTH
    style = {"arrowstyle": "-|>", "color": "#8095aa", "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
    tip, tail = (end[0] - aside, end[1] + BOX / 2), (start[0] + aside, start[1] - BOX / 2)
    ax.annotate("", tip, tail, arrowprops=style, zorder=1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the packages and what they import")
    options = parser.parse_args()
    graph = imports()
    print(summary())
    if options.png:
        from timescales import plotting

        (path,) = plotting.write(lambda figure: draw(figure, graph), options.png, "What imports what, by layer")
        print(f"written: {path}")
    if any(itertools.chain(circles(graph), upward(graph))):
        sys.exit(1)


if __name__ == "__main__":
    main()
