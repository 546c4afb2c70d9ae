"""From a command line or a table to its runs, each once, and what there is of them. Imports no torch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from timescales.config import Settings, folders, identity, messages
from timescales.config.compose import OF_GROUPS, Composer, chooses, text_of
from timescales.config.run import Run, run_of
from timescales.config.values import spell
from timescales.errors import ConfigError
from timescales.papers import load
from timescales.papers.table import Table, expand, group, varying
from timescales.runs import found, store
from timescales.runs.found import Action, Found
from timescales.runs.store import Row

Request = Sequence[Override]  # what a run is asked for with: overrides of one value each
NO_SETTING = ("run_dir", "seeds")  # keys that set no runs apart


@dataclass
class Plan:
    """Runs that were asked for, each once, what there is of each, and what follows."""

    runs: list[Run] = field(default_factory=list)
    found: dict[Path, Found] = field(default_factory=dict)  # by the run's directory
    todo: list[Run] = field(default_factory=list)
    refused: dict[Path, tuple[Run, Exception]] = field(default_factory=dict)  # neither to be skipped nor continued
    requested: int = 0

    def add(self, run: Run, row: Row | None) -> None:
        """Add a run, if it is not there yet. row: what results/ has of it."""
        self.requested += 1
        if run.directory in self.found or run.directory in self.refused:
            return
        try:
            there = found.look(run.directory, row)
            if found.action(run, there) is not Action.SKIP:
                self.todo.append(run)
        except Exception as error:  # of what lies in its directory: the other runs are trained
            self.refused[run.directory] = run, error
            return
        self.found[run.directory] = there
        self.runs.append(run)


def plan(requests: Sequence[Request], composer: Composer, seeds_named: bool = False) -> Plan:
    """The runs of a sweep's requests, what there is of them, and which are to be trained.

    seeds_named: the requests name their seeds, as a table's do: `seeds` only says how many are trained together.
    Raises an error for a request of which no run can be made.
    """
    made, committed = Plan(), store.committed()
    for request in requests:
        files = composer.of_files(request)[1]
        for run in runs_of(composer(request), request, files, sweep=True, seeds_named=seeds_named):
            made.add(run, committed.get(run.id))
    return made


def single(request: Request, composer: Composer) -> list[Run]:
    """The run that a request asks for without a sweep, or one for each of its seeds."""
    return runs_of(composer(request), request, composer.of_files(request)[1])


def runs_of(
    cfg: DictConfig, request: Request, files: Mapping[str, str | None], sweep: bool = False, seeds_named: bool = False
) -> list[Run]:
    """The runs of a request's configuration: one, or one for each of `seeds` seeds from `seed` on.

    In a sweep with run_dir=DIR, and of several seeds, each is in DIR/<its name>. files: the file of each group.
    """
    axes = {o.key_or_group: o.value() for o in request}
    about: Any = {"command": tuple(map(text_of, request)), "note": folders.replaced_by_recipes(files, axes, cfg)}
    runs, seeds, place = [run_of(cfg)], 1 if seeds_named else cfg.seeds, cfg.run_dir
    for _ in range(1, seeds):
        cfg.seed = runs[-1].seed + 1
        runs.append(run_of(cfg))
    if place is not None and (sweep or seeds > 1):
        runs = [run.within(Path(place)) for run in runs]
    return [replace(run, axes=axes | ({"seed": run.seed} if cfg.seeds > 1 else {}), **about) for run in runs]


# --- a command line ---------------------------------------------------------------------------------------------------


def combinations(overrides: Request, composer: Composer) -> list[Request]:
    """All combinations of the values that overrides sweep over. Of a key that is given twice the last counts."""
    last = {o.get_key_element(): k for k, o in enumerate(overrides)}
    values = []
    for k, override in enumerate(overrides):
        if last[override.get_key_element()] == k:
            text, key = text_of(override), override.key_or_group
            if override.is_sweep_override() and not override.is_discrete_sweep():
                raise ConfigError(f"{text}: a range is for hydra/sweeper=optuna; give values here: {key}=1,2")
            values.append(composer.each_value(override))
            if not values[-1]:
                raise ConfigError(f"{text}: there is no such name, so there is nothing to run")
    return fitting(list(itertools.product(*values)), composer)


def fitting(requests: Sequence[Request], composer: Composer) -> list[Request]:
    """The requests without keys that a run's model, task or optimizer does not have, but another run's has.

    Prints such keys. A key that no run has stays, as an error for `plan`; requests that are the same then are one.
    """
    choices = [tuple(text_of(o) for o in request if chooses(o)) for request in requests]
    firsts = dict(zip(choices, requests, strict=True))
    depend = dict.fromkeys(o.key_or_group for r in requests for o in r if o.key_or_group.startswith(OF_GROUPS))
    absent: dict[str, list[tuple[str, ...]]] = {}  # by key, the choices of files without it
    for key in depend:
        without, group = [c for c, r in firsts.items() if not composer.has(r, key)], key.partition(".")[0]
        if without and len(without) < len(firsts):
            absent[key] = without
            names = dict.fromkeys(str(o.value()) for c in without for o in firsts[c] if o.key_or_group == group)
            print(f"note: {key} is left out for {', '.join(names) or f'the {group}'}: no such key there", flush=True)
    fitted: dict[tuple[str, ...], Request] = {}
    for request, choice in zip(requests, choices, strict=True):
        kept = [o for o in request if choice not in absent.get(o.key_or_group, ())]
        fitted.setdefault(tuple(map(text_of, kept)), kept)
    return list(fitted.values())


# --- a table ----------------------------------------------------------------------------------------------------------


def requests_of(table: Table, size: str, composer: Composer, narrow: Sequence[Override] = ()) -> list[Request]:
    """List the requests of a table's runs at one size, narrowed by overrides of its keys.

    size: "paper" or the name of a rung. Prints how many of the runs the table does not have.
    """
    every = expand(table, size)
    known = {key for axes in every for key in axes}
    # A key that is in no configuration yet is added to all runs: +model.head_size=16.
    wanted = {o.key_or_group if o.key_or_group in known else o.get_key_element(): o for o in narrow}
    values = {key: [o.value() for o in composer.each_value(override)] for key, override in wanted.items()}
    narrowed = expand(table, size, values)
    requests = fitting([load.request(table, axes) for axes in narrowed], composer)
    if any(axes not in every for axes in narrowed):
        of_table = {run.id for run in table_runs(table, size, composer)[0]}
        if beyond := sum(run_of(composer(request)).id not in of_table for request in requests):
            print(f"note: runs that fill no cell of {table.name}: {beyond} of {len(requests)}", flush=True)
    return requests


def table_runs(table: Table, size: str, composer: Composer) -> tuple[list[Run], list[str]]:
    """List a table's runs, and a line for each run that cannot be composed here, such as one of a task that is missing.

    A setting is composed once for all of its seeds, since to compose takes most of the time. Raises errors for which
    `messages.one_line` has no line.
    """
    runs: list[Run] = []
    wrong: list[str] = []
    composed: dict[str, Run] = {}
    for axes in expand(table, size):
        setting = group(axes)
        try:
            if setting in composed and "run_dir" not in axes:
                run = composed[setting].with_seed(axes["seed"])
            else:
                cfg = composer(load.request(table, axes))
                run = run_of(cfg)
                if "seed" in axes and not re.search(r"\$\{[^}]*seed", str(cfg)):
                    composed[setting] = run
            runs.append(replace(run, axes=axes))
        except Exception as error:
            if (line := messages.one_line(error)) is None:
                raise
            wrong.append(line)
    return runs, wrong


# --- whether runs are compared on equal terms -------------------------------------------------------------------------


def unequal(runs: Sequence[Run]) -> str:
    """A line that names the settings that were not swept and yet differ between runs of a task; "" if there is none.

    Such a setting comes from the files that the command line chooses: a recipe for one of the models, an optimizer's
    learning rate. Keys that not all models have are left out, as are those of `identity.OF_THE_MODEL`.
    """
    swept = varying([{key: str(value) for key, value in run.axes.items() if folders.is_group(key)} for run in runs])
    given = {key for run in runs for key in run.axes} | {f"{group}.name" for group in swept}

    def name(run: Run, of_task: bool) -> str:
        return " ".join(str(run.axes[group]) for group in swept if (group in ("task", "paper")) is of_task)

    settings: dict[str, dict[str, Settings]] = {}  # by task, and by the choice of other files
    for run in runs:
        of_task, chosen = settings.setdefault(name(run, True), {}), name(run, False)
        of_task[chosen] = of_task.get(chosen) or identity.comparable(run.config)
    differ: dict[str, list[str]] = {}
    for task, of_task in settings.items():
        first = next(iter(of_task.values()))
        for key in (key for key in first if key not in given and all(key in one for one in of_task.values())):
            if any(one[key] != first[key] for one in of_task.values()):
                told = ", ".join(f"{choice} {spell(one[key])}" for choice, one in of_task.items())
                differ.setdefault(key, []).append(f"{task}: {told}" if task else told)
    told = ", ".join(f"{key} ({'; '.join(values)})" for key, values in differ.items())
    return f"note: settings that were not swept differ: {told}" if told else ""
