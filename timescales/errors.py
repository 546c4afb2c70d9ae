"""The errors that every package may raise for bad input, and the nearest right word. Imports no torch."""

from __future__ import annotations

import difflib
from typing import Any


class ConfigError(ValueError):
    """A configuration that cannot run; its text is one line that says how to fix it."""


class MissingData(ConfigError):
    """A data set is not on disk and could not be downloaded."""


class NotMadeFor(ConfigError):
    """An analysis that is not made for a run's model or task."""


REPLACED_ENGINES = {"graph": "compiled", "cluster": "compiled"}  # engines that are gone, and what runs in their place


def other_engine(name: object, known: Any) -> str:
    """Name the engine to use in place of an unknown one, or nothing if none is near."""
    if str(name) in REPLACED_ENGINES:
        return f"; engine={REPLACED_ENGINES[str(name)]} runs in its place"
    return nearest(str(name), known)


class WrongShape(ConfigError, RuntimeError):
    """A tensor of a call does not fit the layer or its cell. The message is one line with the shapes.

    It is a RuntimeError, too: torch's layers raise one for an input, state or weight of a wrong size.
    """


def nearest(wrong: str, right: Any) -> str:
    """ "; did you mean X?" for the nearest right word, or nothing if none is near."""
    near = difflib.get_close_matches(str(wrong), [str(r) for r in right], 1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""
