"""A table's yaml, checked, and its runs composed. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from yaml import YAMLError

from timescales import analysis, errors, paths
from timescales.config import folders, messages
from timescales.config.compose import Composer
from timescales.errors import ConfigError
from timescales.papers import claims
from timescales.papers.table import Run, check, expand


def runs(
    table: Mapping[str, Any], profile: str | None, composer: Composer
) -> tuple[list[tuple[Run, DictConfig]], list[str]]:
    """A table's runs with their configurations, and a line for each run that cannot be composed here.

    Such a run has, say, a task that is not there. Raises errors for which `cli.one_line` has no line.
    """
    found, wrong = [], []
    for run in expand(table, profile):
        try:
            found.append((run, composer(run.overrides)))
        except Exception as error:
            if (line := messages.one_line(error, run.overrides)) is None:
                raise
            wrong.append(line)
    return found, wrong


def table(name: str) -> dict[str, Any]:
    """The `table` node of table/<name>.yaml, in conf/ or in one's own folder.

    Raises ConfigError if there is none, or one that cannot be reported.
    """
    folders.check_user_folder()
    places = (folder / "table" / f"{name}.yaml" for folder in (paths.conf(), *paths.user_folders()))
    path = next((path for path in places if path.is_file()), None)
    if path is None:
        raise ConfigError(folders.no_such("table", name))
    try:
        found = OmegaConf.to_container(OmegaConf.load(path))
    except YAMLError as error:
        raise ConfigError(messages.one_line(error, []) or f"{path}: {error}") from error
    node = found.get("table") if isinstance(found, dict) else None
    if not isinstance(node, dict) or node.get("name") != name:
        raise ConfigError(f"{path}: it must have table.name: {name}")
    if not re.search(r"^# @package _global_\s*$", path.read_text(), re.MULTILINE):
        raise ConfigError(f"{path} must begin with the line `# @package _global_`")
    check(node)
    claims.check(node)  # what cannot be judged is named before anything is trained
    probes = analysis.names("measure")
    if unknown := [probe for probe in node.get("probe", []) if probe not in probes]:
        raise ConfigError(f"{path}: table.probe: no measurement {unknown[0]}{errors.nearest(unknown[0], probes)}")
    for cell in node["cells"]:
        module, _, function = cell.get("compute", "").partition(".")
        if "compute" in cell and module not in analysis.names(function or "?"):
            raise ConfigError(f"{path}: table.cells: no function {cell['compute']} in timescales/analysis")
    return node
