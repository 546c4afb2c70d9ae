"""The keys of the base configuration (conf/config.yaml): their types, choices and ranges, and the check of them.

Imports no torch.
"""

from __future__ import annotations

import re
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import GrammarParseError, InterpolationResolutionError, ValidationError

from timescales import paths
from timescales.config import messages, values
from timescales.errors import ConfigError, nearest, other_engine

# Hydra warns, in each process of a sweep, that our hydra/launcher/joblib.yaml replaces the plugin's: it is meant to.
warnings.filterwarnings("ignore", r"\s*'hydra/launcher/joblib' is validated against", UserWarning)
# -m together with hydra.mode=RUN: -m counts.
warnings.filterwarnings("ignore", r"\s*Running Hydra app with --multirun", UserWarning)

MOST_SEEDS = 1000  # in one launch: all configurations are composed before the first run begins
GROUPS = ("paper", "model", "optimizer", "task", "recipe", "logger", "table")  # of which conf/config.yaml chooses files
# The values of keys that have few.
CHOICES: dict[str, tuple[Any, ...]] = {
    "engine": ("auto", "eager", "fused", "compiled", "cudnn"),
    "precision": ("fp32", "tf32"),
    "logger.name": ("wandb", "tensorboard", "trackio", "csv", "none"),
    "force": (True, False, "stale"),
    "skip": ("local", "committed"),
    "loop.schedule": ("none", "cosine", "linear", "step"),
}
DEVICES = ("auto", "cpu", "cuda", "mps")
# Only these may read the environment: any other value, perhaps a secret, would be recorded with the configuration.
MAY_READ_ENVIRONMENT = ("data_root", "run_dir")
COUNTS = ("max_epochs", "max_steps", "eval_every", "patience", "max_eval_batches", "log_every", "log_one_over_e")
# The ranges of numbers, in words and as a test.
RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "seed": ("at least 0 and below 2^63", lambda n: 0 <= n < 2**63),
    "seeds": (f"at least 1 and at most {MOST_SEEDS}", lambda n: 1 <= n <= MOST_SEEDS),
    **{f"loop.{key}": ("at least 1", lambda n: n >= 1) for key in (*COUNTS, "step_size")},
    **{f"loop.{key}": ("at least 0", lambda n: n >= 0) for key in ("warmup", "checkpoint_every")},
    "loop.gamma": ("above 0 and at most 1", lambda n: 0 < n <= 1),
    "loop.clip_norm": ("above 0", lambda n: n > 0),
}

# The keys that conf/config.yaml gives to every model, with their defaults.
MODEL_DEFAULTS = {"block": "plain", "gap_input": False, "auxiliary": "none", "auxiliary_steps": 600}
# Keys that a task got when runs of it were finished, with their defaults.
TASK_DEFAULTS = {"time_unit": "raw", "dt": True, "gaps": "uniform", "longest": 200, "solved": None}
# Keys that a model got when runs of it were finished, with their defaults.
LATER_MODEL_DEFAULTS = {"layer1_timescale": None, "layer3_timescale": None}


@dataclass
class LoopSettings:
    """How long to train, when to validate, save and log; each key is explained in conf/config.yaml."""

    max_epochs: int = 100
    max_steps: int | None = None
    eval_every: int | None = None
    clip_norm: float | None = None  # what counts as absent in an id; conf/config.yaml has the default
    patience: int | None = None
    checkpoint_every: float = 60
    max_eval_batches: int | None = None
    log_every: int = 50
    log_one_over_e: int | None = None
    schedule: str = "none"
    warmup: int = 0
    step_size: int | None = None
    gamma: float = 0.1

    def last_step(self, start_of: Callable[[int], int]) -> int:
        """The step at which training ends if nothing ends it before.

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
    engine: str = "auto"
    precision: str = "fp32"
    deterministic: bool = False
    data_root: str | None = None
    run_dir: str | None = None
    resume: bool = True
    force: Any = False
    skip: str = "local"
    extend: str | None = None
    table: Any = None
    rung: str | None = None


# The types of the base configuration's keys.
TYPES = typing.get_type_hints(BaseConfig) | {
    f"loop.{key}": hint for key, hint in typing.get_type_hints(LoopSettings).items()
}


OF_CLASSES = ("hydra", *(group for group in GROUPS if group in TYPES))  # below these are keys that we do not know


def wrong_type(key: str, given: str = "") -> str:
    """The line for a value that does not fit its key's type; given: the value, as it was typed."""
    if key not in TYPES or key in GROUPS:
        part = "hydra" if key.startswith("hydra.") else "job"
        return f"{key} must be of another kind; --cfg {part} shows it{given and f'; not {given}'}"
    return f"{key} {must_be(key)}{given and f'; not {given}'}"


def must_be(key: str) -> str:
    """What a key of the base configuration must be."""
    if key in CHOICES:
        return f"must be {values.one_of(CHOICES[key])}"
    if TYPES[key] is LoopSettings:
        return f"holds keys such as {key}.max_epochs"
    return f"must be {values.words(TYPES[key])}"


# --- the check --------------------------------------------------------------------------------------------------------


def check(cfg: DictConfig) -> None:
    """Raise ConfigError for keys and values of the base configuration that no run can have."""
    for key, value in values.dotted(cfg):
        if not isinstance(value, dict):
            _check_value(cfg, key, value)
        if key not in TYPES and not (isinstance(value, dict) and value) and key.partition(".")[0] not in OF_CLASSES:
            raise ConfigError(f"{key}: no such key{nearest(key, TYPES) or '; leave it out'}")
    for part in ("loop", "task"):
        if not isinstance(cfg[part], Mapping):
            raise ConfigError(f"{part} holds keys with their values, which --cfg job shows; not {cfg[part]}")
    _check_classes(cfg)
    _check_choices(cfg)
    for key in ("step_size", "gamma"):
        if cfg.loop.schedule != "step" and cfg.loop[key] != getattr(LoopSettings, key):
            raise ConfigError(f"loop.{key} is for loop.schedule=step: leave it out, or give loop.schedule=step")
    if cfg.loop.schedule == "step" and cfg.loop.step_size is None:
        raise ConfigError(
            "loop.schedule=step takes loop.step_size=N, N at least 1: after so many training steps the learning rate "
            "is multiplied by loop.gamma"
        )
    if cfg.run_dir == "":
        raise ConfigError("run_dir must not be empty: leave it out for runs/<name>, or give a directory")
    if cfg.rung is not None and cfg.table is None:
        raise ConfigError(f"rung={cfg.rung} is a size of a table: give table=NAME too")
    if cfg.skip == "committed" and not paths.RESULTS.is_dir():
        raise ConfigError("skip=committed looks into results/, which a checkout has: leave it out here")


def _check_value(cfg: DictConfig, key: str, value: Any) -> None:
    """A value is there, and so is what it refers to, which has the right type and is not the environment."""
    top, text = key.partition(".")[0], str(value)
    # An interpolation whose name is made up of others might be oc.env, too.
    reads_environment = re.search(r"\$\{(\s*oc\.env\b|[^}]*\$\{)", text)
    if reads_environment and top not in ("hydra", "table", *MAY_READ_ENVIRONMENT):
        raise ConfigError(
            f"{key}: ${{oc.env:...}} is for {' and '.join(MAY_READ_ENVIRONMENT)} alone: "
            "other values are written into the record and sent to W&B"
        )
    if value == "???":
        raise ConfigError(f"{key} has no value: give {key}=...")
    if "${" in text:
        try:
            OmegaConf.to_container(OmegaConf.create([OmegaConf.select(cfg, key)]), resolve=True)
        except ValidationError as error:
            raise ConfigError(wrong_type(key, text)) from error
        except (InterpolationResolutionError, GrammarParseError) as error:
            ours = next((cause for cause in messages.chain(error) if isinstance(cause, ConfigError)), None)
            raise ours or ConfigError(messages.wrong_reference(f"{key}={value}")) from error


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


def _check_choices(cfg: DictConfig) -> None:
    """Values are among their choices, and in their ranges."""
    for key, choices in CHOICES.items():
        value = OmegaConf.select(cfg, key)
        if value not in choices:
            hint = other_engine(value, choices) if key == "engine" else nearest(value, choices)
            raise ConfigError(f"{key} {must_be(key)}; not {values.spell(value)}{hint}")
    for key, (words, fits) in RANGES.items():
        value, or_null = OmegaConf.select(cfg, key), ", or null" if values.fits(None, TYPES[key]) else ""
        if value is not None and not fits(value):
            raise ConfigError(f"{key} must be {words}{or_null}; not {value}")
    if cfg.device.split(":")[0] not in DEVICES:
        hint = nearest(cfg.device.lower().replace("gpu", "cuda"), DEVICES)
        raise ConfigError(f"device must be auto, cpu, cuda, cuda:N or mps; not {cfg.device}{hint}")
