"""From overrides to configurations, fast enough for thousands of them. Imports no torch.

Hydra composes the files that overrides choose. Values are set here, each after a look at the key and at its type, so
that what is wrong is named by us and not by Hydra.
"""

from __future__ import annotations

import contextlib
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
SIGNS = {"": OverrideType.CHANGE, "+": OverrideType.ADD, "++": OverrideType.FORCE_ADD, "~": OverrideType.DEL}
FORM = r"(?:\+{0,2}KEY=|~KEY(?:=|$))".replace("KEY", r"[\w$][\w$-]*(?:[./][\w$-]+)*")  # what an override begins with
OF_GROUPS = ("model.", "task.", "optimizer.")  # what the keys begin with that depend on a choice of files


class Composer:
    """Composes as Hydra would: composer(["model=plstm", "task.T=500"]) is the configuration, without Hydra's part.

    Each choice of files (model=, task=, table=, ...) is composed once, by Hydra, which takes about a tenth of a second;
    values are set on copies of it, which takes a few milliseconds. Raises ConfigError with the fix for a name, a key or
    a type that is wrong, and Hydra's and OmegaConf's errors for what a file holds (see `messages.one_line`).
    """

    def __init__(self, loader: ConfigLoader) -> None:
        self.loader = loader
        self.parser = OverridesParser.create(config_loader=loader)
        # By the overrides that choose files: the configuration, and the file of each group.
        self.composed: dict[tuple[str, ...], tuple[DictConfig, dict[str, str]]] = {}
        self.parsed: dict[str, Override] = {}

    def __call__(self, overrides: Overrides) -> DictConfig:
        given = self.parse_all(overrides)
        cfg = self.of_files(given)[0].copy()
        for override in given:
            if not chooses(override) and not of_hydra(override):
                set_value(cfg, override)
        return cfg

    def hydra(self, overrides: Overrides) -> DictConfig:
        """A configuration with Hydra's own part, below the key `hydra`: by its overrides and the user's own files."""
        parsed = self.parse_all(overrides)
        given = [override for override in parsed if of_hydra(override)]
        own = [o for o in parsed if o.is_add() and not o.is_sweep_override() and chooses(o)]
        whole = self._load([*own, *filter(chooses, given)], RunMode.MULTIRUN)
        for override in given:
            if not chooses(override):
                set_value(whole, override)
        return whole

    def parse(self, text: str) -> Override:
        """An override as Hydra reads it."""
        if text not in self.parsed:
            self.parsed[text] = parse(text, self.parser)
        return self.parsed[text]

    def parse_all(self, overrides: Overrides) -> list[Override]:
        """Overrides of which some may be texts, as Hydra reads them."""
        return [self.parse(override) if isinstance(override, str) else override for override in overrides]

    def of_files(self, overrides: Overrides) -> tuple[DictConfig, dict[str, str]]:
        """Of those of the overrides that choose files: the configuration, and the file of each group.

        They are shared: do not change them.
        """
        given = [o for o in self.parse_all(overrides) if chooses(o) and not of_hydra(o)]
        key = tuple(map(text_of, given))
        if key not in self.composed:
            cfg = self._load(given, RunMode.RUN)
            files = dict(cfg.hydra.runtime.choices)
            with open_dict(cfg):
                del cfg["hydra"]  # the largest part, which no run needs
                cfg.table = cfg.table and cfg.table.name
            self.composed[key] = cfg, files
        return self.composed[key]

    def _load(self, given: Sequence[Override], mode: RunMode) -> DictConfig:
        """What Hydra composes of a choice of files."""
        for override in given:
            check_choice(override)
        try:
            texts = [*map(text_of, given), *folders.searchpath()]
            return self.loader.load_configuration("config", texts, mode)
        except HydraException as error:
            own, cause = [text_of(o) for o in given if o.is_add()], error.__cause__ or error.__context__
            if own and isinstance(cause, ConfigKeyError | ConfigAttributeError):
                raise ConfigError(
                    f"{own[-1]}: its keys go below {cause.full_key}, which does not exist; "
                    "begin the file with # @package _global_"
                ) from error
            raise

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
                raise ConfigError(f"{override.input_line}: a range needs finite numbers and a step that is not 0")
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


def parse(text: str, parser: OverridesParser | None = None) -> Override:
    """An override by Hydra's grammar. Raises ConfigError for a text that is none."""
    with contextlib.suppress(OverrideParseException):
        if re.match(FORM, text, re.ASCII):
            return (parser or OverridesParser.create()).parse_overrides([text])[0]
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
    return override.key_or_group.startswith(("hydra.", "hydra/")) or override.key_or_group == "hydra"


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


def set_value(cfg: DictConfig, override: Override) -> None:
    """Set, add or delete a value as Hydra does. Raises ConfigError for a key or a type that does not fit."""
    key, value = override.key_or_group, override.value()
    adds = override.is_add() or override.is_force_add()
    if key == "loop" and not override.is_delete() and not isinstance(value, dict):  # ${...} would hide its keys
        raise ConfigError(schema.wrong_type(key, text_of(override).partition("=")[2]))
    try:
        if not adds and not values.has(cfg, key):
            raise ConfigError(messages.unknown(key, cfg))
        if override.is_delete():
            _delete(cfg, override)
        elif override.is_add() and not isinstance(value, dict | list) and OmegaConf.select(cfg, key) is not None:
            raise ConfigError(f"{key} is there already: write {key}=..., without +")
        else:
            OmegaConf.update(cfg, key, value, merge=True, force_add=adds)
    except (ConfigAttributeError, ConfigKeyError) as error:  # of a key in loop={foo:1}
        raise ConfigError(messages.unknown(error.full_key or key, cfg)) from error
    except (InterpolationResolutionError, GrammarParseError) as error:
        raise ConfigError(messages.wrong_reference(text_of(override))) from error
    except (ValidationError, ConfigTypeError) as error:
        given = text_of(override).partition("=")[2] if (error.full_key or key) == key else ""
        raise ConfigError(schema.wrong_type(error.full_key or key, given)) from error


def _delete(cfg: DictConfig, override: Override) -> None:
    """Delete a key. Raises ConfigError for one that must stay."""
    key = override.key_or_group
    if key in schema.TYPES:
        raise ConfigError(f"{key} must not be deleted")
    if override.value() not in (None, OmegaConf.select(cfg, key)):
        raise ConfigError(f"{text_of(override)}: write ~{key} alone to delete it")
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    with open_dict(node):
        del node[name]
