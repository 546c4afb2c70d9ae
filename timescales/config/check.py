"""The ranges and choices of the base configuration. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import GrammarParseError, InterpolationResolutionError, ValidationError

from timescales import paths
from timescales.config import Settings, keys, messages, values
from timescales.config.schema import CHOICES, GROUPS, RANGES, TYPES, LoopSettings, must_be, wrong_type
from timescales.errors import ConfigError, nearest

DEVICES = ("auto", "cpu", "cuda", "mps")
# Only these may read the environment: any other value, perhaps a secret, would be recorded with the configuration.
MAY_READ_ENVIRONMENT = ("data_root", "run_dir")
OF_CLASSES = ("hydra", *(group for group in GROUPS if group in TYPES))  # below these are keys that we do not know


def check(cfg: DictConfig) -> None:
    """Raise ConfigError for keys and values of the base configuration that no run can have."""
    written = dict(keys.dotted(keys.plain(cfg)))
    _check_environment(written)
    _check_references(cfg, written)
    for part in ("loop", "task"):
        if not isinstance(cfg[part], Mapping):
            raise ConfigError(f"{part} holds keys with their values, which --cfg job shows; not {cfg[part]}")
    _check_keys(written)
    _check_classes(cfg)
    _check_values(cfg)
    _check_schedule(cfg.loop)
    if cfg.run_dir == "":
        raise ConfigError("run_dir must not be empty: leave it out for runs/<name>, or give a directory")
    if cfg.profile is not None and cfg.table is None:
        raise ConfigError(f"profile={cfg.profile} is a table's: give table=NAME too")
    if cfg.skip == "committed" and not paths.RESULTS.is_dir():
        raise ConfigError("skip=committed looks into results/, which a checkout has: leave it out here")


def _check_keys(written: Settings) -> None:
    """The keys are those of the schema, all of them. written: the values by dotted keys."""
    for key, value in written.items():
        holds_keys = isinstance(value, dict) and value
        if key not in TYPES and not holds_keys and key.partition(".")[0] not in OF_CLASSES:
            raise ConfigError(f"{key}: no such key{nearest(key, TYPES) or '; leave it out'}")
    if deleted := [key for key in TYPES if key not in written and key != "table"]:
        raise ConfigError(f"{deleted[0]} must not be deleted")


def _check_environment(written: Settings) -> None:
    """No value reads the environment but for two directories."""
    for key, value in written.items():
        # An interpolation whose name is made up of others might be oc.env, too.
        reads = not isinstance(value, dict) and re.search(r"\$\{(\s*oc\.env\b|[^}]*\$\{)", str(value))
        if reads and key.partition(".")[0] not in ("hydra", "table", *MAY_READ_ENVIRONMENT):
            raise ConfigError(
                f"{key}: ${{oc.env:...}} is for {' and '.join(MAY_READ_ENVIRONMENT)} alone: "
                "other values are written into the record and sent to W&B"
            )


def _check_references(cfg: DictConfig, written: Settings) -> None:
    """Every value is there, and so is what it refers to, which has the right type."""
    for key, value in written.items():
        if value == "???":
            raise ConfigError(f"{key} has no value: give {key}=...")
        if isinstance(value, dict) or "${" not in str(value):
            continue
        try:
            OmegaConf.to_container(OmegaConf.create([OmegaConf.select(cfg, key)]), resolve=True)
        except ValidationError as error:
            raise ConfigError(wrong_type(key, value)) from error
        except (InterpolationResolutionError, GrammarParseError) as error:
            for cause in messages.chain(error):
                if isinstance(cause, ConfigError):  # of a resolver of ours
                    raise cause from error
            raise ConfigError(keys.wrong_reference(f"{key}={value}")) from error


def _check_classes(cfg: DictConfig) -> None:
    """What is built has a class, and a name that can be part of file names."""
    for group in ("model", "task", "optimizer"):
        target = OmegaConf.select(cfg, f"{group}._target_")
        if not isinstance(target, str):
            raise ConfigError(f"{group}._target_ must be module.class, as in conf/{group}/*.yaml; not {target!r}")
    for group in ("model", "task", "paper"):
        name = OmegaConf.select(cfg, f"{group}.name")
        if not (isinstance(name, str) and re.fullmatch(r"\w[\w.+-]{0,60}", name)):
            raise ConfigError(
                f"{group}.name must be a word of letters, digits, . _ + -, as it is part of file names; not {name!r}"
            )


def _check_values(cfg: DictConfig) -> None:
    """Values are among their choices, and in their ranges."""
    for key, choices in CHOICES.items():
        value = OmegaConf.select(cfg, key)
        if value not in choices:
            raise ConfigError(f"{key} {must_be(key)}; not {values.spell(value)}{nearest(value, choices)}")
    for key, (words, fits) in RANGES.items():
        value, or_null = OmegaConf.select(cfg, key), ", or null" if values.fits(None, TYPES[key]) else ""
        if value is not None and not fits(value):
            raise ConfigError(f"{key} must be {words}{or_null}; not {value}")
    if cfg.device.split(":")[0] not in DEVICES:
        hint = "; did you mean cuda?" if cfg.device.lower().startswith("gpu") else nearest(cfg.device, DEVICES)
        raise ConfigError(f"device must be auto, cpu, cuda, cuda:N or mps; not {cfg.device}{hint}")


def _check_schedule(loop: DictConfig) -> None:
    """A schedule has the settings that it takes, and no others."""
    if loop.schedule == "step":
        if loop.step_size is None:
            raise ConfigError(
                "loop.schedule=step takes loop.step_size=N, N at least 1: after so many training steps the learning "
                "rate is multiplied by loop.gamma"
            )
    elif loop.step_size is not None or loop.gamma != LoopSettings.gamma:
        key = "step_size" if loop.step_size is not None else "gamma"
        raise ConfigError(f"loop.{key} is for loop.schedule=step: leave it out, or give loop.schedule=step")
