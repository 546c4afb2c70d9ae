"""Store the best validation of a run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Best:
    """Hold the best validation so far. metric: "valid/<name>"."""

    metric: str
    value: float
    step: int
