"""Plain values of YAML files and command lines: what type they have, in words, and how they are written.

The one checker of types: for the keys of the base configuration, the arguments of classes, and the tables' files.
Imports no torch.
"""

import functools
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TextIO

import yaml
from omegaconf._utils import get_yaml_loader

from timescales.errors import ConfigError

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a string", type(None): "null"}
WORDS |= {dict: "keys with their values", Any: "anything"}


def require(where: str, value: Any, hint: Any) -> None:
    """Raise ConfigError if a plain value is not of a type."""
    if not fits(value, hint):
        raise ConfigError(f"{where} must be {words(hint)}; not {spell(value)}")


def fits(value: Any, hint: Any) -> bool:
    """Return whether a plain value fits a type. A type that no YAML file can hold fits every value."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in _of_yaml(inner))
    if kind is Literal:
        return value in inner
    if kind in (int, float):
        return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    if kind in (bool, str, dict, types.NoneType, Mapping):
        return isinstance(value, kind)
    if kind in (Sequence, list, tuple):
        fixed = kind is tuple and inner and inner[-1] is not Ellipsis
        if not isinstance(value, list | tuple) or (fixed and len(value) != len(inner)):
            return False
        kinds = inner if fixed else (inner or (Any,))[:1] * len(value)
        return all(fits(v, k) for v, k in zip(value, kinds, strict=True))
    return True


def words(hint: Any) -> str:
    """Name a type in words: a whole number, or null; a list of numbers."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        parts = _of_yaml(inner)
        parts = [part for part in parts if not (part is int and float in parts)]  # a whole number is a number
        return " or ".join(words(part) for part in parts)
    if kind is Literal:
        return ("one of " if len(inner) > 1 else "") + ", ".join(map(spell, inner))
    if kind in (Sequence, list):
        plural = {int: "whole numbers", float: "numbers", str: "texts"}
        return "a list" + (f" of {plural.get(inner[0], words(inner[0]))}" if inner and inner[0] is not Any else "")
    if kind is tuple:
        return f"a list of {len(inner)}" if inner and inner[-1] is not Ellipsis else "a list"
    return WORDS.get(dict if kind is Mapping else kind, getattr(kind, "__name__", str(kind)))


def _of_yaml(parts: Sequence[Any]) -> list[Any]:
    """Return the types of a union that a YAML file can hold; no tensor."""
    return [part for part in parts if getattr(part, "__module__", "") != "torch"]


@functools.cache
def _loader() -> Any:
    """Return OmegaConf's reader of YAML with the parser in C, if PyYAML has it: it is ten times as fast."""
    theirs: Any = get_yaml_loader()
    if not yaml.__with_libyaml__:
        return theirs

    class Loader(yaml.cyaml.CParser, theirs):
        def __init__(self, stream: Any) -> None:
            yaml.cyaml.CParser.__init__(self, stream)
            yaml.constructor.SafeConstructor.__init__(self)
            yaml.resolver.Resolver.__init__(self)

    return Loader


def parse_yaml(source: str | TextIO) -> Any:
    """Read YAML as OmegaConf reads a file, where 1e-3 is a number and a key cannot come twice. Raises YAMLError."""
    return _loader()(source).get_single_data()


def read_yaml(text: str) -> Any:
    """Read a value as OmegaConf does in a yaml file: 1e-3 is a number. What is not YAML, such as -, is a string."""
    try:
        return parse_yaml(f"value: {text}")["value"]
    except yaml.YAMLError:
        return text


def spell(value: Any) -> str:
    """Return a value in the grammar of Hydra's overrides."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        return "[" + ",".join(spell(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{spell(v)}" for k, v in value.items()) + "}"
    text = str(value)
    if isinstance(value, str) and (
        not re.fullmatch(r"[A-Za-z_][\w./]*", text) or text.lower() in ("null", "true", "false")
    ):
        # A backslash stands for itself unless a quote follows.
        return "'" + re.sub(r"(\\*)('|$)", lambda m: 2 * m[1] + ("\\'" if m[2] else ""), text) + "'"
    return text
