"""Read a value from a record by its name."""

import math
import operator
import statistics
from collections.abc import Callable, Sequence

from timescales.runs.record import Record, State


class Censored(int):
    """Hold the last step of a run that never reached a threshold. It is written as ">3000" in files and on pages."""

    def __str__(self) -> str:
        return f">{int(self)}"


STEPS_TO = "steps to "


def is_steps(name: str) -> bool:
    """Return whether a metric is a number of steps to a threshold: "steps to valid/accuracy >= 0.99"."""
    return name.startswith(STEPS_TO)


def metric(record: Record, name: str) -> float | None:
    """Return a value of a record by its name, such as "best valid/loss" or "probe/..."; None if the record has none.

    For "steps to valid/accuracy >= 0.99" it is the first step at which a validation reached the threshold. If none did,
    it is the last step of the run, as `Censored`, even if the task ended the run early as failed.
    """
    if is_steps(name):
        key, passes = threshold(name.removeprefix(STEPS_TO))
        points = (point for point in record.curve if point.get(key) is not None)
        reached = next((point["step"] for point in points if passes(point[key])), None)
        steps = record.steps
        return reached if reached is not None or steps is None else Censored(steps)
    if name.startswith("probe/"):
        return record.probes.get(name.removeprefix("probe/"))
    which, key = name.split(maxsplit=1)
    return (record.metrics if which == "best" else record.last).get(key)


def selected(record: Record) -> float:
    """Return the best validation value of the selecting metric; for a run that diverged, the worst possible value."""
    if record.state is State.DIVERGED:
        return -math.inf if record.select and record.select[1] == "max" else math.inf
    assert record.best is not None
    return float(record.best.value)


def median(values: Sequence[float]) -> float:
    """Return the median. It is `Censored`, a lower bound, if the true median may be larger.

    It may be larger if a censored value is not above the middle, because its true value may be.
    """
    middle, upper = statistics.median(values), sorted(values)[len(values) // 2]
    unsure = any(isinstance(value, Censored) and value <= upper for value in values)
    return Censored(middle) if unsure else middle


SIGNS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}


def threshold(text: str) -> tuple[str, Callable[[float], bool]]:
    """Parse "valid/accuracy >= 0.99": return the metric and a test of its value. Raises ValueError or KeyError."""
    name, sign, value = text.split()
    compare, number = SIGNS[sign], float(value)
    if math.isnan(number):
        raise ValueError(text)
    return name, lambda reached: bool(compare(reached, number))
