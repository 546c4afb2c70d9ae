"""Overrides in Hydra's grammar. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

OF_GROUPS = ("model.", "task.", "optimizer.")  # what the keys begin with that depend on a choice of files


def as_sweep(text: str) -> str:
    """An override as a sweep over its one value; whatever else it is, and what cannot be read, stays as it is.

    So does a quoted value, which Hydra does not always write again as it was.
    """
    key, _, value = text.partition("=")
    try:
        override = OverridesParser.create().parse_override(text)
        OverridesParser.create().parse_override(swept := f"{key}=choice({value})")
    except HydraException:
        return text
    as_it_is = override.type is not OverrideType.CHANGE or override.is_sweep_override()
    return text if as_it_is or re.search(r"^['\"]|\$", value) else swept


def read_yaml(text: str) -> Any:
    """A value as OmegaConf reads it in a yaml file, where 1e-3 is a number; what is no YAML, such as -, is a text."""
    try:
        read = OmegaConf.to_container(OmegaConf.create(f"value: {text}"))
    except (YAMLError, OmegaConfBaseException):
        return text
    assert isinstance(read, dict)
    return read["value"]


def spell(value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, list):
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
