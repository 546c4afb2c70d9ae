"""Questions put to trained runs, one file each.

`measure` puts one to a finished run and keeps the answer in its record; `study` puts one to any run that has weights
and makes a picture and a table of it; `compare` puts one to several runs of one task at once.

A file here has any of
    measure(model, task) -> dict[str, float]   the value "x" of reset_units.py is called "probe/reset_units/x" in a
                                               table; an `Answer` instead of a dict brings files too
    study(run) -> Study                        the picture, rows and values of one `Run`
    compare(runs) -> Study                     the same of several
    WEIGHTS                                    "last": a measure is put to a run's last weights, not its best;
                                               None: a comparison needs none, so that runs without any will do
or functions that tables compute from several runs' rows. Each raises ConfigError where the question is not one for the
model or task. common.py is what several of them stand on.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from timescales.analysis.run import HERE, Run, load
from timescales.analysis.study import Study
from timescales.errors import ConfigError
from timescales.files import write_atomic
from timescales.runs import record


def names(*functions: str) -> list[str]:
    """The files here that have any of the functions."""
    paths = (path for path in sorted(HERE.glob("*.py")) if path.stem != "__init__")
    return [p.stem for p in paths if any(f"\ndef {function}(" in p.read_text() for function in functions)]


def weights_for(name: str) -> str | None:
    """The weights that a question is put to: "best", "last", or None if it asks for none."""
    return getattr(importlib.import_module(f"timescales.analysis.{name}"), "WEIGHTS", "best")


def measure_run(directory: Path, name: str) -> dict[str, float]:
    """Put a question to the finished run in a directory; the answer is kept in its record.

    It is put to the weights of the best validation, or those that the question names (`weights_for`).

    Raises ConfigError as `load` does, for a run that has not ended, or if the question is not one for the run's model
    and task.
    """
    question = importlib.import_module(f"timescales.analysis.{name}")
    run = load(directory, weights_for(name))
    if run.record["status"] == "interrupted":  # the answer would stay when the weights are others
        raise ConfigError(f"{directory} has not ended: let it finish, or continue it with resume=true, then ask again")
    answer = question.measure(run.model, run.task)
    for file, text in getattr(answer, "files", {}).items():
        write_atomic(directory / file, text.encode())
    keep(directory, name, answer)
    return answer


def keep(directory: Path, name: str, values: Mapping[str, float]) -> None:
    """Put a question's values into a finished run's record; its earlier answer goes."""
    found = record.read(directory)
    assert found is not None, "loaded from there"
    probes = {key: value for key, value in found.get("probes", {}).items() if not key.startswith(f"{name}/")}
    record.update(directory, probes=probes | {f"{name}/{key}": value for key, value in values.items()})


def study_run(run: Run, name: str) -> Study:
    """Put a question to a run; its values are kept in the record if the run has ended.

    Raises ConfigError if the question is not one for the run's model and task.
    """
    found = importlib.import_module(f"timescales.analysis.{name}").study(run)
    if run.record["status"] != "interrupted":  # a run that goes on writes its record itself
        keep(run.directory, name, found.values)
    return replace(found, title=f"{found.title}\n{run.title}")


def compare_runs(runs: Sequence[Run], name: str) -> Study:
    """Put a question to several runs of one task. Raises ConfigError if it is not one for them."""
    if len({run.config["task"]["name"] for run in runs}) > 1:
        raise ConfigError("runs of several tasks do not go into one picture: give runs of one task")
    return importlib.import_module(f"timescales.analysis.{name}").compare(runs)
