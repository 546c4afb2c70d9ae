"""A named value out of a record. Imports no torch."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from timescales.config.schema import LoopSettings


class Censored(int):
    """All the steps that a run might have taken, where it never reached a threshold: ">3000" in files and on pages."""

    def __str__(self) -> str:
        return f">{int(self)}"


STEPS_TO = "steps to "


def is_steps(name: str) -> bool:
    """Whether a metric is a number of steps to a threshold: "steps to valid/accuracy >= 0.99"."""
    return name.startswith(STEPS_TO)


def metric(record: Mapping[str, Any], name: str) -> float | None:
    """A record's value of "best valid/loss", "last test/accuracy", "steps to valid/accuracy >= 0.99", "probe/...".

    None if it has none. A run that never reaches the threshold has all the steps that it might have taken, `Censored`,
    also where its task ended it as failed before.
    """
    if is_steps(name):
        key, there = threshold(name.removeprefix(STEPS_TO))
        points = (point for point in record["curve"] if point.get(key) is not None)
        reached = next((point["step"] for point in points if there(point[key])), None)
        steps = allowed(record)
        return reached if reached is not None or steps is None else Censored(steps)
    if name.startswith("probe/"):
        return record.get("probes", {}).get(name.removeprefix("probe/"))
    which, key = name.split(maxsplit=1)
    return record["metrics" if which == "best" else "last"].get(key)


def allowed(record: Mapping[str, Any]) -> int | None:
    """The steps that a record's run takes if nothing ends it before; those it took if it has no curve to tell by."""
    if not record["curve"]:
        return record.get("steps")
    loop, last = record["config"]["loop"], record["curve"][-1]
    settings = LoopSettings(max_epochs=loop["max_epochs"], max_steps=loop.get("max_steps"))
    return settings.last_step(lambda epochs: round(last["step"] / last["epoch"] * epochs))


SIGNS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}


def threshold(text: str) -> tuple[str, Callable[[float], bool]]:
    """ "valid/accuracy >= 0.99" as the metric and a test of its value; ValueError or KeyError for what is none."""
    name, sign, value = text.split()
    compare, number = SIGNS[sign], float(value)
    if math.isnan(number):
        raise ValueError(text)
    return name, lambda reached: bool(compare(reached, number))
