"""A table's file, parsed, and its runs composed. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from timescales import analysis, paths
from timescales.config import folders, messages
from timescales.config.compose import Composer
from timescales.errors import ConfigError, nearest
from timescales.papers.parse import parse
from timescales.papers.table import Run, Table, expand


def table(name: str) -> Table:
    """The table of table/<name>.yaml, in conf/ or in the user's own folder.

    Raises ConfigError if there is none, or one that cannot be judged or reported.
    """
    folders.check_user_folder()
    places = (folder / "table" / f"{name}.yaml" for folder in (paths.conf(), *paths.user_folders()))
    path = next((path for path in places if path.is_file()), None)
    if path is None:
        raise ConfigError(folders.no_such("table", name))
    found = parse(_node(path))
    _check_analyses(path, found)
    return found


def _node(path: Path) -> Mapping[str, Any]:
    """The `table` node of a file that Hydra reads as a table."""
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
    except YAMLError as error:
        raise ConfigError(messages.one_line(error, []) or f"{path}: {error}") from error
    node = content.get("table") if isinstance(content, dict) else None
    if not isinstance(node, dict) or node.get("name") != path.stem:
        raise ConfigError(f"{path}: it must have table.name: {path.stem}")
    if not re.search(r"^# @package _global_\s*$", path.read_text(), re.MULTILINE):
        raise ConfigError(f"{path} must begin with the line `# @package _global_`")
    return node


def _check_analyses(path: Path, table: Table) -> None:
    """Raise ConfigError for an analysis that is not there."""
    known = analysis.measurable()
    if unknown := [name for name in table.probe if name not in known]:
        raise ConfigError(f"{path}: table.probe: no analysis {unknown[0]}{nearest(unknown[0], known)}")
    for cell in table.cells:
        module, _, function = cell.compute.partition(".")
        if cell.compute and module not in analysis.names(function or "?"):
            raise ConfigError(f"{path}: table.cells: no function {cell.compute} in timescales/analysis")


def runs(table: Table, profile: str | None, composer: Composer) -> tuple[list[tuple[Run, DictConfig]], list[str]]:
    """A table's runs with their configurations, and a line for each run that cannot be composed here.

    Such a run has, say, a task that is not there. Raises errors for which `messages.one_line` has no line.
    """
    composed, wrong = [], []
    for run in expand(table, profile):
        try:
            composed.append((run, composer(run.overrides)))
        except Exception as error:
            if (line := messages.one_line(error, run.overrides)) is None:
                raise
            wrong.append(line)
    return composed, wrong


def configuration(run: Run, composer: Composer) -> DictConfig | None:
    """The configuration of a run; None if one of its settings is no key of its model or task."""
    try:
        return composer(run.overrides)
    except (OmegaConfBaseException, ConfigCompositionException):
        return None
