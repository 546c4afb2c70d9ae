"""Hash a configuration to the id of its run, and compare configurations of runs."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from timescales.config import Config, Settings, folders, schema
from timescales.errors import ConfigError

# Keys that change none of a run's numbers are not part of its identity.
IGNORED_KEYS: tuple[str, ...] = ("logger", "device", "engine", "data_root", "run_dir", "resume", "force", "hydra")
IGNORED_KEYS += schema.SEVERAL_RUNS_KEYS
# log_one_over_e only reaches the loggers, so the record is the same with and without it.
IGNORED_LOOP_KEYS = ("checkpoint_every", "log_one_over_e")
IGNORED_TASK_KEYS = ("allow_partial",)  # the record of a run on part of the data names what is missing
DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(schema.BaseConfig)}
DEFAULTS |= {f"loop.{key}": value for key, value in vars(schema.LoopSettings()).items()}
DEFAULTS |= {f"model.{key}": value for key, value in schema.MODEL_DEFAULTS.items()}
# Keys that a model or a task got when runs of it were finished.
DEFAULTS |= {"model.layer1_timescale": None, "model.layer3_timescale": None, "task.time_unit": "raw", "task.dt": True}
DEFAULTS |= {"task.gaps": "uniform", "task.longest": 200, "task.solved": None}
MODEL_KEYS = ("model.forget_init", "model.T_max")  # what tells models from one another, whatever their recipes


# Hydra lets no recipe choose an optimizer, because the recipe's own name depends on the paper. So a task chooses it.
def _if_paper(name: str, yes: str, no: str, *, _root_: DictConfig) -> str:
    """`yes` if the chosen paper is `name`, else `no`: for defaults lists, whose root has the names of the choices."""
    return yes if _root_.paper == name else no


def _lr_for(name: str, rate: float, *, _root_: DictConfig) -> float:
    """`rate` if the chosen optimizer is `name`, else the learning rate of the chosen optimizer's own file."""
    chosen = _root_.optimizer.get("name")
    if chosen == name:
        return rate
    path = folders.file("optimizer", str(chosen))
    if path is None or (own := OmegaConf.select(OmegaConf.load(path), "lr")) is None:
        raise ConfigError(f"optimizer.name={chosen}: the learning rate here is for {name}; give optimizer.lr=...")
    return own


def _matched(units: int, *, _root_: DictConfig) -> int:
    """Return the units with which the chosen model has as many parameters as the others; `units` for other tasks."""
    return folders.matched().get(_root_.task.name, {}).get(_root_.model.get("name"), units)


for resolver in (_if_paper, _lr_for, _matched):  # at import: workers of a sweep compose before any main
    OmegaConf.register_new_resolver(resolver.__name__[1:], resolver, replace=True)


def resolved(cfg: DictConfig) -> Config:
    """Resolve the interpolations. Return plain dicts, without the keys of Hydra, of tables and of sweeps."""
    plain: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True, enum_to_str=True)
    return {str(key): plain[key] for key in plain if key not in ("hydra", *schema.SEVERAL_RUNS_KEYS)}


def identity(config: Config) -> str:
    """Return the id of a run: twelve hex digits of a hash of all that decides its numbers.

    config: as `resolved` gives it. 1 and 1.0 are one value. A key of the base configuration, one that every model has,
    or one that a model or task got later counts as absent at its default, so that the identity of every older run
    stays.
    """
    hashed: dict[str, Any] = {key: {} for key in config if isinstance(config[key], dict) and is_of_identity(key)}
    for key, value in settings(config).items():
        if is_of_identity(key) and (key not in DEFAULTS or value != DEFAULTS[key]):
            part, _, name = key.partition(".")
            if name:
                hashed[part][name] = value
            else:
                hashed[key] = value
    return hashlib.sha256(json.dumps(_one_number(hashed), sort_keys=True).encode()).hexdigest()[:12]


@functools.cache  # a report of all tables asks half a million times
def is_of_identity(key: str) -> bool:
    """Return whether a key is part of a run's identity."""
    group, _, name = key.partition(".")
    others = {"loop": IGNORED_LOOP_KEYS, "task": IGNORED_TASK_KEYS}
    return group not in IGNORED_KEYS and name not in others.get(group, ())


def settings(config: Config) -> Settings:
    """Return the values of a configuration by their keys, those of its parts by dotted ones: "task.T"."""
    plain = {key: value for key, value in config.items() if not isinstance(value, dict)}
    parts = {key: value for key, value in config.items() if isinstance(value, dict)}
    return {f"{part}.{key}": value for part, inner in parts.items() for key, value in inner.items()} | plain


def comparable(config: Config) -> Settings:
    """Return the settings that decide a run's numbers, without its seed and what tells its model from others."""
    without = ("seed", *MODEL_KEYS)
    found = settings(config).items()
    return {k: v for k, v in found if is_of_identity(k) and k not in without and not k.endswith("._target_")}


def _one_number(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _one_number(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_one_number(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def slug(config: Config, run_id: str) -> str:
    """Return the name of a run's directory: task, model, seed, identity."""
    return f"{config['task']['name']}-{config['model']['name']}-s{config['seed']}-{run_id}"


def family(config: Config) -> str:
    """Return the name that the seeds of a configuration share: task, model, identity of seed 0."""
    return f"{config['task']['name']}-{config['model']['name']}-{identity({**config, 'seed': 0})}"
