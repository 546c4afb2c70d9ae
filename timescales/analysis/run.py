"""A run on disk as analyses see it: its record, models and task; groups of runs."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from timescales.config import identity, schema
from timescales.errors import ConfigError
from timescales.files import csv_rows
from timescales.runs import record

if TYPE_CHECKING:
    from torch import Tensor

    from timescales.tasks import Task
    from timescales.training.model import SequenceModel


HERE = Path(__file__).parent


@dataclass
class Run:
    """A run on disk: its record, the model at its best weights and as it was before training, and its task."""

    directory: Path
    record: dict[str, Any]
    model: SequenceModel
    initial: SequenceModel  # built from the same seed
    task: Task

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that the run was made with."""
        return self.record["config"]

    @functools.cached_property
    def forget(self) -> list[Tensor]:
        """Each unit's forget gate, the mean over test data: per layer (H,), float64, on the CPU. Measured once.

        Raises ConfigError for a model without forget gates.
        """
        from timescales.analysis.common import mean_forget

        return [f.cpu() for f in mean_forget(self.model, self.task)]

    def earlier(self, name: str) -> list[dict[str, Any]] | None:
        """The rows of a study that was made of these weights before; None if there is none, or one that is older than
        the weights or than the question's file."""
        path, weights = self.directory / "analysis" / f"{name}.csv", self.directory / "best.pt"
        if not (path.is_file() and weights.is_file()):
            return None
        if path.stat().st_mtime <= max(weights.stat().st_mtime, (HERE / f"{name}.py").stat().st_mtime):
            return None
        return [{key: _number(text) for key, text in row.items()} for row in csv_rows(path)]

    @property
    def colour(self) -> str:
        """Its model's or its gate's, in every picture."""
        from timescales import plotting

        model = self.config["model"]
        return plotting.colour({"model": model["name"], "model.gate": model.get("gate")})

    @property
    def title(self) -> str:
        """The run in a few words, for pictures."""
        steps, task = self.record.get("steps"), self.config["task"]
        corpus = task.get("corpus")
        words = task["name"] if corpus is None or task["name"].startswith(corpus) else f"{task['name']} ({corpus})"
        words += f", {self.config['model']['name']}, seed {self.record['seed']}"
        return words + (f", {steps:,} steps" if steps else "")


def _number(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


# Of the first, second, ... run in pictures whose line styles tell something else; models may share a colour.
MARKERS = ("", "o", "s", "^", "D", "v", "x")


class Group(NamedTuple):
    """Runs that differ in their seed alone; `name` says what tells them from the others, `style` is their line's."""

    name: str
    runs: list[Run]
    colour: str
    style: str

    @property
    def label(self) -> str:
        """Its name for pictures of several groups."""
        return f"{self.name} ({len(self.runs)} run{'s' if len(self.runs) > 1 else ''})"


def groups(runs: Sequence[Run]) -> list[Group]:
    """Runs by `schema.group`: those of a group differ in their seed alone. A directory given twice counts once.

    A name is the model's and what differs among the groups of that model.
    """
    from timescales import plotting

    found: dict[str, list[Run]] = {}
    for run in {run.directory.resolve(): run for run in runs}.values():
        found.setdefault(identity.group(run.config), []).append(run)
    settings = {key: _settings(members[0].config) for key, members in found.items()}
    used: dict[str, int] = {}
    made = []
    for group, members in found.items():
        own = settings[group]
        kin = [other for other in settings.values() if other["model.name"] == own["model.name"]]
        keys = sorted({key for other in kin for key in other if any(one.get(key) != other[key] for one in kin)})
        words = [f"{key.split('.')[-1]}={own[key]}" for key in keys if key in own]
        name = ", ".join([own["model.name"], *words])
        colour = members[0].colour
        style = plotting.STYLES[used.get(colour, 0) % len(plotting.STYLES)]
        used[colour] = used.get(colour, 0) + 1
        made.append(Group(name, members, colour, style))
    return made


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's identity is made of but its seed, flat."""
    parts = {part: config.get(part, {}) for part in ("model", "task", "optimizer")}
    parts["loop"] = vars(schema.Loop()) | config["loop"]
    found = {f"{part}.{key}": value for part, values in parts.items() for key, value in values.items()}
    found |= {key: config.get(key, getattr(schema.BaseConfig, key)) for key in ("precision", "deterministic")}
    found["paper"] = config.get("paper", {}).get("name")
    changes_no_number = [f"task.{key}" for key in identity.NOT_IDENTITY_TASK]
    changes_no_number += [f"loop.{key}" for key in identity.NOT_IDENTITY_LOOP]
    return {key: value for key, value in found.items() if key not in changes_no_number}


def titles(runs: Sequence[Run]) -> list[str]:
    """For each run what tells it from the others: its group's name, and its seed where the group has several."""
    found = {}
    for group in groups(runs):
        for run in group.runs:
            found[run.directory.resolve()] = group.name + (
                f", seed {run.record['seed']}" if len(group.runs) > 1 else ""
            )
    return [found[run.directory.resolve()] for run in runs]


def by_unit(model: SequenceModel, columns: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """A row a unit, layer after layer: its layer, its place there, and its values; a column lists all layers' units."""
    places = ((layer, unit) for layer, cell in enumerate(model.rnn.layers, 1) for unit in range(cell.hidden_size))
    return [
        {"layer": layer, "unit": unit} | dict(zip(columns, values, strict=True))
        for (layer, unit), values in zip(places, zip(*columns.values(), strict=True), strict=True)
    ]


def load(directory: str | Path, weights: str | None = "best") -> Run:
    """A run's models and task, on the device there is, in evaluation mode.

    The weights are those of its best validation: best.pt's, or, while it goes on or was interrupted, the best so far.
    With "last" they are those it ended with (of NT-ASGD not the averages), with None those before training. Torch's
    precision and determinism are the run's from then on; random numbers go on as if nothing had been loaded.
    Raises ConfigError if they are not there or not of this configuration, or if there is no run.
    """
    from timescales.training import build, checkpoint

    directory = Path(directory)
    found = record.read(directory)
    if found is None:
        raise ConfigError(f"{directory} has no record.json: give the directory of a run")
    config: dict[str, Any] = {**found["config"], "engine": "auto", "device": "auto"}
    random = checkpoint.rng_state()
    try:
        model, task, _ = build.build(config)  # from the run's seed
    finally:
        checkpoint.set_rng_state(random)
    initial = copy.deepcopy(model)
    if weights is None:
        return Run(directory, found, model.eval(), initial.eval(), task)
    device = next(model.parameters()).device
    name = "last.pt" if weights == "last" or found["status"] == "interrupted" else "best.pt"
    key = "best" if weights == "best" and name == "last.pt" else "model"
    kept = checkpoint.load(directory / name, (key,), device)
    if kept is None or kept[key] is None:
        if key == "best":
            raise ConfigError(f"{directory} has no weights to look at before its first validation: let it train on")
        raise ConfigError(f"{directory}/{name} is not there: force=true trains the run again")
    try:
        model.load_state_dict(kept[key])
    except RuntimeError as error:
        raise ConfigError(f"{directory}/{name} is not of this run: force=true trains it again") from error
    return Run(directory, found, model.eval(), initial.eval(), task)
