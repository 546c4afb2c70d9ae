"""Define a configuration: its keys with types and ranges, and which of them decide a run's numbers, and so its id."""

import functools
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from timescales.config import Config, Settings, folders
from timescales.errors import ConfigError, dotted, nearest

Engine = StrEnum("Engine", "auto eager fused compiled cudnn")
Precision = StrEnum("Precision", "fp32 tf32")
Schedule = StrEnum("Schedule", "none cosine linear step")
Skip = StrEnum("Skip", "local committed")
SEVERAL_RUNS_KEYS = ("seeds", "table", "rung", "skip")  # say which runs are trained; no run has them in its record
MAX_SEEDS = 1000  # in one command: all its runs are planned before the first one begins
LOGGERS = ("wandb", "tensorboard", "trackio", "csv", "none")
# Only these may read the environment: any other value, perhaps a secret, would be recorded with the configuration.
MAY_READ_ENVIRONMENT = ("data_root", "run_dir")

# The keys that conf/base.yaml gives to every model, with their defaults.
MODEL_DEFAULTS = {"block": "plain", "gap_input": False, "auxiliary": "none", "auxiliary_steps": 600}


@dataclass
class LoopSettings:
    """How long to train, when to validate, save and log; each key is explained in conf/base.yaml."""

    max_epochs: int = 100
    max_steps: int | None = None
    eval_every: int | None = None
    clip_norm: float | None = None  # what counts as absent in an id; conf/base.yaml has the default
    patience: int | None = None
    checkpoint_every: float = 60
    max_eval_batches: int | None = None
    log_every: int = 50
    log_one_over_e: int | None = None
    schedule: Schedule = Schedule.none
    warmup: int = 0
    step_size: int | None = None
    gamma: float = 0.1

    def last_step(self, start_of: Callable[[int], int]) -> int:
        """Return the step at which training ends if nothing ends it before.

        start_of: the number of training steps before an epoch (`Task.start_of`).
        """
        by_epochs = start_of(self.max_epochs)
        return by_epochs if self.max_steps is None else min(by_epochs, self.max_steps)


@dataclass
class BaseConfig:
    """Every key of a configuration that does not belong to a model, task, optimizer or logger."""

    paper: Any = MISSING
    model: Any = MISSING
    optimizer: Any = MISSING
    task: Any = MISSING
    logger: Any = MISSING
    loop: LoopSettings = field(default_factory=LoopSettings)
    seed: int = 0
    seeds: int = 1
    device: str = "auto"
    engine: Engine = Engine.auto
    precision: Precision = Precision.fp32
    deterministic: bool = False
    data_root: str | None = None
    run_dir: str | None = None
    resume: bool = True
    force: Any = False
    skip: Skip = Skip.local
    extend: str | None = None
    table: Any = None
    rung: str | None = None


ConfigStore.instance().store(name="base_config", node=BaseConfig)

# The least value of keys that are numbers, or null.
MINIMUM = {"seed": 0, "seeds": 1, "loop.warmup": 0, "loop.checkpoint_every": 0, "loop.step_size": 1}
MINIMUM |= {
    f"loop.{key}": 1
    for key in ("max_epochs", "max_steps", "eval_every", "patience", "max_eval_batches", "log_every", "log_one_over_e")
}


def refuse_environment(cfg: DictConfig) -> None:
    """Raise ConfigError for ${oc.env:...} in a value that would be written into a record and sent to W&B."""
    for key, value in dotted(cfg):
        # An interpolation whose name is made up of others might be oc.env, too.
        reads = re.search(r"\$\{(\s*oc\.env\b|[^}]*\$\{)", value) if isinstance(value, str) else None
        if reads and key.partition(".")[0] not in ("hydra", "table", *MAY_READ_ENVIRONMENT):
            raise ConfigError(
                f"{key}: ${{oc.env:...}} is for {' and '.join(MAY_READ_ENVIRONMENT)} only: "
                "other values are written into the record and sent to W&B"
            )


def check(config: Config) -> None:
    """Raise ConfigError for what types do not say: ranges, and names that become those of files.

    config: as `resolved` gives it, and `seeds`.
    """
    known = BaseConfig.__dataclass_fields__
    if missing := [key for key in known if key not in config and key not in SEVERAL_RUNS_KEYS]:
        raise ConfigError(f"{missing[0]} must not be deleted")
    loop = config["loop"]
    if not isinstance(loop, dict):  # loop=${seed}
        raise ConfigError(f"loop holds keys such as loop.max_epochs; not {loop}")
    for prefix, part, of_part in (("", config, known), ("loop.", loop, LoopSettings.__dataclass_fields__)):
        for key in part:
            if key not in of_part:
                raise ConfigError(f"{prefix}{key}: no such key{nearest(str(key), of_part)}")
    for key, least in MINIMUM.items():
        value = loop[key.removeprefix("loop.")] if key.startswith("loop.") else config[key]
        if value is not None and not least <= value < 2**63:
            raise ConfigError(f"{key} must be at least {least} and below 2^63; not {value}")
    if config["seeds"] > MAX_SEEDS:
        raise ConfigError(f"seeds must be at most {MAX_SEEDS}; not {config['seeds']}")
    if loop["clip_norm"] is not None and not loop["clip_norm"] > 0:
        raise ConfigError(f"loop.clip_norm must be above 0, or null; not {loop['clip_norm']}")
    if not 0 < loop["gamma"] <= 1:
        raise ConfigError(f"loop.gamma must be above 0 and at most 1; not {loop['gamma']}")
    if (loop["schedule"] == "step") != (loop["step_size"] is not None):
        raise ConfigError("loop.schedule=step takes loop.step_size=N; no other schedule has it")
    if config["force"] not in (True, False, "stale"):
        raise ConfigError(f"force must be true, false or stale; not {config['force']}")
    if config["logger"].get("name") not in LOGGERS:
        raise ConfigError(f"logger.name must be one of {', '.join(LOGGERS)}; not {config['logger'].get('name')}")
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", config["device"]):
        near = nearest(config["device"].lower().replace("gpu", "cuda"), ("auto", "cpu", "cuda", "mps"))
        raise ConfigError(f"device must be auto, cpu, cuda, cuda:N or mps; not {config['device']}{near}")
    for group in ("model", "task", "paper"):
        name = config[group].get("name")
        if name is None and isinstance(config[group].get(group), dict):
            if group == "task":  # its file may set more than the task
                raise ConfigError("task.task: the file of this task must begin with the line # @package _global_")
            raise ConfigError(f"{group}.{group}: leave out the key {group}: what is below it belongs to the file's top")
        if not (isinstance(name, str) and re.fullmatch(r"\w[\w.+-]{0,60}", name)):
            raise ConfigError(
                f"{group}.name must be a word of letters, digits, . _ + -, as it is part of file names; not {name!r}"
            )


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
    return {str(key): plain[key] for key in plain if key not in ("hydra", *SEVERAL_RUNS_KEYS)}


# --- the identity of a run --------------------------------------------------------------------------------------------

# Keys and groups that change none of a run's numbers are not part of its identity.
IGNORED = {"logger", "device", "engine", "data_root", "run_dir", "resume", "force", "hydra", *SEVERAL_RUNS_KEYS}
IGNORED |= {"loop.checkpoint_every", "loop.log_one_over_e"}  # the latter only reaches the loggers
IGNORED |= {"task.allow_partial"}  # the record of a run on part of the data names what is missing
DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(BaseConfig)}
DEFAULTS |= {f"loop.{key}": value for key, value in vars(LoopSettings()).items()}
DEFAULTS |= {f"model.{key}": value for key, value in MODEL_DEFAULTS.items()}
# Keys that a model or a task got when runs of it were finished.
DEFAULTS |= {"model.layer1_timescale": None, "model.layer3_timescale": None, "task.time_unit": "raw", "task.dt": True}
DEFAULTS |= {"task.gaps": "uniform", "task.longest": 200, "task.solved": None}
MODEL_KEYS = ("model.forget_init", "model.T_max")  # what tells models from one another, whatever their recipes


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
    return key not in IGNORED and key.partition(".")[0] not in IGNORED


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
