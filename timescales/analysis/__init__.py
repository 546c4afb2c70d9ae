"""Analyse trained runs: one module for each analysis.

A module has any of
    measure(model, task) -> dict[str, float]   Numbers for the run's record. Tables name them "probe/MODULE/VALUE",
                                               such as "probe/reset_units/p_mean". An `Answer` also has files.
    study(run) -> Study                        Figure, rows and values of one run with weights. In a module without
                                               `measure` its values are the numbers for the record.
    compare(runs) -> Study                     The same for several runs of one task.
    WEIGHTS                                    The weights to analyse: "best" (the default), "last", or None, which also
                                               accepts runs without weights.
and functions that take the rows of several runs, with which tables compute a cell. A function raises ConfigError for a
model or task that it is not made for (`NotMadeFor`, if `needs` checks it).

The modules `run`, `groups`, `study`, `needs` and `observe` are shared by analyses. `weights` and `released` are about
other people's models. This file imports no torch.
"""

import contextlib
import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from timescales import extras
from timescales.errors import ConfigError, NotMadeFor

with extras.module():
    from timescales.analysis.run import Trained, load
    from timescales.analysis.study import Study
    from timescales.files import write_atomic
    from timescales.runs import lock
    from timescales.runs.record import Record, State

__all__ = [
    "ANALYSES",
    "NotMadeFor",
    "Trained",
    "compare_runs",
    "load",
    "measurable",
    "measure_run",
    "names",
    "study_run",
    "weights_for",
]

# The functions of each module. Listed here so that names are known without importing torch. A test compares the list
# with the modules.
ANALYSES = {
    "ablation": ("measure", "study", "compare"),
    "assigned": ("study",),
    "bins": ("measure",),
    "characteristic_times": ("study", "compare"),
    "cold_start": ("study", "compare"),
    "decay_curves": ("study", "compare"),
    "decay_factors": ("study", "compare"),
    "forecast": ("study",),
    "forgetting": ("measure",),
    "gate_gradients": ("study",),
    "gate_histograms": ("study", "compare"),
    "gate_maps": ("study",),
    "generalisation": ("measure", "study", "compare"),
    "learning_curves": ("compare",),
    "length_accuracy": ("study", "compare"),
    "longest_pair": ("study", "compare"),
    "mutual_information": ("study",),
    "one_over_e": ("measure", "study", "compare"),
    "reference_times": ("study",),
    "reset_units": ("measure", "study"),
    "routing": ("measure", "study"),
    "timescale_law": ("measure", "study", "compare"),
    "two_delays": ("t", "cohens_d"),
    "word_ablation": ("study", "compare"),
}


def names(*functions: str) -> list[str]:
    """Return the analyses that have any of the functions, in alphabetical order."""
    return [name for name, present in ANALYSES.items() if set(functions) & set(present)]


def measurable() -> list[str]:
    """Return the analyses that have numbers for a run's record, in alphabetical order."""
    return names("measure", "study")


def weights_for(name: str) -> str | None:
    """Return the weights that an analysis reads: "best", "last", or None if it needs none."""
    return getattr(_module(name), "WEIGHTS", "best")


def measure_run(directory: Path, name: str) -> dict[str, float]:
    """Measure a finished run and add the values to its record.

    Raises ConfigError as `load` does, for a run that has not ended, or if the analysis is not made for the run's model
    and task.
    """
    run = load(directory, weights_for(name))
    if not run.record.ended:  # else the values would stay after the weights change
        raise ConfigError(f"{directory} has not ended: let it finish, or continue it with resume=true, then try again")
    module = _module(name)
    with _locked(run):
        values = module.measure(run.model, run.task) if hasattr(module, "measure") else module.study(run).values
        for file, text in getattr(values, "files", {}).items():
            write_atomic(directory / file, text.encode())
        _store(directory, name, values)
    return values


def measure_missing(directory: Path, names: Sequence[str]) -> None:
    """Measure a finished run by those analyses whose values its record does not have yet.

    Analyses that are not made for its model or task are skipped. Raises ConfigError as `measure_run` does.
    """
    saved = Record.read(directory)
    if saved is None or saved.state is not State.FINISHED:
        return
    done = {key.partition("/")[0] for key in saved.probes}
    for name in (name for name in names if name not in done):
        print(f"{name} of {directory}", flush=True)
        with contextlib.suppress(NotMadeFor):
            measure_run(directory, name)


def study_run(run: Trained, name: str) -> Study:
    """Study a run. If the run has ended, add the values to its record; if that fails, a note says why.

    Raises ConfigError if the analysis is not made for the run's model and task.
    """
    study = _module(name).study(run)
    notes = list(study.notes)
    if run.record.ended:  # a run in training writes its record itself
        try:
            with _locked(run):
                _store(run.directory, name, study.values)
        except ConfigError as error:
            notes.append(f"not added to the record: {error}")
    return replace(study, title=f"{study.title}\n{run.title}", notes=notes)


def compare_runs(runs: Sequence[Trained], name: str, **options: Any) -> Study:
    """Compare several runs of one task. options: more arguments of the module's `compare`.

    Raises ConfigError if the analysis is not made for these runs.
    """
    if len({run.config["task"]["name"] for run in runs}) > 1:
        raise ConfigError("one figure cannot show several tasks: give runs of one task")
    return _module(name).compare(runs, **options)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"timescales.analysis.{name}")


@contextlib.contextmanager
def _locked(run: Trained) -> Iterator[None]:
    """Hold the lock of a run that has ended.

    Raises ConfigError if another process holds it, or has trained the run again since it was loaded.
    """
    with lock.hold(run.directory):
        now = Record.read(run.directory)
        same = ("status", "steps", "seconds", "commit")
        if now is None or any(getattr(now, key) != getattr(run.record, key) for key in same):
            raise ConfigError(f"{run.directory} was trained again meanwhile: run the analysis again")
        yield


def _store(directory: Path, name: str, values: Mapping[str, float]) -> None:
    """Store the values of an analysis in the record of a finished run. They replace its earlier values."""
    record = Record.read(directory)
    assert record is not None, "the run was loaded from there"
    others = {key: value for key, value in record.probes.items() if not key.startswith(f"{name}/")}
    record.change(probes=others | {f"{name}/{key}": value for key, value in values.items()})
    record.write(directory)
