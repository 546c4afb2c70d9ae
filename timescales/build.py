"""From a configuration to objects: task, model, optimizer. What cannot be built is a ConfigError of one line."""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

import torch

from timescales.model import SequenceModel
from timescales.schema import ConfigError, nearest
from timescales.tasks import Task


def build(config: dict[str, Any]) -> tuple[SequenceModel, Task, torch.optim.Optimizer]:
    """Task, model and optimizer of a resolved configuration, on its device. Sets torch's seed and precision.

    The model is built on the CPU and moved, so the same seed gives the same weights everywhere. "auto" in
    config["device"] and config["model"]["T_max"] is replaced by what it came to.
    Raises ConfigError.
    """
    config["device"] = pick_device(config["device"])
    # Before anything runs in parallel: a thread pool that exists already would not take it over.
    torch.set_flush_denormal(True)
    torch.set_float32_matmul_precision({"fp32": "highest", "tf32": "high"}[config["precision"]])
    torch.use_deterministic_algorithms(config["deterministic"])
    torch.manual_seed(config["seed"])

    shared = {"seed": config["seed"], "device": config["device"], "data_root": config["data_root"]}
    task = construct("task", config["task"], **shared)
    if config["model"].get("T_max") == "auto":
        config["model"]["T_max"] = task.spec.horizon
    torch.manual_seed(config["seed"])  # the weights do not depend on what the task drew
    rnn = construct("model", config["model"], input_size=task.spec.input_size, engine=config["engine"])
    model = SequenceModel(rnn, task.spec).to(config["device"])
    optimizer = construct("optimizer", config["optimizer"], params=model.parameters())
    return model, task, optimizer


def pick_device(name: str) -> str:
    """The device to use for a configuration's word; "auto" is a GPU if there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device={name}: torch sees no GPU here; use device=cpu or device=auto")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(f"device={name}: {str(error).splitlines()[0]}") from error
    return name


def construct(group: str, config: dict[str, Any], **shared: Any) -> Any:
    """Call config["_target_"] with the other keys as arguments, and those of `shared` that it takes."""
    arguments = {key: value for key, value in config.items() if key not in ("_target_", "name")}
    target = locate(group, config["_target_"])
    parameters = inspect.signature(target).parameters
    for key in arguments:
        if key not in parameters or key in shared:
            known = [p for p in parameters if p not in shared]
            raise ConfigError(f"{group}.{key} is no argument of {config['_target_']}{nearest(key, known)}")
    hints = typing.get_type_hints(target.__init__)
    for key, value in arguments.items():
        if not _fits(value, hints.get(key, Any)):
            hint = hints[key]
            raise ConfigError(f"{group}.{key} must be {getattr(hint, '__name__', hint)}, not {value!r}")
    try:
        return target(**arguments, **{key: value for key, value in shared.items() if key in parameters})
    except ValueError as error:  # for people: says what is wrong and how to mend it
        raise ConfigError(f"{group}={config['name']}: {error}") from error
    except TypeError as error:
        raise ConfigError(f"{group}={config['name']}: {error}") from error


def locate(group: str, target: str) -> Callable:
    """The class a configuration names; only this package's and torch's."""
    module, _, name = target.rpartition(".")
    if module.split(".")[0] not in ("timescales", "torch"):
        raise ConfigError(f"{group}._target_ must lie in timescales or torch, not {target!r}")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{group}._target_: there is no {target} ({error})") from error


def _fits(value: Any, hint: Any) -> bool:
    """Whether a plain value from YAML can be an argument of the annotated type; types not named here always can."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in typing.get_args(hint))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    kind = typing.get_origin(hint) or hint
    checks = {int: number and isinstance(value, int), float: number, bool: isinstance(value, bool),
              str: isinstance(value, str), type(None): value is None}  # fmt: skip
    if kind in checks:
        return bool(checks[kind])
    if kind in (Sequence, list, tuple):
        return isinstance(value, list | tuple)
    return True
