"""Load a trained model for analyses, with the record and the task of its run."""

from __future__ import annotations

import contextlib
import copy
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from timescales.analysis.study import TableRow
from timescales.config import Config
from timescales.errors import ConfigError
from timescales.files import csv_rows
from timescales.runs.record import Record

if TYPE_CHECKING:
    from torch import Tensor

    from timescales.models.sequence import SequenceModel
    from timescales.tasks import Task
    from timescales.training.run import Checkpoint


@dataclass
class Trained:
    """A trained model, with the record and the task of its run.

    model: the model with the weights to analyse. initial: the model before training, built from the run's seed.
    """

    directory: Path
    record: Record
    model: SequenceModel
    initial: SequenceModel
    task: Task

    @property
    def config(self) -> Config:
        """Return the configuration of the run."""
        return self.record.config

    @functools.cached_property
    def forget(self) -> list[Tensor]:
        """Return each unit's forget gate, the mean over test data: per layer (H,), float64, on the CPU. Computed once.

        Raises ConfigError for a model without forget gates.
        """
        from timescales.analysis.observe import mean_forget

        return [f.cpu() for f in mean_forget(self.model, self.task)]

    def earlier(self, name: str) -> list[TableRow] | None:
        """Return the rows of an earlier study of the same weights, read from analysis/NAME.csv in the run's directory.

        None if there is no such file, or if the file is older than the weights or than the analysis' module.
        """
        path, weights = self.directory / "analysis" / f"{name}.csv", self.directory / "best.pt"
        if not (path.is_file() and weights.is_file()):
            return None
        if path.stat().st_mtime <= max(weights.stat().st_mtime, Path(__file__).with_name(f"{name}.py").stat().st_mtime):
            return None
        return [{key: _number(text) for key, text in row.items()} for row in csv_rows(path)]

    @property
    def colour(self) -> str:
        """Return the colour of the run's model or gate in figures."""
        from timescales import plotting

        model = self.config["model"]
        return plotting.colour({"model": model["name"], "model.gate": model.get("gate")})

    @property
    def title(self) -> str:
        """Return the task, model, seed and steps, for the titles of figures."""
        from timescales import plotting

        steps, task = self.record.steps, self.config["task"]
        corpus = task.get("corpus")
        task_name = task["name"] if corpus is None or task["name"].startswith(corpus) else f"{task['name']} ({corpus})"
        title = plotting.literal(f"{task_name}, {self.config['model']['name']}, seed {self.record.seed}")
        return title + (f", {steps:,} steps" if steps else "")


def _number(text: str) -> Any:
    """Convert a string to an int or float, if it is one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def load(directory: str | Path, weights: str | None = "best") -> Trained:
    """Load a run: its models, in evaluation mode, and its task, on a GPU if there is one.

    weights: "best", the weights of the best validation (for a run that has not ended, the best so far); "last", the
        weights at the end (of NT-ASGD not the averages); None, the weights before training.

    Torch's precision and determinism are set as in the run's configuration. The state of the random number generators
    does not change. Raises ConfigError if there is no run, or no weights of its configuration, or if your own file that
    is its data, or its word vectors, have changed.
    """
    import torch

    from timescales.tasks.task import same_data
    from timescales.training import build

    directory = Path(directory)
    found = Record.read(directory)
    if found is None:
        raise ConfigError(f"{directory} has no record.json: give the directory of a run")
    config: Config = {**found.config, "engine": "auto", "device": "auto"}
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # asking would initialise them
    with torch.random.fork_rng(gpus):
        model, task, _ = build.build(config)
    if not same_data(found.data, task.data):
        changed = ", ".join(task.data)
        raise ConfigError(f"{directory} was trained on another {changed}: restore it, or retrain with force=stale")
    initial = copy.deepcopy(model)
    if weights is not None:
        content = _load_weights(model, directory, weights, found.ended)
        trained = content.get("progress") or {"curve": found.curve, "step": found.steps}
        # A curriculum is restored to its last state.
        task.follow([row for row in trained["curve"] if row["step"] < trained["step"]])
    return Trained(directory, found, model.eval(), initial.eval(), task)


def _load_weights(model: SequenceModel, directory: Path, weights: str, ended: bool) -> Checkpoint:
    """Load the "best" or "last" weights of a run into its model. Return the checkpoint with these weights.

    Raises ConfigError if they are missing or differ.
    """
    from timescales.training.run import load_checkpoint

    name = "last.pt" if weights == "last" or not ended else "best.pt"
    key: Literal["best", "model"] = "best" if weights == "best" and name == "last.pt" else "model"
    content = load_checkpoint(directory / name, (key,), next(model.parameters()).device)
    found = None if content is None else content[key]
    if content is None or found is None:
        if key == "best":
            raise ConfigError(f"{directory} has no weights until its first validation: continue the run")
        raise ConfigError(f"{directory}/{name} is missing: force=true retrains the run")
    try:
        model.load_state_dict(found)
    except RuntimeError as error:
        raise ConfigError(f"{directory}/{name} is from another run: retrain this one with force=true") from error
    return content
