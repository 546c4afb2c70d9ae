"""Configurations without a command line: for sweeps, tables and reports, by the thousand.

Hydra composes each choice of files once, and values are set on copies of it, by the same functions that Hydra calls for
a single run. Hydra's own part below `hydra`, which no run needs, is left out. These functions are private, and all that
is used of it; tests/config/test_compose.py compares what they give with what Hydra's public `compose` gives.
"""

import functools
import pickle
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.defaults_list import create_defaults_list
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from timescales.config import folders
from timescales.config.run import Run, runs_of
from timescales.errors import ConfigError

# What is wrong in a user's command line, files or folders: such an error is one line (`errors.one_line`).
WRONG_INPUT = (ConfigError, HydraException, OmegaConfBaseException, YAMLError, OSError)
PLAIN_GROUPS = ("paper", "model", "task", "optimizer", "logger")  # groups in which only a file of models sets `model`


class Files(CachingConfigRepository):
    """Hydra's files, each read once. A composition changes what it is given, so it is given copies.

    Copies are made by pickle, which is ten times as fast as copy.deepcopy.
    """

    def __init__(self, delegate: Any) -> None:
        super().__init__(delegate)
        self.read: dict[str, bytes] = {}

    def load_config(self, config_path: str) -> Any:
        """Return a file's content, for one composition."""
        if config_path not in self.read:
            self.read[config_path] = pickle.dumps(super().load_config(config_path))
        return pickle.loads(self.read[config_path])


class Composer:
    """Compose configurations as Hydra does, without Hydra's own part: composer(["model=plstm", "task.T=500"]).

    It reads conf/ and, if there is one, the user's own folder (`folders.use`). Raises errors of WRONG_INPUT.
    """

    def __init__(self) -> None:
        Plugins.instance()  # registers Hydra's readers of files
        path = ConfigSearchPathImpl()
        for folder in folders.places():
            path.append("main", f"file://{folder}")
        path.append("schema", "structured://")
        self.loader = ConfigLoaderImpl(path)
        self.repository = Files(self.loader.repository)
        self.is_group = functools.cache(self.repository.group_exists)  # it looks into every folder of files
        self.composed: dict[tuple[str, ...], bytes] = {}  # pickled, by the overrides that choose files
        self.latest: tuple[Sequence[str], DictConfig] | None = None  # the latest setting of `runs`, without its seed

    def __call__(self, overrides: Sequence[str]) -> DictConfig:
        cfg = self.of_files(overrides)
        ConfigLoaderImpl._apply_overrides_to_config([o for o in map(parse, overrides) if not self.chooses(o)], cfg)
        return cfg

    def runs(self, overrides: Sequence[str]) -> list[Run]:
        """Make the runs of overrides, one of many requests (`runs_of`). Seeds of the same setting are composed once."""
        keys = [parse(text).key_or_group for text in overrides]
        setting = [text for text, key in zip(overrides, keys, strict=True) if key != "seed"]
        if keys.count("seed") != 1 or not (seed := re.fullmatch(r"seed=(\d+)", overrides[keys.index("seed")])):
            return runs_of(self(overrides), several=True)
        if self.latest is None or self.latest[0] != setting:
            self.latest = setting, self(setting)
        self.latest[1].seed = int(seed[1])
        return runs_of(self.latest[1], several=True)

    def of_files(self, overrides: Sequence[str]) -> DictConfig:
        """Compose what the overrides choose, without the values that they set."""
        chosen = [o for o in map(parse, overrides) if self.chooses(o)]
        key = tuple(str(o.input_line) for o in chosen)
        if key in self.composed:
            return pickle.loads(self.composed[key])
        cfg = self._of_model(chosen) or self._of_choice(chosen)
        self.composed[key] = pickle.dumps(cfg)
        return cfg

    def _of_choice(self, chosen: Sequence[Override]) -> DictConfig:
        found = create_defaults_list(self.repository, "base", list(chosen), prepend_hydra=False, skip_missing=False)
        cfg = self.loader._compose_config_from_defaults_list(found.defaults, self.repository)
        OmegaConf.set_struct(cfg, True)
        return cfg

    def _of_model(self, chosen: Sequence[Override]) -> DictConfig | None:
        """Put a model's own keys into the configuration without it: the atlas has 40 models on each of its tasks.

        None where a model may depend on more than its own file: on recipes, or on files in the user's folder.
        """
        by_group = {override.key_or_group: str(override.input_line) for override in chosen}
        if len(by_group) < len(chosen) or not {"paper", "model", "task"} <= {*by_group} <= {*PLAIN_GROUPS}:
            return None
        paper = by_group["paper"].removeprefix("paper=")
        if folders.choices(f"recipe/{paper}") or len(folders.places()) > 1:
            return None
        cfg = self.of_files([text for group, text in by_group.items() if group != "model"])
        with flag_override(cfg, "no_deepcopy_set_nodes", True):  # both parts are copies already
            cfg.model = self.of_files([by_group["paper"], by_group["model"]]).model
        return cfg

    def chooses(self, override: Override) -> bool:
        """Return whether an override chooses a group's file rather than setting a value."""
        return self.is_group(override.key_or_group) and not isinstance(override.value(), dict)

    def each_value(self, text: str) -> list[str]:
        """Expand a sweep override into overrides of one value each. A plain override stays as it is."""
        override = parse(text)
        if not override.is_sweep_override():
            return [text]
        if not override.is_discrete_sweep():
            raise ConfigError(f"{text}: a range is for hydra/sweeper=optuna; give values here")
        swept = replace(override, config_loader=self.loader)  # glob(*) asks for files
        values = [f"{override.get_key_element()}={value}" for value in swept.sweep_string_iterator()]
        if not values:
            raise ConfigError(f"{text} selects no value: there is nothing to run")
        return values


@functools.cache
def parse(text: str) -> Override:
    """Parse an override by Hydra's grammar."""
    return OverridesParser.create().parse_override(text)
