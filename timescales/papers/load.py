"""Read the file of a table and parse it."""

import re
from pathlib import Path

from yaml import YAMLError

from timescales import analysis
from timescales.config import folders
from timescales.config.run import Axes
from timescales.config.values import parse_yaml, spell
from timescales.errors import ConfigError, nearest, one_line
from timescales.papers.parse import Node, parse
from timescales.papers.table import Table


def table(name: str) -> Table:
    """Read table/<name>.yaml, from conf/ or from the user's own folder.

    Raises ConfigError if there is no such table, or if the table cannot be judged or reported.
    """
    path = folders.file("table", name)
    if path is None:
        options = folders.choices("table")
        containing = [option for option in options if name in option]
        near = f"; did you mean {' or '.join(containing)}?" if 0 < len(containing) < 5 else nearest(name, options)
        raise ConfigError(f"table={name}: no such table{near} (there are {', '.join(options)})")
    found, known = parse(_node(path)), analysis.measurable()
    if unknown := [name for name in found.probe if name not in known]:
        raise ConfigError(f"{path}: table.probe: no analysis {unknown[0]}{nearest(unknown[0], known)}")
    for cell in found.cells:
        module, _, function = cell.compute.partition(".")
        if cell.compute and module not in (modules := analysis.names(function or "?")):
            near = f"; did you mean {modules[0]}.{function}?" if len(modules) == 1 else ""
            raise ConfigError(f"{path}: table.cells: no function {cell.compute} in timescales/analysis{near}")
    return found


def _node(path: Path) -> Node:
    """Return the `table` node of a table's file. Raises ConfigError if Hydra could not read the file as a table."""
    try:
        with path.open(encoding="utf-8") as file:
            content = parse_yaml(file)
    except YAMLError as error:
        raise ConfigError(one_line(error)) from error
    node = content.get("table") if isinstance(content, dict) else None
    if not isinstance(node, dict) or node.get("name") != path.stem:
        raise ConfigError(f"{path}: it must have table.name: {path.stem}")
    if others := [str(key) for key in content if key != "table"]:
        raise ConfigError(f"{path}: {others[0]}: a table has only the key `table`; put settings into table.runs")
    if not re.search(r"^# @package _global_\s*$", path.read_text("utf-8"), re.MULTILINE):
        raise ConfigError(f"{path} must begin with the line `# @package _global_`")
    return node


def request(axes: Axes) -> list[str]:
    """Return the overrides of the run with these settings. A key may have a sign, as +model.head_size in a grid."""
    return [f"{key}={spell(value)}" for key, value in axes.items()]
