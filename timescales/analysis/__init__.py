"""Questions put to trained runs, one file each; `measure` puts one to a finished run and keeps the answer.

A file here has `measure(model, task) -> dict[str, float]` (the value "x" of analysis/reset_units.py is called
"probe/reset_units/x" in a table), functions that tables compute from several runs' rows, or both.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from timescales import record


def measure(directory: Path, name: str) -> dict[str, float]:
    """Put a question to the finished run in a directory, at its best weights; the answer is kept in its record.

    Raises ConfigError if the run's weights are not there or not of this configuration.
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
    model.load_state_dict(kept["model"])
    model.eval()
    answer = importlib.import_module(f"timescales.analysis.{name}").measure(model, task)
    probes = {key: value for key, value in found.get("probes", {}).items() if not key.startswith(f"{name}/")}
    record.update(directory, probes=probes | {f"{name}/{key}": value for key, value in answer.items()})
    return answer
