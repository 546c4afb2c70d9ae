"""Choose what every dashboard (W&B, TensorBoard, trackio) shows of a run."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from timescales.config import Config, schema
from timescales.errors import dotted
from timescales.runs.record import Record

Timescales = Callable[[], Sequence[Tensor]]  # of every layer, (H,) steps


class Label(NamedTuple):
    """Hold what users find a run by: its name, its tags, and the group that all seeds of a configuration share."""

    name: str
    group: str | None
    tags: list[str]


def label(saved: Record) -> Label:
    """Return the label of a run. If the sweep of a table trained it, the table is among the tags."""
    config = saved.config
    words = [config["task"]["name"], config["model"]["name"]]
    name = "-".join([*words, f"s{saved.seed}", saved.id])
    tags = [*words, config["paper"]["name"], *filter(None, [config["logger"].get("table")])]
    return Label(name, saved.group, tags)


def settings(config: Config) -> dict[str, bool | float | str]:
    """Return the settings that decide a run's numbers, without its seed: numbers, booleans, strings by dotted key."""
    found = [(key, value) for key, value in dotted(config) if not isinstance(value, dict)]
    settings = [(key, value) for key, value in found if schema.is_of_identity(key) and key != "seed"]
    return {key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in settings}


def outcome(record: Record) -> dict[str, float]:
    """Return the numbers of a run that has ended: test metrics at the best validation, all metrics after the last step.

    Keys: "test/...", "last/test/...", "last/valid/...", and "best/valid/..." for the metric that chose the checkpoint.
    """
    values = {key: value for key, value in record.metrics.items() if key.startswith("test/")}
    values |= {f"last/{key}": value for key, value in record.last.items()}
    if record.best:
        values[f"best/{record.best.metric}"] = record.best.value
    return {key: value for key, value in values.items() if value is not None}


def with_histograms(values: Mapping[str, float]) -> bool:
    """Return whether histograms go with these values: at the start, at each validation and at the end."""
    return any(key.startswith(("valid/", "timescale/")) for key in values)


# Edges of the histograms, decades of steps: the same at every validation, so that they can be shown side by side.
DECADES = [k / 10 for k in range(-10, 51)]


def histograms(timescales: Sequence[Tensor]) -> dict[str, tuple[list[int], list[float]]]:
    """Count the units of each layer by time scale, in tenths of a decade of steps. Return counts, and edges as log10.

    timescales: (H,) steps for each layer. Times beyond the edges count in the outermost bins.
    """
    bins = {}
    low, high = DECADES[0], DECADES[-1]
    for k, layer in enumerate(timescales, 1):
        decades = layer.detach().cpu().double().log10().nan_to_num(nan=low).clamp(low, high)
        counts = decades.histc(len(DECADES) - 1, low, high).int().tolist()
        bins[f"timescale/layer{k}/log10_steps"] = (counts, DECADES)
    return bins
