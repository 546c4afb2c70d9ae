"""Read the source of users' classes. If it changes, their finished runs are stale."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from timescales.config import Config


def own_classes(config: Config) -> list[str]:
    """Return the classes of a configuration's task, model and optimizer that are neither ours nor torch's."""
    targets = [str(config.get(group, {}).get("_target_", "")) for group in ("task", "model", "optimizer")]
    return [target for target in targets if "." in target and target.partition(".")[0] not in ("timescales", "torch")]


@functools.cache  # a class that is loaded does not change with its file
def code(target: str) -> str | None:
    """Return the code of the file of a class, and of the files in its folder that it imports; None if there is none."""
    path = _file(target.rpartition(".")[0])
    return None if path is None else "\n".join(_codes(path, []))


def _file(module: str) -> Path | None:
    """Return the file of a module, found as `import` does, but without running anything."""
    places: Sequence[str] | None = None  # None: sys.path
    origin = None
    for name in module.split("."):
        spec = PathFinder.find_spec(name, places)
        if spec is None:
            return None
        places, origin = spec.submodule_search_locations or [], spec.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _codes(path: Path, seen: list[Path]) -> list[str]:
    """Return the code of a file and of the files in its folder that it imports, without comments and layout."""
    seen.append(path)
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # the file is being edited
        return [path.read_text(errors="replace")]
    codes = [ast.unparse(tree)]
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [alias.name for node in imports for alias in node.names]
    names += [node.module or "" for node in imports if isinstance(node, ast.ImportFrom)]
    for word in sorted({word for name in names for word in name.split(".") if word}):
        beside = path.with_name(f"{word}.py")
        if beside not in seen and beside.is_file():
            codes += _codes(beside, seen)
    return codes
