"""Overrides in Hydra's grammar. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException

OF_GROUPS = ("model.", "task.", "optimizer.")  # what the keys begin with that depend on a choice of files


def as_sweep(text: str) -> str:
    """An override as a sweep over its one value; whatever else it is, and what cannot be read, stays as it is."""
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException:
        return text
    if override.type is not OverrideType.CHANGE or override.is_sweep_override() or override.value() == "":
        return text
    return f"{override.key_or_group}=choice({override.get_value_element_as_str()})"


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
