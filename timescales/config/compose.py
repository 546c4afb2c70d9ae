"""From overrides to configurations, fast enough for thousands of them. Imports no torch.

Hydra composes the files that overrides choose. Values are set here, each after a look at the key and at its type, so
that what is wrong is named by us and not by Hydra.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, RangeSweep, ValueType
from hydra.errors import HydraException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    ConfigTypeError,
    GrammarParseError,
    InterpolationResolutionError,
    ValidationError,
)

from timescales import paths
from timescales.config import folders, identity, messages, schema, values
from timescales.errors import ConfigError

Overrides = Sequence[str | Override]
PARSER = OverridesParser.create()
SIGNS = {"": OverrideType.CHANGE, "+": OverrideType.ADD, "++": OverrideType.FORCE_ADD, "~": OverrideType.DEL}
FORM = r"(?:\+{0,2}KEY=|~KEY(?:=|$))".replace("KEY", r"[\w$][\w$-]*(?:[./][\w$-]+)*")  # what an override begins with
# Of these groups in conf/ the files of models alone set keys of `model`.
PLAIN_GROUPS = ("paper", "model", "task", "optimizer", "logger")
OF_GROUPS = ("model.", "task.", "optimizer.")  # what the keys begin with that depend on a choice of files


class Composer:
    """Composes as Hydra would: composer(["model=plstm", "task.T=500"]) is the configuration, without Hydra's part.

    Each choice of files (model=, task=, ...) is composed once, most by Hydra, which takes about a tenth of a second;
    values are set on copies of it, which takes a few milliseconds. Raises ConfigError with the fix for a name, a key or
    a type that is wrong, and Hydra's and OmegaConf's errors for what a file holds (see `messages.one_line`).
    """

    def __init__(self, loader: ConfigLoader) -> None:
        self.loader = loader
        # By the overrides that choose files: the configuration, and the file of each group.
        self.composed: dict[tuple[str, ...], tuple[DictConfig, dict[str, str]]] = {}

    def __call__(self, overrides: Overrides) -> DictConfig:
        given = list(map(self.parse, overrides))
        return set_values(self.of_files(given)[0].copy(), [o for o in given if not of_hydra(o)])

    def hydra(self, overrides: Overrides) -> DictConfig:
        """A configuration with Hydra's own part, below the key `hydra`: by its overrides and the user's own files."""
        parsed = list(map(self.parse, overrides))
        given = [override for override in parsed if of_hydra(override)]
        own = [o for o in parsed if o.is_add() and not o.is_sweep_override() and chooses(o)]
        return set_values(self._load([*own, *filter(chooses, given)], RunMode.MULTIRUN), given)

    def parse(self, text: str | Override) -> Override:
        """An override as Hydra reads it."""
        return parse(text) if isinstance(text, str) else text

    def of_files(self, overrides: Overrides) -> tuple[DictConfig, dict[str, str]]:
        """Of those of the overrides that choose files: the configuration, and the file of each group.

        They are shared: do not change them. Of a table they have the name.
        """
        given = [o for o in map(self.parse, overrides) if chooses(o) and not of_hydra(o)]
        key = tuple(map(text_of, given))
        if key not in self.composed:
            tables = [override for override in given if override.key_or_group == "table"]
            for override in tables:
                check_choice(override)
            # The file of most tables says nothing of a single run, and to read it takes Hydra long.
            apart = len(tables) == 1 and folders.holds_only("table", "table", str(tables[0].value()))
            self.composed[key] = (
                self._of_table(given, tables[0]) if apart else self._of_model(given) or self._of_choice(given)
            )
        return self.composed[key]

    def _of_table(self, given: Sequence[Override], table: Override) -> tuple[DictConfig, dict[str, str]]:
        cfg, files = self.of_files([override for override in given if override is not table])
        cfg, name = cfg.copy(), str(table.value())
        cfg.table = name
        return cfg, files | {"table": name}

    def _of_model(self, given: Sequence[Override]) -> tuple[DictConfig, dict[str, str]] | None:
        """The same where no recipe applies: Hydra reads each model's file once, and not again with every task.

        None where the model may depend on more than its own file: on recipes, or on files in the user's folder.
        """
        chosen = {o.key_or_group: o for o in given if text_of(o) == f"{o.key_or_group}={o.value()}"}
        if len(chosen) < len(given) or not {"paper", "model", "task"} <= set(chosen) <= set(PLAIN_GROUPS):
            return None
        paper, model, task = (chosen[group] for group in ("paper", "model", "task"))
        if folders.choices(f"recipe/{paper.value()}") or len(folders.places()) > 1:
            return None
        cfg, files = self.of_files([o for o in given if o is not model])
        cfg = cfg.copy()
        cfg.model = self.of_files([paper, model])[0].model
        return cfg, files | {
            "model": f"{model.value()}",
            "recipe@model": f"{paper.value()}/{model.value()}",  # as Hydra names them: there is no such file
            "recipe@_global_": f"{paper.value()}/{task.value()}_{model.value()}",
        }

    def _of_choice(self, given: Sequence[Override]) -> tuple[DictConfig, dict[str, str]]:
        cfg = self._load(given, RunMode.RUN)
        files = dict(cfg.hydra.runtime.choices)
        with open_dict(cfg):
            del cfg["hydra"]  # the largest part, which no run needs
            cfg.table = cfg.table and cfg.table.name
        return cfg, files

    def _load(self, given: Sequence[Override], mode: RunMode) -> DictConfig:
        """What Hydra composes of a choice of files."""
        for override in given:
            check_choice(override)
        try:
            return self.loader.load_configuration("config", [*map(text_of, given), *folders.searchpath()], mode)
        except HydraException as error:
            own, cause = [text_of(o) for o in given if o.is_add()], error.__cause__ or error.__context__
            if not own or not isinstance(cause, ConfigKeyError | ConfigAttributeError):
                raise
            below = f"its keys go below {cause.full_key}, which does not exist"
            raise ConfigError(f"{own[-1]}: {below}; begin the file with # @package _global_") from error

    def has(self, overrides: Overrides, key: str) -> bool:
        """Whether the files that overrides choose have a key."""
        return values.has(self.of_files(overrides)[0], key)

    def each_value(self, override: Override) -> list[Override]:
        """The overrides that one which sweeps stands for, each with one value; a plain one is its own."""
        if not override.is_sweep_override():
            return [override]
        swept = override.value()
        if isinstance(swept, RangeSweep):
            numbers = (swept.start or 0, swept.stop or 0, swept.step)
            if not swept.step or not all(map(math.isfinite, numbers)):
                raise ConfigError(f"{text_of(override)}: write a range of finite numbers, with a step that is not 0")
        texts = replace(override, config_loader=self.loader).sweep_string_iterator()  # glob(*) asks for files
        return [self.parse(f"{override.get_key_element()}={text}") for text in texts]


@contextlib.contextmanager
def composing() -> Iterator[Composer]:
    """A Composer, with Hydra's search path."""
    identity.register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(paths.conf()), version_base="1.3"):
        yield Composer(GlobalHydra.instance().config_loader())


# --- one override -----------------------------------------------------------------------------------------------------


@functools.cache
def parse(text: str) -> Override:
    """An override by Hydra's grammar. Raises ConfigError for a text that is none."""
    with contextlib.suppress(OverrideParseException):
        if re.match(FORM, text, re.ASCII):
            return PARSER.parse_overrides([text])[0]
    raise ConfigError(
        f"{text}: cannot be read; write key=value, a key with letters, digits, _ and dots alone, "
        "and quote a value with special characters: 'key=\"a,b\"'"
    )


def setting(key: str, value: Any) -> Override:
    """The override that sets a key, which may have a sign (+model.head_size), to a value, as in a table's grid."""
    bare, line = key.lstrip("+~"), f"{key}={values.spell(value)}"
    return Override(SIGNS[key.removesuffix(bare)], bare, ValueType.ELEMENT, value, input_line=line)


def text_of(override: Override) -> str:
    """An override as it was typed."""
    return override.input_line or ""


def of_hydra(override: Override) -> bool:
    """Whether an override is about Hydra itself: hydra/launcher=joblib, hydra.sweeper.minutes=5."""
    return re.match(r"hydra([./]|$)", override.key_or_group) is not None


def chooses(override: Override) -> bool:
    """Whether an override chooses a group's file rather than setting a value."""
    return folders.is_group(override.key_or_group) and not isinstance(override.value(), dict)


def check_choice(override: Override) -> None:
    """Raise ConfigError if an override does not choose one of its group's files, or must not."""
    group, names, text = override.key_or_group, override.value(), text_of(override)
    ours = group in schema.GROUPS or of_hydra(override)
    if override.is_force_add() or (override.is_add() and ours):
        raise ConfigError(f"{text}: {group} is chosen already: write {group}=NAME alone")
    offered = ", ".join(folders.choices(group))
    if override.type is OverrideType.CHANGE and not ours and "/" not in group:
        raise ConfigError(f"{text}: write +{group}=NAME, with + for a group of your own (there are {offered})")
    for name in names if isinstance(names, list) and override.is_add() else [names]:
        if not isinstance(name, str) or "${" in name or override.is_delete():
            raise ConfigError(f"{text}: {group} takes one of these names: {offered}")
        if not of_hydra(override) and not folders.has(group, name):
            raise ConfigError(folders.no_such(group, name))


def set_values(cfg: DictConfig, overrides: Sequence[Override]) -> DictConfig:
    """Set, add or delete values as Hydra does. Raises ConfigError for a key or a type that does not fit."""
    for override in overrides:
        if chooses(override):
            continue
        key, typed = override.key_or_group, text_of(override).partition("=")[2]
        try:
            _set_value(cfg, override)
        except (ConfigAttributeError, ConfigKeyError) as error:  # of a key in loop={foo:1}
            raise ConfigError(messages.unknown(error.full_key or key, cfg)) from error
        except (InterpolationResolutionError, GrammarParseError) as error:
            raise ConfigError(messages.wrong_reference(text_of(override))) from error
        except (ValidationError, ConfigTypeError) as error:
            wrong = error.full_key or key
            raise ConfigError(schema.wrong_type(wrong, typed if wrong == key else "")) from error
    return cfg


def _set_value(cfg: DictConfig, override: Override) -> None:
    key, value, text = override.key_or_group, override.value(), text_of(override)
    adds = override.is_add() or override.is_force_add()
    if not adds and not values.has(cfg, key):
        raise ConfigError(messages.unknown(key, cfg))
    if override.is_delete():
        if key in schema.TYPES:
            raise ConfigError(f"{key} must not be deleted")
        if value not in (None, OmegaConf.select(cfg, key)):
            raise ConfigError(f"{text}: write ~{key} alone to delete it")
        parent, _, name = key.rpartition(".")
        node = OmegaConf.select(cfg, parent) if parent else cfg
        with open_dict(node):
            del node[name]
    elif key == "loop" and not isinstance(value, dict):  # ${...} would hide its keys
        raise ConfigError(schema.wrong_type(key, text.partition("=")[2]))
    elif override.is_add() and not isinstance(value, dict | list) and OmegaConf.select(cfg, key) is not None:
        raise ConfigError(f"{key} is there already: write {key}=..., without +")
    else:
        OmegaConf.update(cfg, key, value, merge=True, force_add=adds)
