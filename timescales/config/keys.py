"""All keys of a configuration, and the one that was probably meant. Imports no torch."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from omegaconf import OmegaConf

from timescales import paths
from timescales.config.folders import choices, having, is_group, searchpath


def unknown_key(key: str, overrides: list[str]) -> str:
    """The line for a key that a configuration with these overrides does not have, or of which it must not be rid."""
    known = known_keys(overrides)
    if key in known:
        return f"{key} must not be deleted"
    chosen = (override for override in overrides if re.match(rf"\+{re.escape(key)}[/=]", override))
    if file := next((override for override in chosen if is_group(override[1:].partition("=")[0])), None):
        return f"{file}: its keys go below {key}, which does not exist; begin the file with # @package _global_"
    if is_group(key) and choices(key):
        return f"{key}: write +{key}=NAME, with + for a group of your own (there are {', '.join(choices(key))})"
    of_hydra = key.startswith("hydra.")
    similar = nearest_key(key, [k for k in known if k.startswith("hydra.") == of_hydra and not k.endswith("._target_")])
    if similar:
        return f"{key}: no such key; did you mean {similar}?"
    group, _, name = key.partition(".")
    if group in ("model", "task", "optimizer") and (names := having(group, name)):
        return f"{key}: no such key; there is one with {group}={' or '.join(names)}"
    return f"{key}: no such key; --cfg {'hydra' if of_hydra else 'job'} shows all of them"


def nearest_key(key: str, known: list[str]) -> str | None:
    """What may have been meant: the same name in another group (lr), one of its words (steps), a typing error."""
    group, _, name = key.rpartition(".")

    def likeness(other: str) -> tuple[bool, bool, bool, float]:
        other_group, _, other_name = other.rpartition(".")
        is_word = len(name) > 2 and any(part.startswith(name) for part in other_name.split("_"))
        ratio = SequenceMatcher(None, name, other_name).ratio()
        is_typo = ratio >= (0.65 if other_group == group else 0.8)
        return name == other_name, is_word, is_typo, SequenceMatcher(None, key, other).ratio()

    best = max(known, key=likeness)
    return best if any(likeness(best)[:3]) else None


def known_keys(overrides: list[str]) -> list[str]:
    """All keys of a configuration with the overrides' choices of groups, Hydra's and the groups' names included."""
    groups = [folder.name for folder in paths.conf().iterdir() if folder.is_dir() and folder.name != "table"]
    pairs = [override.partition("=") for override in overrides]
    return _keys(tuple(f"{key}={name}" for key, _, name in pairs if key in groups and name in choices(key)))


@functools.cache
def _keys(chosen: tuple[str, ...]) -> list[str]:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    with initialize_config_dir(str(paths.conf()), version_base="1.3"):
        cfg = compose("config", [*chosen, *searchpath()], return_hydra_config=True)
    return list(dotted(OmegaConf.to_container(cfg, resolve=False)))


def dotted(node: Any, prefix: str = "") -> Iterator[str]:
    """All keys of a configuration, written with dots; also those that hold other keys."""
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
