"""The keys of a configuration, and the one that was probably meant. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from omegaconf import DictConfig, OmegaConf

from timescales.config import folders


def has(cfg: DictConfig, key: str) -> bool:
    """Whether a configuration has a key, written with dots."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    return isinstance(node, DictConfig) and name in list(node)  # `in node` would resolve what it refers to


def dotted(node: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All keys of a configuration, written with dots, and their values; a key that holds others before these."""
    for key, value in node.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")


def unknown(key: str, cfg: DictConfig) -> str:
    """The line for a key that a configuration does not have."""
    of_hydra = key.startswith("hydra.")
    every = [k for k, _ in dotted(plain(cfg)) if k.startswith("hydra.") == of_hydra and not k.endswith("._target_")]
    if similar := nearest(key, every):
        return f"{key}: no such key; did you mean {similar}?"
    group, _, name = key.partition(".")
    if group in ("model", "task", "optimizer") and (names := folders.having(group, name)):
        return f"{key}: no such key; there is one with {group}={' or '.join(names)}"
    return f"{key}: no such key; --cfg {'hydra' if of_hydra else 'job'} shows all of them"


def wrong_reference(override: str) -> str:
    """The line for a value with ${...} in which what it refers to is not there."""
    return f"{override}: ${{...}} must name a key that --cfg job shows, or a variable that is set"


def nearest(key: str, known: list[str]) -> str | None:
    """What may have been meant: the same name in another group (lr), one of its words (steps), a typing error."""
    name = _name(key)
    found = [k for k in known if _name(k) == name]
    if not found and len(name) > 2:
        found = [k for k in known if any(word.startswith(name) for word in _name(k).split("_"))]
    if not found:
        near = get_close_matches(name, map(_name, known), 1, cutoff=0.75)
        found = [k for k in known if _name(k) in near] or get_close_matches(key, known, 1, cutoff=0.85)
    return next(iter(get_close_matches(key, found, 1, cutoff=0.0)), None)


def _name(key: str) -> str:
    """The last part of a key: T of task.T."""
    return key.rpartition(".")[2]


def plain(cfg: DictConfig) -> dict[Any, Any]:
    """A configuration as plain dicts, its interpolations as they are written."""
    found = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(found, dict)
    return found
