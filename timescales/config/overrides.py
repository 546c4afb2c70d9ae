"""Values in the grammar of Hydra's overrides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


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
