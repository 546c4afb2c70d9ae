"""From overrides to configurations, fast enough for hundreds of them. Imports no torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from timescales import paths
from timescales.config import folders, hydra_internals, identity
from timescales.errors import ConfigError


class Composer:
    """Composes as `train.py` would: composer(["model=plstm", "task.T=500"]) is the configuration, without Hydra's part.

    Each choice of groups (model=, task=, table=, ...) is composed once, which takes about a tenth of a second; values
    are set on copies of it, which takes a few milliseconds. Raises Hydra's and OmegaConf's errors (see
    `messages.one_line`).
    """

    def __init__(self, loader: ConfigLoader) -> None:
        self.loader = loader
        self.parser = OverridesParser.create(config_loader=loader)
        self.composed: dict[tuple[str, ...], DictConfig] = {}  # by the overrides that choose groups
        self.parsed: dict[str, Override] = {}
        self.groups: dict[str, bool] = {}

    def __call__(self, overrides: Sequence[str]) -> DictConfig:
        cfg = self._of_groups(self.groups_of(overrides)).copy()
        parsed = [self.parse(text) for text in overrides]
        hydra_internals.apply_overrides([o for o in parsed if not self.is_group(o)], cfg)
        return cfg

    def groups_of(self, overrides: Sequence[str]) -> tuple[str, ...]:
        """Those of the overrides that choose groups."""
        return tuple(text for text in overrides if self.is_group(self.parse(text)))

    def has(self, groups: tuple[str, ...], key: str) -> bool:
        """Whether a choice of groups has a key; also True of one that cannot be composed."""
        group, _, name = key.rpartition(".")
        try:
            node = OmegaConf.select(self._of_groups(groups), group)
        except (HydraException, OmegaConfBaseException, ConfigError):
            return True
        return isinstance(node, DictConfig) and name in node

    def setting(self, overrides: Sequence[str], key: str) -> Any:
        """The value of a key with these overrides; None if there is none, or if they cannot be composed."""
        given = [o.value() for o in map(self.parse, overrides) if o.key_or_group == key]
        try:
            return given[-1] if given else OmegaConf.select(self._of_groups(self.groups_of(overrides)), key)
        except (HydraException, OmegaConfBaseException, ConfigError):
            return None

    def _of_groups(self, groups: tuple[str, ...]) -> DictConfig:
        if groups not in self.composed:
            self.composed[groups] = self._compose(groups)
        return self.composed[groups]

    def _compose(self, groups: Sequence[str]) -> DictConfig:
        """The configuration of a choice of groups, without its largest parts, which no run needs."""
        cfg = self.loader.load_configuration("config", [*groups, *folders.searchpath()], RunMode.RUN)
        with open_dict(cfg):
            del cfg["hydra"]
            cfg.table = cfg.table and cfg.table.name
        return cfg

    def parse(self, text: str) -> Override:
        """An override as Hydra reads it."""
        if text not in self.parsed:
            (self.parsed[text],) = self.parser.parse_overrides([text])  # unlike parse_override, glob(*) knows files
        return self.parsed[text]

    def is_group(self, override: Override) -> bool:
        """Whether an override chooses a group's file rather than setting a value, as Hydra sees it."""
        name = override.key_or_group
        if name not in self.groups:
            self.groups[name] = bool(self.loader.get_group_options(name, None, "config", folders.searchpath()))
        return self.groups[name] and not isinstance(override.value(), dict)

    def choices(self, overrides: Sequence[str]) -> dict[str, str]:
        """The groups of which overrides choose a file, each with the file's name."""
        chosen = [o for o in map(self.parse, overrides) if self.is_group(o)]
        return {o.key_or_group: str(o.value()) for o in chosen}

    def check_choice(self, override: Override) -> None:
        """Raise ConfigError if an override chooses, perhaps among others, a file that its group does not have."""
        group = override.key_or_group
        for name in self.values(override) if self.is_group(override) else ():
            if isinstance(name, str) and not folders.has(group, name):
                raise ConfigError(folders.no_such(group, name))

    def values(self, override: Override) -> list[Any]:
        """All values that an override sweeps over; a plain one has one."""
        if not override.is_sweep_override():
            return [override.value()]
        key = override.key_or_group
        return [self.parse(f"{key}={text}").value() for text in override.sweep_string_iterator()]


@contextlib.contextmanager
def composing() -> Iterator[Composer]:
    """A Composer for scripts, which are not started by Hydra."""
    identity.register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(paths.conf()), version_base="1.3"):
        yield Composer(GlobalHydra.instance().config_loader())
