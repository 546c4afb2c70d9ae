"""Group runs that only differ in their seed: their names, their lines in figures, their means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from timescales import plotting
from timescales.analysis.run import Trained
from timescales.analysis.study import TableRow
from timescales.config import Config, Settings, schema
from timescales.config.run import Axes


class Group(NamedTuple):
    """Runs that only differ in their seed.

    name: the model and the settings that distinguish the group. colour, style: those of its line in figures.
    """

    name: str
    runs: list[Trained]
    colour: str
    style: str

    @property
    def label(self) -> str:
        """Name and number of runs, for legends."""
        return plotting.literal(f"{self.name} ({len(self.runs)} run{'s' if len(self.runs) > 1 else ''})")

    def line(self, data: Any) -> Line:
        """Return the group's line in a figure."""
        return Line(self.label, self.colour, self.style, data)


class Line(NamedTuple):
    """A line in a figure. data: what is drawn, usually the rows of a study."""

    label: str
    colour: str
    style: str
    data: Any


def line_of(run: Trained, data: Any) -> Line:
    """Return the line of a single run."""
    return Line(run.config["model"]["name"], run.colour, "-", data)


def groups(runs: Sequence[Trained]) -> list[Group]:
    """Group runs by `schema.family`. A directory that is given twice counts once.

    The name of a group has the model and the settings in which the groups of this model differ.
    """
    members: dict[str, list[Trained]] = {}
    for run in {run.directory.resolve(): run for run in runs}.values():
        members.setdefault(schema.family(run.config), []).append(run)
    settings = {key: _settings(group[0].config) for key, group in members.items()}
    lines_of_colour: dict[str, int] = {}
    result = []
    for key, group in members.items():
        colour = group[0].colour
        number = lines_of_colour.get(colour, 0)
        lines_of_colour[colour] = number + 1
        style = plotting.STYLES[number % len(plotting.STYLES)]
        result.append(Group(_name(settings[key], list(settings.values())), group, colour, style))
    return result


def _name(settings: Axes, all_settings: Sequence[Axes]) -> str:
    """Return the model and the settings in which groups of this model differ.

    The settings of an optimizer are its name, its learning rate, and what groups with this optimizer differ in.
    """
    model, optimizer = settings["model.name"], settings.get("optimizer.name")
    same_model = [other for other in all_settings if other["model.name"] == model]
    same_optimizer = [other for other in same_model if other.get("optimizer.name") == optimizer]
    words = []
    for key, value in sorted(settings.items()):
        part, _, word = key.rpartition(".")
        among = same_optimizer if part == "optimizer" and word not in ("name", "lr") else same_model
        if word != "_target_" and any(other.get(key) != value for other in among):
            words.append(f"{'optimizer' if key == 'optimizer.name' else word}={value}")
    return ", ".join([str(model), *words])


def _settings(config: Config) -> Settings:
    """Return the settings that belong to a run's identity, without the seed: values by dotted name."""
    parts = {part: config.get(part, {}) for part in ("model", "task", "optimizer")}
    parts["loop"] = vars(schema.LoopSettings()) | config["loop"]
    settings = {f"{part}.{key}": value for part, values in parts.items() for key, value in values.items()}
    settings |= {key: config.get(key, getattr(schema.BaseConfig, key)) for key in ("precision", "deterministic")}
    settings["paper"] = config.get("paper", {}).get("name")
    return {key: value for key, value in settings.items() if schema.is_of_identity(key)}


def titles(runs: Sequence[Trained]) -> list[str]:
    """Name each run after its group, with the seed if the group has several runs, and the directory if that is needed.

    Runs of one setting and seed may differ in what is not part of their identity, such as the engine.
    """
    names = {}
    for group in groups(runs):
        seeds = [run.record.seed for run in group.runs]
        for run in group.runs:
            seed = f", seed {run.record.seed}" if len(seeds) > 1 else ""
            place = f", {run.directory}" if seeds.count(run.record.seed) > 1 else ""
            names[run.directory.resolve()] = group.name + seed + place
    return [names[run.directory.resolve()] for run in runs]


def mean_and_error(values: Tensor) -> dict[str, float]:
    """Return mean and standard error of accuracies (n,), as columns of a row."""
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {"accuracy": float(values.mean()), "standard_error": error}


def over_runs(rows_of_runs: Sequence[list[TableRow]], *keys: str) -> list[TableRow]:
    """Combine the rows of several runs of a group into one row.

    It has the columns `keys`, which are equal in all runs, and the mean of the accuracy and its standard error over the
    runs. The rows of a single run are returned unchanged.
    """
    if len(rows_of_runs) == 1:
        return rows_of_runs[0]
    return [
        {key: rows[0][key] for key in keys}
        | mean_and_error(torch.tensor([row["accuracy"] for row in rows], dtype=torch.float64))
        for rows in zip(*rows_of_runs, strict=True)
    ]
