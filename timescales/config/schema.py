"""The keys of the base configuration (conf/config.yaml) with their types. Imports no torch."""

from __future__ import annotations

import typing
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from timescales.config import values

# Hydra warns, in each process of a sweep, that our hydra/launcher/joblib.yaml replaces the plugin's: it is meant to.
warnings.filterwarnings("ignore", r"\s*'hydra/launcher/joblib' is validated against", UserWarning)
# -m together with hydra.mode=RUN: -m counts.
warnings.filterwarnings("ignore", r"\s*Running Hydra app with --multirun", UserWarning)

MOST_SEEDS = 1000  # in one launch: all configurations are composed before the first run begins
GROUPS = ("paper", "model", "optimizer", "task", "recipe", "logger", "table")  # of which conf/config.yaml chooses files
# The values of keys that have few.
CHOICES: dict[str, tuple[Any, ...]] = {
    "engine": ("auto", "eager", "fused", "graph", "cluster", "cudnn"),
    "precision": ("fp32", "tf32"),
    "logger.name": ("wandb", "tensorboard", "trackio", "csv", "none"),
    "force": (True, False, "stale"),
    "skip": ("local", "committed"),
    "profile": (None, "small", "tiny"),  # tiny: the older word for small
    "loop.schedule": ("none", "cosine", "linear", "step"),
}
COUNTS = ("max_epochs", "max_steps", "eval_every", "patience", "max_eval_batches", "log_every", "log_one_over_e")
# The ranges of numbers, in words and as a test.
RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "seed": ("at least 0 and below 2^63", lambda n: 0 <= n < 2**63),
    "seeds": (f"at least 1 and at most {MOST_SEEDS}", lambda n: 1 <= n <= MOST_SEEDS),
    **{f"loop.{key}": ("at least 1", lambda n: n >= 1) for key in (*COUNTS, "step_size")},
    "loop.gamma": ("above 0 and at most 1", lambda n: 0 < n <= 1),
    "loop.clip_norm": ("above 0", lambda n: n > 0),
    "loop.warmup": ("at least 0", lambda n: n >= 0),
    "loop.checkpoint_every": ("at least 0", lambda n: n >= 0),
}

# The keys that conf/config.yaml gives to every model, with their defaults.
MODEL_DEFAULTS = {"block": "plain", "gap_input": False}
# Keys that a task got when runs of it were finished, with their defaults.
TASK_DEFAULTS = {"time_unit": "raw", "dt": True, "gaps": "uniform", "longest": 200}
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
    profile: str | None = None


# The types of the base configuration's keys.
TYPES = typing.get_type_hints(BaseConfig) | {
    f"loop.{key}": hint for key, hint in typing.get_type_hints(LoopSettings).items()
}


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
