"""The trunk's types, a run's identity and directory. Imports no torch: a finished run is skipped without it."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict

# Hydra warns, in each process of a sweep, that our hydra/launcher/joblib.yaml replaces the plugin's: it is meant to.
warnings.filterwarnings("ignore", r"\s*'hydra/launcher/joblib' is validated against", UserWarning)

# Keys that change none of a run's numbers are not part of its identity.
NOT_IDENTITY = (
    "logger", "device", "engine", "data_root", "run_dir", "resume", "force", "skip", "table", "profile", "seeds",
    "hydra",
)  # fmt: skip
MOST_SEEDS = 1000  # in one launch: each has its configuration and directory before the first begins
NOT_IDENTITY_LOOP = ("checkpoint_every",)
NOT_IDENTITY_TASK = ("allow_partial",)  # a run on part of the data says so in its record, and fills the same cell
CHOICES = {
    "engine": ("auto", "eager", "fused", "graph", "cudnn"), "precision": ("fp32", "tf32"),
    "logger.name": ("wandb", "csv", "none"),
    "force": (True, False, "stale"), "skip": ("local", "committed"), "profile": (None, "tiny"),
}  # fmt: skip

# Only these may read the environment: any other value, a secret perhaps, would be recorded with the configuration.
MAY_READ_ENVIRONMENT = ("data_root", "run_dir")


class ConfigError(ValueError):
    """A configuration that cannot run; its text is one line that says how to mend it."""


@dataclass
class Loop:
    """How long to train, when to validate, save and log; each key is explained in conf/config.yaml."""

    max_epochs: int = 100
    max_steps: int | None = None
    eval_every: int | None = None
    clip_norm: float | None = None
    patience: int | None = None
    checkpoint_every: float = 60
    max_eval_batches: int | None = None
    log_every: int = 50

    def last_step(self, by_epochs: int) -> int:
        """The step after which training ends if nothing ends it before; by_epochs: the steps of max_epochs epochs."""
        return by_epochs if self.max_steps is None else min(by_epochs, self.max_steps)


@dataclass
class Trunk:
    """Every key of a configuration that is not a model's, task's, optimizer's or logger's own."""

    paper: Any = MISSING
    model: Any = MISSING
    optimizer: Any = MISSING
    task: Any = MISSING
    logger: Any = MISSING
    loop: Loop = field(default_factory=Loop)
    seed: int = 0
    seeds: int = 1
    device: str = "auto"
    engine: str = "auto"
    precision: str = "fp32"
    deterministic: bool = False
    data_root: str | None = None
    run_dir: str = ""
    resume: bool = True
    force: Any = False
    skip: str = "local"
    table: Any = None
    profile: str | None = None


def register() -> None:
    """Make the trunk and the run_dir resolver known to Hydra."""
    ConfigStore.instance().store(name="trunk", node=Trunk)
    OmegaConf.register_new_resolver("run_dir", lambda *, _root_: f"runs/{slug(_root_)}", replace=True)


def resolved(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as plain dicts, interpolations resolved, without what is not a run's (Hydra's, a table's)."""
    return {key: _plain(cfg, key) for key in cfg if key not in ("hydra", "table", "profile", "skip", "seeds")}  # type: ignore[misc]


def identity(cfg: DictConfig | Mapping[str, Any]) -> str:
    """Twelve hex digits: the hash of all that decides a run's numbers.

    1 and 1.0 are one value. A trunk key at its default counts as not there, so that a key added later leaves the
    identity of every older run as it was.
    """
    loop, task = _plain(cfg, "loop"), _plain(cfg, "task")
    for name, part in (("loop.max_epochs", loop), ("task.batch_size", task)):
        if not isinstance(part, dict):
            raise ConfigError(f"{name.partition('.')[0]} holds keys such as {name}; not {part}")
    loop = {k: v for k, v in loop.items() if k not in NOT_IDENTITY_LOOP}
    task = {k: v for k, v in task.items() if k not in NOT_IDENTITY_TASK}
    kept = {key: _plain(cfg, key) for key in cfg if key not in (*NOT_IDENTITY, "loop", "task")}
    kept = _without_defaults(kept, Trunk) | {"loop": _without_defaults(loop, Loop), "task": task}
    return hashlib.sha256(json.dumps(_one_number(kept), sort_keys=True).encode()).hexdigest()[:12]


def _without_defaults(values: dict[Any, Any], known: type) -> dict[Any, Any]:
    defaults = {f.name: f.default for f in fields(known)}
    return {key: value for key, value in values.items() if key not in defaults or value != defaults[key]}


def _one_number(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _one_number(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_one_number(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _plain(cfg: DictConfig | Mapping[str, Any], key: Any) -> Any:
    value = cfg[key]
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def kind(cfg: DictConfig) -> str:
    """What runs that cost the same share: the identity without the seed and the learning rate."""
    with open_dict(cfg):
        seed, rate = cfg.seed, cfg.optimizer.lr
        cfg.seed, cfg.optimizer.lr = 0, 0.0
        found = identity(cfg)
        cfg.seed, cfg.optimizer.lr = seed, rate
    return found


def slug(cfg: DictConfig) -> str:
    """A run's directory name: what it is at a glance, then its identity."""
    return f"{cfg.task.name}-{cfg.model.name}-s{cfg.seed}-{identity(cfg)}"


def id_of(slug: str) -> str:
    """The identity at the end of a run's slug."""
    return slug.rpartition("-")[2]


def group(config: Mapping[str, Any]) -> str:
    """The name that the seeds of a resolved configuration share: what it is, then the identity of its seed 0."""
    words = (config["task"]["name"], config["model"]["name"], identity({**config, "seed": 0}))
    return "-".join(words)


def with_seed(cfg: DictConfig, seed: int) -> DictConfig:
    """The same configuration with another seed."""
    other = cfg.copy()
    other.seed = seed
    return other


def each_seed(cfg: DictConfig) -> list[DictConfig]:
    """The runs of `seeds` seeds from `seed` on, as configurations of single runs; with run_dir=DIR, in DIR/<slug>."""
    if not 1 < cfg.seeds <= MOST_SEEDS:  # one, or a number that `check` refuses
        return [cfg]
    runs = []
    for k in range(cfg.seeds):
        run = with_seed(cfg, cfg.seed + k)
        run.seeds = 1
        if OmegaConf.to_container(cfg, resolve=False)["run_dir"] != "${run_dir:}":  # type: ignore[call-overload]
            run.run_dir = f"{cfg.run_dir}/{slug(run)}"
        runs.append(run)
    return runs


def check(cfg: DictConfig) -> None:
    """Raise ConfigError for keys and values of the trunk that no run can have."""
    from timescales import store  # here: it imports this module, by way of record

    _check_keys(cfg)
    _check_loop(cfg.loop)
    for key, choices in CHOICES.items():
        value = OmegaConf.select(cfg, key)
        if value not in choices:
            words = [json.dumps(choice).strip('"') for choice in choices]
            raise ConfigError(f"{key} must be one of {', '.join(words)}; not {value}{nearest(value, words)}")
    if not 0 <= cfg.seed < 2**63:
        raise ConfigError(f"seed must be at least 0 and below 2^63, not {cfg.seed}")
    if not 1 <= cfg.seeds <= MOST_SEEDS:
        raise ConfigError(
            f"seeds must be at least 1 and at most {MOST_SEEDS}: how many seeds to train, from seed={cfg.seed} on; "
            f"not {cfg.seeds}"
        )
    if not cfg.run_dir:
        raise ConfigError("run_dir must not be empty: leave it out for runs/<name>, or give a directory")
    kinds = ("auto", "cpu", "cuda", "mps")
    if cfg.device.split(":")[0] not in kinds:
        near = "; did you mean cuda?" if cfg.device.lower().startswith("gpu") else nearest(cfg.device, kinds)
        raise ConfigError(f"device must be auto, cpu, cuda, cuda:N or mps; not {cfg.device}{near}")
    if cfg.profile is not None and cfg.table is None:
        raise ConfigError(f"profile={cfg.profile} is a table's: give table=NAME too")
    if cfg.skip == "committed" and not store.RESULTS.is_dir():
        raise ConfigError("skip=committed looks into results/, which a checkout has: leave it out here")


def _check_keys(cfg: DictConfig) -> None:
    """Which keys there are, and what must be a class, a name, or not from the environment."""
    for known, part, prefix in ((Trunk, cfg, ""), (Loop, cfg.loop, "loop.")):
        names = [f.name for f in fields(known)]
        if unknown := [str(key) for key in part if key not in names and key != "hydra"]:
            raise ConfigError(f"{prefix}{unknown[0]}: no such key{nearest(unknown[0], names)}")
        if deleted := [name for name in names if name not in part and name != "table"]:
            raise ConfigError(f"{prefix}{deleted[0]} must not be deleted")
    for group in ("model", "task", "optimizer"):
        target = OmegaConf.select(cfg, f"{group}._target_")
        if not isinstance(target, str):
            raise ConfigError(f"{group}._target_ must be module.class, as in conf/{group}/*.yaml; not {target!r}")
    for group in ("model", "task", "paper"):
        name = OmegaConf.select(cfg, f"{group}.name")
        if not (isinstance(name, str) and re.fullmatch(r"\w[\w.+-]{0,60}", name)):
            raise ConfigError(f"{group}.name is part of file names: a word of letters, digits, . _ + -; not {name!r}")
    as_typed = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(as_typed, dict)
    for key in map(str, as_typed.keys() - {"hydra", "table", *MAY_READ_ENVIRONMENT}):
        if re.search(r"\$\{(\s*oc\.env\b|[^}]*\$\{)", str(as_typed[key])):  # or a name that is made up of others
            raise ConfigError(
                f"{key}: ${{oc.env:...}} is for {' and '.join(MAY_READ_ENVIRONMENT)} alone: "
                "other values are written into the record and sent to W&B"
            )


def _check_loop(loop: DictConfig) -> None:
    """The ranges of the loop's numbers."""
    for key in ("max_epochs", "log_every", "max_steps", "eval_every", "patience", "max_eval_batches"):
        if loop[key] is not None and loop[key] < 1:
            alternative = "" if key in ("max_epochs", "log_every") else ", or null"
            raise ConfigError(f"loop.{key} must be at least 1{alternative}; not {loop[key]}")
    if loop.clip_norm is not None and not loop.clip_norm > 0:
        raise ConfigError(f"loop.clip_norm must be above 0, or null for no clipping; not {loop.clip_norm}")
    if not loop.checkpoint_every >= 0:
        raise ConfigError(f"loop.checkpoint_every is in seconds, at least 0; not {loop.checkpoint_every}")


def nearest(wrong: str, right: Any) -> str:
    """ "; did you mean X?" for the nearest right word, or nothing if none is near."""
    near = difflib.get_close_matches(str(wrong), [str(r) for r in right], 1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""
