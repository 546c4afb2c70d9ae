"""From overrides to configurations, fast enough for hundreds: no torch, and each choice of groups is composed once."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from yaml import YAMLError

from timescales import analysis, cli, conclusion, schema, tables
from timescales.schema import ConfigError


class Composer:
    """Composes as `train.py` would: composer(["model=plstm", "task.T=500"]) is the configuration, without Hydra's part.

    What chooses groups (model=, task=, table=, ...) is composed once, about a tenth of a second, and kept; the values
    are set on copies of it, a few milliseconds each. Raises Hydra's and OmegaConf's errors (see `cli.one_line`).
    """

    def __init__(self, loader: ConfigLoader) -> None:
        self.loader = loader
        self.parser = OverridesParser.create(config_loader=loader)
        self.kept: dict[tuple[str, ...], DictConfig] = {}
        self.parsed: dict[str, Override] = {}
        self.groups: dict[str, bool] = {}

    def __call__(self, overrides: Sequence[str]) -> DictConfig:
        parsed = [self.parse(text) for text in overrides]
        chosen = [o for o in parsed if self.is_group(o)]
        key = tuple(str(o.input_line) for o in chosen)
        if key not in self.kept:
            cfg = self.loader.load_configuration("config", [*key, *cli.searchpath()], RunMode.RUN)
            with open_dict(cfg):  # by far the largest parts, and none of a run's
                del cfg["hydra"]
                cfg.table = cfg.table and cfg.table.name
            self.kept[key] = cfg
        cfg = self.kept[key].copy()
        ConfigLoaderImpl._apply_overrides_to_config([o for o in parsed if not self.is_group(o)], cfg)
        return cfg

    def parse(self, text: str) -> Override:
        """An override as Hydra reads it."""
        if text not in self.parsed:
            (self.parsed[text],) = self.parser.parse_overrides([text])  # unlike parse_override, glob(*) knows files
        return self.parsed[text]

    def is_group(self, override: Override) -> bool:
        """Whether an override chooses a group's file rather than setting a value."""
        name = override.key_or_group
        if name not in self.groups:
            self.groups[name] = (cli.conf() / name).is_dir()
        return self.groups[name]

    def values(self, override: Override) -> list[Any]:
        """All values that an override sweeps over; a plain one has one."""
        if not override.is_sweep_override():
            return [override.value()]
        key = override.key_or_group
        return [self.parse(f"{key}={text}").value() for text in override.sweep_string_iterator()]


@contextlib.contextmanager
def composing() -> Iterator[Composer]:
    """A Composer for scripts, which are not started by Hydra."""
    schema.register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(cli.conf()), version_base="1.3"):
        yield Composer(GlobalHydra.instance().config_loader())


def runs(
    table: Mapping[str, Any], profile: str | None, composer: Composer
) -> tuple[list[tuple[tables.Run, DictConfig]], list[str]]:
    """A table's runs with their configurations, and a line for each run that cannot be composed here.

    Such a run has, say, a task that is not there. Raises errors for which `cli.one_line` has no line.
    """
    found, wrong = [], []
    for run in tables.expand(table, profile):
        try:
            found.append((run, composer(run.overrides)))
        except Exception as error:
            if (line := cli.one_line(error, run.overrides)) is None:
                raise
            wrong.append(line)
    return found, wrong


def table(name: str) -> dict[str, Any]:
    """The `table` node of table/<name>.yaml, in conf/ or in one's own folder.

    Raises ConfigError if there is none, or one that cannot be reported.
    """
    cli.check_own()
    paths = (folder / "table" / f"{name}.yaml" for folder in (cli.conf(), *cli.own()))
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise ConfigError(cli.no_such("table", name))
    try:
        found = OmegaConf.to_container(OmegaConf.load(path))
    except YAMLError as error:
        raise ConfigError(cli.one_line(error, []) or f"{path}: {error}") from error
    node = found.get("table") if isinstance(found, dict) else None
    if not isinstance(node, dict) or node.get("name") != name:
        raise ConfigError(f"{path}: it must have table.name: {name}")
    if not re.search(r"^# @package _global_\s*$", path.read_text(), re.MULTILINE):
        raise ConfigError(f"{path} must begin with the line `# @package _global_`")
    tables.check(node)
    conclusion.check(node)  # what cannot be judged is named before anything is trained
    probes = analysis.names("measure")
    if unknown := [probe for probe in node.get("probe", []) if probe not in probes]:
        raise ConfigError(f"{path}: table.probe: no measurement {unknown[0]}{schema.nearest(unknown[0], probes)}")
    for cell in node["cells"]:
        module, _, function = cell.get("compute", "").partition(".")
        if "compute" in cell and module not in analysis.names(function or "?"):
            raise ConfigError(f"{path}: table.cells: no function {cell['compute']} in timescales/analysis")
    return node
