"""Questions put to trained runs, one file each; `measure` puts one to a finished run and keeps the answer.

A file here has `measure(model, task) -> dict[str, float]` (the value "x" of analysis/reset_units.py is called
"probe/reset_units/x" in a table), functions that tables compute from several runs' rows, or both. An `Answer` instead
of a dict brings files too. activations.py is what several of them stand on.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timescales import record


class Answer(dict[str, float]):
    """A probe's numbers, and what cannot be said in a few: `files`, texts by name, kept beside the record."""

    def __init__(self, values: Mapping[str, float], files: Mapping[str, str]) -> None:
        super().__init__(values)
        self.files = files


def measure(directory: Path, name: str) -> dict[str, float]:
    """Put a question to the finished run in a directory, at its best weights; the answer is kept in its record.

    Raises ConfigError if the run's weights are not there or not of this configuration, or if the question is not one
    for its model and task.
    """
    from timescales import build, checkpoint
    from timescales.schema import ConfigError

    found = record.read(directory)
    assert found is not None, "only finished runs are asked"
    config: dict[str, Any] = {**found["config"], "engine": "auto", "device": "auto"}
    model, task, _ = build.build(config)
    kept = checkpoint.load(directory / "best.pt", ("model",), next(model.parameters()).device)
    if kept is None:
        raise ConfigError(f"{directory}/best.pt is not there: force=true trains the run again")
    try:
        model.load_state_dict(kept["model"])
    except RuntimeError as error:
        raise ConfigError(f"{directory}/best.pt is not of this run: force=true trains it again") from error
    model.eval()
    answer = importlib.import_module(f"timescales.analysis.{name}").measure(model, task)
    for file, text in getattr(answer, "files", {}).items():
        record.write_atomic(directory / file, text.encode())
    probes = {key: value for key, value in found.get("probes", {}).items() if not key.startswith(f"{name}/")}
    record.update(directory, probes=probes | {f"{name}/{key}": value for key, value in answer.items()})
    return answer
