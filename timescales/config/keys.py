"""The keys of a configuration, and the one that was probably meant. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from omegaconf import DictConfig, OmegaConf

from timescales.config import folders


def has(cfg: DictConfig, key: str) -> bool:
    """Whether a configuration has a key, written with dots."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    return isinstance(node, DictConfig) and name in list(node)  # `in node` would resolve what it refers to


def unknown(key: str, cfg: DictConfig, override: str) -> str:
    """The line for a key that a configuration does not have; override: which sets it."""
    file = override.lstrip("+").partition("=")[0]
    if override.startswith("+") and folders.is_group(file):
        return below(override, key)
    if folders.is_group(key) and folders.choices(key):
        return own_group(key)
    of_hydra = key.startswith("hydra.")
    every = dotted(OmegaConf.to_container(cfg, resolve=False))
    known = [k for k in every if k.startswith("hydra.") == of_hydra and not k.endswith("._target_")]
    if similar := nearest(key, known):
        return f"{key}: no such key; did you mean {similar}?"
    group, _, name = key.partition(".")
    if group in ("model", "task", "optimizer") and (names := folders.having(group, name)):
        return f"{key}: no such key; there is one with {group}={' or '.join(names)}"
    return f"{key}: no such key; --cfg {'hydra' if of_hydra else 'job'} shows all of them"


def below(override: str, key: str) -> str:
    """The line for a file of the user's own, chosen by an override, whose keys do not go where he thinks."""
    return f"{override}: its keys go below {key}, which does not exist; begin the file with # @package _global_"


def own_group(group: str) -> str:
    """The line for a group of the user's own that is chosen as if it were one of ours."""
    return (
        f"{group}: write +{group}=NAME, with + for a group of your own (there are {', '.join(folders.choices(group))})"
    )


def nearest(key: str, known: list[str]) -> str | None:
    """What may have been meant: the same name in another group (lr), one of its words (steps), a typing error."""
    group, _, name = key.rpartition(".")

    def likeness(other: str) -> tuple[bool, bool, bool, float]:
        other_group, _, other_name = other.rpartition(".")
        is_word = len(name) > 2 and any(part.startswith(name) for part in other_name.split("_"))
        ratio = SequenceMatcher(None, name, other_name).ratio()
        is_typo = ratio >= (0.65 if other_group == group else 0.8)
        return name == other_name, is_word, is_typo, SequenceMatcher(None, key, other).ratio()

    best = max(known, key=likeness, default="")
    return best if best and any(likeness(best)[:3]) else None


def dotted(node: Any, prefix: str = "") -> Iterator[str]:
    """All keys of a configuration, written with dots; also those that hold other keys."""
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
