"""The ranges and choices of the base configuration. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from timescales import paths
from timescales.config import values
from timescales.config.schema import CHOICES, MOST_SEEDS, BaseConfig, LoopSettings, must_be
from timescales.errors import ConfigError, nearest

DEVICES = ("auto", "cpu", "cuda", "mps")
# Only these may read the environment: any other value, perhaps a secret, would be recorded with the configuration.
MAY_READ_ENVIRONMENT = ("data_root", "run_dir")


def check(cfg: DictConfig) -> None:
    """Raise ConfigError for keys and values of the base configuration that no run can have."""
    _check_keys(cfg)
    _check_classes(cfg)
    _check_names(cfg)
    _check_environment(cfg)
    _check_loop(cfg.loop)
    _check_choices(cfg)
    _check_seeds(cfg)
    if cfg.run_dir == "":
        raise ConfigError("run_dir must not be empty: leave it out for runs/<name>, or give a directory")
    _check_device(cfg.device)
    if cfg.profile is not None and cfg.table is None:
        raise ConfigError(f"profile={cfg.profile} is a table's: give table=NAME too")
    if cfg.skip == "committed" and not paths.RESULTS.is_dir():
        raise ConfigError("skip=committed looks into results/, which a checkout has: leave it out here")


def _check_parts(cfg: Mapping[Any, Any]) -> None:
    """Raise ConfigError for a loop or a task that is a value instead of keys."""
    for name in ("loop.max_epochs", "task.batch_size"):
        part = name.partition(".")[0]
        if not isinstance(cfg[part], Mapping):
            raise ConfigError(f"{part} holds keys such as {name}; not {cfg[part]}")


def _check_keys(cfg: DictConfig) -> None:
    """The keys are those of the schema, all of them."""
    _check_parts(cfg)
    for schema, part, prefix in ((BaseConfig, cfg, ""), (LoopSettings, cfg.loop, "loop.")):
        names, keys = [f.name for f in fields(schema)], list(part)
        if unknown := [str(key) for key in keys if key not in names and key != "hydra"]:
            inner = OmegaConf.to_container(part, resolve=False)
            assert isinstance(inner, dict)
            whole = next((key for key, _ in dotted({unknown[0]: inner[unknown[0]]})), unknown[0])
            raise ConfigError(f"{prefix}{whole}: no such key{nearest(unknown[0], names) or '; leave it out'}")
        if deleted := [name for name in names if name not in keys and name != "table"]:
            raise ConfigError(f"{prefix}{deleted[0]} must not be deleted")


def _check_classes(cfg: DictConfig) -> None:
    for group in ("model", "task", "optimizer"):
        target = OmegaConf.select(cfg, f"{group}._target_")
        if not isinstance(target, str):
            raise ConfigError(f"{group}._target_ must be module.class, as in conf/{group}/*.yaml; not {target!r}")


def _check_names(cfg: DictConfig) -> None:
    """Raise ConfigError for a name that is part of file names and should not be."""
    for group in ("model", "task", "paper"):
        name = OmegaConf.select(cfg, f"{group}.name")
        if not (isinstance(name, str) and re.fullmatch(r"\w[\w.+-]{0,60}", name)):
            raise ConfigError(
                f"{group}.name must be a word of letters, digits, . _ + -, as it is part of file names; not {name!r}"
            )


def _check_environment(cfg: DictConfig) -> None:
    """No value reads the environment but for two directories."""
    for key, value in dotted(OmegaConf.to_container(cfg, resolve=False)):
        # An interpolation whose name is made up of others might be oc.env, too.
        reads = re.search(r"\$\{(\s*oc\.env\b|[^}]*\$\{)", str(value))
        if reads and key.partition(".")[0] not in ("hydra", "table", *MAY_READ_ENVIRONMENT):
            raise ConfigError(
                f"{key}: ${{oc.env:...}} is for {' and '.join(MAY_READ_ENVIRONMENT)} alone: "
                "other values are written into the record and sent to W&B"
            )


def dotted(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All values of a configuration with their dotted keys: ("task.T", 500)."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _check_choices(cfg: DictConfig) -> None:
    for key, choices in CHOICES.items():
        value = OmegaConf.select(cfg, key)
        if value not in choices:
            raise ConfigError(f"{key} {must_be(key)}; not {values.spell(value)}{nearest(value, choices)}")


def _check_seeds(cfg: DictConfig) -> None:
    if not 0 <= cfg.seed < 2**63:
        raise ConfigError(f"seed must be at least 0 and below 2^63, not {cfg.seed}")
    if not 1 <= cfg.seeds <= MOST_SEEDS:
        raise ConfigError(
            f"seeds must be at least 1 and at most {MOST_SEEDS}: how many seeds to train, from seed={cfg.seed} on; "
            f"not {cfg.seeds}"
        )


def _check_device(device: str) -> None:
    if device.split(":")[0] not in DEVICES:
        hint = "; did you mean cuda?" if device.lower().startswith("gpu") else nearest(device, DEVICES)
        raise ConfigError(f"device must be auto, cpu, cuda, cuda:N or mps; not {device}{hint}")


def _check_schedule(loop: DictConfig) -> None:
    """A schedule has the settings that it takes, and no others."""
    stepwise = loop.schedule == "step"
    if loop.warmup < 0:
        raise ConfigError(f"loop.warmup must be at least 0: training steps; not {loop.warmup}")
    if stepwise and (loop.step_size is None or loop.step_size < 1):
        raise ConfigError(
            f"loop.schedule=step takes loop.step_size=N, N at least 1: after so many training steps the learning rate "
            f"is multiplied by loop.gamma; not {values.spell(loop.step_size)}"
        )
    if stepwise and not 0 < loop.gamma <= 1:
        raise ConfigError(f"loop.gamma must be above 0 and at most 1; not {loop.gamma}")
    for key, given in (("step_size", loop.step_size is not None), ("gamma", loop.gamma != LoopSettings.gamma)):
        if given and not stepwise:
            raise ConfigError(f"loop.{key} is for loop.schedule=step: leave it out, or give loop.schedule=step")


def _check_loop(loop: DictConfig) -> None:
    """The ranges of the loop's numbers."""
    optional = ("max_steps", "eval_every", "patience", "max_eval_batches", "log_one_over_e")
    for key in ("max_epochs", "log_every", *optional):
        if loop[key] is not None and loop[key] < 1:
            alternative = ", or null" if key in optional else ""
            raise ConfigError(f"loop.{key} must be at least 1{alternative}; not {loop[key]}")
    _check_schedule(loop)
    if loop.clip_norm is not None and not loop.clip_norm > 0:
        raise ConfigError(f"loop.clip_norm must be above 0, or null for no clipping; not {loop.clip_norm}")
    if not loop.checkpoint_every >= 0:
        raise ConfigError(f"loop.checkpoint_every must be at least 0 (seconds); not {loop.checkpoint_every}")
