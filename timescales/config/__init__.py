"""Configurations: composed, typed, checked, and hashed to a run's id."""

from collections.abc import Mapping
from typing import Any

Config = dict[str, Any]  # a resolved configuration, as a record has it
Settings = Mapping[str, Any]  # values by their keys, those of a configuration's parts by dotted ones: "task.T"
